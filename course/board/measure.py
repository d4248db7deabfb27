"""What one switch of the speedrun does, on top of others.

A switch that leaves the mathematics alone is timed: both sides train and validate small epochs in
turn (`Lab`). One that changes what is learned has to race: both sides train from the same seeds to
one accuracy. A whole training takes minutes in a slow script, so the race is a short one, to an
accuracy that is reached early, unless the whole is asked for. Both sides of a short race have
batch norm: without it nothing is reached early. Those of a schedule have all that its high rate
needs (`course.switches.NEEDED`). Where even that takes too long each side has half
of the time, and the goal is the accuracy that both have reached by then.

A reader is promised a time, by the clock on the wall. So an epoch of each side is looked at first:
in a slow script the epochs that are timed become shorter, down to one batch, and none begins that
would not end in time (`Limit`). Where that leaves no time for a single pair, what was seen says how
many minutes would (`TooSlow`).

Steps use as many threads as torch does by itself: a training takes the whole machine.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import date

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from course.board.live import Lap, Live
from course.board.store import ENOUGH_ALONE, FAR, Figure
from course.machine import machine_card
from course.speedrun import batch_size, read, train
from course.switches import EARLY_ON, NEEDED, SWITCHES, TASK, Task
from labkit import Lab, MemoryMeter, Workload, pick, pick_device
from labkit.comparing import measuring
from labkit.device import survive
from labkit.progress import progress
from labkit.racing import RaceResult, RaceRun
from labkit.restore import preserve_flags
from labkit.results import Comparison
from labkit.results.comparison import CLAIM_PAIRS

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
# From here on something was learned; one in ten is right by chance.
LEARNED = 0.15
LEAST_SEEDS, MOST_SEEDS = 3, 5
# For what is timed, and up to three times as long where epochs are slow.
SECONDS = pick(cpu=10.0, test=0.3)
# An unclear run goes on for so many times these seconds, and up to this part of what was promised:
# its last epoch has to end in time.
PATIENCE = pick(cpu=math.inf, test=1.0)
PROMISED = 0.85
# What a reader waits for at most: what is timed, and a race, which trains both sides to its end.
MINUTE, RACE = 60.0, 120.0
# So many epochs of each side are run for one pair, and for as many as a verdict needs.
EPOCHS = 1.5
MANY = 12
# What a switch does before its first step, which is not its time.
ON_TOP = {"compile": "compiling", "sublinear_memory": "planning"}
# Images of an epoch that only loads libraries: the first one of a process takes long.
FEW = 8
# Torch's own number; in the test size one, since threads that wait for each other beside other
# tests take ten times as long.
THREADS = pick(cpu=None, test=1)


# Given what is known so far.
Tell = Callable[[Live], None]
WITHOUT, WITH = "an epoch without it", "an epoch with it"


class OutOfTime(KeyboardInterrupt):
    """The time is over: what there is ends as if the reader had interrupted."""


class Limit:
    """So many seconds from now, in which no epoch begins that would not end, by what is known.

    None begins once ``stop`` is set, and one that goes on ends with its present step. ``tell`` is
    given what is known so far (``live``): when what is being done changes, and after each epoch.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        stop: threading.Event | None = None,
        tell: Tell | None = None,
    ) -> None:
        self.seconds = seconds
        self.stop = stop or threading.Event()
        self.tell = tell
        # Whether an epoch was refused.
        self.over = False
        self.live = Live()
        self._begin = time.perf_counter()
        self._end = self._until = self._begin + seconds
        # Seconds of the latest epoch of these switches, of so many images.
        self._known: dict[tuple[frozenset[str], int], float] = {}

    def train(
        self, switches: Collection[str], task: Task, seed: int = 0
    ) -> Generator[tuple[float, float, float]]:
        """`course.speedrun.train` while there is time for one more epoch; then OutOfTime.

        Compiling and planning, in the first epoch, are no part of the time.
        """
        side = frozenset(switches), task.images
        prepares = not ON_TOP.keys().isdisjoint(switches)
        epochs = train(switches, task, seed)
        while True:
            begin = self._allow(side)
            self.live.steps = 0, math.ceil(task.images / batch_size(side[0]))
            with self._looking(math.inf if prepares else self._end):
                epoch = next(epochs, None)
            if epoch is None:
                return
            seconds = time.perf_counter() - begin
            if prepares:
                self._end += seconds
                self._until += seconds
            else:
                self._known[side] = seconds
            prepares = False
            self.report()
            yield epoch

    @contextmanager
    def _looking(self, end: float) -> Iterator[None]:
        """Look after each step whether to go on: an epoch may take half a minute."""

        def look(*_: object) -> None:
            done, steps = self.live.steps
            self.live.steps = done + 1, steps
            if self.stop.is_set() or time.perf_counter() > end:
                self.over = True
                raise OutOfTime

        handle = register_optimizer_step_post_hook(look)
        try:
            yield
        finally:
            handle.remove()

    @property
    def ended(self) -> bool:
        """Whether its time is over, and nobody stopped it."""
        return self.over and not self.stop.is_set()

    @property
    def left(self) -> float:
        """Seconds until its end."""
        return self._end - time.perf_counter()

    def report(self) -> None:
        """Tell what is known."""
        self.live.seconds = time.perf_counter() - self._begin
        if self.tell:
            self.tell(self.live)

    def begin(self, doing: str) -> None:
        """Tell what is done from now on."""
        self.live.doing = doing
        self.report()

    def compared(self, partial: Comparison) -> None:
        """Tell what the pairs say so far."""
        if partial.pairs:
            self.live.ratios = partial.ratios
            self.live.rates = partial.baseline.throughput, partial.candidate.throughput
        self.report()

    def lap(self, lap: Lap) -> None:
        """Tell how far a training of a race has come."""
        laps = self.live.laps
        known = laps and (laps[-1].seed, laps[-1].switched) == (lap.seed, lap.switched)
        # A new list: another thread may be drawing the old one.
        self.live.laps = [*(laps[:-1] if known else laps), lap]
        self.report()

    def rate(self, switches: Collection[str]) -> float:
        """Images per second of the longest epoch with these switches; nan where there was none."""
        side = frozenset(switches)
        known = [(images, spent) for (each, images), spent in self._known.items() if each == side]
        images, spent = max(known, default=(0, math.nan))
        # A shorter epoch only loads libraries.
        return images / spent if images > FEW else math.nan

    def divide(self, parts: int) -> None:
        """Let what follows have one of so many equal parts of the time that is left."""
        now = time.perf_counter()
        self._until = now + (self._end - now) / parts

    def _allow(self, side: tuple[frozenset[str], int]) -> float:
        now = time.perf_counter()
        if self.stop.is_set() or now + self._known.get(side, 0.0) > self._until:
            self.over = True
            raise OutOfTime
        return now


