"""Times of one side, and the table of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from labkit import show
from labkit.text import aligned, format_bytes, format_rate, format_seconds, number_of


@dataclass(frozen=True)
class Measurement:
    """Times of one side: seconds per step, one entry a block, in the order they were taken.

    ``builds`` has the number, from 0, of the build that each of the times was taken of; empty means
    one build. ``cold`` is the seconds of the very first step: compilation, cuDNN's search, first
    allocations. ``error`` says what ended this side: out of memory, or the death of its process.
    ``counters`` are exact counts of a step, or the reason why there are none. ``peak_bytes`` is
    None beside a number of ``reserved_bytes`` where it cannot be counted: see `labkit.graphs`.
    ``notes`` say what could not be put back: see `labkit.restore`.
    """

    label: str
    settings: dict[str, Any] = field(default_factory=dict)
    times: tuple[float, ...] = ()
    builds: tuple[int, ...] = ()
    steps_per_block: int = 1
    samples: float = 1
    unit: str = "samples"
    cold: float | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    error: str | None = None
    counters: dict[str, int] | str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.builds and len(self.builds) != len(self.times):
            raise ValueError(
                f"{len(self.builds)} builds for {len(self.times)} times of {self.label!r}: "
                "give the build of each time, or none where there was one build"
            )

    @cached_property
    def median(self) -> float:
        """Median seconds per step; nan when nothing was timed."""
        if not self.times:
            return math.nan
        return float(np.median(self.times))

    @cached_property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile of the seconds per step; nan when nothing was timed."""
        if not self.times:
            return math.nan, math.nan
        low, high = np.percentile(self.times, [25, 75])
        return float(low), float(high)

    @property
    def iqr(self) -> float:
        """Interquartile range of the seconds per step; nan when nothing was timed."""
        low, high = self.quartiles
        return high - low

    @property
    def throughput(self) -> float:
        """Samples per second."""
        return self.samples / self.median

    @property
    def peak_text(self) -> str:
        """Peak memory in words: ``12.0 MiB``, ``not countable``, or ``-`` where none was taken."""
        if self.peak_bytes is None and self.reserved_bytes is not None:
            return "not countable"
        return format_bytes(self.peak_bytes)

    @property
    def sentence(self) -> str:
        """What one step takes: its median, and the throughput."""
        if self.error:
            return f"The step ended by {self.error}."
        if not self.times:
            return "Nothing was timed."
        blocks = f"median of {number_of(len(self.times), 'block')}"
        rate = format_rate(self.throughput, self.unit)
        median = format_seconds(self.median)
        return f"One step takes {median} ({blocks}, IQR {format_seconds(self.iqr)}): {rate}."

    @property
    def rows(self) -> list[list[str]]:
        """The figures as a table, the first row its head."""
        return table_rows([self])

    def __str__(self) -> str:
        return "\n".join([self.sentence, aligned(self.rows), *self.notes])

    def _repr_html_(self) -> str:
        notes = map(show.note, self.notes)
        return show.result(show.sentence(self.sentence), show.table(self.rows), *notes)


def table_rows(sides: Sequence[Measurement]) -> list[list[str]]:
    """The rows of the table, the first its head: text and HTML have the same figures."""
    rows = [
        ["", *(side.label for side in sides)],
        ["step, median", *(format_seconds(side.median) for side in sides)],
        ["step, IQR", *(format_seconds(side.iqr) for side in sides)],
        ["throughput", *(format_rate(side.throughput, side.unit) for side in sides)],
        ["first step, this run", *(format_seconds(side.cold) for side in sides)],
    ]
    if any(side.peak_text != "-" for side in sides):
        rows.append(["peak memory", *(side.peak_text for side in sides)])
    if any(side.reserved_bytes is not None for side in sides):
        rows.append(["peak reserved", *(format_bytes(side.reserved_bytes) for side in sides)])
    if any(side.error for side in sides):
        rows.append(["ended by", *(side.error or "-" for side in sides)])
    return rows
