"""A journal of what labs measure: whoever opens one gets each result as it comes.

labkit itself writes nothing. A journal may also answer: what it still has of a run that was cut
off is not measured again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from labkit.racing import RaceResult
from labkit.results import Comparison

Plain = bool | int | float | str | None
R = TypeVar("R", Comparison, RaceResult)


@dataclass(frozen=True)
class Key:
    """What a result of a lab depends on, beside the code: equal keys ask the same question.

    All of it is plain, so that it may be written to a file and read from it. ``sides`` are the
    settings of each, the baseline first; ``seconds`` the budget of a comparison, None for a race.
    """

    lab: str
    sides: tuple[tuple[tuple[str, Plain], ...], ...]
    seconds: float | None
    seed: int | None
    threads: int | None
    options: tuple[tuple[str, Plain], ...] = ()

    @classmethod
    def of(
        cls,
        lab: str,
        sides: Iterable[Mapping[str, Any]],
        *,
        seconds: float | None = None,
        seed: int | None = None,
        threads: int | None = None,
        **options: Any,
    ) -> Key:
        """The key of these settings and options, whatever their values are."""
        pairs = tuple(tuple(plain(settings).items()) for settings in sides)
        others = tuple(sorted(plain(options).items()))
        return cls(lab, pairs, seconds, seed, threads, others)


@dataclass(frozen=True)
class Failure:
    """A lab that raised."""

    lab: str
    settings: dict[str, Any]
    error: str


Keeper = Callable[[Any, Mapping[str, Any]], None]
Answer = Callable[[Key], Any]


@dataclass(frozen=True, eq=False)
class _Journal:
    keeper: Keeper
    counters: bool
    answer: Answer | None


_open: list[_Journal] = []


def open_journal(
    keeper: Keeper, *, counters: bool = False, answer: Answer | None = None
) -> _Journal:
    """From now on call ``keeper(result, about)`` for each result of a lab.

    A result is a Comparison, a RaceResult or a `Failure`; ``about`` says how it was taken. With
    ``counters`` labs also count what a step of each side does. ``answer(key)`` is asked before
    anything is measured: a result that it returns is taken for measured, None means to measure.
    """
    opened = _Journal(keeper, counters, answer)
    _open.append(opened)
    return opened


@contextmanager
def journal(
    keeper: Keeper, *, counters: bool = False, answer: Answer | None = None
) -> Iterator[None]:
    """`open_journal` for as long as the block runs."""
    opened = open_journal(keeper, counters=counters, answer=answer)
    try:
        yield
    finally:
        _open.remove(opened)


def wants_counters() -> bool:
    """Whether an open journal asks labs to count."""
    return any(opened.counters for opened in _open)


def remembered(key: Key, take: Callable[[], R], **about: Any) -> R:
    """What an open journal still has for the key, else what ``take`` measures.

    It is kept in every open journal, unless it was stopped; ``about`` says how it was taken.
    """
    answers = (opened.answer(key) for opened in _open if opened.answer is not None)
    result = next((answer for answer in answers if answer is not None), None)
    if result is None:
        result = take()
    if not result.stopped:
        keep(result, **about)
    return result


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
