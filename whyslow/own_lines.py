"""Where in the reader's files a part of the step spends its time: the heaviest line of each."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from whyslow.findings import LEAST_SHARE
from whyslow.lines import OWN, Line, sampled
from whyslow.phases import MODEL, REST
from whyslow.phases import UPDATE as UPDATE_PART
from whyslow.sampling import Sampler
from whyslow.stacks import BACKWARD, FORWARD, LOGGING, SAVING, UPDATE

# The causes of a line, by the part of the step that it belongs to.
_CAUSES = {
    MODEL: (FORWARD, BACKWARD),
    UPDATE_PART: (UPDATE, OWN),
    REST: (OWN, LOGGING, SAVING),
}


class OwnLines:
    """The lines that ran in the last block that was looked at."""

    def __init__(self) -> None:
        self.lines: tuple[Line, ...] = ()
        # Lines that have called the diagnosis are no part of the step.
        stack = traceback.walk_stack(None)
        self._callers = {(frame.f_code.co_filename, number) for frame, number in stack}

    def where(self, part: str) -> str:
        """The heaviest line of a part of the step; nothing where there is none to name."""
        causes = _CAUSES.get(part, ())
        for line in self.lines:
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""

    @contextmanager
    def seen(self) -> Iterator[None]:
        """Look at the lines that run inside."""
        sampler = Sampler(self._done)
        sampler.start()
        try:
            yield
        finally:
            sampler.stop()
        lines = sampled(sampler.tally).lines
        self.lines = tuple(each for each in lines if (each.file, each.number) not in self._callers)

    def _done(self) -> None:
        """It ends with the block alone."""
