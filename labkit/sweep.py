"""A sweep: one comparison for each value of a control, in the order of the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from labkit import report
from labkit.results import Comparison


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

    def __str__(self) -> str:
        parts = []
        for value, each in zip(self.values, self.results, strict=True):
            parts.append(f"{self.control}={value!r}\n{each}")
        return "\n\n".join(parts) or f"sweep of {self.control}: no results"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return report.sweep(self)
