"""A journal of what labs measure: whoever opens one gets each result as it comes.

labkit itself writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

# Takes a result, and how it was taken.
Keeper = Callable[[Any, Mapping[str, Any]], None]

_keepers: list[Keeper] = []


@dataclass(frozen=True)
class Failure:
    """A lab that raised."""

    lab: str
    settings: dict[str, Any]
    error: str


def open_journal(keeper: Keeper) -> None:
    """From now on call ``keeper(result, about)`` for each result of a lab.

    A result is a Comparison, a RaceResult or a `Failure`; ``about`` says how it was taken. With an
    open journal labs also count what a step of each side does.
    """
    _keepers.append(keeper)


@contextmanager
def journal(keeper: Keeper) -> Iterator[None]:
    """`open_journal` for as long as the block runs."""
    open_journal(keeper)
    try:
        yield
    finally:
        _keepers.remove(keeper)


def is_open() -> bool:
    """Whether anyone listens."""
    return bool(_keepers)


def keep(result: object, **about: Any) -> None:
    """Hand a result to every open journal."""
    for keeper in _keepers:
        keeper(result, about)
