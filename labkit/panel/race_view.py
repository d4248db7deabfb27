"""What the page draws of a race: the metric against seconds, both sides, while it goes on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labkit.device import pick
from labkit.panel.bars import group
from labkit.racing import RaceResult, RaceRun
from labkit.text import format_factor, format_seconds

# On the canvas, of all curves together: an update stays small.
MOST_POINTS = 200


class RaceView:
    """A race as it goes on: the runs that are finished, and the one that is not."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.result: RaceResult | None = None
        self.current: RaceRun | None = None
        self._first: str | None = None

    def take(self, news: RaceResult | RaceRun) -> None:
        """Take in what the race told."""
        if isinstance(news, RaceResult):
            self.result, self.current = news, None
            return
        self.current = news
        # Of the first seed the baseline runs first.
        self._first = self._first or news.arm

    def state(self, guess: float) -> dict[str, Any]:
        """For the page."""
        runs = list(self.result.runs) if self.result else []
        if self.current:
            runs.append(self.current)
        return {
            "progress": self._progress(),
            "metric": self.options.get("metric", "metric"),
            "target": self.options["target"],
            "seconds": self._expected(guess),
            **_curves(runs, self._baseline()),
            **(told(self.result) if self.result else {}),
        }

    def _baseline(self) -> str | None:
        if self.result and self.result.arms:
            return self.result.arms[0]
        return self._first

    def _progress(self) -> float:
        seeds = self.options.get("seeds") or pick(cpu=5, test=2)
        done = float(len(self.result.runs)) if self.result else 0.0
        if self.current and self.current.curve:
            done += self.current.curve[-1][0] / self.options["steps"]
        return min(1.0, done / (2 * seeds))

    def _expected(self, guess: float) -> float | None:
        """When the candidate arrives if the guess is right; None before the baseline has.

        0 stands for no guess.
        """
        if not guess or self.result is None or not self.result.arms:
            return None
        median = self.result.median(self.result.arms[0])
        return median / guess if math.isfinite(median) else None


def told(result: RaceResult) -> dict[str, Any]:
    """The figures of a race."""
    if len(result.arms) < 2:
        return {}
    baseline, candidate = result.arms[:2]
    ratio, low, high = result.speedup(candidate)
    detail = f"baseline reached it: {result.tally(baseline)}"
    detail += f"\ncandidate reached it: {result.tally(candidate)}"
    figure, caption = f"{format_factor(ratio)}×", "as fast to the target"
    if result.told_by(candidate) != "times":
        figure, caption = result.tally(candidate), "reached the target"
        detail = f"of the baseline {result.tally(baseline)}"
    elif math.isnan(low):
        detail = f"{result.certainty(candidate)}\n{detail}"
    else:
        detail = f"95 % interval {format_factor(low)} – {format_factor(high)}\n{detail}"
    medians = [result.median(arm) for arm in (baseline, candidate)]
    texts = [format_seconds(median) for median in medians]
    ends = [result.spread(arm) for arm in (baseline, candidate)]
    title = f"Training time to the target: median, {result.spread_name}"
    return {
        "speedup": figure,
        "caption": caption,
        "verdict": result.verdict(candidate),
        "detail": detail,
        "bars": [group(title, medians, texts, ends)],
    }


def why_no_factor(result: RaceResult) -> str:
    """Why a race has no factor that a guess could be held against; "" where it has one."""
    if len(result.arms) < 2:
        return ""
    candidate = result.arms[1]
    by = result.told_by(candidate)
    if by == "nothing":
        return "neither side reached the target"
    if by == "counts":
        return f"the candidate reached the target {result.counts(candidate, 'the baseline')}"
    return ""


def race_summary(result: RaceResult) -> str:
    """What the status line says of a race."""
    if len(result.arms) < 2:
        return "only the baseline has run"
    candidate = result.arms[1]
    reason = why_no_factor(result)
    if reason:
        return f"{result.verdict(candidate)}, {reason}"
    ratio, low, high = result.speedup(candidate)
    shown = f"{result.verdict(candidate)}, {format_factor(ratio)}×"
    if not math.isnan(low + high):
        shown += f" [{format_factor(low)}, {format_factor(high)}]"
    return f"{shown} to the target"


def race_sentence(result: RaceResult) -> str:
    """What a race found, in one sentence."""
    sign = "at least" if result.higher_is_better else "at most"
    aim = f"{result.metric} of {sign} {result.target:g}"
    if len(result.arms) < 2:
        return "Only the baseline has run."
    candidate = result.arms[1]
    by = result.told_by(candidate)
    if by == "nothing":
        return f"No run reached {aim}."
    if by == "counts":
        return f"The candidate reached {aim} {result.counts(candidate, 'the baseline')}."
    ratio, *_ = result.speedup(candidate)
    found = f"The candidate is {format_factor(ratio)} times as fast to {aim} as the baseline"
    return f"{found} ({result.certainty(candidate)})."


def _curves(runs: list[RaceRun], baseline: str | None) -> dict[str, Any]:
    """The curves one after the other, thinned: their sides, their lengths, and their points."""
    each = max(6, MOST_POINTS // max(1, len(runs)))
    curves, points = [], []
    for number, run in enumerate(runs):
        kept = _thinned(run.curve, each)
        last = number == len(runs) - 1
        curves.append([int(run.arm != baseline), len(kept), int(run.reached), int(last)])
        points += [(seconds, metric) for _, seconds, metric in kept]
    return {"curves": curves, "points": np.asarray(points, np.float32).tobytes()}


def _thinned(
    curve: tuple[tuple[int, float, float], ...], most: int
) -> list[tuple[int, float, float]]:
    """Every so many points, and always the last."""
    finite = [point for point in curve if math.isfinite(point[2])]
    every = math.ceil(len(finite) / most) or 1
    return finite[::-every][::-1]
