"""Where in the reader's files a part of the step spends its time: the heaviest line of each."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType

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
    """A context that looks at the lines that run inside; the last one counts."""

    def __init__(self) -> None:
        self.lines: tuple[Line, ...] = ()
        # Lines that have called the diagnosis are no part of the step.
        self._callers = set(_places(sys._getframe(1)))

    def where(self, part: str) -> str:
        """The heaviest line of a part of the step; nothing where there is none to name."""
        causes = _CAUSES.get(part, ())
        for line in self.lines:
            if line.cause in causes and line.share >= LEAST_SHARE:
                return f"{line.place}: {line.source}"
        return ""

    def __enter__(self) -> None:
        self._sampler = Sampler(self._done)
        self._sampler.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._sampler.stop()
        if kind is None:
            lines = sampled(self._sampler.tally).lines
            self.lines = tuple(
                line for line in lines if (line.file, line.number) not in self._callers
            )

    def _done(self) -> None:
        """It ends with the block alone."""


def _places(frame: FrameType | None) -> list[tuple[str, int]]:
    places = []
    while frame is not None:
        places.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return places