class NoFigure(RuntimeError):
    """A side ended before there was anything to compare, and why.

    ``rate`` is the slow script's images per second, nan where it was not seen.
    """

    def __init__(self, why: str, rate: float = math.nan) -> None:
        super().__init__(why)
        self.rate = rate


class TooSlow(NoFigure):
    """There was no time for a single pair; so many ``minutes`` are likely to be enough."""

    def __init__(self, why: str, rate: float, minutes: int) -> None:
        super().__init__(why, rate)
        self.minutes = minutes


def machine_name() -> str:
    """This machine as its figures are filed: processor or GPU, and cores. It names no host."""
    card = machine_card()
    if card["gpu"] and pick_device().type == "cuda":
        return str(card["gpu"]["name"])
    cpu = card["cpu"]
    return f"{cpu['model']}, {cpu['cores']} cores"


def seconds_at_most(switch: str) -> float:
    """What a reader waits for `measure` by default; what is `ON_TOP` comes on top."""
    return RACE if SWITCHES[switch].learns else MINUTE


def promised(
    switch: str,
    seconds: float | None = None,
    whole: bool = False,
    minutes: float | None = None,
) -> str:
    """How long `measure` takes, in words."""
    if whole:
        return f"To {TASK.target:.0%}, on {MOST_SEEDS} seeds: minutes to an hour."
    if minutes is None and seconds is not None:
        return f"About {seconds:g} s of measuring, once both are built."
    most = seconds_at_most(switch) if minutes is None else 60 * minutes
    text = f"{minutes_in_words(most / 60)} at most"
    text = text[0].upper() + text[1:]
    return f"{text}, and {ON_TOP[switch]} on top." if switch in ON_TOP else f"{text}."


