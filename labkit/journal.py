"""A journal of what labs measure: whoever opens one gets each result as it comes. labkit itself writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Keeper = Callable[[Any, Mapping[str, Any]], None]

_keepers: list[Keeper] = []


@dataclass(frozen=True)
class Failure:
    """A lab that raised."""

    lab: str
    settings: dict[str, Any]
    error: str


def is_open() -> bool:
    """Whether somebody keeps a journal: labs then count what a step does, too."""
    return bool(_keepers)


def open_journal(keeper: Keeper) -> None:
    """From now on call ``keeper(result, about)`` for each Comparison, RaceResult and `Failure` of a lab."""
    _keepers.append(keeper)


@contextmanager
def journal(keeper: Keeper) -> Iterator[None]:
    """`open_journal` for as long as the block runs."""
    open_journal(keeper)
    try:
        yield
    finally:
        _keepers.remove(keeper)


def keep(result: Any, **about: Any) -> None:
    """Hand a result to every open journal; ``about`` says how it was taken, the seed say."""
    for keeper in _keepers:
        keeper(result, about)
