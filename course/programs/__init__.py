"""Small training scripts as readers write them, and lines of theirs that can be mended.

Each script runs by itself, ``python course/programs/train.py``, and knows nothing of this module.
All of them have the lines of `MENDS` at the same places. A mended script is the same text with
another line in a line's place, so that every line keeps its number.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = ("train.py", "digits.py")
# By the number of the line: the part that is mended, and what takes its place.
MENDS = {
    20: ("self.images.max()", "255"),
    43: ("loss.item()", "loss.detach()"),
    44: ("sum(map(torch.eq, scores.argmax(1), y))", "(scores.argmax(1) == y).sum()"),
}


@dataclass(frozen=True)
class Program:
    """A script that was loaded: ``epoch()`` trains for one epoch over ``images`` images.

    ``lines`` is its text, ``mended`` has the numbers of lines that are not those of the file.
    ``file`` is the name by which frames of its code know it.
    """

    file: str
    lines: tuple[str, ...]
    mended: tuple[int, ...]
    epoch: Callable[[], tuple[float, float]]
    images: int

    @property
    def changes(self) -> str:
        """``"line 20 and 44 mended"``, or nothing."""
        return changes(self.mended)


def load(script: str, mended: Iterable[int] = ()) -> Program:
    """A script of `SCRIPTS` up to its first epoch, with some lines mended.

    ValueError for another script, and for a line that has no mend.
    """
    if script not in SCRIPTS:
        raise ValueError(f"script={script!r}: use one of {', '.join(SCRIPTS)}")
    numbers = tuple(sorted(mended))
    lines = (HERE / script).read_text(encoding="utf-8").splitlines()
    for number in numbers:
        if number not in MENDS:
            known = ", ".join(map(str, MENDS))
            raise ValueError(f"line {number!r} cannot be mended; use lines of {known}")
        lines[number - 1] = lines[number - 1].replace(*MENDS[number])
    file = _named(HERE / script, numbers, lines)
    names: dict[str, Any] = {"__name__": Path(script).stem, "__file__": file}
    exec(compile("\n".join(lines), file, "exec"), names)
    images = len(names["batches"].dataset)
    return Program(file, tuple(lines), numbers, names["epoch"], images)


def of(settings: dict[str, Any]) -> Program:
    """The program of a lab's settings: ``script``, and a switch ``line_20`` for each mend."""
    return load(settings["script"], [line for line in MENDS if settings[f"line_{line}"]])


def changes(numbers: Iterable[int]) -> str:
    """Which lines are mended, in words; nothing for none."""
    words = " and ".join(map(str, numbers))
    return f"line {words} mended" if words else ""


def _named(path: Path, numbers: tuple[int, ...], lines: list[str]) -> str:
    """The name of a text: the file's own, or one under which Python finds the mended lines."""
    if not numbers:
        return str(path)
    name = f"{path}, {changes(numbers)}"
    text = [f"{line}\n" for line in lines]
    linecache.cache[name] = (sum(map(len, text)), None, text, name)
    return name
