"""A journal of what labs measure: whoever opens one gets each result as it comes.

labkit itself writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Plain = bool | int | float | str | None


@dataclass(frozen=True)
class Failure:
    """A lab that raised."""

    lab: str
    settings: dict[str, Any]
    error: str


Keeper = Callable[[Any, Mapping[str, Any]], None]


@dataclass(frozen=True, eq=False)
class _Journal:
    keeper: Keeper
    counters: bool


_open: list[_Journal] = []


def open_journal(keeper: Keeper, *, counters: bool = False) -> _Journal:
    """From now on call ``keeper(result, about)`` for each result of a lab.

    A result is a Comparison, a RaceResult or a `Failure`; ``about`` says how it was taken. With
    ``counters`` labs also count what a step of each side does.
    """
    opened = _Journal(keeper, counters)
    _open.append(opened)
    return opened


@contextmanager
def journal(keeper: Keeper, *, counters: bool = False) -> Iterator[None]:
    """`open_journal` for as long as the block runs."""
    opened = open_journal(keeper, counters=counters)
    try:
        yield
    finally:
        _open.remove(opened)


def wants_counters() -> bool:
    """Whether an open journal asks labs to count."""
    return any(opened.counters for opened in _open)


def keep(result: object, **about: Any) -> None:
    """Hand a result to every open journal."""
    for opened in _open:
        opened.keeper(result, about)


def plain(settings: Mapping[str, Any]) -> dict[str, Plain]:
    """Settings as JSON knows them; others, such as a dtype or infinity, by their names."""
    found: dict[str, Plain] = {}
    for name, value in settings.items():
        known = isinstance(value, bool | int | float | str | None)
        if isinstance(value, float):
            known = math.isfinite(value)
        found[name] = value if known else str(value)
    return found
