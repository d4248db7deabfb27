"""Times that other programs have not made longer: taken again until two of the fastest agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# The two fastest times of a part differ by at most this share of all parts together.
CLOSE = 0.1
# At most so many times as many runs as were asked for.
MORE = 5


def fastest(take: Callable[[], Sequence[float]], repeats: int) -> tuple[float, ...]:
    """The least seconds of each part that ``take`` times, of about ``repeats`` runs.

    What else runs on a machine only adds to a time, so the least is the best figure, once a second
    run is near it. Until then runs are added, up to `MORE` times ``repeats``. A single run,
    ``repeats=1``, is taken as it is.
    """
    runs = [take() for _ in range(min(2, repeats))]
    while repeats > 1 and not agreed(runs) and len(runs) < MORE * repeats:
        runs.append(take())
    return tuple(map(min, zip(*runs, strict=True)))


def agreed(runs: Sequence[Sequence[float]]) -> bool:
    """Whether each part has a second time that is near its least; of two runs or more."""
    parts = [sorted(part) for part in zip(*runs, strict=True)]
    whole = sum(part[0] for part in parts)
    return all(part[1] - part[0] <= CLOSE * whole for part in parts)
