"""Measure a model's chain: bytes and seconds of each block, for each way to run it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import checkpoint

from labkit.device import survive
from labkit.preserve import rng_state, set_rng_state
from sublinear.apply import MENU, keep_only
from sublinear.blocks import Blocks, State, split
from sublinear.chain import Around, Block, Chain, Option
from sublinear.probe import Clock, FusedAttention, MemoryProbe, Roofline
from sublinear.repeatable import check_repeatable, frozen_statistics, same, undisturbed

Loss = Callable[[Any], torch.Tensor]


@dataclass(frozen=True)
class Training:
    """What a step consists of besides the model: inputs, a loss of the model's output, and an optimizer, if any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    loss: Loss
    optimizer: torch.optim.Optimizer | None = None


def training(
    inputs: Any,
    kwargs: dict[str, Any] | None = None,
    loss: Loss | None = None,
    optimizer: Any = None,
) -> Training:
    """The parts of a step as readers give them: ``inputs`` a tensor or tuple; no loss means the mean of all outputs."""
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer={optimizer!r} is not a torch.optim.Optimizer, nor None")
    if loss is not None and not callable(loss):
        raise TypeError(
            f"loss={loss!r} cannot be called: pass a function from the model's output to a scalar tensor"
        )
    args = inputs if isinstance(inputs, tuple) else (inputs,)
    if not any(map(torch.is_tensor, tree_leaves((args, kwargs)))):
        raise TypeError(
            f"inputs={inputs!r}: a tensor, or a tuple of the model's arguments with a tensor, is accepted"
        )
    return Training(args, dict(kwargs or {}), loss or mean_of_outputs, optimizer)


def mean_of_outputs(output: Any) -> torch.Tensor:
    """A scalar of whatever a model returns: the sum of the means of its floating-point tensors."""
    leaves = [leaf for leaf in tree_leaves(output) if torch.is_tensor(leaf) and leaf.requires_grad]
    if not leaves:
        raise ValueError(
            "the model returns no tensor that needs a gradient: there is no backward pass to plan for"
        )
    return torch.stack([leaf.float().mean() for leaf in leaves]).sum()


