"""Exchange an attribute for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NOTHING = object()


@contextmanager
def patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    """``owner.name`` is ``value`` inside; afterwards it is what it was, or inherited again."""
    before = vars(owner).get(name, _NOTHING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _NOTHING:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
