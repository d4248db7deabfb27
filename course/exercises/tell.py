"""The form of a check: a list of cases, the first wrong one of which is the reader's hint.

A check is a function under `@check(praise)` that takes the reader's answer, tries its cases one
after the other, and raises `NotYet` where one is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

Arguments = ParamSpec("Arguments")


class NotYet(Exception):
    """A case that is wrong; its message is the hint."""


def check(praise: str) -> Callable[[Callable[Arguments, None]], Callable[Arguments, bool]]:
    """Make a list of cases a check: it prints ``✓ praise`` or the hint, and returns which."""

    def decorate(cases: Callable[Arguments, None]) -> Callable[Arguments, bool]:
        @wraps(cases)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> bool:
            try:
                cases(*args, **kwargs)
            except NotYet as missing:
                return verdict(False, praise, str(missing))
            return verdict(True, praise, "")

        return checked

    return decorate


def verdict(right: bool, praise: str, hint: str) -> bool:
    """Print ``✓ praise`` or ``not yet: hint``."""
    if right:
        print(f"✓ {praise}")
    else:
        print(f"not yet: {hint}")
    return right


def attempt(answer: Callable[..., Any], *arguments: Any) -> Any:
    """Call the reader's function; an empty stub (NotImplementedError, or ``...``) gives None.

    Any other error of the reader's own code is raised: its traceback is the best hint there is.
    """
    try:
        return answer(*arguments)
    except NotImplementedError:
        return None