def minutes_in_words(minutes: float) -> str:
    """``a minute``, ``two minutes``, ``6 minutes``."""
    known = {1.0: "a minute", 2.0: "two minutes"}
    return known.get(minutes, f"{minutes:.3g} minutes")


def measure(
    switch: str,
    present: Collection[str],
    seconds: float | None = None,
    whole: bool = False,
    most: float = math.inf,
    *,
    stop: threading.Event | None = None,
    tell: Tell | None = None,
) -> Figure:
    """What ``switch`` does on top of ``present``, in about ``seconds`` for the measuring proper.

    ``whole`` races to the target of the task instead, on five seeds, however long that takes.
    It keeps within ``most`` seconds, all in all. ``stop`` ends it at its next epoch; ``tell`` is
    told how far it is, as for `Limit`. NoFigure when memory ran out, and TooSlow when there was no
    time for a single pair.
    """
    below = on_top_of(switch, present, whole)
    learns = SWITCHES[switch].learns
    begin = time.perf_counter()
    read_images(EARLY if learns else TIMED)
    # Unpacking them for the first time may take longer than all else.
    limit = Limit(max(most / 2, most - (time.perf_counter() - begin)), stop, tell)
    try:
        with _quietly(), survive() as outcome:
            if whole:
                return _raced(switch, below, seconds, TASK, limit)
            if learns:
                return _raced(switch, below, seconds, EARLY, limit)
            return _timed(switch, below, seconds, limit)
    except OutOfTime:
        slow = math.nan if below else limit.rate(())
        if limit.stop.is_set():
            raise NoFigure("it was stopped before there was a figure", slow) from None
        minutes = _minutes_needed(below, (*below, switch), learns, limit)
        raise TooSlow("there was no time for a single pair", slow, minutes) from None
    raise NoFigure(f"one of its two sides ended: {outcome.error}")


def run_script(
    switches: Collection[str], *, stop: threading.Event | None = None, tell: Tell | None = None
) -> tuple[float, int]:
    """Train the script with these switches to its target, once: seconds, as of a race, and passes.

    Infinite where it was not reached. NoFigure where it was stopped, or memory ran out.
    """
    read_images(TASK)
    limit = Limit(stop=stop, tell=tell)
    limit.live.alone = True
    limit.begin("training your script")
    try:
        with prepared(), survive() as outcome:
            run = run_once(TASK, "on", tuple(switches), 0, limit)
            return run.curve[-1][1] if run.reached else math.inf, len(run.curve)
    except OutOfTime:
        raise NoFigure("it was stopped before it arrived") from None
    raise NoFigure(f"it ended: {outcome.error}")


def _minutes_needed(off: tuple[str, ...], on: tuple[str, ...], learns: bool, limit: Limit) -> int:
    """Minutes that are likely to be enough, by what was seen of the two sides.

    A race takes a cycle of each side; as many pairs as a verdict needs get half of the time.
    """
    rates = [rate for rate in map(limit.rate, (off, on)) if math.isfinite(rate)]
    # Nothing was seen of either: they are slower than this.
    slowest = min(rates, default=batch_size(frozenset(off)) / limit.seconds)
    seconds = 2 * batch_size(frozenset(off)) / slowest * 2 * EPOCHS * CLAIM_PAIRS
    if learns:
        seconds = 2 * EARLY.cycle * EARLY.images / slowest
    return max(math.ceil(seconds / 60), math.ceil(limit.seconds / 60) + 1)


def read_images(task: Task) -> None:
    read(train=True, size=task.images)
    read(train=False, size=task.validation)


