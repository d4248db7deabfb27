"""A log that steps may write to, and that is not put back with what they train."""

from queue import SimpleQueue
from typing import Any


class Kept(SimpleQueue):
    """Entries stay, in their order: a queue belongs to other threads, too."""

    def entries(self) -> list[Any]:
        """All that was put here so far."""
        found = [self.get() for _ in range(self.qsize())]
        for each in found:
            self.put(each)
        return found
