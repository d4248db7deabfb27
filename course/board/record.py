"""Records the speedrun on this machine: `python -m course board --record`.

The slow script and the fast one train to the target on five seeds; then each switch is measured
twice: *forward*, on top of those before it, and *left out* of all that help. Every unit is written
as soon as it is there, and what is there is not measured again: a recording may be cut off, or
be taken in parts (``--minutes``). A unit during which other programs used more than a twentieth of
the machine is not written but taken again: beside waiting threads a training takes twice its time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import torch

from course.board import recorded
from course.board.measure import MOST_SEEDS, machine_name, measure, prepared, run_once
from course.board.recorded import ADDED, FORWARD, LEFT_OUT, Effect, Machine, Training
from course.records.store import reference_folder
from course.switches import IN_THE_WAY, SWITCHES, TASK
from course.written import write_whole
from labkit.busy import Others, cores

# What helps on a CPU, in the order in which it is switched on. Batch norm comes first, since all
# else is then measured on a network that learns soon. The others that change what is learned come
# last: their races are whole trainings.
HELPFUL = (
    "normalization",
    "vectorization",
    "decode_once",
    "mixed_precision",
    "cudnn_benchmark",
    "host_device_transfers",
    "zeroing_gradients",
    "as_tensor",
    "debug_tools",
    "bias_before_batchnorm",
    "validation_without_grad",
    "batch_size",
    "optimizers",
    "gradient_clipping",
    "learning_rate_schedules",
)

# The part of the machine that other programs may use meanwhile.
MOST_OTHERS = 0.05
# A switch, how its effect is taken, and what is on beside it.
Wanted = tuple[str, str, tuple[str, ...]]


def record(minutes: float | None = None, path: Path | None = None) -> int:
    """Measure what is missing; 0 when all is there, 1 when some is left after ``minutes``."""
    path = path or reference_folder() / "speedrun.json"
    begin = time.monotonic()
    machine = _present(path)
    while (work := _next(machine)) is not None:
        if minutes is not None and time.monotonic() - begin > 60 * minutes:
            print("Some is left: call again to go on.")
            return 1
        others = Others()
        found = work()
        taken = (others.taken() or 0) / cores()
        if taken > MOST_OTHERS:
            print(f"Other programs used {taken:.0%} of the machine: taken again.")
            continue
        machine = found
        _write(path, machine)
    print("All is recorded.")
    return 0


def _next(machine: Machine) -> Callable[[], Machine] | None:
    """The first unit that is not there yet: the whole, then what is timed, then what is raced."""
    timed = [wanted for wanted in wanted_effects() if not SWITCHES[wanted[0]].learns]
    raced = [wanted for wanted in wanted_effects() if SWITCHES[wanted[0]].learns]
    return (
        _next_training(machine, [HELPFUL, ()])
        or _next_effect(machine, timed)
        or _next_training(machine, wanted_trainings())
        or _next_effect(machine, raced)
    )


def _next_training(machine: Machine, sets: list[tuple[str, ...]]) -> Callable[[], Machine] | None:
    # Seed by seed, so that both sides of a ratio find the machine in one state.
    for seed in range(MOST_SEEDS):
        for switches in sets:
            if seed not in {run.seed for run in machine.of(*switches)}:
                return partial(_train, machine, switches, seed)
    return None


def _next_effect(machine: Machine, effects: list[Wanted]) -> Callable[[], Machine] | None:
    known = {(effect.switch, effect.how, effect.on_top_of) for effect in machine.effects}
    for wanted in effects:
        if wanted not in known:
            return partial(_take_effect, machine, *wanted)
    return None


def wanted_effects() -> list[Wanted]:
    """Forward, in the order in which switches are put on; then each left out of all that help."""
    wanted: list[Wanted] = []
    for number, switch in enumerate(HELPFUL):
        wanted.append((switch, FORWARD, HELPFUL[:number]))
    for switch in HELPFUL:
        wanted.append((switch, LEFT_OUT, tuple(name for name in HELPFUL if name != switch)))
    for switch in SWITCHES:
        if switch not in HELPFUL:
            below = [name for name in HELPFUL if name != IN_THE_WAY.get(switch)]
            wanted.append((switch, ADDED, tuple(below)))
    return wanted


def wanted_trainings() -> list[tuple[str, ...]]:
    """Nothing on; all that helps on; and what the races of switches that learn are made of."""
    sets: list[tuple[str, ...]] = [HELPFUL, ()]
    for switch, _, below in wanted_effects():
        if SWITCHES[switch].learns:
            sets += [below, (*below, switch)]
    return list({frozenset(each): each for each in sets}.values())


def _train(machine: Machine, switches: tuple[str, ...], seed: int) -> Machine:
    with prepared():
        run = run_once(TASK, "", switches, seed)
    epochs, seconds, accuracy = run.curve[-1]
    training = Training(switches, seed, epochs, seconds, accuracy, run.reached)
    print(
        f"{len(switches)} switches, seed {seed}: {accuracy:.1%} after {seconds:.1f} s", flush=True
    )
    return replace(machine, trainings=(*machine.trainings, training))


def _take_effect(machine: Machine, switch: str, how: str, below: tuple[str, ...]) -> Machine:
    if SWITCHES[switch].learns:
        effect = whole_race(machine, switch, how, below)
    else:
        found = measure(switch, below)
        if found.stopped:
            raise KeyboardInterrupt
        effect = Effect(switch, how, "time", below, found.factor, found.interval, found.verdict)
    print(f"{switch}, {how}: {effect.factor:.3f}x {effect.verdict}", flush=True)
    return replace(machine, effects=(*machine.effects, effect))


def whole_race(machine: Machine, switch: str, how: str, below: tuple[str, ...]) -> Effect:
    """What a switch brought in whole trainings, which are recorded already."""
    result = machine.race(below, (*below, switch))
    factor, low, high = result.speedup("on")
    return Effect(switch, how, "whole race", below, factor, (low, high), result.verdict("on"))


def _present(path: Path) -> Machine:
    """What is there of this machine with this task and this torch; else a beginning."""
    new = Machine(
        name=machine_name(),
        date=date.today().isoformat(),
        torch=torch.__version__,
        task=TASK._asdict(),
        trainings=(),
        effects=(),
    )
    for machine in recorded.read(path):
        if _same(machine, new):
            begun = machine.date.partition(" to ")[0]
            days = dict.fromkeys([begun, new.date])
            return replace(machine, date=" to ".join(days))
    return new


def _same(one: Machine, other: Machine) -> bool:
    """Whether the units of both belong together."""
    return (one.name, one.task, one.torch) == (other.name, other.task, other.torch)


def _write(path: Path, machine: Machine) -> None:
    """Write the machine's entry; one of another task or torch stays until this one is whole."""
    whole = _next(machine) is None
    others = []
    for each in recorded.read(path):
        if not _same(each, machine) and not (whole and each.name == machine.name):
            others.append(each)
    entries = [recorded.entry_of(each) for each in [*others, machine]]
    text = json.dumps({"schema": recorded.SCHEMA, "machines": entries}, indent=1)
    write_whole(path, text + "\n")
