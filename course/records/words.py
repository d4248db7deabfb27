"""Recorded results in words and figures, as they stand in tables."""

from __future__ import annotations

import math
from collections.abc import Iterator

from course.records.format import Result
from course.records.planned import PlanRatios
from course.records.store import Record
from labkit.journal import Failure
from labkit.racing import RaceResult
from labkit.results import Comparison
from labkit.text import format_seconds, format_settings

MISSING = "not recorded yet"


def what_changed(result: Comparison) -> str:
    """The candidate in words: what it sets differently."""
    if not result.candidate.settings:
        # Of `compare`: two functions, of which nothing else is known.
        return result.candidate.label
    changed = {name: after for name, (_, after) in result.changed.items()}
    return format_settings(changed) or "the same again (A/A)"


def arrival_text(result: RaceResult, arm: str) -> str:
    """``median 3.1 s, 5 of 5 seeds arrived``."""
    return f"median {format_seconds(result.median(arm))}, {result.tally(arm)} seeds arrived"


def at(label: str, settings: dict[str, object]) -> str:
    """A label, and what else was set: ``h200, at size=512``."""
    if settings:
        return f"{label}, at {format_settings(settings)}"
    return label


def record_text(record: Record) -> str:
    """A whole record as text, a line for each result."""
    lines = [f"Recorded on {record.label}, torch {record.card['torch']}:"]
    if record.failed:
        lines.append(f"  the run failed: {record.failed}")
    for result in record.results:
        for line in _lines(result):
            lines.append(f"  {line}")
    return "\n".join(lines)


def _lines(result: Result) -> Iterator[str]:
    if isinstance(result, Failure):
        settings = format_settings(result.settings) or "its defaults"
        yield f"{result.lab}, {settings}: failed with {result.error}"
    elif isinstance(result, PlanRatios):
        yield str(result)
    elif isinstance(result, RaceResult):
        for arm in result.arms:
            goal = f"{result.metric} {result.target:g}"
            yield f"race to {goal}, {arm}: {arrival_text(result, arm)}"
    else:
        line = f"{what_changed(result)}: {result.in_short()}"
        if not math.isnan(result.memory_ratio):
            line += f"; memory {result.memory_ratio:.2f}"
        if result.shared:
            line += f"  (at {format_settings(result.shared)})"
        yield line
