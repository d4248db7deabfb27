"""Who may read what another stream wrote: vector clocks over streams, and the host as one more.

Each stream counts what was queued on it. A storage remembers the last write and the reads since.
Work may use it when the stream (or the host) has seen these: by `wait`, by an event, by a
synchronization. What a GPU does by luck, most of the time, raises here each time.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import torch

from tests.rehearsal.places import storage_of

HOST = "host"
Clock = dict[object, int]


class OrderError(RuntimeError):
    """Something was used before the stream that works on it was waited for."""


@dataclass
class Use:
    """The last write of a storage and the reads after it: who, and at which count."""

    write: tuple[object, int] | None = None
    reads: Clock = field(default_factory=dict)


_numbers = itertools.count(1)
clocks: dict[object, Clock] = {HOST: {}}


def clock(stream: object) -> Clock:
    """What this stream has seen of all others."""
    return clocks.setdefault(stream, {})


def queue(stream: object) -> None:
    """The host queues work: it comes after all that the host has waited for."""
    join(stream, clocks[HOST])
    clock(stream)[stream] = next(_numbers)


def join(stream: object, other: Clock) -> None:
    """From now on this stream, or the host, comes after what ``other`` has seen."""
    mine = clock(stream)
    for name, count in other.items():
        mine[name] = max(mine.get(name, 0), count)


def used(tensor: torch.Tensor, who: object, *, writes: bool, what: str) -> None:
    """Note a use by a stream or the host.

    OrderError where it does not come after those that it has to follow.
    """
    storage = storage_of(tensor)
    if storage is None:
        return
    use = getattr(storage, "use", None)
    if use is None:
        if who == HOST:
            return
        use = storage.use = Use()  # type: ignore[attr-defined]
    if use.write is not None:
        _follows(who, *use.write, f"{what} uses a tensor that another stream is still writing")
    if not writes:
        use.reads[who] = _count(who)
        return
    for reader, count in use.reads.items():
        _follows(
            who, reader, count, f"{what} overwrites a tensor that another stream is still reading"
        )
    use.write, use.reads = (who, _count(who)), {}


def _count(who: object) -> int:
    return clock(who).get(who, 0)


def _follows(who: object, before: object, count: int, message: str) -> None:
    if who != before and before != HOST and clock(who).get(before, 0) < count:
        raise OrderError(f"{message}: wait for it first (rehearsed)")
