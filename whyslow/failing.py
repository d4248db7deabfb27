"""A part of a diagnosis that may fail, and ends only itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from labkit.device import is_out_of_memory, release_memory

# A block of this name may fail.
MayFail = Callable[[str], AbstractContextManager[None]]


@contextmanager
def may_fail(name: str, unmeasured: dict[str, str]) -> Iterator[None]:
    """An error of the block becomes the reason in ``unmeasured`` why nothing is known of it."""
    try:
        yield
    except Exception as error:
        # Whatever it is: the program itself ran without this.
        text = str(error).splitlines() or [""]
        unmeasured[name] = f"{type(error).__name__}: {text[0][:120]}"
        if is_out_of_memory(error):
            release_memory()
