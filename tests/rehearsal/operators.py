"""Below autograd, at every operator: hand the claim on, refuse mixtures, note the order,
watch for waits.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.rehearsal import order, places
from tests.rehearsal.places import CPU, place_of, tensors_of

# Copies between places are what these are for.
COPIES = {"copy_", "_to_copy", "copy", "_foreach_copy_"}
ANYWHERE = COPIES | {"set_", "is_same_size", "_has_compatible_shallow_copy_type"}
# Their indices may lie on the CPU where the tensor lies on a card, not the other way round.
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
# Scalars of the optimizer's state (its count of steps) may lie on the CPU.
STEPS = ("_fused_adam", "_fused_sgd", "_foreach")


class State:
    """What is going on in this process: streams, a capture, how waits are told."""

    def __init__(self) -> None:
        self.device = 0
        self.initialized = False
        self.process = os.getpid()
        self.capturing: list[tuple[Any, Any, Any, Any]] | None = None
        # 0 says nothing, 1 warns, 2 raises.
        self.tell_waits = 0
        self._thread = threading.local()

    @property
    def stream(self) -> object:
        """The stream on which this thread queues."""
        return getattr(self._thread, "now", ("default", self.device))

    @stream.setter
    def stream(self, stream: object) -> None:
        self._thread.now = stream

    @property
    def honest(self) -> bool:
        """Whether this thread tells, for now, what tensors are, and that there is no card."""
        return getattr(self._thread, "honest", False)

    @honest.setter
    def honest(self, on: bool) -> None:
        self._thread.honest = on

    @property
    def making(self) -> int | None:
        """Where this thread makes a tensor just now, by a creation or a move; None: it does not."""
        return getattr(self._thread, "making", None)

    @contextlib.contextmanager
    def making_at(self, place: int | None) -> Iterator[None]:
        """Inside, what operators make lies there at once: modes above see it where it will be."""
        before = self.making
        self._thread.making = place
        try:
            yield
        finally:
            self._thread.making = before

    def wake(self) -> None:
        """Initialize, as the first use of a card does.

        RuntimeError in a process forked from one that did.
        """
        if self.initialized and self.process != os.getpid():
            raise RuntimeError(
                "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
                "you must use the "
                "'spawn' start method (rehearsed)"
            )
        self.initialized = True

    def host_waits(self, why: str) -> None:
        """The host waits for the current stream."""
        if self.capturing is not None:
            raise RuntimeError(
                f"CUDA error: operation not permitted when stream is capturing: {why} (rehearsed)"
            )
        if self.tell_waits == 2:
            raise RuntimeError(f"called a synchronizing CUDA operation: {why} (rehearsed)")
        if self.tell_waits == 1:
            warnings.warn(f"called a synchronizing CUDA operation: {why} (rehearsed)", stacklevel=4)
        order.join(order.HOST, order.clock(self.stream))


state = State()


class Operators(TorchDispatchMode):
    """The mode that sees every operator's tensors."""

    supports_higher_order_operators = True
    ignore_compile_internals = classmethod(lambda cls: True)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if state.making is not None:
            with torch._C.DisableTorchFunction():
                made = func(*args, **kwargs)
            places.put(made, state.making)
            return made
        name = getattr(getattr(func, "_overloadpacket", func), "__name__", "")
        tensors = tensors_of((args, kwargs))
        at = [place_of(tensor) for tensor in tensors]
        cards = {place for place in at if place not in (None, CPU)}
        if cards:
            state.wake()
            if name not in ANYWHERE:
                _refuse_mixtures(name, tensors, at)
            _refuse_other_generators(name, kwargs)
        ordered = state.capturing is None and not getattr(func, "is_view", False)
        if ordered:
            note_inputs(func, name, tensors, args, kwargs)
        # A backward pass arrives here with the function mode on, which would read these as calls of
        # a user's.
        with torch._C.DisableTorchFunction(), places.as_out_of_memory(bool(cards)):
            result = func(*args, **kwargs)
        if ordered and cards:
            note_results(name, result)
        if cards:
            _watch(func, name, args, kwargs, result)
        _claim(name, at, cards, result)
        return result


def _refuse_mixtures(name: str, tensors: list[torch.Tensor], at: list[int | None]) -> None:
    first = at[0]
    if name in INDEXING:
        strangers = [
            t
            for t, place in zip(tensors[1:], at[1:], strict=True)
            if place not in (None, CPU, first)
        ]
        if first == CPU and strangers:
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu) "
                "(rehearsed)"
            )
        return
    seen = {
        place
        for t, place in zip(tensors, at, strict=True)
        if place is not None and _counts(name, t, place)
    }
    if len(seen) > 1:
        words = ", ".join("cpu" if place == CPU else f"cuda:{place}" for place in sorted(seen))
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices: "
            f"{words} "
            f"(rehearsed, {name})"
        )


def _counts(name: str, tensor: torch.Tensor, place: int) -> bool:
    if place != CPU:
        return True
    return not (tensor.dim() == 0 or (name.startswith(STEPS) and tensor.numel() == 1))


def _refuse_other_generators(name: str, kwargs: dict[str, Any]) -> None:
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != "cuda":
        raise RuntimeError(
            f"Expected a 'cuda' device type for generator but found 'cpu' (rehearsed, {name})"
        )


def note_inputs(
    func: Any, name: str, tensors: list[torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """The order of what an operator reads and writes: on this thread's stream, or,
    away from cards, by the host.
    """
    if name in ("detach", "alias", "set_"):
        return
    who: object = order.HOST
    if any(map(places.on_card, tensors)):
        who = state.stream
        order.queue(who)
    written = _written(func, args, kwargs)
    for tensor in tensors:
        order.used(tensor, who, writes=id(tensor) in written, what=name)


def note_results(name: str, result: Any) -> None:
    """Fresh tensors are written by this thread's stream."""
    for leaf in tensors_of(result):
        if place_of(leaf) is None:
            order.used(leaf, state.stream, writes=True, what=name)


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> set[int]:
    """The ids of the tensors that this operator writes to, by its schema."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return set()
    found: set[int] = set()
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        found |= {id(leaf) for leaf in tensors_of(value)}
    return found


def _watch(func: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
    """What makes the host wait, and what a capture keeps."""
    tags = getattr(func, "tags", ())
    if name == "_local_scalar_dense" or torch.Tag.data_dependent_output in tags:
        state.host_waits(name)
    elif torch.Tag.dynamic_output_shape in tags or _by_mask(name, args):
        state.host_waits(f"{name}, whose size depends on the data")
    elif name == "copy_" and place_of(args[0]) == CPU:
        blocking = not (args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
        if blocking:
            state.host_waits("a copy to the CPU")
    if state.capturing is not None and not getattr(func, "is_view", False):
        state.capturing.append((func, args, kwargs, result))


def _by_mask(name: str, args: Sequence[Any]) -> bool:
    if name not in INDEXING:
        return False
    kinds = (torch.bool, torch.uint8)
    return any(each.dtype in kinds for each in tensors_of(args[1]))


def _claim(name: str, at: list[int | None], cards: set[int | None], result: Any) -> None:
    if not at:
        return
    place = at[0] if name in ("copy_", "set_") else next(iter(cards), CPU)
    if place is not None and (cards or all(each == CPU for each in at)):
        places.put(result, place)
