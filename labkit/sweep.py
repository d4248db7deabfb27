"""A sweep: one comparison for each value of a control, in the order of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import overload

from labkit import charts, show
from labkit.results import ROLES, Comparison
from labkit.show import Markup
from labkit.text import (
    aligned,
    format_factor,
    format_interval,
    format_seconds,
    format_settings,
    format_short,
    listed,
)


@dataclass(frozen=True)
class Progress:
    """Where a sweep is: at the value number ``index``, from 0, of ``count``.

    ``partial`` is what it has of it.
    """

    index: int
    count: int
    partial: Comparison


@dataclass(frozen=True)
class Sweep(Sequence[Comparison]):
    """The comparisons of a sweep, and the name of the ``control`` that was swept.

    It reads like a list.
    """

    control: str
    results: tuple[Comparison, ...] = ()

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Comparison: ...

    @overload
    def __getitem__(self, index: slice) -> Sweep: ...

    def __getitem__(self, index: int | slice) -> Comparison | Sweep:
        if isinstance(index, slice):
            return Sweep(self.control, self.results[index])
        return self.results[index]

    @property
    def values(self) -> tuple[object, ...]:
        """The value of the control in each comparison."""
        return tuple(each.candidate.settings[self.control] for each in self.results)

    @property
    def sentence(self) -> str:
        """``Sweep of size: faster at 64, 256; unclear at 8.``"""
        found = zip((result.conclusion for result in self), self.values, strict=True)
        return f"Sweep of {self.control}: {listed(found) or 'no results'}."

    @property
    def rows(self) -> list[list[str]]:
        """A row for each value, below the row of heads."""
        head = [self.control, *ROLES, "speed-up", "95 % interval", "verdict"]
        rows = [
            head,
            *(_row(value, result) for value, result in zip(self.values, self, strict=True)),
        ]
        if not all(math.isnan(result.memory_ratio) for result in self):
            head.append("memory of the baseline's")
            for row, result in zip(rows[1:], self, strict=True):
                row.append(format_factor(result.memory_ratio))
        return rows

    @property
    def details(self) -> tuple[str, ...]:
        """What the figures rest on, and what else both sides have set."""
        if not self.results:
            return ()
        first = self.results[0]
        lines = [f"each value: {first.taken}"]
        for role, side in zip(ROLES, first.arms, strict=True):
            others = {name: one for name, one in side.settings.items() if name != self.control}
            if others:
                lines.append(f"{role}: {format_settings(others)}")
        return tuple(lines)

    def picture(self, recorded: Sequence[tuple[str, Sequence[Comparison]]] = ()) -> Markup:
        """The speed-up at each value; ``recorded`` sweeps have a label each."""
        others = []
        for _, every in recorded:
            others.append(
                {str(each.candidate.settings[self.control]): each.speedup for each in every}
            )
        rows = []
        for value, result in zip(self.values, self, strict=True):
            before, after = (format_short(side.throughput) for side in result.arms)
            note = f"{before} → {after} {result.baseline.unit}/s"
            row = result.row(str(value), note)
            known = (every.get(str(value), math.nan) for every in others)
            rows.append(replace(row, others=tuple(known)))
        labels = [label for label, _ in recorded]
        return charts.ratios(
            self.sentence, rows, below=f"each value of {self.control}", recorded=labels
        )

    def __str__(self) -> str:
        table = [aligned(self.rows)] if self.results else []
        return "\n".join([self.sentence, *table, *self.details])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.results:
            return show.result(show.sentence(self.sentence))
        return show.result(
            show.sentence(self.sentence),
            self.picture(),
            show.details(*self.details, show.table(self.rows)),
        )


def _row(value: object, result: Comparison) -> list[str]:
    times = [side.error or format_seconds(side.median) for side in result.arms]
    interval = format_interval(*result.interval) or "-"
    return [str(value), *times, format_factor(result.speedup), interval, result.conclusion]
