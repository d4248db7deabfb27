"""The lines of the slow script that ask for a switch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from textwrap import dedent

from course import speedrun

# Lines below one that opens a block.
MOST = 2


def code_of(switch: str) -> str:
    """What a switch changes in the script: each line that names it, with what it opens."""
    return "\n".join(dict.fromkeys(_parts(switch)))


def _parts(switch: str) -> Iterator[str]:
    # What it plans with, it plans with a copy of the whole.
    source = inspect.getsource(speedrun).replace(inspect.getsource(speedrun.plan), "")
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if f'"{switch}"' in line:
            yield _with_block(lines, number)
            if use := _use(lines, line):
                yield _with_block(lines, use)


def _with_block(lines: Sequence[str], number: int) -> str:
    """A line, and the first of those that it opens."""
    most = MOST if lines[number].rstrip().endswith(":") else 0
    return dedent("\n".join([lines[number], *islice(_deeper(lines, number), most)]))


def _use(lines: Sequence[str], line: str) -> int:
    """Where a switch that sets a variable acts: the first line that uses it; 0 for no variable."""
    found = re.match(r"\s*(?:\w+\.)?(\w\w+) = .* in on", line)
    if found is None:
        return 0
    used = re.compile(rf"(?<!\w){found[1]}(?!\w| = )")
    return next((n for n, each in enumerate(lines) if each != line and used.search(each)), 0)


def _deeper(lines: Sequence[str], number: int) -> Iterator[str]:
    """The lines behind one as long as they are indented further."""
    depth = _depth(lines[number])
    return takewhile(lambda line: _depth(line) > depth, lines[number + 1 :])


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())