def profile(
    model: nn.Module,
    inputs: Any,
    kwargs: dict[str, Any] | None = None,
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    device: Roofline | None = None,
    blocks: Blocks | None = None,
    options: bool = True,
    repeats: int = 3,
    batch_size: int | None = None,
) -> Chain:
    """The chain of ``model`` on ``inputs`` (a tensor or a tuple), with everything put back as it was.

    Each block is run alone, ``repeats`` times, and its fastest times are scaled so that they sum to those of the
    fastest whole step, if one fits into memory: blocks alone find colder caches. With a `Roofline` as ``device``
    nothing is run: shapes come from meta tensors and seconds from the roofline. ``options``: measure selective ways to
    keep a block too.
    ``batch_size``: of the inputs, if it is not the first tensor's first dimension. Raises ValueError, by name, for
    blocks that do not compute the same twice.
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise ValueError(f"repeats={repeats!r}: a whole number from 1 is accepted")
    if batch_size is not None and (
        not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1
    ):
        raise ValueError(f"batch_size={batch_size!r}: a whole number from 1 is accepted, or None")
    if device is not None and not isinstance(device, Roofline):
        raise TypeError(
            f"device={device!r}: a Roofline is accepted, or None to measure where the inputs are"
        )
    task = training(inputs, kwargs, loss, optimizer)
    for label, parameter in model.named_parameters():
        if getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise ValueError(
                f"parameter {label} has a hook that runs when its gradient is there, such as an optimizer's step, and "
                "would run while blocks are tried: remove it, and register it again with the planned model"
            )
    if not model.training:
        raise ValueError(
            "the model is in evaluation mode, which saves nothing for backward: call model.train() first"
        )
    if device is not None:
        state_bytes = _bytes(_optimizer_tensors(optimizer))
        model, task = _on_meta(model, task)
        blocks, repeats = None, 1
    else:
        state_bytes = 0
    blocks = split(model, task.args, task.kwargs) if blocks is None else blocks
    first = next(leaf for leaf in tree_leaves((task.args, task.kwargs)) if torch.is_tensor(leaf))
    where = next(
        (parameter.device for parameter in model.parameters()), first.device
    )  # a model may move its inputs
    if where.type == "cuda" and where.index != torch.cuda.current_device():
        raise ValueError(
            f"the model is on {where}, which is not torch's current device: torch.cuda.set_device() first"
        )
    size = batch_size or (first.shape[0] if first.dim() else 1)
    name = (
        str(device)
        if device
        else torch.cuda.get_device_name(where)
        if where.type == "cuda"
        else where.type
    )
    with undisturbed(model), Clock(device) as clock:
        bench = _Bench(blocks, where, clock, repeats, len(MENU) if options else 1)
        chain = bench.chain(task)
    fixed = (
        _bytes([*model.parameters(), *model.buffers(), *_optimizer_tensors(task.optimizer)])
        + state_bytes
    )
    chain = replace(chain, fixed_bytes=fixed, batch_size=size, device=name)
    if device:
        return replace(chain, source="estimated")
    state = _state_made(model, task.optimizer)
    chain = replace(chain, fixed_bytes=chain.fixed_bytes + state)
    with survive() as outcome:
        forward, backward, rest = time_parts(model, task, repeats)
    if outcome.error:
        # A plain step does not fit, which may be why a plan is asked for: blocks as they are alone.
        return chain
    return _calibrated(chain, forward, backward, rest, blocks.kind)


def _calibrated(chain: Chain, forward: float, backward: float, rest: float, kind: str) -> Chain:
    """Seconds of blocks scaled to sum to those of a whole step; a wrapped model's other parts stay extra."""
    alone = (
        sum(block.options[0].forward for block in chain.blocks),
        sum(b.options[0].backward for b in chain.blocks),
    )
    wrapped = kind == "wrapped"
    ahead = min(1.0, forward / alone[0]) if wrapped else forward / alone[0]
    back = min(1.0, backward / alone[1]) if wrapped else backward / alone[1]
    blocks = []
    for block in chain.blocks:
        scaled = []
        for option in block.options:  # what an option computes again is part of its backward
            again = max(0.0, option.backward - block.options[0].backward)
            usual = option.backward - again
            scaled.append(
                replace(
                    option, forward=option.forward * ahead, backward=usual * back + again * ahead
                )
            )
        blocks.append(replace(block, options=tuple(scaled), forward=block.forward * ahead))
    extra = rest + forward + backward - ahead * alone[0] - back * alone[1]
    return replace(chain, blocks=tuple(blocks), extra_seconds=extra)


