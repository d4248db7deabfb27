"""What stands in for ``torch.cuda`` and ``torch.accelerator``: cards, memory, streams, events,
graphs, generators.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from tests.rehearsal import order, places
from tests.rehearsal.operators import note_inputs, state

_stream_numbers = itertools.count(1)


def card(device: Any = None) -> int:
    """The number of a card given as None, a number, a name or a device."""
    if device is None:
        return state.device
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return state.device if index is None else index


class Stream:
    """Work in its own order, beside the default stream."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        state.wake()
        self.device_index = card(device)
        self.device = torch.device("cuda", self.device_index)
        self.stream_id = self.cuda_stream = next(_stream_numbers)
        self.key: object = ("stream", self.stream_id)

    def wait_stream(self, other: Stream) -> None:
        order.join(self.key, order.clock(other.key))

    def wait_event(self, event: Event) -> None:
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        _refuse_in_capture("Stream.synchronize")
        order.join(order.HOST, order.clock(self.key))

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return state.capturing is not None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class DefaultStream(Stream):
    """The stream that a card has without asking."""

    def __init__(self, device: int) -> None:
        self.device_index, self.stream_id, self.cuda_stream = device, 0, 0
        self.device = torch.device("cuda", device)
        self.key = ("default", device)


def _stream_of(key: object) -> Stream:
    if isinstance(key, tuple) and key[0] == "default":
        return DefaultStream(key[1])
    return _streams[key]


_streams: dict[object, Stream] = {}


class Event:
    """A point in a stream's work."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self.timing, self.at, self.seen = enable_timing, None, None

    def record(self, stream: Stream | None = None) -> None:
        state.wake()
        key = state.stream if stream is None else stream.key
        order.queue(key)
        self.at, self.seen = time.perf_counter(), dict(order.clock(key))

    def wait(self, stream: Stream | None = None) -> None:
        order.join(state.stream if stream is None else stream.key, self.seen or {})

    def synchronize(self) -> None:
        _refuse_in_capture("Event.synchronize")
        order.join(order.HOST, self.seen or {})
        self.waited = True

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Event) -> float:
        """Milliseconds. ValueError for events that were not recorded, not timed,
        or not waited for.
        """
        if not (self.timing and end.timing):
            raise ValueError(
                "Both events must be created with argument 'enable_timing=True'. (rehearsed)"
            )
        if self.at is None or end.at is None:
            raise ValueError(
                "Both events must be recorded before calculating elapsed time. (rehearsed)"
            )
        for name, count in (end.seen or {}).items():
            if name != order.HOST and order.clock(order.HOST).get(name, 0) < count:
                raise RuntimeError(
                    "CUDA error: device not ready: wait for the event first (rehearsed)"
                )
        return max(1e-4, 1e3 * (end.at - self.at))


def _refuse_in_capture(what: str) -> None:
    if state.capturing is not None:
        raise RuntimeError(
            f"CUDA error: operation not permitted when stream is capturing: {what} (rehearsed)"
        )


def synchronize(device: Any = None) -> None:
    """The host waits for all streams."""
    state.wake()
    _refuse_in_capture("synchronize")
    for key in list(order.clocks):
        if key != order.HOST:
            order.join(order.HOST, order.clock(key))


@contextlib.contextmanager
def use_stream(stream: Stream | None) -> Iterator[None]:
    """``torch.cuda.stream``."""
    if stream is None:
        yield
        return
    _streams[stream.key] = stream
    before, state.stream = state.stream, stream.key
    try:
        yield
    finally:
        state.stream = before


def set_stream(stream: Stream) -> None:
    _streams[stream.key] = stream
    state.stream = stream.key


@contextlib.contextmanager
def use_device(device: Any) -> Iterator[None]:
    """``torch.cuda.device``."""
    before = state.device
    if card(device) >= 0:
        set_device(device)
    try:
        yield
    finally:
        state.device = before


def set_device(device: Any) -> None:
    index = card(device)
    if index >= len(places.cards):
        raise RuntimeError(f"CUDA error: invalid device ordinal: {device} (rehearsed)")
    state.device = index


# ------------------------------------------------------------------------------------------ graphs


class CUDAGraph:
    """What a capture kept, to be replayed on the same memory."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.operators: list[tuple[Any, Any, Any, Any]] | None = None

    def replay(self) -> None:
        if self.operators is None:
            raise RuntimeError(
                "Called CUDAGraph::replay without a preceding successful capture. (rehearsed)"
            )
        modes_off = torch.utils._python_dispatch._disable_current_modes
        with torch.no_grad(), modes_off(), torch._C.DisableTorchFunction():
            for func, args, kwargs, result in self.operators:
                tensors = [
                    leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)
                ]
                note_inputs(func, "replay", tensors, args, kwargs)
                _again(func, args, kwargs, result)
                for leaf in tree_leaves(result):
                    if isinstance(leaf, torch.Tensor):
                        order.used(leaf, state.stream, writes=True, what="replay")

    def reset(self) -> None:
        self.operators = None

    def pool(self) -> tuple[int, int]:
        return 0, id(self)


