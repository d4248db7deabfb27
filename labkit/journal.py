"""A journal of what labs measure: whoever opens one gets each result as it comes.

labkit itself writes nothing. A journal may also answer: what it still has of a run that was cut
off is not measured again.
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
Answer = Callable[[str], Any]


@dataclass(frozen=True, eq=False)
class _Journal:
    keeper: Keeper
    counters: bool
    answer: Answer | None = None


_open: list[_Journal] = []


def open_journal(keeper: Keeper, *, counters: bool = False, answer: Answer | None = None) -> None:
    """From now on call ``keeper(result, about)`` for each result of a lab.

    A result is a Comparison, a RaceResult or a `Failure`; ``about`` says how it was taken. With
    ``counters`` labs also count what a step of each side does. ``answer(question)`` is asked before
    anything is measured: a result that it returns is taken for measured, None means to measure.
    """
    _open.append(_Journal(keeper, counters, answer))


@contextmanager
def journal(
    keeper: Keeper, *, counters: bool = False, answer: Answer | None = None
) -> Iterator[None]:
    """`open_journal` for as long as the block runs."""
    opened = _Journal(keeper, counters, answer)
    _open.append(opened)
    try:
        yield
    finally:
        _open.remove(opened)


def wants_counters() -> bool:
    """Whether an open journal asks labs to count."""
    return any(opened.counters for opened in _open)


def recall(question: str) -> Any:
    """What an open journal has for the answer to a lab's question, or None."""
    for opened in _open:
        if opened.answer is None:
            continue
        found = opened.answer(question)
        if found is not None:
            return found
    return None


def keep(result: object, **about: Any) -> None:
    """Hand a result to every open journal; ``about`` says how it was taken: the seed, threads."""
    for opened in _open:
        opened.keeper(result, about)
