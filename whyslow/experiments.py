"""The experiments: where each applies, and what it changes in a step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import torch
import torch.utils.checkpoint as recomputing
from torch import nn
from torch.autograd import profiler
from torch.backends import cudnn
from torch.overrides import TorchFunctionMode
from torch.profiler import profile, supported_activities

from labkit.busy import cores
from labkit.counters import CountingMode
from labkit.restore import giving_back, preserve_state
from labkit.restore.attributes import exchanged
from labkit.restore.contents import keeping
from labkit.restore.undo import call_all
from whyslow import remedies
from whyslow.experiment import ALL, HOST, UPDATE, Experiment, forwards, nothing, switched
from whyslow.findings import LEAST_SHARE
from whyslow.subject import Subject, mapped, tensors_of

# Keeping what was recomputed takes at most about so many times the memory of a step.
KEPT = 8
# One thread beside other programs looks better than it is.
ALONE = 0.1
# Seconds that compiling a model takes about.
COMPILES = 30.0
# A larger batch changes what is learned: it has to be worth it, and many times is another question.
LEARNED, TIMES = 0.15, (8, 2)

# Makes the experiments of a kind that apply to a step.
Check = Callable[[Subject], Iterator[Experiment]]

_READS = "item", "tolist", "__float__", "__int__", "__bool__"
_COPIES = torch.Tensor.to, torch.Tensor.cuda


def switches(subject: Subject) -> Iterator[Experiment]:
    """Each switch and mode the other way, where it is set so that it may cost time."""
    seen = subject.seen
    on_cuda = seen.device == "cuda"
    if seen.anomaly:
        off = partial(torch.autograd.set_detect_anomaly, False)
        change = partial(switched, off, "set_anomaly_enabled")
        yield Experiment(remedies.ANOMALY, "the same step without it", change)
    if seen.profiled:
        how = "the same step while the profiler does not record"
        yield Experiment(remedies.PROFILER, how, not_profiled, part=ALL)
    if torch.are_deterministic_algorithms_enabled() or (on_cuda and cudnn.deterministic):
        how = "the same step with torch's own choice of algorithms"
        change = partial(switched, _choose_freely, "use_deterministic_algorithms")
        yield Experiment(remedies.DETERMINISTIC, how, change, part=ALL)
    if on_cuda and seen.images and not cudnn.benchmark:
        change = partial(switched, partial(setattr, cudnn, "benchmark", True))
        yield Experiment(remedies.NO_SEARCH, "cudnn.benchmark = True", change)
    if seen.recomputed and subject.has_room(KEPT):
        how = "the same step, with activations kept instead of computed twice"
        yield Experiment(remedies.RECOMPUTED, how, not_recomputed)


def _choose_freely() -> None:
    torch.use_deterministic_algorithms(False)
    cudnn.deterministic = False


@contextmanager
def not_profiled() -> Iterator[None]:
    """No profiler records, neither one that runs already nor one that the step begins."""
    instead: list[Any] = [(profile, name, nothing) for name in ("start", "stop", "step")]
    instead.append((profiler.profile, "__enter__", lambda self: self))
    instead.append((profiler.profile, "__exit__", nothing))
    toggle, kinds = profiler._toggle_collection_dynamic, supported_activities()
    if not torch.autograd._profiler_enabled():
        toggle = nothing
    with exchanged(instead), giving_back(partial(toggle, True, kinds)):
        toggle(False, kinds)
        yield


def not_recomputed() -> AbstractContextManager[None]:
    """``checkpoint(function, ...)`` only calls the function."""

    def passes(*args: Any, **keywords: Any) -> Iterator[None]:
        # torch runs this up to its yield, calls the function, and ends it.
        yield

    def calls(function: Any, preserve: bool, *args: Any) -> Any:
        # In the place of the autograd function that recomputes.
        return function(*args)

    # What torch.utils looks up, by its version.
    names = [f"_checkpoint_without_reentrant_generator{end}" for end in ("", "_impl")]
    changes = [(recomputing, name, passes) for name in names if hasattr(recomputing, name)]
    return exchanged([*changes, (recomputing.CheckpointFunction, "apply", calls)])


def optimizers(subject: Subject) -> Iterator[Experiment]:
    """The fused form of torch's own optimizers that have one."""
    slow = []
    for optimizer in filter(is_torchs, subject.seen.optimizers):
        groups = optimizer.param_groups
        bears = all("fused" in group and not group["differentiable"] for group in groups)
        if bears and not all(group["fused"] for group in groups):
            slow.append(optimizer)
    if slow:
        names = ", ".join(sorted({type(each).__name__ for each in slow}))
        how, words = f"{names} with fused=True", {"kind": type(slow[0]).__name__}
        yield Experiment(remedies.LOOP, how, partial(_fused, slow), part=UPDATE, words=words)


