"""Put the stand-ins in torch's place, for this process and the threads that it starts."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.rehearsal import cuda, places
from tests.rehearsal.functions import Functions
from tests.rehearsal.operators import Operators, state
from tests.rehearsal.places import CPU, on_card, place_of

T = torch.Tensor
VARIABLE = "LABKIT_REHEARSE"


def from_environment() -> None:
    """`install` what ``LABKIT_REHEARSE`` asks for: gigabytes of a card, ``80``, or of several,
    ``16x2``.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return
    found = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if found is None:
        raise ValueError(
            f"{VARIABLE}={text!r}: use gigabytes of a card, as in 80, or 16x2 for two cards"
        )
    install(gigabytes=int(found[1]), cards=int(found[2] or 1))


def install(*, gigabytes: int = 80, cards: int = 1) -> None:
    """From now on this process has rehearsed cards. It cannot be taken back."""
    if places.cards:
        raise RuntimeError("cards are rehearsed in this process already")
    size = gigabytes * 10**9
    places.cards.extend(places.Card(size, size) for _ in range(cards))
    for name, stand_in in cuda.stand_ins().items():
        setattr(torch.cuda, name, stand_in)
    for name, stand_in in cuda.accelerator_stand_ins().items():
        setattr(torch.accelerator, name, _another(stand_in))
    torch.Generator = cuda.Generator  # type: ignore[misc]
    _answer_for_devices()
    _pickle_places()
    _parse_moves()
    _autocast_on_the_cpu()
    _backward_with_modes()
    _threads_with_modes()
    _profile_with_device_times()
    _compile_with_eager()
    _talk_by_gloo()
    Functions().__enter__()
    Operators().__enter__()


def _another(function: Callable[..., Any]) -> Callable[..., Any]:
    """Dynamo tells functions apart by identity:
    no name of torch may share one with another name.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _answer_for_devices() -> None:
    """Properties, not by the mode, which is off inside hooks."""
    base = torch._C.TensorBase
    true = {name: getattr(base, name) for name in ("device", "is_cuda", "is_cpu")}

    def device(tensor: T) -> torch.device:
        place = None if state.honest else place_of(tensor)
        if place is None or place == CPU:
            return true["device"].__get__(tensor)
        return torch.device("cuda", place)

    storages = torch._C.StorageBase.device

    def device_of_storage(storage: torch.UntypedStorage) -> torch.device:
        place = CPU if state.honest else getattr(storage, "place", CPU)
        return storages.__get__(storage) if place == CPU else torch.device("cuda", place)

    def clone(storage: torch.UntypedStorage) -> torch.UntypedStorage:
        made = places.copied(storage)
        places.claim(made, getattr(storage, "place", CPU))
        return made

    T.device = property(device)  # type: ignore[assignment]
    torch.UntypedStorage.clone = clone  # type: ignore[method-assign]
    torch.UntypedStorage.device = property(device_of_storage)  # type: ignore[assignment]
    T.is_cuda = property(lambda t: t.device.type == "cuda")  # type: ignore[assignment]
    T.is_cpu = property(lambda t: t.device.type == "cpu")  # type: ignore[assignment]
    torch.backends.cudnn.is_acceptable = lambda tensor: False  # RNN weights are not flattened


def _pickle_places() -> None:
    """A tensor is pickled with the place that it claims, as torch pickles it with its device."""
    reduce = T._reduce_ex_internal

    def reduce_with_place(tensor: T, protocol: int) -> Any:
        if not on_card(tensor):
            return reduce(tensor, protocol)
        return _claimed, (tensor.detach().cpu(), place_of(tensor), tensor.requires_grad)

    T._reduce_ex_internal = reduce_with_place  # type: ignore[method-assign]


def _claimed(tensor: T, place: int, requires_grad: bool) -> T:
    places.put(tensor, place, again=True)
    return tensor.requires_grad_(requires_grad)


def _parse_moves() -> None:
    """``Module.to`` reads its arguments in C++, which does not see what a tensor claims."""
    parse = torch._C._nn._parse_to

    def parse_to(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], T) and on_card(args[0]):
            device, rest = (
                args[0].device,
                parse(torch.empty(0, dtype=args[0].dtype), *args[1:], **kwargs),
            )
            return device, *rest[1:]
        return parse(*args, **kwargs)

    torch._C._nn._parse_to = parse_to


def _autocast_on_the_cpu() -> None:
    kind = torch.amp.autocast_mode.autocast
    start = kind.__init__

    def begin(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("cuda")
        start(self, device_type, dtype, *args, **kwargs)

    kind.__init__ = begin  # type: ignore[method-assign]
    enabled = torch.is_autocast_enabled
    torch.is_autocast_enabled = lambda device_type=None: (
        enabled("cpu") if device_type in (None, "cuda") else enabled(device_type)
    )


def _backward_with_modes() -> None:
    """A function mode is off inside backward(): on again for hooks and custom functions."""
    backward = torch.autograd._engine_run_backward

    def with_functions(*args: Any, **kwargs: Any) -> Any:
        with Functions():
            return backward(*args, **kwargs)

    torch.autograd._engine_run_backward = with_functions
    torch.autograd.graph._engine_run_backward = with_functions


def _threads_with_modes() -> None:
    run = threading.Thread.run

    def with_modes(self: threading.Thread) -> None:
        with Functions(), Operators():
            run(self)

    threading.Thread.run = with_modes  # type: ignore[method-assign]


def _profile_with_device_times() -> None:
    """Profile on the CPU, and give each operator's own time to the device, too."""
    profiler = torch.profiler.profile
    start = profiler.__init__

    def begin(self: Any, *, activities: Any = None, **kwargs: Any) -> None:
        wanted = [a for a in activities or () if a != torch.profiler.ProfilerActivity.CUDA]
        start(self, activities=wanted or [torch.profiler.ProfilerActivity.CPU], **kwargs)

    profiler.__init__ = begin  # type: ignore[method-assign]
    event = torch.autograd.profiler_util.FunctionEvent
    event.device_time_total = property(lambda self: self.cpu_time_total)  # type: ignore[assignment]
    event.self_device_time_total = property(lambda self: self.self_cpu_time_total)  # type: ignore[assignment]
    old = torch.autograd.profiler.profile.__init__
    torch.autograd.profiler.profile.__init__ = (  # type: ignore[method-assign]
        lambda self, *a, use_device=None, **k: old(self, *a, **k)
    )
    ensure = torch.autograd.profiler.profile._ensure_function_events

    def ensure_once(self: Any) -> None:
        known = self._function_events
        ensure(self)
        if self._function_events is not known:
            _each_operator_once(self._function_events)

    torch.autograd.profiler.profile._ensure_function_events = ensure_once  # type: ignore[method-assign]
    torch.autograd.profiler.emit_nvtx = lambda enabled=True, **_: contextlib.nullcontext()  # type: ignore


