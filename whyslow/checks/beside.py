"""What a step does in lines of the reader's own: work around the training, updates by hand, and
code that is compiled again and again. By the lines that ran, not by experiment.
"""

from __future__ import annotations

from collections.abc import Iterator

from whyslow.checks.update import of_update
from whyslow.findings import Finding, found
from whyslow.lines import OWN, cause_of, is_by_hand
from whyslow.parts import Parts
from whyslow.remedies import BESIDE, RECOMPILED
from whyslow.stacks import COMPILING, LOGGING, SAVING, Stack
from whyslow.subject import Subject

# A little of it is in every step: logging, moving a batch.
LEAST = 0.08
AROUND = OWN, LOGGING, SAVING
# One compilation is no habit.
COMPILATIONS = 2


def looked_for(subject: Subject) -> Iterator[str]:
    """Which of these findings the step may have."""
    yield RECOMPILED
    if _trains(subject):
        yield BESIDE


def _trains(subject: Subject) -> bool:
    seen = subject.seen
    return bool(seen.roots and seen.backwards and not seen.profiled)


def again(parts: Parts, times: int) -> Iterator[Finding]:
    """What compiling again costs."""
    if times >= COMPILATIONS:
        share = parts.share(lambda stack: cause_of(stack) == COMPILING)
        yield found(RECOMPILED, *share, f"by its lines: {times} compilations in warm steps")


def around(subject: Subject, parts: Parts) -> Iterator[Finding]:
    """Work around the training, such as averages of weights; a validation is none of it."""
    updates = of_update(subject)

    def wanted(stack: Stack) -> bool:
        return (cause_of(stack) in AROUND or is_by_hand(stack)) and not updates(stack)

    share, interval = parts.share(wanted)
    if _trains(subject) and not subject.seen.unused and interval[0] >= LEAST:
        how = "by the lines that ran outside of modules, loss, backward pass and update"
        yield found(BESIDE, share, interval, how)
