"""The blocks of one model, run one by one: bytes and seconds of each way to keep them.

Two ways to go wrong that were found out: selective checkpoints give wrong gradients for recurrent
layers on the CPU, in silence, so each option's gradients are compared with the plain ones before it
is offered; and an output that the bench itself held would not die when its block lets go of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import torch

from labkit.restore.generators import rng_state, set_rng_state
from sublinear.apply import MENU, checkpointed, keep_only
from sublinear.blocks import Blocks, State
from sublinear.blocks.generators import without_generators
from sublinear.chain import NOBODY, Block, Chain, Crossing, Option, Rerun
from sublinear.equal import same
from sublinear.probe import Clock, MemoryProbe
from sublinear.profiling.around import (
    Made,
    Surroundings,
    fill_gradients,
    gradients_made,
    surroundings,
)
from sublinear.profiling.estimate import FusedAttention
from sublinear.profiling.operators import Operators
from sublinear.profiling.steady import fastest
from sublinear.profiling.tensors import (
    Arrival,
    Watched,
    before_block,
    leaves,
    pull_on,
    size_of,
    storages,
    tensors,
)
from sublinear.profiling.training import Training
from sublinear.profiling.twins import likeness
from sublinear.repeatable import check_repeatable, drawing_alike, frozen_statistics

# A way to run one block.
Way = Callable[..., State]


@dataclass(frozen=True)
class OptionRun:
    """An option, what left the block, and gradients: of parameters by identity, inputs by place."""

    option: Option
    leaving: State
    gradients: dict[int, torch.Tensor]
    arrivals: tuple[Arrival | None, ...]


@dataclass(frozen=True)
class Saves:
    """By number, the tensors that enter a block, and that leave it, whose storage it saves.

    ``count``: how often it saves any.
    """

    entering: frozenset[int]
    leaving: frozenset[int]
    count: int = 0


@dataclass
class _Rerun:
    """Peak bytes of a checkpoint's backward: while its block runs again, and after that.

    ``backward`` is without the gradients of parameters.
    """

    forward: int = 0
    backward: int = 0

    def watching(self, run: Way, probe: MemoryProbe) -> Way:
        """``run``, whose second time is ``forward``."""
        times = 0

        def watched(*state: object) -> State:
            nonlocal times
            times += 1
            try:
                return run(*state)
            finally:
                # Also where torch has stopped it.
                if times > 1:
                    self.forward = probe.peak
                    probe.restart()

        return watched


@dataclass(frozen=True)
class BlockRun:
    """A block, what left it, and the gradients that it makes."""

    block: Block
    leaving: State
    made: Made
    arrivals: tuple[Arrival | None, ...]
    saves: Saves
    numbers: tuple[int, ...] = ()


class Bench:
    """Runs the blocks of one model on ``device``, each ``repeats`` times for its seconds.

    ``options``: how many entries of the menu are measured. ``accumulate``: gradients of parameters
    are there before. ``tensor_seconds``: of each tensor that is saved in a checkpoint.
    """

    def __init__(
        self,
        blocks: Blocks,
        device: torch.device,
        clock: Clock,
        repeats: int,
        options: int,
        accumulate: bool = False,
        tensor_seconds: float = 0.0,
    ) -> None:
        self.blocks, self.model = blocks, blocks.model
        self.device, self.clock = device, clock
        self.repeats, self.options, self.accumulate = repeats, options, accumulate
        self.tensor_seconds = tensor_seconds
        self._twins: dict[Hashable, tuple[BlockRun, list[tuple[int, int]]]] = {}
        # Views of weights cross as what blocks make does, and take no memory.
        tensors_of_model = [*self.model.parameters(), *self.model.buffers()]
        self._lasting = {storage for storage, _ in storages(tensors_of_model)}
        # Each way to run a block draws the same numbers.
        self.begin = rng_state()

    def chain(self, task: Training, on_block: Callable[[], object] | None = None) -> Chain:
        """All blocks, and what runs around them; without what `profile` knows besides."""
        state = self._entering(task)
        numbers = _Numbers(self._lasting)
        entered = numbers.crossing(state)
        rows: list[Block] = []
        runs: list[BlockRun] = []
        for i in range(len(self.blocks)):
            last = state
            run = self.block(i, state)
            state = run.leaving
            crossing = numbers.crossing(state)
            size = sum(size for _, size in crossing)
            rows.append(replace(run.block, crossing=crossing, output_bytes=size))
            runs.append(replace(run, leaving=(), numbers=numbers.of(state)))
            if on_block is not None:
                on_block()
        around = surroundings(self.blocks, self.device, task, last, self.accumulate)
        rows = _with_waiting(_with_gradients(rows, runs, around), runs, entered)
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
                return blocks.run_all(*state)

        with blocks.standing_in(work):
            self.model(*task.args, **task.kwargs)
        if not fed:
            raise ValueError("the model did not run its planned part again, on the same inputs")
        return leaves(fed[-1])

    def block(self, i: int, state: State) -> BlockRun:
        """Run one block in all ways, unless one that does the same was run before."""
        key = likeness(self.blocks, i, state)
        if (twin := self._twins.get(key)) is not None:
            found = self._as_twin(i, state, *twin)
            if found is not None:
                return found
        measured = self._measured(i, state)
        places = {id(tensor): n for n, tensor in enumerate(self.blocks.tensors(i).values())}
        made = [(places[owner], size) for owner, size in measured.made.items() if owner in places]
        if len(made) == len(measured.made):
            self._twins[key] = replace(measured, leaving=()), made
        return measured

    def _as_twin(
        self, i: int, state: State, twin: BlockRun, made: list[tuple[int, int]]
    ) -> BlockRun | None:
        """The figures of a block that does the same work; None if this one saves another amount."""
        set_rng_state(self.begin)
        torch.clear_autocast_cache()
        inputs = leaves(state)
        spare = frozen_statistics(tuple(self.blocks.modules(i)))
        with spare, MemoryProbe(self.device) as probe:
            after = self._run(i, *inputs)
            saved = max(0, probe.added)
        if saved != twin.block.options[0].saved_bytes:
            return None
        owners = [id(tensor) for tensor in self.blocks.tensors(i).values()]
        block = replace(twin.block, name=self.blocks.names[i], shapes=self.blocks.shapes(i))
        own = {owners[place]: size for place, size in made}
        return BlockRun(block, leaves(after), own, twin.arrivals, twin.saves)

    def _measured(self, i: int, state: State) -> BlockRun:
        modules = tuple(self.blocks.modules(i))
        run = partial(self._run, i)
        name = self.blocks.names[i]

        def watched() -> State:
            with without_generators(name, self.model, modules):
                return run(*state)

        with torch.no_grad():
            check_repeatable(name, watched, self.model, modules, state)
        with frozen_statistics(modules):
            peak, seconds = self._bare(run, state)
            full = self.option(MENU[0][0], run, state)
            saves, operators = self._saves(run, state)
            options = self._options(i, run, state, full, operators)
            options, seconds = _ordered(options, seconds)
            rerun = self._rerun(run, state)
        crossing = sum(size for _, size in storages(full.leaving))
        pulled = _pulled(full.leaving)
        made = {}
        for parameter in self.model.parameters():
            if id(parameter) in full.gradients and not self.accumulate:
                made[id(parameter)] = size_of(full.gradients[id(parameter)])
        shapes = self.blocks.shapes(i)
        block = Block(
            name,
            crossing,
            options,
            0,
            peak,
            seconds + self.tensor_seconds * saves.count,
            rerun=Rerun(max(0, rerun.forward - pulled), rerun.backward - pulled),
            shapes=shapes,
        )
        return BlockRun(block, full.leaving, made, full.arrivals, saves)

    def _run(self, i: int, *state: object) -> State:
        """One block, as it would run on the device that is meant."""
        if self.device.type != "meta":
            return self.blocks.run(i, *state)
        with FusedAttention():
            return self.blocks.run(i, *state)

    def _options(
        self, i: int, run: Way, state: State, full: OptionRun, operators: set[object]
    ) -> tuple[Option, ...]:
        """All options. Two that keep the same of the block's ``operators`` are measured once."""
        found = [full.option]
        known: dict[frozenset[object], Option] = {}
        for number in range(1, self.options):
            label, kept = MENU[number]
            here = kept & operators
            if i + 1 == len(self.blocks):
                # Its own run again would come right after it, beside what the loss needs.
                known[here] = full.option
            elif here not in known:
                known[here] = self._selective(i, number, run, state, full)
            found.append(replace(known[here], name=label))
        return tuple(found)

    def _selective(self, i: int, number: int, run: Way, state: State, full: OptionRun) -> Option:
        """An option of the menu; saving all under its name, where it does not work."""
        label = MENU[number][0]
        contexts = partial(keep_only, number)

        def way(*state: object) -> State:
            return checkpointed(drawing_alike(run), state, contexts)

        instead = replace(full.option, name=label)
        if self.blocks.overwrites(i):
            # `apply` refuses it.
            return instead
        try:
            found = self.option(label, way, state)
        except RuntimeError as error:
            if "mutated" not in str(error):
                raise
            return instead
        # What an option keeps may be overwritten in place, which torch does not always notice.
        if found.gradients.keys() != full.gradients.keys():
            return instead
        for key, gradient in full.gradients.items():
            if not same(gradient, found.gradients[key], full.gradients.values()):
                return instead
        return found.option

    def _rerun(self, run: Way, state: State) -> _Rerun:
        """The backward of a checkpoint of the block alone, its run again included."""
        torch.clear_autocast_cache()
        set_rng_state(self.begin)
        # A gradient that is a part of a larger one would be copied where it arrives at a leaf.
        watched = Watched(state)
        if self.accumulate:
            fill_gradients(self.model)
        rerun = _Rerun()
        with MemoryProbe(self.device) as probe:
            way = drawing_alike(rerun.watching(run, probe))
            after = checkpointed(way, watched.state)
            made = [tensor.untyped_storage()._cdata for tensor in tensors(after)]
            pull = watched.pull_on(after)
            del after
            probe.restart()
            if pull is not None:
                pull.backward()
            rerun.backward = probe.peak + watched.handed_on(made)
        if not self.accumulate:
            rerun.backward -= sum(gradients_made(self.model).values())
        self.model.zero_grad(set_to_none=True)
        return rerun

    def _saves(self, run: Way, state: State) -> tuple[Saves, set[object]]:
        """What of that which crosses autograd saves for the block's backward; its operators."""
        count = 0
        held: dict[int, torch.UntypedStorage] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal count
            count += 1
            if tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                held[storage._cdata] = storage
            # Not itself: a node that holds its own output would never die without a backward.
            return tensor.detach()

        set_rng_state(self.begin)
        inputs = leaves(state)
        hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor)
        with Operators() as operators, hooks:
            after = run(*inputs)
        saves = Saves(_among(inputs, held), _among(after, held), count)
        return saves, operators.seen

    def _bare(self, run: Way, state: State) -> tuple[int, float]:
        """Peak bytes and seconds of a run in a checkpoint, which saves nothing."""
        seconds = 0.0

        def timed(*inner: object) -> State:
            # What the checkpoint itself takes is `Chain.checkpoint_seconds`, once for many blocks.
            nonlocal seconds
            begin = self.clock.now()
            after = run(*inner)
            seconds = self.clock.now() - begin
            return after

        def take() -> tuple[float]:
            checkpointed(timed, leaves(state))
            return (seconds,)

        (least,) = fastest(take, self.repeats)
        torch.clear_autocast_cache()
        inputs = leaves(state)
        with MemoryProbe(self.device) as probe:
            checkpointed(run, inputs)
            return max(0, probe.peak), least

    def option(self, name: str, way: Way, state: State) -> OptionRun:
        """Bytes and seconds of one way to keep a block."""
        ahead, back = self._seconds(way, state)
        torch.clear_autocast_cache()
        inputs = leaves(state)
        with MemoryProbe(self.device) as probe:
            after = way(*inputs)
            saved, forward_peak = probe.added, probe.peak
            leaving = leaves(after)
        torch.clear_autocast_cache()
        del after
        set_rng_state(self.begin)
        watched = Watched(state)
        if self.accumulate:
            fill_gradients(self.model)
        with MemoryProbe(self.device) as probe:
            pull = watched.pull_on(way(*watched.state))
            probe.restart()
            if pull is not None:
                pull.backward()
            peak = probe.peak
        gradients: dict[int, torch.Tensor] = {}
        for parameter in self.model.parameters():
            if parameter.grad is not None:
                gradients[id(parameter)] = parameter.grad
        made = 0 if self.accumulate else sum(map(size_of, gradients.values()))
        gradients |= watched.arrived
        self.model.zero_grad(set_to_none=True)
        backward_peak = peak - saved - _pulled(leaving) - made
        saved = max(saved, 0)
        forward_peak = max(saved, forward_peak)
        option = Option(name, saved, ahead, back, forward_peak, backward_peak)
        return OptionRun(option, leaving, gradients, watched.arrivals())

    def _seconds(self, way: Way, state: State) -> tuple[float, float]:
        """The fastest forward and the fastest backward."""

        def take() -> tuple[float, float]:
            inputs = leaves(state)
            begin = self.clock.now()
            after = way(*inputs)
            ahead = self.clock.now() - begin
            pull = pull_on(after)
            begin = self.clock.now()
            if pull is not None:
                pull.backward()
            back = self.clock.now() - begin
            self.model.zero_grad(set_to_none=True)
            return ahead, back

        ahead, back = fastest(take, self.repeats)
        return ahead, back


def _pulled(leaving: State) -> int:
    """Bytes of the gradients that the bench makes of what leaves a block."""
    return sum(tensor.nbytes for tensor in tensors(leaving) if tensor.requires_grad)


def _ordered(options: tuple[Option, ...], bare: float) -> tuple[tuple[Option, ...], float]:
    """The options and the seconds of a forward that saves nothing, none quicker than it can be.

    Saving all does what any option does, without what that computes again; saving nothing does no
    more. Where the clock says otherwise it was disturbed in the run that took longer. A plan with
    checkpoints would be predicted faster than a plain step.
    """
    ahead = min(option.forward for option in options)
    back = min(option.backward for option in options)
    plain = replace(options[0], forward=ahead, backward=back)
    return (plain, *options[1:]), min(bare, ahead)


def _with_gradients(rows: list[Block], runs: list[BlockRun], around: Surroundings) -> list[Block]:
    """The blocks with what gradients need: of their parameters, and of what crosses behind them."""
    found = list(rows)
    # A shared parameter's gradient is made by the last block that uses it. In the others a second
    # one is alive until it is added.
    seen = set(around.made)
    behind = around.gradients
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


def _with_waiting(rows: list[Block], runs: list[BlockRun], entered: Crossing) -> list[Block]:
    """The blocks with what the next one is the last to read, and does not save."""
    # The last block that saves each storage.
    saver = dict.fromkeys(_at(runs[0].numbers, runs[0].saves.leaving), 0)
    for i, (run, following) in enumerate(pairwise(runs), 1):
        saver |= dict.fromkeys(_at(run.numbers, following.saves.entering), i)
        saver |= dict.fromkeys(_at(following.numbers, following.saves.leaving), i)
    found = list(rows)
    before = {number for number, _ in entered}
    inputs = set(before)
    for i in range(len(rows) - 1):
        here, behind = dict(rows[i].crossing), dict(rows[i + 1].crossing)
        waits, released = [], []
        for number in here.keys() - behind.keys() - inputs:
            if number not in saver and number not in before:
                waits.append(number)
            elif saver.get(number, NOBODY) <= i:
                released.append((number, saver.get(number, NOBODY)))
        found[i] = replace(found[i], waits=tuple(sorted(waits)), released=tuple(sorted(released)))
        before = set(here)
    return found


def _at(numbers: tuple[int, ...], places: frozenset[int]) -> set[int]:
    return {numbers[place] for place in places}


class _Numbers:
    """Numbers for storages: the same as long as a storage crosses one cut after the other.

    Those in ``lasting`` have no bytes: they are there all the time.
    """

    def __init__(self, lasting: Collection[int]) -> None:
        self._lasting = lasting
        self._count = 0
        self._known: dict[tuple[int, int], int] = {}

    def crossing(self, state: State) -> Crossing:
        """Numbers and bytes of what crosses the next cut."""
        here: dict[tuple[int, int], int] = {}
        for storage in storages(state):
            here[storage] = self._known.get(storage, self._count)
            self._count += 1
        self._known = here
        return tuple(
            (number, 0 if storage in self._lasting else size)
            for (storage, size), number in here.items()
        )

    def of(self, state: State) -> tuple[int, ...]:
        """The number of each tensor's storage, of those that were last counted."""
        found = []
        for tensor in tensors(state):
            storage = tensor.untyped_storage()
            found.append(self._known[storage._cdata, storage.nbytes()])
        return tuple(found)
