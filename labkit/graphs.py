"""Notice that a CUDA graph is replayed.

A replay is one call that no dispatcher sees. It allocates nothing, since all it works with lies in
the graph's own pool, and none of its operators can be counted: zero FLOPs and a low peak would be
wrong. So `labkit.count` refuses a step that replays a graph, and its peak is not told. What torch
took from the driver is right, the pool included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch


@dataclass(eq=False)
class Replays:
    """How many graphs were replayed so far."""

    count: int = 0


# Those who watch now.
_watching: list[Replays] = []


@contextmanager
def watched_replays() -> Iterator[Replays]:
    """Count replays, those by compiled code and by `torch.cuda.make_graphed_callables` as well.

    A step that keeps the method ``graph.replay`` itself is seen only if it is built inside, or
    inside another watch.
    """
    seen = Replays()
    with ExitStack() as stack:
        if not _watching:
            for kind in _kinds_of_graphs():
                stack.enter_context(patch.object(kind, "replay", _counted(kind.replay)))
        _watching.append(seen)
        stack.callback(_watching.remove, seen)
        yield seen


def _kinds_of_graphs() -> list[Any]:
    """The classes of graphs that this build of torch can replay."""
    candidates = [torch.cuda.CUDAGraph, getattr(torch.accelerator, "Graph", None)]
    return [kind for kind in candidates if hasattr(kind, "replay")]


def is_graph(item: Any) -> bool:
    """Whether it is a graph that was captured, and is replayed."""
    return isinstance(item, tuple(_kinds_of_graphs()))


def _counted(replay: Callable[[Any], None]) -> Callable[[Any], None]:
    def tell_and_replay(graph: Any) -> None:
        for seen in _watching:
            seen.count += 1
        replay(graph)

    return tell_and_replay