def _each_operator_once(events: list[Any]) -> None:
    """Take out the events of the rehearsal's own mode.

    The profiler sees an operator twice: where it is called, and where the mode runs it.
    """
    gone = set()
    for event in events:
        if event.name != "PythonDispatchMode":
            continue
        gone.add(event.id)
        outer = event.cpu_parent
        if outer is None:
            continue
        for inner in event.cpu_children:
            inner.cpu_parent = outer
            if inner.name == outer.name:
                inner.cpu_parent = outer.cpu_parent
                gone.add(outer.id)
    events[:] = [event for event in events if event.id not in gone]


def _compile_with_eager() -> None:
    """What would be compiled for a GPU is traced, guarded, and run as it is:
    without claims while it runs.
    """
    compiled = torch.compile

    def compile_eager(model: Any = None, **kwargs: Any) -> Any:
        if model is None:
            return functools.partial(compile_eager, **kwargs)
        if not callable(kwargs.get("backend")):
            kwargs = {
                name: value for name, value in kwargs.items() if name not in ("mode", "options")
            }
            kwargs["backend"] = "eager"
        made = compiled(model, **kwargs)
        if isinstance(made, torch.nn.Module):
            return made
        return functools.wraps(model)(_plainly(made, model))

    torch.compile = compile_eager  # type: ignore[assignment]
    optimized = torch._dynamo.eval_frame.OptimizedModule
    optimized.__call__ = _plainly(optimized.__call__, _uncompiled)


def _uncompiled(module: Any, *args: Any, **kwargs: Any) -> Any:
    return module._orig_mod(*args, **kwargs)


def _plainly(call: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """The call without our modes; its results lie where its inputs, or its module's parameters,
    do.

    While a graph is captured: the ``original``, whose operators the capture sees.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        if state.capturing is not None:
            return original(*args, **kwargs)
        owner = getattr(call, "__self__", args[0] if args else None)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, T)]
        if isinstance(owner, torch.nn.Module):
            tensors += owner.parameters()
        at = [place for place in map(place_of, tensors) if place not in (None, CPU)]
        with _plain():
            result = call(*args, **kwargs)
        if at:
            places.put(result, at[0])
        return result

    return run


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """No claims in this thread: tensors are what they are, and no mode looks."""
    kept = []
    while torch.overrides._get_current_function_mode_stack():
        kept.append(torch.overrides._pop_mode())
    modes_off = torch.utils._python_dispatch._disable_current_modes
    before, state.honest = state.honest, True
    try:
        with modes_off():
            yield
    finally:
        state.honest = before
        for mode in reversed(kept):
            torch.overrides._push_mode(mode)


def _talk_by_gloo() -> None:
    import torch.distributed as dist

    start = dist.init_process_group

    def begin(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        start("gloo" if backend in ("nccl", "cuda:nccl") else backend, *args, **kwargs)

    dist.init_process_group = begin
    dist.is_nccl_available = lambda: True
