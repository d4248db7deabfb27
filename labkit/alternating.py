"""The engine: two arms timed against each other in blocks A B B A, built several times.

Each block of A stands beside one of B, so that a machine that slows down, heats up or is shared
hits both alike. One step after each change of side is not timed: it finds the caches as the other
side left them. Blocks of both sides are made equally long where steps are short, since other
programs take time away in slices: two blocks of one length lose the same part. Beside two busy
processes, blocks that differed by 5 % moved a ratio by 1.5 %. How long a step takes alone is
therefore taken from the fastest of many short blocks, which fit into a slice.

Both sides are built several times within the budget (`labkit.builds`), always both at the same
moment and never two builds of one side at once. What building and warming up takes is no part of
any time. The cold first step (compilation, cuDNN's search) is reported apart.

A run has a time budget. A short one gives a wider interval, not another rule; a run ends before its
budget by the width of the interval, never by what it shows. A run whose verdict is unclear at the
end of its budget goes on, build by build, and ends at the first look that is clear, at the latest
when its patience is over: `tests/benchmarks/bench_stopping.py` counts what these looks cost.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import torch

from labkit.arm import Arm, ArmDied, LocalArm
from labkit.builds import MOST_BUILDS, Builds, shift_addresses
from labkit.device import survive
from labkit.progress import progress
from labkit.results import Comparison, Measurement
from labkit.results.comparison import CLAIM_PAIRS, SAME
from labkit.stages import UNWATCHED, WARMING, Halted, OnStage, Stages

# Shorter blocks drown in the noise of clock and caches.
BLOCK_SECONDS = 0.005
# Blocks up to this length are made equally long on both sides.
EQUAL_SECONDS = 0.02
# How long a step takes when nothing interrupts it: the fastest of so many blocks of this length,
# within this time.
SHORT_SECONDS = 0.0005
SHORT_BLOCKS = 40
SHORT_TOTAL = 0.1
# No run is ended early, however sure it looks, before this many pairs and builds.
MIN_PAIRS = 24
MIN_BUILDS = 6
# Stop before the budget when the interval reaches this part of what counts as the same.
ENOUGH = 0.25
# Each build is timed in at least this many pairs: one cycle A B B A.
LEAST_PAIRS = 2
# Each look beyond the budget is another chance to be clear by luck: it ends the run only where an
# interval so many times as wide is clear, too.
SURE = 1.25

Update = Callable[[Comparison], None]
clock = time.perf_counter


class _Timed:
    """A side and the times taken of it so far. Running out of memory ends the side, not the run."""

    def __init__(self, arm: Arm, stages: Stages = UNWATCHED) -> None:
        self.arm = arm
        self.stages = stages
        self.spacers: list[torch.Tensor] = []
        self.times: list[float] = []
        self.builds: list[int] = []
        self.build = 0
        self.steps = 1
        self.step_seconds = math.inf
        self.cold: float | None = None
        self.error: str | None = None

    @property
    def alive(self) -> bool:
        return self.error is None

    @property
    def block_seconds(self) -> float:
        """About how long a block takes; 0 where none was timed."""
        if math.isinf(self.step_seconds):
            return 0.0
        return self.steps * self.step_seconds

    def _seconds_of(self, steps: int) -> float | None:
        return self._guard(lambda: self.arm.block(steps))

    def _guard(self, work: Callable[[], float]) -> float | None:
        if self.alive:
            with survive(ArmDied) as outcome:
                return work()
            self.error = outcome.error
            self.arm.close()
        return None

    def warm_up(
        self, budget: float, stop: threading.Event, on_block: Callable[[], None] = lambda: None
    ) -> float:
        """Build, run the cold first step, then find how many steps make a block long enough.

        The seconds that finding it took. ``on_block`` is called after each one that is.
        """
        self.cold = self._guard(lambda: self.arm.start(self.stages))
        if self.cold is None:
            return 0.0
        self.stages.enter(WARMING)
        # However long that took: it may have been a compilation, and the next step is quick.
        spent, enough = 0.0, min(0.25, budget / 20)
        while not stop.is_set():
            elapsed = self._seconds_of(self.steps)
            if elapsed is None:
                break
            spent += elapsed
            if elapsed < BLOCK_SECONDS:
                wanted = math.ceil(1.2 * self.steps * BLOCK_SECONDS / max(elapsed, 1e-9))
                self.steps = max(self.steps + 1, min(10 * self.steps, wanted))
                continue
            self.step_seconds = min(self.step_seconds, elapsed / self.steps)
            on_block()
            if spent >= enough:
                break
        return spent

    def sprint(self) -> None:
        """Time a short block: the fastest of them is one that nothing interrupted."""
        if self.arm.device == "cuda" or self.step_seconds > EQUAL_SECONDS:
            return
        steps = math.ceil(SHORT_SECONDS / max(self.step_seconds, 1e-9))
        elapsed = self._seconds_of(steps)
        if elapsed is not None:
            self.step_seconds = min(self.step_seconds, elapsed / steps)

    def close(self) -> None:
        """End this build; nothing that it held is alive afterwards."""
        self.spacers.clear()
        if self.alive:
            self.arm.close()

    def rebuild(self, seconds: float, random: Random) -> None:
        """Build again, and warm up for ``seconds``, for one block and for two steps at least."""
        self.build += 1

        def start() -> float:
            self.spacers = shift_addresses(self.arm.device, random)
            return self.arm.start(self.stages)

        spent = self._guard(start)
        blocks = 0
        while spent is not None and self.alive and (spent < seconds or not blocks):
            spent += self._seconds_of(max(2, self.steps)) or 0.0
            blocks += 1

    def settle(self) -> None:
        """One step that is not timed: it finds the caches as the other side left them."""
        self._seconds_of(1)

    def block(self) -> None:
        """Time one block."""
        elapsed = self._seconds_of(self.steps)
        if elapsed is not None:
            self.times.append(elapsed / self.steps)
            self.builds.append(self.build)

    def result(self) -> Measurement:
        if self.alive:
            self.arm.check()
        return self.partial()

    def partial(self) -> Measurement:
        arm = self.arm
        return Measurement(
            arm.label,
            arm.settings,
            tuple(self.times),
            tuple(self.builds),
            steps_per_block=self.steps,
            samples=arm.samples,
            unit=arm.unit,
            cold=self.cold,
            error=self.error,
        )


class _Run:
    """One comparison while it is being taken."""

    def __init__(
        self,
        sides: tuple[_Timed, _Timed],
        builds: Builds,
        on_update: Update | None,
        stop: threading.Event,
        on_rough: Update | None,
    ) -> None:
        self.sides, self.stop = sides, stop
        self.on_update, self.on_rough = on_update, on_rough
        self.builds = builds
        self.seconds = builds.seconds
        # Processes take seconds to come up: that is shown at once.
        self.slow = not all(isinstance(side.arm, LocalArm) for side in sides)
        shown: dict[str, Any] = {"delay": 0} if self.slow else {}
        # Who is told needs no bar.
        hidden = {"disable": True} if on_update else {}
        self.bar = _bar(self.seconds, **shown, **hidden)
        self.begin = self.told = clock()
        self.stopped = False
        self.random = Random(0)

    def warm_up(self) -> None:
        """Build both sides for the first time."""
        built = clock()
        searching = 0.0
        for side in self.sides:
            if not self.stop.is_set():
                if self.slow:
                    self.bar.set_description_str(f"starting {side.arm.label}", refresh=True)
                searching += side.warm_up(self.seconds, self.stop, self._tell_first)
        searching += self._make_blocks_equal()
        self.begin = clock()
        # Finding the length of blocks is done once; another build warms up for a block at least.
        cost = max(0.0, self.begin - built - searching)
        for side in self.sides:
            cost += max(self._warm_seconds(), side.block_seconds)
        self.builds.begin(self.begin, cost)

    def _tell_first(self) -> None:
        """A rough first number, as soon as each side has run one block."""
        if self.on_rough is None or any(math.isinf(side.step_seconds) for side in self.sides):
            return
        one, other = (replace(side.partial(), times=(side.step_seconds,)) for side in self.sides)
        self.on_rough(replace(self.so_far(), baseline=one, candidate=other))
        self.on_rough = None
        self.told = clock()

    def _make_blocks_equal(self) -> float:
        """Steps of both sides such that their blocks take equally long; the seconds it took."""
        begin = clock()
        for _ in range(SHORT_BLOCKS):
            for side in self.sides:
                side.sprint()
            if self.stop.is_set() or clock() - begin > SHORT_TOTAL:
                break
        one, other = self.sides
        times = one.step_seconds, other.step_seconds
        if all(math.isfinite(time) and time > 0 for time in times):
            longest = max(one.block_seconds, other.block_seconds)
            if longest <= EQUAL_SECONDS:
                one.steps, other.steps = equal_steps(*times, longest)
        return clock() - begin

    def take(self) -> None:
        """Pairs of blocks until the time is over, or more would add nothing."""
        one, other = self.sides
        cycle = [(one, other), (other, one)]
        last: _Timed | None = None
        pairs, least = 0, LEAST_PAIRS
        while not self.stop.is_set() and (one.alive or other.alive):
            for side in cycle[pairs % 2]:
                if self.stop.is_set():
                    break
                if side is not last:
                    side.settle()
                side.block()
                last = side
            pairs += 1
            now = clock()
            if now >= self.builds.end and pairs >= least and not self.goes_on(now):
                break
            built_enough = pairs % 2 == 0 and now >= self.builds.next
            if self.tell(now, built_enough):
                break
            if built_enough:
                self.rebuild()
                last, least = None, pairs + LEAST_PAIRS

    def goes_on(self, now: float) -> bool:
        """At the end of the time: whether the run is prolonged, since it is not clear yet."""
        partial = self.so_far()
        if partial.baseline.error or partial.candidate.error:
            return False
        if self._clear(partial) or self._narrow(partial, build_ends=True):
            return False
        return self.builds.prolong(now)

    def _clear(self, partial: Comparison) -> bool:
        found = partial.estimate
        if self.builds.limit > self.seconds:
            found = replace(found, error=SURE * found.error)
        verdict = found.verdict(SAME)
        return verdict != "unclear" and not partial.too_short

    def rebuild(self) -> None:
        """Both sides anew: the first to be built takes turns, and the addresses are shifted."""
        begin = clock()
        for side in self.sides:
            side.close()
        order = list(self.sides)
        if self.builds.done % 2:
            order.reverse()
        for side in order:
            if not self.stop.is_set():
                side.rebuild(self._warm_seconds(), self.random)
        self.builds.done += 1
        now = clock()
        self.builds.begin(now, now - begin)

    def tell(self, now: float, build_ends: bool) -> bool:
        """Pass on what there is, five times a second at most. Whether more would add nothing."""
        if now - self.told < 0.2 and not build_ends:
            return False
        partial = self.so_far()
        if now - self.told >= 0.2:
            self.told = now
            if self.on_update:
                self.on_update(partial)
            # Drawn after its delay, and cleared by close().
            self.bar.set_description_str(f"{partial.speedup:.2f}x", refresh=False)
            self.bar.total = self.builds.limit
            self.bar.update(min(now - self.begin, self.bar.total) - self.bar.n)
        return self._narrow(partial, build_ends)

    def _narrow(self, partial: Comparison, build_ends: bool) -> bool:
        """Whether more would add nothing. Looks at the width, never at the effect."""
        only_build = self.builds.done == 1 and self.builds.next == math.inf
        whole = only_build or (build_ends and self.builds.done >= MIN_BUILDS)
        if not whole or partial.pairs < MIN_PAIRS:
            return False
        return partial.estimate.margin <= ENOUGH * SAME

    def _warm_seconds(self) -> float:
        return min(0.25, self.seconds / 150)

    def so_far(self) -> Comparison:
        one, other = self.sides
        device = one.arm.device
        if device == "cpu":
            device = other.arm.device
        return Comparison(
            one.partial(),
            other.partial(),
            device,
            seconds=clock() - self.begin,
            limit=self.builds.limit,
            stopped=self.stopped,
            threads=torch.get_num_threads(),
        )


def alternate(
    baseline: Arm,
    candidate: Arm,
    *,
    seconds: float,
    on_update: Update | None,
    stop: threading.Event | None,
    most_builds: int = MOST_BUILDS,
    patience: float = 1.0,
    on_rough: Update | None = None,
    on_stage: OnStage | None = None,
) -> Comparison:
    """The engine of `compare` on two arms.

    They are built up to ``most_builds`` times in ``seconds``: ``close()`` and ``start()`` again. A
    run that is unclear then goes on, to ``patience`` times the budget at most; ``limit`` of a
    partial result is what it may take as things stand. ``on_rough`` receives one pair of warm
    blocks before the measuring proper: no part of the result. ``on_stage`` receives what each side
    is prepared by.
    """
    stop = stop or threading.Event()
    stages = Stages(on_stage, stop)
    sides = _Timed(baseline, stages.of(1, 2)), _Timed(candidate, stages.of(2, 2))
    run = _Run(sides, Builds(seconds, most_builds, patience), on_update, stop, on_rough)
    try:
        run.warm_up()
        run.take()
        run.stopped = stop.is_set()
    except Halted:
        run.stopped = True
    except KeyboardInterrupt:
        # Nothing to show for it.
        if not run.so_far().pairs:
            raise
        run.stopped = True
    finally:
        for side in sides:
            side.spacers.clear()
        run.bar.close()
    result = run.so_far()
    if not run.stopped:
        one, other = sides
        result = replace(result, baseline=one.result(), candidate=other.result())
    return result


def alone(arm: Arm, *, seconds: float) -> Measurement:
    """The engine of `measure`: blocks of one arm, six at least."""
    side = _Timed(arm)
    with contextlib.closing(_bar(seconds)) as bar:
        side.warm_up(seconds, threading.Event())
        begin = now = clock()
        while side.alive and (len(side.times) < CLAIM_PAIRS or now - begin < seconds):
            side.block()
            now = clock()
            bar.update(min(now - begin, seconds) - bar.n)
    return side.result()


def equal_steps(one: float, other: float, seconds: float) -> tuple[int, int]:
    """How many steps of ``one`` and of ``other`` seconds make blocks that are equally long.

    Blocks take about ``seconds``, at most twice as long; of those that are equal to 0.1 %, or else
    of the most nearly equal ones, the shortest.
    """
    least = max(1, round(seconds / one))
    found, smallest = (least, max(1, round(least * one / other))), math.inf
    for first in range(least, 2 * least + 1, 1 + least // 100):
        second = max(1, round(first * one / other))
        unequal = abs(math.log(first * one / (second * other)))
        if unequal < smallest - 0.001:
            found, smallest = (first, second), unequal
    return found


def _bar(seconds: float, **options: Any) -> Any:
    layout = "{desc} |{bar}| {n:.2g}/{total:.2g} s"
    return progress(total=seconds, unit="s", bar_format=layout, **options)