@contextmanager
def _fused(slow: list[torch.optim.Optimizer]) -> Iterator[None]:
    states = [pair for each in slow for pair in each.state.items()]
    groups = [group for each in slow for group in each.param_groups]
    undo = [keeping(each) for each in (*groups, *(state for _, state in states))]
    with giving_back(partial(call_all, undo)):
        for group in groups:
            group.update(fused=True, foreach=False)
        for parameter, state in states:
            # The fused form wants the number of steps where the parameters are.
            if "step" in state:
                state["step"] = state["step"].to(parameter.device)
        yield


def is_torchs(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it is an optimizer of torch's own."""
    return type(optimizer).__module__.startswith("torch.optim")


def precision(subject: Subject) -> Iterator[Experiment]:
    """The forward pass under autocast."""
    seen = subject.seen
    kinds = {each.dtype for each in seen.parameters if each.is_floating_point()}
    if seen.compiled or seen.lower_precision or kinds != {torch.float32}:
        return
    dtype, rest = torch.bfloat16, "backward() and the update stay outside of it."
    if seen.device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        dtype, rest = torch.float16, "scale the loss by torch.amp.GradScaler."

    def lowered(root: nn.Module, forward: Any, *args: Any, **keywords: Any) -> Any:
        with torch.autocast(seen.device, dtype):
            output = forward(*args, **keywords)
        return mapped(lambda tensor: tensor.float() if tensor.dtype == dtype else tensor, output)

    name = str(dtype).removeprefix("torch.")
    yield Experiment(
        remedies.PRECISION,
        f"the forward pass under autocast to {name}",
        partial(forwards, seen.roots, lowered),
        words={"device": seen.device, "dtype": name, "rest": rest},
    )


def layout(subject: Subject) -> Iterator[Experiment]:
    """Weights, their state and batches in channels-last order."""
    seen = subject.seen
    weights = [each for each in seen.parameters if each.dim() == 4]
    there = all(each.is_contiguous(memory_format=torch.channels_last) for each in weights)
    if seen.compiled or not seen.images or there:
        return
    how = "model, optimizer state and batches in channels-last order"
    step = subject.serve([mapped(_last, batch) for batch in subject.batches])
    yield Experiment(remedies.LAYOUT, how, partial(_channels_last, subject), step)


@contextmanager
def _channels_last(subject: Subject) -> Iterator[None]:
    kept = [dict(state) for each in subject.seen.optimizers for state in each.state.values()]
    tensors = [each for each in (*subject.seen.parameters, *tensors_of(kept)) if each.dim() == 4]
    with preserve_state(*tensors):
        for each in tensors:
            each.data, each.grad = _last(each.data), None
        yield


def _last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def waits(subject: Subject) -> Iterator[Experiment]:
    """Reads that give the value that they gave first, and page-locked batches."""
    if subject.seen.device == "cpu":
        return
    with CountingMode() as operators:
        subject.serve()()
    if operators.host_reads:
        change = partial(Calls, partial(_known, {}))
        how = f"{operators.host_reads} reads a step that give an old value at once"
        yield Experiment(remedies.HOST, how, change, part=HOST)
    sources = [each for each in tensors_of(subject.batches) if each.device.type == "cpu"]
    if not all(each.is_pinned() for each in sources):
        pinned = subject.serve([mapped(_pinned, batch) for batch in subject.batches])
        how = "batches from page-locked memory, without waiting for their copies"
        change = partial(Calls, _without_waiting)
        yield Experiment(remedies.PAGEABLE, how, change, pinned, part=HOST)


class Calls(TorchFunctionMode):
    """Every call of torch's Python API goes through ``does``, which takes some time by itself."""

    def __init__(self, does: Callable[[Any, Any, Any], Any]) -> None:
        super().__init__()
        self._does = does

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._does(func, args, kwargs or {})


def _known(known: dict[Any, Any], func: Any, args: Any, kwargs: Any) -> Any:
    """A read of a device returns what it returned first at the same line of the program."""
    if getattr(func, "__name__", "") not in _READS or args[0].device.type == "cpu":
        return func(*args, **kwargs)
    frame = sys._getframe(2)
    place = frame.f_code, frame.f_lineno, func
    if place not in known:
        known[place] = func(*args, **kwargs)
    return known[place]


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.pin_memory() if tensor.device.type == "cpu" else tensor


def _without_waiting(func: Any, args: Any, kwargs: Any) -> Any:
    """Copies from page-locked memory do not wait."""
    if func in _COPIES and len(args) < 3 and args[0].device.type == "cpu" and args[0].is_pinned():
        kwargs = {**kwargs, "non_blocking": True}
    return func(*args, **kwargs)


def anywhere(subject: Subject) -> Iterator[Experiment]:
    """No graph in evaluation mode; another number of threads."""
    seen = subject.seen
    if seen.unused:
        how = "forward passes in evaluation mode under no_grad"
        change = partial(forwards, dict.fromkeys(seen.unused), _without_graph)
        yield Experiment(remedies.VALIDATION, how, change, part=ALL)
    # As many threads as there are cores; where there are so many now, one.
    now, count, name, least = torch.get_num_threads(), cores(), remedies.FEW_THREADS, LEAST_SHARE
    if now > count:
        name = remedies.MANY_THREADS
    elif now == count:
        count, name, least = 1, remedies.SMALL_WORK, ALONE
    if seen.device == "cpu" and count != now:
        yield Experiment(
            name,
            f"{count} threads instead of {now}, on {cores()} cores",
            partial(switched, partial(torch.set_num_threads, count), "set_num_threads"),
            part=ALL,
            words={"threads": count},
            least=least,
            cores=max(now, count),
        )


def _without_graph(root: nn.Module, forward: Any, *args: Any, **keywords: Any) -> Any:
    with torch.set_grad_enabled(root.training and torch.is_grad_enabled()):
        return forward(*args, **keywords)


def compiling(subject: Subject) -> Iterator[Experiment]:
    """The forward passes of the models, and with them their backward passes, by torch.compile."""
    seen = subject.seen
    # Code that the program has compiled itself would be lost with what is made here.
    if not seen.parameters or seen.compiled or codes() > 0:
        return
    compiled: Callable[[Any], Any] = cache(torch.compile)

    def by_compiler(root: nn.Module, forward: Any, *args: Any, **keywords: Any) -> Any:
        return compiled(forward)(*args, **keywords)

    how = "the models' forward passes by torch.compile"
    change = partial(forwards, seen.roots, by_compiler)
    yield Experiment(remedies.UNCOMPILED, how, change, compiles=COMPILES)


def codes() -> int:
    """How many functions torch has compiled in this process; -1 while its compiler is not there."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return -1 if module is None else len(module.input_codes.seen)


def compilations() -> int:
    """How many times torch has compiled in this process, the same function for other shapes too."""
    module = sys.modules.get("torch._dynamo.utils")
    return 0 if module is None else int(module.counters["stats"]["unique_graphs"])


def larger_batch(subject: Subject) -> Iterator[Experiment]:
    """The same samples several times in one batch, as long as the memory lasts."""
    times = next((each for each in TIMES if subject.has_room(each)), 0)
    # The first dimension is that of samples where all have it in common.
    sizes = {tuple(each.shape[:1]) for each in tensors_of(subject.batches)}
    if not times or len(sizes) != 1 or () in sizes:
        return
    [(size,)] = sizes
    larger = [mapped(lambda tensor: torch.cat([tensor] * times), each) for each in subject.batches]
    yield Experiment(
        remedies.BATCH,
        f"{times} times the batch, time per sample",
        step=subject.serve(larger),
        part=ALL,
        words={"larger": times * size, "size": size},
        samples=times,
        least=LEARNED,
    )


# Of those that work on the same part of a step, the first ones come first.
EXPERIMENTS: tuple[Check, ...] = (
    switches,
    optimizers,
    precision,
    layout,
    waits,
    anywhere,
    compiling,
)
