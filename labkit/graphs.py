"""Notice that a CUDA graph is replayed.

A replay is one call that no dispatcher sees. It allocates nothing, since all it works with lies in
the graph's own pool, and none of its operators can be counted: zero FLOPs and a low peak would be
wrong. So `labkit.count` refuses a step that replays a graph, and its peak is not told. What torch
took from the driver is right, the pool included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labkit.restore.attributes import exchanged
from labkit.restore.reach import kinds_of_graphs


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
    kinds = [] if _watching else kinds_of_graphs()
    with exchanged((kind, "replay", _counted(kind.replay)) for kind in kinds):
        _watching.append(seen)
        try:
            yield seen
        finally:
            _watching.remove(seen)


def _counted(replay: Callable[[Any], None]) -> Callable[[Any], None]:
    def tell_and_replay(graph: Any) -> None:
        for seen in _watching:
            seen.count += 1
        replay(graph)

    return tell_and_replay
