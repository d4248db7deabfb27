"""What the whole speedrun did on recorded machines: `data/reference/speedrun.json`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from course.board.words import as_json, factor_in_words, from_json, told
from course.records.store import reference_folder
from course.switches import IN_THE_WAY, SWITCHES, TASK
from labkit.racing import RaceResult, RaceRun
from labkit.text import format_factor

SCHEMA = 1
# How an effect was taken.
FORWARD, LEFT_OUT, ADDED = "forward", "left out", "added to all"
ON_TOP = {
    FORWARD: "on top of the switches before it",
    LEFT_OUT: "on top of all the others that help",
    ADDED: "on top of all that help",
}
# Epochs that the slow script takes to the target where nothing is recorded.
UNRECORDED = 9


@dataclass(frozen=True)
class Training:
    """One training to the target: which switches were on, its seed, epochs and seconds."""

    switches: tuple[str, ...]
    seed: int
    epochs: int
    seconds: float
    accuracy: float
    reached: bool


@dataclass(frozen=True)
class Effect:
    """What a switch was measured to bring: on top of those before it, or to all the others."""

    switch: str
    how: str
    mode: str
    on_top_of: tuple[str, ...]
    factor: float
    interval: tuple[float, float]
    verdict: str

    def __str__(self) -> str:
        return told(self.factor, self.interval, self.verdict)


@dataclass(frozen=True)
class Machine:
    """All that was recorded on one machine; ``date``: the first day, "to" the last one."""

    name: str
    date: str
    torch: str
    task: dict[str, float]
    trainings: tuple[Training, ...]
    effects: tuple[Effect, ...]

    def of(self, *switches: str) -> tuple[Training, ...]:
        """The trainings with exactly these switches on, by seed."""
        found = [each for each in self.trainings if set(each.switches) == set(switches)]
        return tuple(sorted(found, key=lambda each: each.seed))

    def race(self, off: Sequence[str], on: Sequence[str]) -> RaceResult:
        """The trainings with two sets of switches, side by side as "off" and "on"."""
        runs = []
        for name, switches in (("off", off), ("on", on)):
            for each in self.of(*switches):
                curve = ((each.epochs, each.seconds, each.accuracy),)
                runs.append(RaceRun(name, each.seed, curve, each.reached))
        return RaceResult(tuple(runs), self.task["target"], "accuracy", True)

    def best(self) -> tuple[float, tuple[str, ...]]:
        """The least median of seconds to the target, and the switches that took it."""
        sets = {frozenset(each.switches): each.switches for each in self.trainings}
        found = [(self.seconds(*switches), switches) for switches in sets.values()]
        return min(found, default=(math.inf, ()), key=lambda each: each[0])

    def seconds(self, *switches: str) -> float:
        """Median seconds to the target with exactly these switches; infinite if most failed."""
        return median(run.seconds if run.reached else math.inf for run in self.of(*switches))


@cache
def machines() -> tuple[Machine, ...]:
    """The recorded machines of this checkout."""
    return read(reference_folder() / "speedrun.json")


def read(path: Path) -> tuple[Machine, ...]:
    """The machines of a file; none where there is no file. ValueError for another schema."""
    if not path.exists():
        return ()
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["schema"] != SCHEMA:
        raise ValueError(f"{path.name}: schema {content['schema']}; this version knows {SCHEMA}")
    return tuple(map(machine_of, content["machines"]))


def machine_of(entry: dict[str, Any]) -> Machine:
    """A machine from its entry in the file."""
    trainings, effects = [], []
    for run in entry["trainings"]:
        trainings.append(Training(**run | {"switches": tuple(run["switches"])}))
    for effect in entry["effects"]:
        low, high = effect["interval"]
        pair = {
            "on_top_of": tuple(effect["on_top_of"]),
            "interval": (from_json(low), from_json(high)),
        }
        effects.append(Effect(**effect | pair | {"factor": from_json(effect["factor"])}))
    return Machine(**entry | {"trainings": tuple(trainings), "effects": tuple(effects)})


def entry_of(machine: Machine) -> dict[str, Any]:
    """The entry of a machine: plain JSON, whose numbers are finite."""
    entry = asdict(machine)
    for effect in entry["effects"]:
        effect["factor"] = as_json(effect["factor"])
        effect["interval"] = [as_json(end) for end in effect["interval"]]
    return entry


def nearest() -> Machine | None:
    """The recorded machine that a reader's figures stand beside: with both ends, of this task."""
    for machine in machines():
        if machine.of() and machine.task == TASK._asdict():
            return machine
    return None


def images_to_target() -> float:
    """Images that the slow script trains on to the target: the median of the recorded seeds."""
    machine = nearest()
    if machine is None:
        return TASK.images * UNRECORDED
    return TASK.images * median(run.epochs for run in machine.of())


def on_top_of(effect: Effect) -> str:
    """On top of which switches an effect was taken, in words."""
    other = IN_THE_WAY.get(effect.switch)
    but = f" but {other}" if other and other not in effect.on_top_of else ""
    return ON_TOP[effect.how] + but


def factor(switch: str) -> str:
    """What a switch brought on the nearest recorded machine, in a word; empty where unknown."""
    effect = _effect(switch)
    if effect is None:
        return ""
    low, high = effect.interval
    # As in a sentence, what is surely faster or slower is clear, however much it is.
    unclear = effect.verdict == "unclear" and low <= 1 <= high
    return factor_in_words(effect.factor) + " unclear" * unclear


def in_short(switch: str) -> str:
    """What the nearest recorded machine gained by a switch, in a sentence; empty where unknown.

    Where it gained nothing that is sure, of the time of an epoch, it says so.
    """
    effect = _effect(switch)
    if effect is None:
        return ""
    below = f", {on_top_of(effect)}" if effect.on_top_of else ""
    return f"Where it was recorded{below}: {_gain(effect)}."


def _effect(switch: str) -> Effect | None:
    """What the nearest recorded machine found of it: on top of those before it, or of all."""
    machine = nearest()
    for how in (FORWARD, ADDED):
        for effect in machine.effects if machine else ():
            if (effect.switch, effect.how) == (switch, how) and not math.isnan(effect.factor):
                return effect
    return None


def _gain(effect: Effect) -> str:
    low, high = effect.interval
    if math.isinf(effect.factor) or effect.factor <= 0:
        only = "with" if effect.factor > 0 else "without"
        return f"the target was reached only {only} it"
    factor = f"{format_factor(effect.factor)}x in this script"
    if SWITCHES[effect.switch].saves == "memory" and effect.factor < 1:
        return f"{format_factor(1 / effect.factor)} times the time, for less memory"
    # An interval that is not there has no ends on either side.
    if low > 1 or high < 1:
        why = SWITCHES[effect.switch].loses
        return f"{factor}, faster" if low > 1 else f"{factor}, slower{why and f': {why}'}"
    little = ": it spends little time there" if effect.mode == "time" else ""
    return f"{factor}, {effect.verdict}{little}"


def beside(switch: str) -> str:
    """What a recorded machine found for a switch, in a sentence; empty without any."""
    texts = []
    for machine in machines():
        for effect in machine.effects:
            if effect.switch == switch:
                texts.append(f"{effect} {on_top_of(effect)}")
        if texts:
            of = "its time, " if SWITCHES[switch].saves == "memory" else ""
            return f"Recorded on {machine.name}: {of}{', '.join(texts)}."
    return ""