def on_top_of(switch: str, present: Collection[str], whole: bool = False) -> tuple[str, ...]:
    """What is on, on both sides, while a switch is measured."""
    below = tuple(name for name in present if name != switch)
    if not SWITCHES[switch].learns or whole:
        return below
    needed = NEEDED.get(switch, EARLY_ON)
    return (*below, *(name for name in needed if name not in (switch, *below)))


def _timed(switch: str, below: tuple[str, ...], seconds: float | None, limit: Limit) -> Figure:
    sides = below, (*below, switch)
    peaks: tuple[float, ...] = ()
    if SWITCHES[switch].saves == "memory":
        # Bytes are exact and quick, also where its time never becomes clear.
        with measuring(threads=THREADS):
            peaks = _count_bytes(sides, limit)
    try:
        result = _in_turn(sides, seconds, limit, memory=not peaks)
    except OutOfTime:
        if not peaks:
            raise
        return _untimed(switch, below, peaks, limit)
    for side, name in zip(result.arms, ("without", "with"), strict=True):
        if side.error:
            raise NoFigure(f"the side {name} it ended: {side.error}")
    if not peaks:
        peaks = tuple(float(side.peak_bytes or math.nan) for side in result.arms)
    return _figure(
        switch,
        "time",
        below,
        factor=result.speedup,
        interval=result.interval,
        verdict=result.verdict,
        rate=result.baseline.throughput,
        memory=_share(peaks),
        peak=peaks[0],
        ratios=result.ratios,
        stopped=result.stopped and not limit.ended,
    )


def _in_turn(
    sides: Sequence[tuple[str, ...]], seconds: float | None, limit: Limit, memory: bool
) -> Comparison:
    """Epochs of both sides in turn; where that is not clear soon, for all the time there is."""
    with measuring(threads=THREADS):
        task, epochs = _epoch_that_fits(sides, limit)

    def speedrun(switched: bool) -> Workload:
        run = limit.train(sides[switched], task)

        def step() -> float:
            return next(run)[2]

        return Workload(step, task.images, "images", close=run.close)

    patience = 1.0
    if seconds is None:
        enough = EPOCHS * CLAIM_PAIRS * epochs
        # A reader who allows more minutes gets as many times as much.
        times = max(1.0, limit.seconds / MINUTE) if math.isfinite(limit.seconds) else 1.0
        seconds = min(3 * SECONDS * times, max(SECONDS, enough))
        if math.isfinite(limit.seconds):
            patience = min(PATIENCE, max(1.0, PROMISED * limit.left / seconds))
    lab = Lab(speedrun, threads=THREADS, memory=memory, switched=[False, True])
    limit.begin("both in turn")
    # Who is told needs no bar.
    update = limit.compared if limit.tell else None
    return lab.run(
        switched=True, seconds=seconds, patience=patience, stop=limit.stop, on_update=update
    )


def _count_bytes(sides: Sequence[Sequence[str]], limit: Limit) -> tuple[float, ...]:
    """The peak of a warm epoch of one batch, of each side."""
    task = small_epoch(min(batch_size(frozenset(sides[0])), TIMED.images))
    for side, name in zip(sides, ("without", "with"), strict=True):
        limit.begin(f"counting the bytes {name} it")
        with preserve_flags(), closing(limit.train(side, task)) as run:
            next(run)
            with MemoryMeter(saved=False) as memory:
                next(run)
        limit.live.peaks = (*limit.live.peaks, float(memory.peak))
    return limit.live.peaks


def _share(peaks: Sequence[float]) -> float:
    """The part of the peak that is left; nan where nothing was counted."""
    return peaks[1] / peaks[0] if peaks[0] else math.nan


def _untimed(switch: str, below: tuple[str, ...], peaks: tuple[float, ...], limit: Limit) -> Figure:
    """A figure of its memory alone: there was no time for a single pair."""
    return _figure(
        switch,
        "time",
        below,
        factor=math.nan,
        interval=(math.nan, math.nan),
        verdict="unclear",
        rate=limit.rate(below),
        memory=_share(peaks),
        peak=peaks[0],
        ratios=(),
        stopped=limit.stop.is_set(),
    )


