"""A journal of what labs measure: whoever opens one gets each result as it comes.

labkit itself writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


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


def open_journal(keeper: Keeper, *, counters: bool = False) -> None:
    """From now on call ``keeper(result, about)`` for each result of a lab.

    A result is a Comparison, a RaceResult or a `Failure`; ``about`` says how it was taken. With
    ``counters`` labs also count what a step of each side does.
    """
    _open.append(_Journal(keeper, counters))


@contextmanager
def journal(keeper: Keeper, *, counters: bool = False) -> Iterator[None]:
    """`open_journal` for as long as the block runs."""
    opened = _Journal(keeper, counters)
    _open.append(opened)
    try:
        yield
    finally:
        _open.remove(opened)


def wants_counters() -> bool:
    """Whether an open journal asks labs to count."""
    return any(opened.counters for opened in _open)


def keep(result: object, **about: Any) -> None:
    """Hand a result to every open journal; ``about`` says how it was taken: the seed, threads."""
    for opened in _open:
        opened.keeper(result, about)
