"""The lines of the slow script that ask for a switch."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from textwrap import dedent

from course import speedrun

# Lines below one that opens a block.
MOST = 2


def code_of(switch: str) -> str:
    """What a switch changes in the script: each line that names it, with what it opens."""
    return "\n".join(_parts(switch))


def _parts(switch: str) -> Iterator[str]:
    # What it plans with, it plans with a copy of the whole.
    source = inspect.getsource(speedrun).replace(inspect.getsource(speedrun.plan), "")
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if f'"{switch}"' in line:
            most = MOST if line.rstrip().endswith(":") else 0
            yield dedent("\n".join([line, *islice(_deeper(lines, number), most)]))


def _deeper(lines: Sequence[str], number: int) -> Iterator[str]:
    """The lines behind one as long as they are indented further."""
    depth = _depth(lines[number])
    return takewhile(lambda line: _depth(line) > depth, lines[number + 1 :])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
