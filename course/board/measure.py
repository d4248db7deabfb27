"""What one switch of the speedrun does, on top of others.

A switch that leaves the mathematics alone is timed: both sides train and validate small epochs in
turn (`Lab`). One that changes what is learned has to race: both sides train from the same seeds to
one accuracy. A whole training takes minutes in a slow script, so the race is a short one, to an
accuracy that is reached early, unless the whole is asked for. Both sides of a short race have
batch norm: without it nothing is reached early.

Steps use as many threads as torch does by itself: a training takes the whole machine.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import date

import torch

from course.board.store import Figure
from course.speedrun import train
from course.switches import SWITCHES, TASK, Task
from labkit import Lab, RaceResult, Workload, machine_card, pick, pick_device
from labkit.device import survive
from labkit.measure import measuring
from labkit.preserve import preserve_flags
from labkit.progress import progress
from labkit.race import RaceRun

# Epochs without end, of the mix of training and validation that the task has.
TIMED = TASK._replace(
    images=pick(cpu=128, cuda=2560, test=20),
    validation=pick(cpu=26, cuda=512, test=4),
    target=math.inf,
    epochs=10**9,
    cycle=10**9,
)
EARLY = TASK._replace(
    images=pick(cpu=1_000, cuda=10_000, test=64),
    validation=pick(cpu=250, cuda=2_000, test=32),
    target=pick(cpu=0.30, cuda=0.5, test=0.1),
    # As many as the side without batch norm needs, where that is what is raced.
    epochs=pick(cpu=24, cuda=20, test=2),
    cycle=pick(cpu=3, cuda=5, test=2),
)
MOST_SEEDS = 5
# For what is timed; where that is too short for an interval, three times as many once more.
SECONDS = pick(cpu=10.0, test=0.3)
# Torch's own number; in the test size one, since threads that wait for each other beside other
# tests take ten times as long.
THREADS = pick(cpu=None, test=1)


class NoFigure(RuntimeError):
    """A side ended before there was anything to compare, and why."""


def machine_name() -> str:
    """This machine as its figures are filed: processor or GPU, and cores. It names no host."""
    card = machine_card()
    if card["gpu"] and pick_device().type == "cuda":
        return str(card["gpu"]["name"])
    cpu = card["cpu"]
    return f"{cpu['model']}, {cpu['cores']} cores"


def images_per_second(seconds: float = 5.0, switches: Collection[str] = ()) -> float:
    """Train (and validate) small epochs for ``seconds``, after a first one; images a second.

    Without switches it is the slow script.
    """
    with prepared():
        run = train(switches, TIMED)
        next(run)
        begin, done = time.perf_counter(), 0
        while not done or time.perf_counter() - begin < seconds:
            next(run)
            done += TIMED.images
        return done / (time.perf_counter() - begin)


def measure(
    switch: str, present: Collection[str], seconds: float | None = None, whole: bool = False
) -> Figure:
    """What ``switch`` does on top of ``present``, in about ``seconds`` for the measuring proper.

    ``whole`` races to the target of the task instead, on five seeds, however long that takes.
    NoFigure when memory ran out.
    """
    below = tuple(name for name in present if name != switch)
    with _quietly(), survive() as outcome:
        if whole:
            return _raced(switch, below, seconds, TASK)
        if SWITCHES[switch].learns:
            return _raced(switch, _with_batch_norm(switch, below), seconds, EARLY)
        return _timed(switch, below, seconds)
    raise NoFigure(f"one of its two sides ended: {outcome.error}")


def _with_batch_norm(switch: str, below: tuple[str, ...]) -> tuple[str, ...]:
    if "normalization" in (switch, *below):
        return below
    return (*below, "normalization")


def _timed(switch: str, below: tuple[str, ...], seconds: float | None) -> Figure:
    def speedrun(switched: bool) -> Workload:
        run = train((*below, switch) if switched else below, TIMED)

        def step() -> float:
            return next(run)[2]

        return Workload(step, TIMED.images, "images")

    lab = Lab(speedrun, threads=THREADS, switched=[False, True])
    result = lab.run(switched=True, seconds=seconds or SECONDS)
    ended = result.stopped or any(side.error for side in result.arms)
    if seconds is None and not ended and math.isnan(sum(result.interval)):
        result = lab.run(switched=True, seconds=3 * SECONDS)
    for side, name in zip(result.arms, ("without", "with"), strict=True):
        if side.error:
            raise NoFigure(f"the side {name} it ended: {side.error}")
    return _figure(
        switch,
        "time",
        below,
        factor=result.speedup,
        interval=result.interval,
        verdict=result.verdict,
        rate=result.baseline.throughput,
        memory=result.memory_ratio,
        stopped=result.stopped,
    )


def _raced(switch: str, below: tuple[str, ...], seconds: float | None, task: Task) -> Figure:
    with measuring(threads=THREADS):
        result = race_to(task, {"off": below, "on": (*below, switch)}, seconds)
    ratio, low, high = result.speedup("on")
    reached = [run for run in result.of("off") if run.curve]
    epochs = sum(len(run.curve) for run in reached)
    return _figure(
        switch,
        "race" if task is EARLY else "whole race",
        below,
        factor=ratio,
        interval=(low, high),
        verdict=result.verdict("on"),
        rate=task.images * epochs / sum(run.curve[-1][1] for run in reached),
        stopped=result.stopped,
    )


def race_to(
    task: Task, sides: dict[str, Sequence[str]], seconds: float | None = None
) -> RaceResult:
    """Train each side, seed by seed, for about ``seconds``: one seed at least, five at most.

    An interrupt ends it with the seeds that are complete; KeyboardInterrupt if none is.
    """
    budget = seconds or pick(cpu=10.0, test=0.1)
    runs: list[RaceRun] = []
    begin = time.perf_counter()
    stopped = False
    for seed in range(MOST_SEEDS):
        try:
            runs += _one_seed(task, sides, seed)
        except KeyboardInterrupt:
            if not runs:
                raise
            stopped = True
            break
        spent = time.perf_counter() - begin
        if task is not TASK and spent * (seed + 2) / (seed + 1) > budget:
            break
    order = sorted(runs, key=lambda run: (list(sides).index(run.arm), run.seed))
    return RaceResult(tuple(order), task.target, "accuracy", True, stopped)


def _one_seed(task: Task, sides: dict[str, Sequence[str]], seed: int) -> list[RaceRun]:
    """One training of each side; they take turns in being the first."""
    names = list(sides)
    if seed % 2:
        names.reverse()
    runs = []
    for name in progress(iterable=names, desc=f"race, seed {seed}", unit="training", delay=2):
        runs.append(run_once(task, name, sides[name], seed))
    return runs


def run_once(task: Task, name: str, switches: Sequence[str], seed: int) -> RaceRun:
    """One training to the target: steps are epochs, seconds are all that passed."""
    curve = []
    # One switch sets a flag of the whole process, which the other side must not find.
    with preserve_flags():
        for epoch, (seconds, accuracy, _) in enumerate(train(switches, task, seed), 1):
            curve.append((epoch, seconds, accuracy))
    return RaceRun(name, seed, tuple(curve), curve[-1][2] >= task.target)


def _figure(
    switch: str,
    mode: str,
    below: tuple[str, ...],
    factor: float,
    interval: tuple[float, float],
    verdict: str,
    rate: float,
    stopped: bool,
    memory: float = math.nan,
) -> Figure:
    return Figure(
        switch=switch,
        mode=mode,
        on_top_of=below,
        factor=factor,
        interval=interval,
        verdict=verdict,
        rate=rate,
        memory=memory,
        date=date.today().isoformat(),
        torch=torch.__version__,
        stopped=stopped,
    )


@contextmanager
def prepared() -> Iterator[None]:
    """Alone in this kernel, with torch's own number of threads; all is given back afterwards."""
    with _quietly(), measuring(threads=THREADS):
        yield


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the warnings that the slow script earns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
        warnings.filterwarnings("ignore", message="Creating a tensor from a list")
        yield
