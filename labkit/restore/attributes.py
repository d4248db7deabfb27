"""Exchange attributes for the length of a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from labkit.restore.undo import PutBack, call_all, giving_back

_NOTHING = object()


def patched(owner: Any, name: str, value: Any) -> AbstractContextManager[None]:
    """``owner.name`` is ``value`` inside; afterwards it is what it was, or inherited again."""
    return exchanged([(owner, name, value)])


@contextmanager
def exchanged(changes: Iterable[tuple[Any, str, Any]]) -> Iterator[None]:
    """As `patched`, of several attributes: all of them are put back, also by an interrupt."""
    changes = list(changes)
    undo = [_as_it_is(owner, name) for owner, name, _ in reversed(changes)]
    with giving_back(partial(call_all, undo)):
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield


def _as_it_is(owner: Any, name: str) -> PutBack:
    before = vars(owner).get(name, _NOTHING)

    def put_back() -> None:
        if before is not _NOTHING:
            setattr(owner, name, before)
        elif name in vars(owner):
            delattr(owner, name)

    return put_back
