"""Notice that a CUDA graph is replayed.

A replay is one call that no dispatcher sees. It allocates nothing, since all it works with lies in
the graph's own pool, and none of its operators can be counted: zero FLOPs and a low peak would be
wrong. So `labkit.count` refuses a step that replays a graph, and its peak is not told. What torch
took from the driver is right, the pool included.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(eq=False)
class Replays:
    """How many graphs were replayed so far."""

    count: int = 0


# Those who watch now, in any thread, and what stands in the place of ``replay`` meanwhile.
_watching: list[Replays] = []
_exchanged = ExitStack()
_lock = threading.Lock()


@contextmanager
def watched_replays() -> Iterator[Replays]:
    """Count replays, those by compiled code and by `torch.cuda.make_graphed_callables` as well.

    A step that keeps the method ``graph.replay`` itself is seen only if it is built inside, or
    inside another watch.
    """
    seen = Replays()
    _begin(seen)
    try:
        yield seen
    finally:
        _end(seen)


def _begin(seen: Replays) -> None:
    with _lock:
        _watching.append(seen)
        if len(_watching) == 1:
            for kind in _kinds_of_graphs():
                _exchanged.enter_context(_counted(kind))


def _end(seen: Replays) -> None:
    with _lock:
        _watching.remove(seen)
        # Whoever came first may be the first to leave.
        if not _watching:
            _exchanged.close()


def _kinds_of_graphs() -> list[Any]:
    """The classes of graphs that this build of torch can replay."""
    candidates = [torch.cuda.CUDAGraph, getattr(torch.accelerator, "Graph", None)]
    return [kind for kind in candidates if hasattr(kind, "replay")]


def is_graph(item: Any) -> bool:
    """Whether it is a graph that was captured, and is replayed."""
    return isinstance(item, tuple(_kinds_of_graphs()))


@contextmanager
def _counted(kind: Any) -> Iterator[None]:
    """Put a method in the place of ``replay`` that tells whoever watches, and replays."""
    replay: Callable[[Any], None] = kind.replay
    inherited = "replay" not in vars(kind)

    def tell_and_replay(graph: Any) -> None:
        for seen in tuple(_watching):
            seen.count += 1
        replay(graph)

    kind.replay = tell_and_replay
    try:
        yield
    finally:
        if inherited:
            del kind.replay
        else:
            kind.replay = replay