def _epoch_that_fits(sides: Sequence[Sequence[str]], limit: Limit) -> tuple[Task, float]:
    """What an epoch is to be, one batch at least, and the seconds of one of both sides."""
    batch = min(batch_size(frozenset(sides[0])), TIMED.images)
    limit.begin("loading libraries")
    look(sides[0], small_epoch(FEW), limit)
    seconds = 0.0
    for side, doing in zip(sides, (WITHOUT, WITH), strict=True):
        limit.begin(doing)
        seconds += look(side, small_epoch(batch), limit)
    limit.live.rates = limit.rate(sides[0]), limit.rate(sides[1])
    images = TIMED.images
    if MANY * seconds * images / batch > limit.seconds:
        images = max(1, int(limit.seconds / MANY / seconds)) * batch
    return small_epoch(images), seconds * images / batch


def look(side: Sequence[str], task: Task, limit: Limit) -> float:
    """Seconds of the first epoch."""
    # Compiled or planned for this look alone it would take as long as all else.
    switches = [name for name in side if name not in ON_TOP]
    begin = time.perf_counter()
    with preserve_flags():
        next(limit.train(switches, task))
    return time.perf_counter() - begin


def small_epoch(images: int) -> Task:
    """An epoch of so many images, with its part of the validation."""
    validation = max(1, round(TIMED.validation * images / TIMED.images))
    return TIMED._replace(images=images, validation=validation)


def _raced(
    switch: str, below: tuple[str, ...], seconds: float | None, task: Task, limit: Limit
) -> Figure:
    with measuring(threads=THREADS):
        result = race_to(task, {"off": below, "on": (*below, switch)}, seconds, limit)
    ratio, low, high = result.speedup("on")
    reached = [run for run in result.of("off") if run.curve]
    epochs = sum(len(run.curve) for run in reached)
    mode = "race" if task is EARLY else "whole race"
    alone, bound = one_alone(result)
    return _figure(
        switch,
        mode if result.target == task.target else "cut race",
        below,
        factor=ratio,
        interval=(low, high),
        verdict=result.verdict("on"),
        rate=task.images * epochs / sum(run.curve[-1][1] for run in reached),
        ratios=alone or result.ratios("on"),
        stopped=result.stopped and not limit.ended,
        bound=bound,
    )


def one_alone(result: RaceResult) -> tuple[tuple[float, ...], float]:
    """Where only one side of a race ever arrives, a ratio for each seed: infinite, or 0.

    And how many times as fast the side with the switch was at least, where it is that one: by the
    seconds that were spent without it. Else no ratios, and nan; also of a single seed, which may
    have been cut before it could arrive.
    """
    sides = [result.of(arm) for arm in ("off", "on")]
    off, on = ([run.reached for run in runs if run.curve] for runs in sides)
    if min(len(off), len(on)) < ENOUGH_ALONE:
        return (), math.nan
    if any(off) == any(on) or not (all(off) or all(on)):
        return (), math.nan
    if any(off):
        return (0.0,) * len(off), math.nan
    spent, needed = (sum(run.curve[-1][1] for run in runs if run.curve) for runs in sides)
    times = spent / len(off) * len(on) / needed
    return (math.inf,) * len(on), times if times > 1 else math.nan


def race_to(
    task: Task,
    sides: dict[str, Sequence[str]],
    seconds: float | None = None,
    limit: Limit | None = None,
) -> RaceResult:
    """Train each side, seed by seed, for about ``seconds``: one seed at least, five at most; where
    only a ``limit`` is given three, if they fit.

    An interrupt ends it with the seeds that are complete, and so does the ``limit``, which cuts the
    first one: its goal is what both sides have reached by then. KeyboardInterrupt if there is
    nothing to compare.
    """
    limit = limit or Limit()
    budget = seconds or pick(cpu=10.0, test=0.1)
    runs: list[RaceRun] = []
    begin = time.perf_counter()
    stopped = False
    for seed in range(MOST_SEEDS):
        try:
            runs += _one_seed(task, sides, seed, limit)
        except KeyboardInterrupt:
            if not runs:
                raise
            stopped = True
            break
        if limit.over:
            return _as_far_as_all(runs, task.target)
        spent = time.perf_counter() - begin
        # What was promised may be used up: of one seed alone nobody can say who arrives.
        enough = seed + 1 >= LEAST_SEEDS or seconds is not None or math.isinf(limit.seconds)
        if task is not TASK and enough and spent * (seed + 2) / (seed + 1) > budget:
            break
    order = sorted(runs, key=lambda run: (list(sides).index(run.arm), run.seed))
    return RaceResult(tuple(order), task.target, "accuracy", True, stopped)


