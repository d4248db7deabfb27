"""The history of a panel: a row of texts for each result, of whichever mode."""

from __future__ import annotations

import math

from labkit.memory_timeline import MemoryComparison
from labkit.panel.modes import MEMORY, RACE, TIME
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.text import format_factor, format_seconds


def row(number: int, found: Comparison | RaceResult | MemoryComparison) -> list[str]:
    """Number, what differed, what was shared, the mode, and the figures."""
    if isinstance(found, RaceResult):
        return _race(number, found)
    differ = []
    for name, (before, after) in found.changed.items():
        differ.append(f"{name}: {before} → {after}")
    shared = [f"{name} {value}" for name, value in found.shared.items()]
    texts = [str(number), ", ".join(differ) or "same settings", ", ".join(shared)]
    peaks = [side.peak_text for side in found.arms]
    memory = " → ".join(peaks) if any(peak != "-" for peak in peaks) else "–"
    if isinstance(found, MemoryComparison):
        ratio = "–" if math.isnan(found.ratio) else f"{format_factor(found.ratio)}×"
        return [*texts, MEMORY, ratio, "", "", "", "", memory]
    factor = f"{format_factor(found.speedup)}×"
    medians = [format_seconds(side.median) for side in found.arms]
    return [*texts, TIME, factor, found.conclusion, _interval(*found.interval), *medians, memory]


def _race(number: int, found: RaceResult) -> list[str]:
    baseline, *others = found.arms
    medians = [format_seconds(found.median(arm)) for arm in found.arms[:2]]
    texts = [str(number), ", ".join(others), baseline if baseline != "baseline" else "", RACE]
    if not others:
        return [*texts, "–", "", "", *medians, "", "–"]
    ratio, low, high = found.speedup(others[0])
    factor = f"{format_factor(ratio)}×"
    if found.told_by(others[0]) != "times":
        factor = f"{found.tally(others[0])} against {found.tally(baseline)}"
    return [*texts, factor, found.verdict(others[0]), _interval(low, high), *medians, "–"]


def _interval(low: float, high: float) -> str:
    if not math.isfinite(low) or not math.isfinite(high):
        return "–"
    return f"{format_factor(low)} – {format_factor(high)}"