def _again(func: Any, args: Any, kwargs: Any, result: Any) -> None:
    fresh = func(*args, **kwargs)
    for old, new in zip(tree_leaves(result), tree_leaves(fresh), strict=True):
        if isinstance(old, torch.Tensor) and old is not new and old.data_ptr() != new.data_ptr():
            old.detach().copy_(new)


@contextlib.contextmanager
def graph(
    cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None, **_: Any
) -> Iterator[None]:
    """``torch.cuda.graph``: what is captured is not run,
    so the cards' memory is as before at the end.
    """
    if state.capturing is not None:
        raise RuntimeError("CUDA graphs cannot be captured within a capture (rehearsed)")
    synchronize()
    before = [(storage, places.copied(storage)) for storage in places.living()]
    state.capturing = kept = []
    try:
        with use_stream(stream or Stream()):
            yield
        cuda_graph.operators = kept
    finally:
        state.capturing = None
        with torch.utils._python_dispatch._disable_current_modes():
            for storage, content in before:
                storage.copy_(content)


# ----------------------------------------------------------------------------- memory and the rest


def properties(device: Any = None) -> Any:
    """As of an H100 with this card's memory."""
    return types.SimpleNamespace(
        name="Rehearsal GPU",
        total_memory=places.cards[card(device)].total,
        major=9,
        minor=0,
        multi_processor_count=132,
        uuid="rehearsal",
        warp_size=32,
        regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048,
        gcnArchName="",
        L2_cache_size=50 * 2**20,
    )


def reset_peak(device: Any = None) -> None:
    places.cards[card(device)].peak = places.cards[card(device)].now


def limit_memory(fraction: float, device: Any = None) -> None:
    memory = places.cards[card(device)]
    memory.limit = int(fraction * memory.total)


def memory_info(device: Any = None) -> tuple[int, int]:
    memory = places.cards[card(device)]
    return memory.total - memory.now, memory.total


def allocated(device: Any = None) -> int:
    return places.cards[card(device)].now


def peak(device: Any = None) -> int:
    return places.cards[card(device)].peak


def memory_stats(device: Any = None) -> dict[str, int]:
    """Of torch's many figures, how often memory was refused."""
    return {"num_ooms": places.cards[card(device)].refused}


def set_sync_debug_mode(mode: int | str) -> None:
    names = {"default": 0, "warn": 1, "error": 2}
    state.tell_waits = names[mode] if isinstance(mode, str) else mode


class Generator(torch._C.Generator):
    """A generator that says for which device it is."""

    def __new__(cls, device: Any = "cpu") -> Generator:
        made = super().__new__(cls, "cpu")
        made.place = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:
        return self.place


def stand_ins() -> dict[str, Any]:
    """Names of ``torch.cuda`` and what stands in for them."""
    return {
        "is_available": lambda: not state.honest,
        "is_initialized": lambda: state.initialized and not state.honest,
        "device_count": lambda: len(places.cards),
        "current_device": lambda: state.device,
        "set_device": set_device,
        "device": use_device,
        "device_of": lambda *_: contextlib.nullcontext(),
        "synchronize": synchronize,
        "init": state.wake,
        "_lazy_init": state.wake,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "memory_allocated": allocated,
        "max_memory_allocated": peak,
        "memory_reserved": allocated,
        "max_memory_reserved": peak,
        "reset_peak_memory_stats": reset_peak,
        "memory_stats": memory_stats,
        "mem_get_info": memory_info,
        "set_per_process_memory_fraction": limit_memory,
        "get_device_properties": properties,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_name": lambda *_: "Rehearsal GPU",
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state() for _ in places.cards],
        "set_rng_state": lambda *_: None,
        "set_rng_state_all": lambda *_: None,
        "manual_seed": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "Event": Event,
        "Stream": Stream,
        "stream": use_stream,
        "set_stream": set_stream,
        "current_stream": lambda *_: _stream_of(state.stream),
        "default_stream": lambda device=None: DefaultStream(card(device)),
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "is_current_stream_capturing": lambda: state.capturing is not None,
        "get_sync_debug_mode": lambda: state.tell_waits,
        "set_sync_debug_mode": set_sync_debug_mode,
        "is_bf16_supported": lambda *_, **__: True,
    }


def accelerator_stand_ins() -> dict[str, Any]:
    """The same for ``torch.accelerator``."""
    return {
        "current_accelerator": lambda check_available=False: (
            None if state.honest else torch.device("cuda")
        ),
        "is_available": lambda: not state.honest,
        "device_count": lambda: len(places.cards),
        "current_device_index": lambda: state.device,
        "current_device_idx": lambda: state.device,
        "set_device_index": set_device,
        "set_device_idx": set_device,
        "current_stream": lambda *_: _stream_of(state.stream),
        "set_stream": set_stream,
        "synchronize": synchronize,
        "empty_cache": lambda: None,
        "memory_allocated": allocated,
        "max_memory_allocated": peak,
        "memory_reserved": allocated,
        "max_memory_reserved": peak,
        "reset_peak_memory_stats": reset_peak,
        "get_memory_info": memory_info,
    }