def _one_seed(
    task: Task, sides: dict[str, Sequence[str]], seed: int, limit: Limit
) -> list[RaceRun]:
    """One training of each side; they take turns in being the first."""
    names = list(sides)
    if seed % 2:
        names.reverse()
    runs = []
    # Who is told needs no bar.
    hidden = {"disable": True} if limit.tell else {}
    bar = {"desc": f"race, seed {seed}", "unit": "training", "delay": 2}
    for place, name in enumerate(progress(iterable=names, **bar, **hidden)):
        limit.divide(1 if seed else len(names) - place)
        limit.begin(f"training {_side(name)}, seed {seed + 1}")
        runs.append(run_once(task, name, sides[name], seed, limit, cut=not seed))
    return runs


def _side(name: str) -> str:
    return {"off": "without it", "on": "with it"}.get(name, name)


def _as_far_as_all(runs: Sequence[RaceRun], goal: float) -> RaceResult:
    """A race that was cut, to the accuracy that each side has reached.

    Where a side has learned nothing by then the goal stays, and there may be no factor.
    """
    target = min(max(accuracy for *_, accuracy in run.curve) for run in runs)
    if target < LEARNED:
        return RaceResult(tuple(runs), goal, "accuracy", True, stopped=True)
    there = []
    for run in runs:
        arrives = next(i for i, (*_, accuracy) in enumerate(run.curve, 1) if accuracy >= target)
        there.append(RaceRun(run.arm, run.seed, run.curve[:arrives], True))
    return RaceResult(tuple(there), target, "accuracy", True, stopped=True)


def run_once(
    task: Task,
    name: str,
    switches: Sequence[str],
    seed: int,
    limit: Limit | None = None,
    *,
    cut: bool = False,
) -> RaceRun:
    """One training to the target: steps are epochs, seconds are all that passed.

    With ``cut`` one for which there is no more time ends with the epochs that it has.
    """
    curve: list[tuple[int, float, float]] = []
    limit = limit or Limit()
    epochs = limit.train(switches, task, seed)
    limit.live.target = task.target
    lap = Lap(name == "on", seed, begin=time.perf_counter())
    limit.lap(lap)
    try:
        # One switch sets a flag of the whole process, which the other side must not find.
        with preserve_flags():
            for epoch, (seconds, accuracy, _) in enumerate(epochs, 1):
                curve.append((epoch, seconds, accuracy))
                over = accuracy >= task.target
                lap = replace(lap, points=(*lap.points, (seconds, accuracy)), over=over)
                limit.lap(lap)
                if accuracy >= task.target:
                    break
    except OutOfTime:
        if not cut or not curve or limit.stop.is_set():
            raise
    return RaceRun(name, seed, tuple(curve), curve[-1][2] >= task.target)


def _figure(
    switch: str,
    mode: str,
    below: tuple[str, ...],
    factor: float,
    interval: tuple[float, float],
    verdict: str,
    rate: float,
    ratios: Sequence[float],
    stopped: bool,
    memory: float = math.nan,
    peak: float = math.nan,
    bound: float = math.nan,
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
        pairs=len(ratios),
        agree=agreed(ratios),
        peak=peak,
        bound=bound,
    )


def agreed(ratios: Sequence[float]) -> str:
    """What each single pair says: "faster", "slower", or nothing where they differ.

    Of fewer than a verdict needs each has to be far from 1: a few that are near it agree by luck.
    """
    edge = 1.0 if len(ratios) >= CLAIM_PAIRS else FAR
    if ratios and max(ratios) < 1 / edge:
        return "slower"
    if ratios and min(ratios) > edge:
        return "faster"
    return ""


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
