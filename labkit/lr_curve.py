"""What the curve of a learning-rate range test says: where it falls, read by four rules.

The losses are smoothed by fitting a straight line around each point. Unlike an average, the line
neither lags behind nor is biased at the ends, and it gives the slope too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# With fewer losses than these nothing is smoothed, and no rule is asked.
FEWEST = 5
# Of the smoothing, as a standard deviation in decades.
WIDTH = 0.2
# A loss of so many times the best one has diverged, unless the loss fell far.
DIVERGED = 4.0


@dataclass(frozen=True)
class Curve:
    """Smoothed losses over log10 of the learning rate.

    ``slope`` is per decade. ``first`` is the level at which the losses begin; a fall of less than
    ``clear`` may be noise.
    """

    lrs: Array
    decades: Array
    value: Array
    slope: Array
    first: float
    clear: float


@dataclass(frozen=True)
class Fall:
    """Where a curve falls, as indices: from ``start`` by ``steepest`` down to ``low``.

    ``bottom``: whether ``low`` is a minimum, and not just where the test ended.
    """

    start: int
    steepest: int
    low: int
    bottom: bool


def suggest(lrs: Array, losses: Array, *, diverged: bool) -> tuple[Array, dict[str, float | None]]:
    """The smoothed losses, and what each rule of `RULES` suggests, or None.

    ``diverged``: whether the test ended because the loss did.
    """
    found: dict[str, float | None] = dict.fromkeys(RULES)
    if len(losses) < FEWEST:
        return losses, found
    curve = smooth(lrs, losses)
    fall = find_fall(curve, diverged)
    if fall is not None:
        for name, rule in RULES.items():
            found[name] = rule(curve, fall)
    return curve.value, found


def smooth(lrs: Array, losses: Array) -> Curve:
    """The curve of at least five losses, all finite."""
    x, y = np.log10(lrs), without_outliers(losses)
    # Capped: the blow-up at the end would bend the curve far below it.
    y = np.minimum(y, 2 * np.median(losses[:5]) - np.min(y))
    away = x[None, :] - x[:, None]
    weight = np.exp(-0.5 * (away / max(WIDTH, x[1] - x[0])) ** 2)
    # Weighted sums over the neighbours, for the least-squares line around each point.
    s0, s1, s2 = weight.sum(1), (weight * away).sum(1), (weight * away**2).sum(1)
    t0, t1 = weight @ y, (weight * away) @ y
    determinant = s0 * s2 - s1**2
    value = (s2 * t0 - s1 * t1) / determinant
    slope = (s0 * t1 - s1 * t0) / determinant
    first = float(np.median(losses[: max(5, len(losses) // 10)]))
    # 1.48 times the median deviation is the standard deviation of normal noise.
    noise = 1.48 * float(np.median(np.abs(losses - value)))
    return Curve(lrs, x, value, slope, first, 2.5 * noise + 1e-5 * abs(first))


def find_fall(curve: Curve, diverged: bool) -> Fall | None:
    """The first clear fall of the curve; None where there is none."""
    value, slope, first = curve.value, curve.slope, curve.first
    depth = first - np.minimum.accumulate(value)
    # Where the loss has risen by half of a clear fall, the valley is over: the rest is not read.
    risen = (depth > max(curve.clear, depth[-1] / 5)) & (value > first - depth / 2)
    end = int(np.argmax(risen)) if risen.any() else len(value)
    low = int(np.argmin(value[:end]))
    # From where the loss leaves its first level for good: a hump before that falls steeply too,
    # yet leads nowhere.
    high = np.flatnonzero(value[:low] >= 0.95 * first + 0.05 * value[low])
    start = int(high[-1]) if high.size else 0
    steepest = start + int(np.argmin(slope[start : low + 1]))
    if depth[low] <= curve.clear or slope[steepest] >= 0:
        return None
    return Fall(start, steepest, low, bottom=diverged or low < len(value) - 1)


def steepest(curve: Curve, fall: Fall) -> float | None:
    """Where the loss falls fastest against log(lr)."""
    return float(curve.lrs[fall.steepest])


def minimum_over_10(curve: Curve, fall: Fall) -> float | None:
    """A tenth of the learning rate of the lowest loss, if both were tried."""
    tenth = float(curve.lrs[fall.low] / 10)
    return tenth if fall.bottom and tenth >= curve.lrs[0] else None


def valley(curve: Curve, fall: Fall) -> float | None:
    """Two thirds into the longest stretch of falling loss."""
    falling = curve.slope[: fall.low + 1] < 0.05 * curve.slope[fall.steepest]
    edges = np.flatnonzero(np.diff(np.concatenate(([False], falling, [False]))))
    begins, ends = edges[::2], edges[1::2]
    longest = int(np.argmax(ends - begins))
    begin, end = curve.decades[begins[longest]], curve.decades[ends[longest] - 1]
    return float(10 ** (begin + 2 / 3 * (end - begin)))


def slide(curve: Curve, fall: Fall) -> float | None:
    """The low end of a decade that slides down from the minimum until its ends have one slope.

    One slope within a tenth of the steepest: a flat tail must not stop it.
    """
    slope = curve.slope
    decade = max(1, round(1 / (curve.decades[1] - curve.decades[0])))
    # By how much the slope grows over the decade that begins here.
    bend = slope[decade:] - slope[:-decade]
    before_the_low = bend[: max(0, fall.low - decade + 1)]
    stops = np.flatnonzero(before_the_low <= -0.1 * slope[fall.steepest])
    return float(curve.lrs[stops[-1]]) if stops.size else None


RULES: dict[str, Callable[[Curve, Fall], float | None]] = {
    "steepest": steepest,
    "minimum_over_10": minimum_over_10,
    "valley": valley,
    "slide": slide,
}


def find_divergence(losses: Array) -> int | None:
    """Index of the first diverged step, if any; a step is settled by the two that follow it.

    Diverged is a loss that is not finite, or over ``best + (DIVERGED - 1) * max(|best|, first -
    best)``.
    """
    infinite = np.flatnonzero(~np.isfinite(losses))
    finite = int(infinite[0]) if infinite.size else len(losses)
    level = without_outliers(losses[:finite])
    first, best = np.median(losses[: min(finite, 5)]), np.minimum.accumulate(level)
    over = level > best + (DIVERGED - 1) * np.maximum(np.abs(best), first - best)
    if over.any():
        return int(np.argmax(over))
    return finite if infinite.size else None


def without_outliers(losses: Array) -> Array:
    """Running median of five, its ends repeated: a spike of one or two steps leaves no trace."""
    if len(losses) < FEWEST:
        return losses
    windows = np.lib.stride_tricks.sliding_window_view(losses, 5)
    return np.pad(np.median(windows, axis=1), 2, mode="edge")
