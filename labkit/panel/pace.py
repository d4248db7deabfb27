"""How long a race still takes, by what its runs have taken so far."""

from __future__ import annotations

import math

from labkit.racing import RaceResult, RaceRun

# Both sides of a panel's race.
SIDES = 2
# Less training says little of the seconds beside it, in which the metric is taken.
ENOUGH = 0.5


class Pace:
    """The pace of a race: `note` each of its news, then ask what is `left`.

    A side's runs to come take as many steps as its finished ones took on average; without one, as
    many as there may be. A step of a side that has not trained takes as long as the other's.
    """

    def __init__(self) -> None:
        self._runs: list[RaceRun] = []
        self._going: RaceRun | None = None
        # Clock and training seconds at the first news, and at the latest.
        self._first = self._last = (math.nan, 0.0)

    def note(self, race: RaceResult, going: RaceRun | None, now: float) -> None:
        """What there is at a time ``now``: finished runs, and the one that goes on."""
        self._runs, self._going = list(race.runs), going
        self._last = now, _sum(self._all())[1]
        if math.isnan(self._first[0]):
            self._first = self._last

    def left(self, steps: int, seeds: int) -> str:
        """``about 40 s left``; "at most" while a side has not finished a run; "" without a step."""
        sides: dict[str, list[RaceRun]] = {}
        for run in self._all():
            sides.setdefault(run.arm, []).append(run)
        trained = {arm: _sum(runs) for arm, runs in sides.items()}
        paces = {arm: seconds / count for arm, (count, seconds) in trained.items() if count}
        if not paces:
            return ""
        usual = next(iter(paces.values()))
        ahead = (SIDES - len(sides)) * steps * seeds * usual
        for arm, (_, seconds) in trained.items():
            whole = self._length(arm, steps) * seeds * paces.get(arm, usual)
            ahead += max(0.0, whole - seconds)
        known = {run.arm for run in self._runs}
        words = "about" if len(known) == SIDES else "at most"
        return f"{words} {ahead * self._beside():.0f} s left"

    def _all(self) -> list[RaceRun]:
        return [*self._runs, *([self._going] if self._going else [])]

    def _length(self, arm: str, steps: int) -> float:
        """How many steps a run of a side takes."""
        known = [_taken(run)[0] for run in self._runs if run.arm == arm]
        return sum(known) / len(known) if known else steps

    def _beside(self) -> float:
        """Seconds by the clock for each second of training: the metric takes its time, too."""
        clock, trained = (last - first for last, first in zip(self._last, self._first, strict=True))
        return max(1.0, clock / trained) if trained > ENOUGH else 1.0


def _taken(run: RaceRun) -> tuple[int, float]:
    """Steps and training seconds of a run."""
    if not run.curve:
        return 0, 0.0
    steps, seconds, _ = run.curve[-1]
    return steps, seconds


def _sum(runs: list[RaceRun]) -> tuple[int, float]:
    """Steps and training seconds of several runs."""
    taken = [_taken(run) for run in runs]
    return sum(steps for steps, _ in taken), sum(seconds for _, seconds in taken)