def _state_made(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> int:
    """Bytes of state that the optimizer's first step makes; 0 if it was made before. All is put back."""
    before = _bytes(_optimizer_tensors(optimizer))
    if optimizer is None or before:
        return 0
    with restored(model, optimizer):
        for parameter in (p for p in model.parameters() if p.requires_grad):
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        return _bytes(_optimizer_tensors(optimizer))


def time_parts(model: nn.Module, task: Training, repeats: int) -> tuple[float, float, float]:
    """Fastest seconds of a whole step's forward, backward and rest. Parameters, gradients, buffers, optimizer and
    generators are put back."""
    clock, times = Clock(), []
    with restored(model, task.optimizer):
        for _ in range(repeats + 1):  # the first warms up
            begin = clock.now()
            output = model(*task.args, **task.kwargs)
            ahead = clock.now()
            value = task.loss(output)
            turn = clock.now()
            value.backward()
            back = clock.now()
            del output, value
            if task.optimizer is not None:
                task.optimizer.step()
            model.zero_grad(set_to_none=True)
            times.append((ahead - begin, back - turn, turn - ahead + clock.now() - back))
    forward, backward, rest = (min(column) for column in zip(*times[1:], strict=True))
    return forward, backward, rest


class restored:
    """Put a model and its optimizer back to what they were, parameters included."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
        self.model, self.optimizer = model, optimizer

    def __enter__(self) -> None:
        self._values = [(p, p.detach().to("cpu", copy=True)) for p in self.model.parameters()]
        self._state = copy.deepcopy(self.optimizer.state_dict()) if self.optimizer else None
        self._inner = undisturbed(self.model)
        self._inner.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        self._inner.__exit__(*exc_info)
        with torch.no_grad():
            for parameter, value in self._values:
                parameter.copy_(value)
        if self.optimizer is not None and self._state is not None:
            self.optimizer.load_state_dict(self._state)


def _optimizer_tensors(optimizer: torch.optim.Optimizer | None) -> list[torch.Tensor]:
    return (
        []
        if optimizer is None
        else [leaf for leaf in tree_leaves(list(optimizer.state.values())) if torch.is_tensor(leaf)]
    )


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages of ``tensors``, each once."""
    return sum(
        {s._cdata: s.nbytes() for s in (tensor.untyped_storage() for tensor in tensors)}.values()
    )


def _on_meta(model: nn.Module, task: Training) -> tuple[nn.Module, Training]:
    """The model without values: its copy shares nothing and takes no memory."""
    memo: dict[int, Any] = {}
    for parameter in model.parameters():
        empty = torch.empty_like(parameter, device="meta")
        memo[id(parameter)] = nn.Parameter(empty, requires_grad=parameter.requires_grad)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    args, kwargs = tree_map_only(
        torch.Tensor, lambda tensor: tensor.to("meta"), (task.args, task.kwargs)
    )
    return copy.deepcopy(model, memo), Training(args, kwargs, mean_of_outputs)


class _Pull(torch.autograd.Function):
    """A scalar whose backward makes the gradients of all its inputs, as the next block's backward would."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        like = [torch.empty_like(tensor, device="meta") for tensor in tensors]
        ctx.layouts = [
            (m.shape, m.stride(), m.dtype, t.device) for m, t in zip(like, tensors, strict=True)
        ]
        return tensors[0].new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return tuple(
            torch.empty_strided(shape, stride, dtype=dtype, device=device).fill_(1)
            for shape, stride, dtype, device in ctx.layouts
        )


@dataclass
class _Bench:
    """Runs the blocks of one model one by one."""

    blocks: Blocks
    device: torch.device
    clock: Clock
    repeats: int
    options: int

    def __post_init__(self) -> None:
        self.begin = rng_state()  # each way to run a block draws the same numbers

    def chain(self, task: Training) -> Chain:
        """All blocks, and what runs around them."""
        wrapped = self.blocks.kind == "wrapped"
        state = self._fed(task) if wrapped else self.blocks.enter(task.args, task.kwargs)
        count = 0
        numbers: dict[tuple[int, int], int] = {}

        def crossing(state: State) -> tuple[tuple[int, int], ...]:
            nonlocal count, numbers
            keys = _storages(state)
            numbers = {key: numbers.get(key, count + place) for place, key in enumerate(keys)}
            count += len(keys)
            return tuple((number, size) for (_, size), number in numbers.items())

        entered = crossing(state)
        rows, owners = [], []
        for i in range(len(self.blocks)):
            row, leaving, owned = self.block(i, state)
            rows.append(replace(row, crossing=crossing(leaving)))
            owners.append(owned)
            last, state = state, leaving
        before, after, saved, seen = self._around(task, last)
        for i in reversed(
            range(len(rows))
        ):  # a shared parameter's gradient is made by the last block that uses it
            fresh = {key: size for key, size in owners[i].items() if key not in seen}
            seen |= fresh.keys()
            rows[i] = replace(rows[i], gradient_bytes=sum(fresh.values()))
        inputs = _storages((task.args, task.kwargs)) if wrapped else entered
        size = sum(size for _, size in inputs) + saved
        return Chain(
            tuple(rows),
            size,
            0,
            1,
            "",
            "measured",
            input_crossing=entered,
            before=before,
            after=after,
        )

    def _fed(self, task: Training) -> State:
        """What the first wrapped module receives in a run of the model."""
        fed: State = ()

        def work(x: torch.Tensor, **extras: Any) -> torch.Tensor:
            nonlocal fed
            fed = (x, *(extras[key] for key in self.blocks.extras))
            with torch.no_grad():
                return self.blocks.run_all(*fed)[0]  # type: ignore[no-any-return]

        with self.blocks.standing_in(work):
            self.blocks.model(*task.args, **task.kwargs)
        return _leaves(fed)

    def _around(self, task: Training, state: State) -> tuple[Around, Around, int, set[int]]:
        """What runs before the blocks, and what behind them, the loss included; bytes that the former saves, and the
        parameters, by identity, whose gradients the latter makes. ``state``: what crosses into the last block.

        Before and behind the blocks runs a wrapped model's own code. On meta tensors, which a loss's targets are not,
        other models' loss counts as nothing.
        """
        wrapped, model = self.blocks.kind == "wrapped", self.blocks.model
        if self.device.type == "meta" and not wrapped:
            return Around(), Around(), 0, set()
        fed: State = ()
        saved = begin = top = 0
        reached, grads = False, dict[int, int]()

        def note(*_: Any) -> None:
            """Up to here, the gradient of the last block's output, the code behind it has run."""
            nonlocal reached, top, grads
            reached, top = True, probe.peak - begin
            grads = {id(p): p.grad.nbytes for p in model.parameters() if p.grad is not None}

        def last() -> Any:
            """The last block's output, held by nobody else: it dies when its backward does not need it."""
            nonlocal begin
            output = self.blocks.run(len(self.blocks) - 1, *_leaves(state))[0]
            for leaf in tree_leaves(output):
                if torch.is_tensor(leaf) and leaf.grad_fn is not None:
                    leaf.grad_fn.register_prehook(note)
            begin = probe.added
            probe.restart()
            return output

        def work(x: torch.Tensor, **extras: Any) -> Any:
            nonlocal fed, saved
            fed, saved = (x, *(extras[key] for key in self.blocks.extras)), probe.added
            return last()

        torch.clear_autocast_cache()
        with MemoryProbe(self.device) as probe:
            with self.blocks.standing_in(work) if wrapped else nullcontext():
                value = task.loss(model(*task.args, **task.kwargs) if wrapped else last())
            value.backward()
            del value
            if not reached:  # nothing in the last block needs a gradient
                note()
            behind = sum(grads.values())
            made = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
            start = probe.added
            probe.restart()
            if (pull := _pull(fed)) is not None:
                pull.backward()
            ahead = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None) - made
            before = Around(max(0, probe.peak - start - ahead), ahead)
        model.zero_grad(set_to_none=True)
        return before, Around(max(0, top - behind), behind), max(0, saved), set(grads)

    def run(self, i: int, *state: Any) -> State:
        """One block, as `blocks` would on the device that is probed."""
        with FusedAttention() if self.device.type == "meta" else nullcontext():
            return self.blocks.run(i, *state)

    def block(self, i: int, state: State) -> tuple[Block, State, dict[int, int]]:
        """One block, what leaves it, and the bytes of the gradients that it makes, by parameter."""
        modules = tuple(self.blocks.modules(i))
        run = partial(self.run, i)
        name = self.blocks.names[i]
        with torch.no_grad():
            check_repeatable(name, partial(run, *state), self.blocks.model, modules, state)
        ways: list[Callable[..., State]] = [run]
        for number in range(1, self.options):
            ways += [
                partial(checkpoint, run, use_reentrant=False, context_fn=partial(keep_only, number))
            ]
        bare = partial(checkpoint, run, use_reentrant=False)
        with frozen_statistics(modules):
            peak, seconds = self._bare(bare, state)
            full, after, grads = self._option(MENU[0][0], run, state)
            options = [full]
            for number, way in enumerate(ways[1:], 1):
                label = MENU[number][0]
                try:
                    option, _, found = self._option(label, way, state)
                except RuntimeError as error:
                    if "mutated" not in str(error):
                        raise
                    option, found = full, {}
                # What an option keeps may be overwritten in place, which torch does not always notice.
                usable = found.keys() == grads.keys() and all(
                    same(grads[key], found[key]) for key in grads
                )
                options.append(option if usable else replace(full, name=label))
        crossing = sum(size for _, size in _storages(after))
        owned = {id(p): p.nbytes for p in self.blocks.model.parameters() if id(p) in grads}
        return Block(name, crossing, tuple(options), 0, peak, seconds), after, owned

    def _bare(self, way: Callable[..., State], state: State) -> tuple[int, float]:
        seconds = []
        for _ in range(self.repeats):
            begin = self.clock.now()
            way(*_leaves(state))
            seconds.append(self.clock.now() - begin)
        torch.clear_autocast_cache()
        inputs = _leaves(state)
        with MemoryProbe(self.device) as probe:
            way(*inputs)
            return max(0, probe.peak), min(seconds)

    def _option(
        self, name: str, way: Callable[..., State], state: State
    ) -> tuple[Option, State, dict[int, Any]]:
        """Bytes and seconds of one way to keep a block; what leaves it; gradients of its parameters and inputs."""
        ahead, back = [], []
        for _ in range(self.repeats):
            inputs = _leaves(state)
            begin = self.clock.now()
            after = way(*inputs)
            turn = self.clock.now()
            pull = _pull(after)
            start = self.clock.now()
            if pull is not None:
                pull.backward()
            ahead.append(turn - begin)
            back.append(self.clock.now() - start)
            del after, pull
            self.blocks.model.zero_grad(set_to_none=True)
        torch.clear_autocast_cache()
        inputs = _leaves(state)
        with MemoryProbe(self.device) as probe:
            after = way(*inputs)
            saved, forward_peak = probe.added, probe.peak
            leaving = tuple(_detached(value) for value in after)
            output = sum(size for _, size in _storages(after))
        # The outputs are not held while the backward is measured, so that they die when the block lets go of them.
        torch.clear_autocast_cache()
        del after
        set_rng_state(self.begin)
        inputs = _leaves(state)
        with MemoryProbe(self.device) as probe:
            pull = _pull(way(*inputs))
            probe.restart()
            if pull is not None:
                pull.backward()
            top = probe.peak
        grads: dict[int, Any] = {
            id(p): p.grad for p in self.blocks.model.parameters() if p.grad is not None
        }
        made = sum(grad.nbytes for grad in grads.values())
        leaves = [
            leaf for leaf in tree_leaves(inputs) if torch.is_tensor(leaf) and leaf.grad is not None
        ]
        grads |= {place: leaf.grad for place, leaf in enumerate(leaves)}
        self.blocks.model.zero_grad(set_to_none=True)
        backward_peak = max(0, top - saved - output - made)
        saved = max(saved, 0)
        return (
            Option(name, saved, min(ahead), min(back), max(saved, forward_peak), backward_peak),
            leaving,
            grads,
        )


def _storages(state: Any) -> list[tuple[int, int]]:
    """(identity, bytes) of the storages of all tensors in ``state``, each once."""
    found = [leaf.untyped_storage() for leaf in tree_leaves(state) if torch.is_tensor(leaf)]
    return list({s._cdata: (s._cdata, s.nbytes()) for s in found}.values())


def _detached(value: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda t: t.detach().requires_grad_(t.requires_grad), value)


def _leaves(state: State) -> State:
    return tuple(map(_detached, state))


def _pull(after: State) -> torch.Tensor | None:
    wanted = [leaf for leaf in tree_leaves(after) if torch.is_tensor(leaf) and leaf.requires_grad]
    return _Pull.apply(*wanted) if wanted else None  # type: ignore[no-any-return]
