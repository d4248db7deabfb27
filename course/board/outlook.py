"""What is likely of a switch before it is measured: what this machine lacks, what others found."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from typing import NamedTuple

from course.board import recorded
from course.board.recorded import ADDED, FORWARD
from course.notebook_files import NOTEBOOKS, place
from course.probe import abilities
from course.switches import BUILDS_ON, EARLY_ON, IN_THE_WAY, NEEDED, SWITCHES, label
from labkit.text import format_factor

MOST = 3
# A factor that a minute of measuring is likely to show.
SHOWN = 1.1


class Likely(NamedTuple):
    """A switch that is still to try: how many times as fast it was elsewhere, and its notebook.

    ``path`` is that of the notebook among the notebooks, without its ending.
    """

    switch: str
    factor: float
    path: str


def doubt(switch: str, kept: Collection[str] = ()) -> str:
    """Why a switch is likely to gain nothing here; empty where nothing is known against it.

    ``kept`` is what it is put on top of.
    """
    if (other := IN_THE_WAY.get(switch)) in kept:
        return f"You have kept {other}, which leaves it nothing to do."
    first = BUILDS_ON.get(switch)
    if first is not None and first not in kept:
        number = SWITCHES[first].notebook
        return f"Without {label(first)} it changes nothing: keep that first (notebook {number})."
    if switch == "mixed_precision" and not abilities().bf16:
        times = format_factor(1 / abilities().bf16_speedup)
        return f"A large bf16 product takes {times} times as long as in fp32 here: likely a loss."
    if switch == "data_loading" and abilities().cores < 2:
        return "This machine has one core: a worker takes its time from the training. No gain here."
    if missing := [name for name in NEEDED.get(switch, ()) if name not in kept]:
        where = ", ".join(str(SWITCHES[name].notebook) for name in missing)
        books, them, one = "notebooks", "them", "one of them"
        if len(missing) == 1:
            books, them, one = "notebook", "it", "it"
        return (
            f"Its high rate needs {', '.join(missing)} ({books} {where}): recorded without {one}, "
            f"no training reached the target. Keep {them} first; its race has {them} on both sides."
        )
    if switch == "compile" and not abilities().compiler:
        return "torch.compile needs a C++ compiler, and finds none here."
    return ""


def lacking(kept: Collection[str]) -> str:
    """What of ``kept`` needs a switch that is not; empty where nothing is missing."""
    texts = []
    for switch in kept:
        if missing := [name for name in NEEDED.get(switch, ()) if name not in kept]:
            them = "it" if len(missing) == 1 else "them"
            needs = f"{switch} needs {', '.join(missing)}"
            texts.append(f"{needs}: keep {them} as well, or take {switch} out.")
    return " ".join(texts)


def lent(switch: str, kept: Collection[str] = ()) -> str:
    """What both sides of a switch's race have on besides what is kept, and why."""
    missing = [name for name in EARLY_ON if name not in (switch, *kept)]
    if not SWITCHES[switch].learns or switch in NEEDED or not missing:
        return ""
    named = ", ".join(missing)
    return (
        f"Both sides of its short race, which is over early, have {named}: without it none gets "
        "that far in two minutes."
    )


def likely(tried: Collection[str], kept: Collection[str] = ()) -> tuple[Likely, ...]:
    """Of the switches not tried yet the three that brought the nearest recorded machine most.

    Those that cannot gain here are left out. First come gains that a minute shows, and what makes a
    short race learn: what else changes learning may need a whole race.
    """

    def late(brought: tuple[float, str]) -> bool:
        factor, switch = brought
        return factor < SHOWN or (SWITCHES[switch].learns and switch not in EARLY_ON)

    found: list[Likely] = []
    for factor, switch in sorted(sorted(_brought(), reverse=True), key=late):
        if switch not in tried and not doubt(switch, kept):
            found.append(Likely(switch, factor, notebook_of(switch)))
        if len(found) == MOST:
            break
    return tuple(found)


def _brought() -> list[tuple[float, str]]:
    """What each switch brought where it was recorded; those that lost are left out."""
    machine = recorded.nearest()
    known = {}
    for effect in machine.effects if machine else ():
        if effect.how in (FORWARD, ADDED) and effect.factor > 1 and effect.switch in SWITCHES:
            known[effect.switch] = effect.factor
    return [(factor, switch) for switch, factor in known.items()]


@cache
def notebook_of(switch: str) -> str:
    """The path of the front notebook with a switch's board; empty where there is none."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if f'board(\\"{switch}\\"' in path.read_text(encoding="utf-8"):
            return place(path)
    return ""
