"""The blocks of one model, run one by one: bytes and seconds of each way to keep them.

Two ways to go wrong that were found out: selective checkpoints give wrong gradients for recurrent
layers on the CPU, in silence, so each option's gradients are compared with the plain ones before it
is offered; and an output that the bench itself held would not die when its block lets go of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.utils._pytree import tree_map_only

from labkit.restore.generators import rng_state, set_rng_state
from sublinear.apply import MENU, checkpointed, keeping_layers
from sublinear.blocks import Blocks, State, refuse_generators
from sublinear.chain import NOBODY, Block, Chain, Crossing, Option, Rerun
from sublinear.equal import same
from sublinear.probe import Clock, MemoryProbe, fastest, probing
from sublinear.profiling.around import Made, Surroundings
from sublinear.profiling.tensors import (
    Arrival,
    Place,
    Watched,
    before_block,
    leaves,
    pull_on,
    size_of,
    storages,
    tensors,
)
from sublinear.profiling.training import Training, drop_gradients
from sublinear.repeatable import check_repeatable, drawing_alike, frozen_statistics

# A way to run one block.
Way = Callable[..., State]

# By number, the tensors that enter a block, and that leave it, whose storage it saves.
Saves = tuple[frozenset[int], frozenset[int]]


@dataclass(frozen=True)
class Try:
    """Bytes of one way to run a block, and gradients: of parameters by identity, inputs by place.

    ``made``: bytes of each of parameters, ``pulled``: of those of what leaves the block, which the
    bench made; ``handed_on``: see `Watched.handed_on`.
    """

    saved: int
    forward_peak: int
    backward_peak: int
    pulled: int
    made: Made
    handed_on: int
    gradients: dict[int, torch.Tensor]
    arrivals: tuple[Arrival, ...]

    def option(self, name: str, ahead: float, back: float) -> Option:
        """The way as an option that takes so many seconds."""
        saved = max(0, self.saved)
        peak = self.backward_peak - self.saved - self.pulled - sum(self.made.values())
        return Option(name, saved, ahead, back, max(saved, self.forward_peak), peak)


@dataclass(frozen=True)
class BlockRun:
    """A block, what left it, and the gradients that it makes."""

    block: Block
    leaving: State
    made: Made
    arrivals: tuple[Arrival, ...]
    saves: Saves
    numbers: tuple[int, ...] = ()


class Bench:
    """Runs the blocks of one model on ``device``, each ``repeats`` times for its seconds.

    ``options``: whether selective ways are measured too.
    """

    def __init__(
        self,
        blocks: Blocks,
        device: torch.device,
        clock: Clock,
        repeats: int,
        options: bool,
    ) -> None:
        self.blocks, self.model = blocks, blocks.model
        self.device, self.clock = device, clock
        self.repeats, self.options = repeats, options
        # Of the try under way.
        self.probe: MemoryProbe
        # Found once: a large model takes long to say them.
        self.parameters = list(self.model.parameters())
        # Views of weights cross as what blocks make does, and take no memory.
        tensors_of_model = [*self.parameters, *self.model.buffers()]
        self._lasting = {storage for storage, _ in storages(tensors_of_model)}
        # The numbers of the storages that cross the last cut.
        self._known: dict[tuple[int, int], int] = {}
        self._count = 0
        # Each way to run a block draws the same numbers.
        self.begin = rng_state()

    def chain(self, task: Training, on_block: Callable[[], object] | None = None) -> Chain:
        """All blocks, and what runs around them; without what `profile` knows besides."""
        refuse_generators(self.blocks)
        state = self._entering(task)
        entered, _ = self._crossing(state)
        rows: list[Block] = []
        runs: list[BlockRun] = []
        for i in range(len(self.blocks)):
            last = state
            run = self.block(i, state)
            state = run.leaving
            crossing, places = self._crossing(state)
            size = sum(size for _, size in crossing)
            rows.append(replace(run.block, crossing=crossing, output_bytes=size))
            runs.append(replace(run, leaving=(), numbers=places))
            if on_block is not None:
                on_block()
        around = Surroundings(self.blocks, self.device, task, last)
        rows = _with_gradients(rows, runs, set(around.made), around.gradients)
        rows = _with_released(rows, runs, entered)
        inputs: Crossing = entered
        if self.blocks.partial:
            inputs = tuple(storages((task.args, task.kwargs)))
        size = sum(size for _, size in inputs) + around.saved_bytes
        chain = Chain(tuple(rows), size, 0, 1, "", "measured", input_crossing=entered)
        return replace(chain, before=around.before, after=around.after)

    def _entering(self, task: Training) -> State:
        """What crosses into the first block."""
        blocks = self.blocks
        if not blocks.partial:
            return blocks.enter(task.args, task.kwargs)
        fed: list[State] = []

        def work(*state: object) -> State:
            fed.append(state)
            with torch.no_grad():
                leaving = blocks.run_all(*state)
            # As in a step: the compiler captures the code behind for what needs a gradient.
            return tree_map_only(torch.Tensor, _with_gradient, leaving)

        with blocks.standing_in(work):
            self.model(*task.args, **task.kwargs)
        if not fed:
            raise ValueError("the model did not run its planned part again, on the same inputs")
        return leaves(fed[-1])

    def _crossing(self, state: State) -> tuple[Crossing, tuple[int, ...]]:
        """Numbers and bytes of what crosses the next cut; the number of each tensor's storage.

        A storage keeps its number as long as it crosses one cut after the other. Those of weights
        have no bytes.
        """
        here: dict[tuple[int, int], int] = {}
        for storage in storages(state):
            here[storage] = self._known.get(storage, self._count)
            self._count += 1
        self._known = here
        crossing = []
        for (identity, size), number in here.items():
            crossing.append((number, 0 if identity in self._lasting else size))
        own = (tensor.untyped_storage() for tensor in tensors(state))
        return tuple(crossing), tuple(here[each._cdata, each.nbytes()] for each in own)

    def block(self, i: int, state: State) -> BlockRun:
        """Run one block in all ways, as in `MENU`; what crosses behind it is not yet counted."""
        modules = tuple(self.blocks.modules(i))
        run = partial(self.blocks.run, i)
        name = self.blocks.names[i]
        set_rng_state(self.begin)
        check_repeatable(name, run, self.model, modules, state)
        with frozen_statistics(modules):
            # What runs with nobody watching is what leaves the block.
            ahead, back, leaving = self._seconds(run, state)
            listener = _Listener()
            full = self.tried(run, state, listener)
            options = [full.option(MENU[0], ahead, back)]
            if self.options:
                options.append(self._selective(i, run, state, full, *options))
            peak, rerun = self._rerun(run, state)
        ways = _ordered(options)
        block = Block(name, 0, ways, 0, peak, ways[0].forward, rerun=rerun)
        return BlockRun(block, leaving, full.made, full.arrivals, listener.saves)

    def _selective(self, i: int, run: Way, state: State, full: Try, plain: Option) -> Option:
        """The selective way; saving all, where it does not work."""

        def way(*state: object) -> State:
            return checkpointed(drawing_alike(run), state, keeping_layers)

        plain = replace(plain, name=MENU[1])
        last = i + 1 == len(self.blocks)
        # The last one would run again right after it, beside what the loss needs.
        if last or self.blocks.overwrites(i):
            return plain
        try:
            found = self.tried(way, state)
        except RuntimeError as error:
            if "mutated" not in str(error):
                raise
            return plain
        # What an option keeps may be overwritten in place, which torch does not always notice.
        if found.gradients.keys() != full.gradients.keys():
            return plain
        for key, gradient in full.gradients.items():
            if not same(gradient, found.gradients[key], full.gradients.values()):
                return plain
        if found.saved >= plain.saved_bytes:
            # Nobody chooses it: it saves nothing, and computes all again.
            return found.option(MENU[1], plain.forward, plain.backward + plain.forward)
        ahead, back, _ = self._seconds(way, state)
        return found.option(MENU[1], ahead, back)

    def _rerun(self, run: Way, state: State) -> tuple[int, Rerun]:
        """Peaks of a checkpoint of the block alone: of its first run, and of its backward."""

        times = again = 0

        def watched(*state: object) -> State:
            nonlocal times, again
            times += 1
            try:
                return run(*state)
            finally:
                # Also where torch has stopped it.
                if times > 1:
                    again = self.probe.peak
                    self.probe.restart()

        def way(*state: object) -> State:
            return checkpointed(drawing_alike(watched), state)

        found = self.tried(way, state)
        made = sum(found.made.values())
        back = found.backward_peak + found.handed_on - made - found.pulled
        return max(0, found.forward_peak), Rerun(max(0, again - found.pulled), back)

    def tried(self, way: Way, state: State, listener: _Listener | None = None) -> Try:
        """Bytes of one way to run a block; the ``listener`` notes what autograd saves in it."""
        torch.clear_autocast_cache()
        set_rng_state(self.begin)
        watched = Watched(state)
        with probing(self.device) as self.probe:
            probe = self.probe
            with listener or nullcontext():
                after = way(*watched.state)
            saved, forward_peak = probe.added, probe.peak
            if listener is not None:
                listener.note(watched.state, after)
            leaving = [tensor.untyped_storage()._cdata for tensor in tensors(after)]
            pulled = sum(tensor.nbytes for tensor in tensors(after) if tensor.requires_grad)
            pull = pull_on(after, watched.pulled)
            del after
            probe.restart()
            if pull is not None:
                pull.backward()
            peak = probe.peak
        gradients = {}
        for parameter in self.parameters:
            if parameter.grad is not None:
                gradients[id(parameter)] = parameter.grad
        made = {key: size_of(gradient) for key, gradient in gradients.items()}
        drop_gradients(self.parameters)
        arrivals = watched.arrivals()
        handed_on = watched.handed_on(arrivals, leaving)
        gradients |= watched.arrived
        return Try(saved, forward_peak, peak, pulled, made, handed_on, gradients, arrivals)

    def _seconds(self, way: Way, state: State) -> tuple[float, float, State]:
        """The fastest forward and the fastest backward; what left the block."""
        leaving: State = ()

        def take() -> tuple[float, float]:
            nonlocal leaving
            inputs = leaves(state)
            begin = self.clock.now()
            after = way(*inputs)
            ahead = self.clock.now() - begin
            leaving = leaves(after)
            pull = pull_on(after)
            begin = self.clock.now()
            if pull is not None:
                pull.backward()
            back = self.clock.now() - begin
            drop_gradients(self.parameters)
            return ahead, back

        ahead, back = fastest(take, self.repeats)
        return ahead, back, leaving


class _Listener(torch.autograd.graph.saved_tensors_hooks):
    """``with`` a forward inside: what autograd saves in it; then ``saves``, of `note`."""

    def __init__(self) -> None:
        super().__init__(self._pack, lambda tensor: tensor)
        self.saves: Saves = frozenset(), frozenset()
        # Weak: what is held would not die in the backward pass.
        self._held: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def note(self, entering: State, leaving: State) -> None:
        """What of that which crosses autograd has saved, while all of it is alive."""
        held = {key for key, storage in self._held.items() if storage() is not None}
        self.saves = _among(entering, held), _among(leaving, held)

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            self._held[storage._cdata] = weakref.ref(storage)
        # Not itself: a node that holds its own output would never die without a backward.
        return tensor.detach()


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    # No leaf, which must not be changed in place.
    return tensor.detach().requires_grad_().clone()


def _ordered(options: list[Option]) -> tuple[Option, ...]:
    """The options, none quicker than saving all.

    Which does what any option does, without what that computes again. Where the clock says
    otherwise it was disturbed in the run that took longer. A plan with checkpoints would be
    predicted faster than a plain step.
    """
    ahead = min(option.forward for option in options)
    back = min(option.backward for option in options)
    return replace(options[0], forward=ahead, backward=back), *options[1:]


def _with_gradients(
    rows: list[Block], runs: list[BlockRun], seen: set[int], behind: list[Place | None]
) -> list[Block]:
    """The blocks with what gradients need: of their parameters, and of what crosses behind them.

    ``seen``: parameters whose gradients are made behind the blocks; ``behind``: where the gradients
    of the last block's output lie. A shared parameter's gradient is made by the last block that
    uses it. In the others a second one is alive until it is added.
    """
    found = list(rows)
    for i in reversed(range(len(rows))):
        made = runs[i].made
        fresh = made.keys() - seen
        seen |= fresh
        own = sum(made[key] for key in fresh)
        again = sum(made.values()) - own
        options = []
        for option in rows[i].options:
            options.append(replace(option, backward_peak=option.backward_peak + again))
        cotangent = sum({place.storage: place.size for place in behind if place}.values())
        rerun = rows[i].rerun
        if rerun is not None:
            rerun = rerun._replace(backward=rerun.backward + again)
        found[i] = replace(
            rows[i],
            gradient_bytes=own,
            options=tuple(options),
            output_gradient_bytes=cotangent,
            rerun=rerun,
        )
        behind = before_block(runs[i].arrivals, behind, i)
    return found


def _among(state: State, known: Collection[int]) -> frozenset[int]:
    """The tensors whose storages are among those known."""
    found = set()
    for number, tensor in enumerate(tensors(state)):
        if tensor.layout is not torch.strided or tensor.untyped_storage()._cdata in known:
            found.add(number)
    return frozenset(found)


def _with_released(rows: list[Block], runs: list[BlockRun], entered: Crossing) -> list[Block]:
    """The blocks with what is released behind them."""
    # The last block that saves each storage.
    saver: dict[int, int] = {}
    entering: tuple[int, ...] = ()
    for i, run in enumerate(runs):
        # What enters the chain is there all the time.
        held = [entering[place] for place in run.saves[0] if i]
        held += [run.numbers[place] for place in run.saves[1]]
        saver |= dict.fromkeys(held, i)
        entering = run.numbers
    found = list(rows)
    for i in range(len(rows) - 1):
        here, behind = dict(rows[i].crossing), dict(rows[i + 1].crossing)
        released = []
        for number in sorted(here.keys() - behind.keys() - dict(entered).keys()):
            if (last := saver.get(number, NOBODY)) <= i:
                released.append((number, last))
        found[i] = replace(found[i], released=tuple(released))
    return found
