"""The form of a check: a list of cases, the first wrong one of which is the reader's hint.

A check is a function under `@check(praise)` that takes the reader's answer, tries its cases one
after the other, and raises `NotYet` where one is wrong.

`course check` runs a check in a process of its own, to which the student's function is `far`: only
values come back. ``judged`` says how much of a check that can do: it is right for all that looks
at what the function returns and changes ("outside"). A check that also counts what happens inside
is run a second time beside the answer ("both"), and one that is about nothing else, threads or
graphs, runs only there ("inside").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Literal, ParamSpec

from course.exercises import own

Arguments = ParamSpec("Arguments")
# Characters of a hint.
LONGEST = 500


class NotYet(Exception):
    """A case that is wrong; its message is the hint."""


def check(
    praise: str, *, judged: Literal["outside", "both", "inside"] = "outside"
) -> Callable[[Callable[Arguments, None]], Callable[Arguments, bool]]:
    """Make a list of cases a check: it prints ``✓ praise`` or the hint, and returns which."""

    def decorate(cases: Callable[Arguments, None]) -> Callable[Arguments, bool]:
        @wraps(cases)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> bool:
            try:
                cases(*args, **kwargs)
            except NotYet as missing:
                own.note(cases.__name__, right=False)
                return verdict(False, praise, str(missing))
            except Exception as error:
                cause: BaseException | None = error
                while cause is not None:
                    cause.__traceback__ = of_reader(cause.__traceback__)
                    cause = cause.__cause__ or cause.__context__
                raise
            verdict(True, praise, "")
            own.note(cases.__name__, right=True)
            return True

        checked.__dict__["judged"] = judged
        return checked

    return decorate


def far(answer: Callable[..., Any]) -> bool:
    """Whether an answer runs in another process, where its operators cannot be counted."""
    return bool(getattr(answer, "far", False))


def verdict(right: bool, praise: str, hint: str) -> bool:
    """Print ``✓ praise`` or ``not yet: hint``, cut where it shows a value that has no end."""
    if right:
        print(f"✓ {praise}")
    else:
        if len(hint) > LONGEST:
            hint = f"{hint[:LONGEST]} …"
        print(f"not yet: {hint}")
    return right


def attempt(answer: Callable[..., Any], *arguments: Any) -> Any:
    """Call the reader's function; NotYet for a stub (NotImplementedError), None for one of ``...``.

    Any other error of the reader's own code is raised: its traceback is the best hint there is.
    """
    try:
        return answer(*arguments)
    except NotImplementedError:
        raise NotYet("write it, then run this cell again") from None


def of_reader(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback of the reader's own lines: without those of checks, and of what either calls.

    Whole where the reader has no line in it: then the fault is in the check.
    """
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    # Cells are run as this module.
    own = [each for each in frames if each.tb_frame.f_globals.get("__name__") == "__main__"]
    kept: TracebackType | None = None
    for each in reversed(own or frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept
