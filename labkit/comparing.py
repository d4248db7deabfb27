"""Time one step, or two against each other, so that the answer can be trusted.

Two sides are timed in blocks in the order A B B A: each block of A stands beside one of B, so that
a machine that slows down, heats up or is shared hits both alike. One step after each change of side
is not timed: it finds the caches as the other side left them. Blocks of both sides are made equally
long where steps are short, since other programs take time away in slices: two blocks of one length
lose the same part. Beside two busy processes, blocks that differed by 5 % moved a ratio by 1.5 %.
How long a step takes alone is therefore taken from the fastest of many short blocks, which fit into
a slice.

Both sides are built several times within the budget, always both at the same moment and never two
builds of one side at once. A build gets other addresses, and with them other conflicts in caches
and pages; `labkit.results.statistics` says what follows from that. What building and warming up
takes is no part of any time. Small allocations of random size are kept beside each build, since the
allocator would else hand out the very addresses that it has just got back.

A run has a time budget. A short one gives a wider interval, not another rule; a run ends before its
budget by the width of the interval, never by what it shows. A run whose verdict is unclear at the
end of its budget goes on, build by build, and ends at the first look that is clear, at three
budgets at most: `tests/benchmarks/bench_stopping.py` counts what these looks cost.

The cold first step (compilation, cuDNN's search) is reported apart. On the CPU steps run on one
torch thread unless asked otherwise, set in the measuring thread, since torch's thread count does
not reach threads that run already. One measurement at a time in a kernel: `measuring` refuses a
second one, from whatever thread.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import torch

from labkit.arms import Arm, ArmDied, LocalArm
from labkit.device import accelerator_in_use, pick, survive
from labkit.preserve import frozen_heap, giving_back, preserve_flags, preserve_rng
from labkit.progress import progress
from labkit.results import Comparison, Measurement, Workload
from labkit.results.comparison import CLAIM_PAIRS, same_within
from labkit.turn import TURN

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
# More builds would bring little; each costs its warming up.
MOST_BUILDS = 10
# The part of the budget that building again may take. A build of a tenth is then had three times.
REBUILDING = 0.25
# Each build is timed in at least this many pairs: one cycle A B B A.
LEAST_PAIRS = 2
# A run that is not clear at the end of its budget goes on, to this multiple of it at most.
PATIENCE = 3.0
# Each look beyond the budget is another chance to be clear by luck: it ends the run only where an
# interval so many times as wide is clear, too.
SURE = 1.25

Step = Callable[[], Any] | Workload
Update = Callable[[Comparison], None]
clock = time.perf_counter


def measure(step: Step, *, seconds: float | None = None, threads: int | None = 1) -> Measurement:
    """Time one zero-argument step or `Workload` alone: with nothing to hold the times against.

    The step runs hundreds of times, and what it trains is trained: give it a copy of the model,
    `copy.deepcopy(model)`, and an optimizer of that copy. ``seconds``, ``threads`` and errors are
    as for `compare`: Busy, TypeError, ValueError, FloatingPointError. Times are in seconds a step.

    >>> matrix = torch.ones(64, 64)
    >>> result = measure(lambda: matrix @ matrix, seconds=0.1)
    >>> result.median > 0, len(result.times) >= 6
    (True, True)
    """
    with measuring(threads):
        arm = as_arm(step, "step")
        state = _Timed(arm)
        bar = _bar(budget(seconds))
        with contextlib.closing(arm), contextlib.closing(bar):
            state.warm_up(bar.total)
            begin = now = clock()
            while state.alive and (len(state.times) < CLAIM_PAIRS or now - begin < bar.total):
                state.block()
                now = clock()
                bar.update(min(now - begin, bar.total) - bar.n)
            return state.result()


def compare(
    baseline: Step,
    candidate: Step,
    *,
    seconds: float | None = None,
    threads: int | None = 1,
    patience: float | None = None,
    on_update: Update | None = None,
    stop: threading.Event | None = None,
) -> Comparison:
    """Time two zero-argument steps, or Workloads, against each other in blocks A B B A.

    Each step runs hundreds of times, and what it trains is trained: give each of them a copy of the
    model, `copy.deepcopy(model)`, and an optimizer of that copy.

    ``seconds`` is the budget for the measuring proper (10 by default, less in the test size); it
    ends sooner once the interval is narrow, and goes on while the verdict is unclear, to
    ``patience`` times the budget at most (3 by default, 1 in the test size). Steps that are given
    ready-made cannot be built again: the result is of one build. ``threads`` is torch's thread
    count on the CPU (None leaves it alone). ``on_update`` receives partial results between blocks,
    at most five times a second. After ``stop.set()`` or an interrupt the partial result is
    returned. torch's switches and random generators are given back as they were.

    The verdict follows Kalibera and Jones 2013 ("Rigorous benchmarking in reasonable time"): see
    `labkit.results.statistics`. Busy while another measurement is running; TypeError for what is no
    step and for a budget that is no number; ValueError for one that is not positive, and for a loss
    on a card that is not the current one; FloatingPointError for a step that returns nan or
    infinity. What a step raises comes through, but running out of memory ends that side alone.

    >>> small, large = torch.ones(8, 8), torch.ones(256, 256)
    >>> result = compare(lambda: large @ large, lambda: small @ small, seconds=0.2)
    >>> result.speedup > 1, result.baseline.median > result.candidate.median
    (True, True)
    """
    with measuring(threads), contextlib.ExitStack() as stack:
        arms = [as_arm(baseline, "baseline"), as_arm(candidate, "candidate")]
        for arm in arms:
            stack.callback(arm.close)
        return alternate(
            *arms,
            seconds=budget(seconds),
            patience=patience_of(patience),
            on_update=on_update,
            stop=stop,
            most_builds=1,
        )


@contextlib.contextmanager
def measuring(threads: int | None) -> Iterator[None]:
    """What every measurement happens in: alone, on ``threads`` torch threads.

    Everything global is given back afterwards. Busy while another measurement is running.
    """
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(
            f"threads={threads!r}: use a positive number of CPU threads, "
            "or None for torch's own setting"
        )
    thread = threading.current_thread()
    with giving_back(partial(TURN.give_back_to, TURN.depth_of(thread), thread)):
        TURN.take(thread)
        with frozen_heap(), preserve_rng(), preserve_flags():
            if threads is not None:
                torch.set_num_threads(threads)
            yield


def as_arm(step: Step, label: str) -> Arm:
    """A Workload or a plain function as an arm; TypeError for what is neither."""
    workload = step
    if not isinstance(workload, Workload):
        if not callable(step):
            raise TypeError(
                f"{label}={step!r}: use a function without arguments, which does one step, and "
                "not what it returns"
            )
        workload = Workload(step, unit="steps")
    # What the caller opened, the caller closes.
    return LocalArm(lambda: replace(workload, close=None), label)


def budget(seconds: float | None) -> float:
    """The time budget in seconds: the caller's, or the default for this size.

    ValueError for one that is not positive and finite, TypeError for what is no number.
    """
    if seconds is None:
        seconds = pick(cpu=10.0, test=0.5)
    if not isinstance(seconds, int | float) or isinstance(seconds, bool):
        raise TypeError(f"seconds={seconds!r}: use a positive time budget in seconds, a number")
    if not seconds > 0 or math.isinf(seconds):
        raise ValueError(f"seconds={seconds!r}: use a positive time budget in seconds")
    return seconds


def patience_of(patience: float | None) -> float:
    """How many budgets a run that stays unclear may take: the caller's, or the default.

    ValueError for less than one, or no end; TypeError for what is no number.
    """
    if patience is None:
        return pick(cpu=PATIENCE, test=1.0)
    if not isinstance(patience, int | float) or isinstance(patience, bool):
        raise TypeError(f"patience={patience!r}: use a number of budgets, 1 or more")
    if not 1 <= patience < math.inf:
        raise ValueError(f"patience={patience!r}: use a number of budgets, 1 or more")
    return patience


class _Timed:
    """A side and the times taken of it so far. Running out of memory ends the side, not the run."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
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
        with survive(ArmDied) as outcome:
            return work()
        self.error = outcome.error
        self.arm.close()
        return None

    def warm_up(
        self,
        budget: float,
        stop: threading.Event | None = None,
        on_block: Callable[[], None] | None = None,
    ) -> float:
        """Build, run the cold first step, then find how many steps make a block long enough.

        The seconds that finding it took. ``on_block`` is called once, after the first one that is.
        """
        self.cold = self._guard(self.arm.start)
        if self.cold is None:
            return 0.0
        # However long that took: it may have been a compilation, and the next step is quick.
        spent, enough = 0.0, min(0.25, budget / 20)
        while not (stop and stop.is_set()):
            elapsed = self._seconds_of(self.steps)
            if elapsed is None:
                break
            spent += elapsed
            if elapsed < BLOCK_SECONDS:
                wanted = math.ceil(1.2 * self.steps * BLOCK_SECONDS / max(elapsed, 1e-9))
                self.steps = max(self.steps + 1, min(10 * self.steps, wanted))
                continue
            self.step_seconds = min(self.step_seconds, elapsed / self.steps)
            if on_block is not None:
                on_block()
                on_block = None
            if spent >= enough:
                break
        return spent

    def sprint(self) -> None:
        """Time a short block: the fastest of them is one that nothing interrupted."""
        if not self.alive or self.arm.device == "cuda" or self.step_seconds > EQUAL_SECONDS:
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
        if not self.alive:
            return
        self.build += 1

        def start() -> float:
            self.spacers = shift_addresses(self.arm.device, random)
            return self.arm.start()

        spent = self._guard(start)
        blocks = 0
        while spent is not None and self.alive and (spent < seconds or not blocks):
            spent += self._seconds_of(max(2, self.steps)) or 0.0
            blocks += 1

    def settle(self) -> None:
        """One step that is not timed: it finds the caches as the other side left them."""
        if self.alive:
            self._seconds_of(1)

    def block(self) -> None:
        """Time one block."""
        if not self.alive:
            return
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


class _Builds:
    """How many builds a side gets, how long each is timed, and when the run ends.

    A build that costs a tenth of the budget is had three times; cheap ones `MOST_BUILDS` times. The
    cost is that of the last one: the first of a process pays for more than the others. A run that
    is prolonged gets builds as long as those before; half a budget more where one build was all.
    """

    def __init__(self, seconds: float, most: int, patience: float = 1.0) -> None:
        self.seconds = self.limit = seconds
        self.most, self.patience = most, patience
        self.done = 1
        self.cost = 0.0
        # How long each build of a prolonged run is timed.
        self.share = 0.0
        self.end = self.latest = math.inf
        self.next = math.inf

    def begin(self, now: float, cost: float) -> None:
        """From ``now`` on, with builds that take ``cost`` seconds for both sides."""
        self.cost = cost
        self.next = math.inf
        if self.share:
            self.end = now + self.share
            return
        if self.done == 1:
            self.end = now + self.seconds
            self.latest = now + self.patience * self.seconds
        left = min(self.most, builds_that_fit(self.seconds, cost)) - self.done
        timed = self.end - now - max(left, 0) * cost
        if left > 0 and timed > 0:
            self.next = now + timed / (left + 1)

    def prolong(self, now: float) -> bool:
        """Go on after ``now``, with one more build or in the same one; whether there is time."""
        timed = self.seconds - (self.done - 1) * self.cost
        share = self.share or timed / max(2, self.done)
        longest = self.patience * self.seconds
        most = round(self.patience * self.most)
        again = self.most > 1 and builds_that_fit(longest, self.cost, most) > self.done
        needed = share
        if again:
            needed += self.cost
        # The last pair of a build takes it a little beyond its share.
        if now + needed > self.latest + share / 10:
            return False
        self.limit, self.share, self.end = longest, share, now + share
        if again:
            # Until it is built.
            self.end, self.next = math.inf, now
        return True


def builds_that_fit(seconds: float, cost: float, most: int = MOST_BUILDS) -> int:
    """How many builds fit a budget of ``seconds`` when each costs ``cost`` seconds."""
    if cost <= 0:
        return most
    return min(most, 1 + int(REBUILDING * seconds / cost))


def shift_addresses(device: str, random: Random) -> list[torch.Tensor]:
    """Small allocations of random size, to be kept beside a build.

    The allocator would else hand out the very addresses that it has just got back. On CUDA, where
    closing a side empties the cache, they are on the current card; large tensors come from pages of
    2 MiB there, so that one allocation takes a few of these. A card on which this process does not
    work is left alone: a side in a process of its own has a new allocator anyway.
    """
    sizes = [64 * random.randrange(1, 1024) for _ in range(4)]
    if device != "cuda" or accelerator_in_use() != "cuda":
        device = "cpu"
    else:
        sizes.append(2**21 * random.randrange(1, 8))
    return [torch.empty(size, dtype=torch.uint8, device=device) for size in sizes]


class _Run:
    """One comparison while it is being taken."""

    def __init__(
        self,
        sides: tuple[_Timed, _Timed],
        builds: _Builds,
        on_update: Update | None,
        stop: threading.Event | None,
        on_rough: Update | None = None,
    ) -> None:
        self.sides, self.stop, self.on_update = sides, stop, on_update
        self.on_rough = on_rough
        self.builds = builds
        self.seconds = builds.seconds
        self.bar: Any = None
        # Processes take seconds to come up: that is shown at once.
        self.slow = not all(isinstance(side.arm, LocalArm) for side in sides)
        if on_update is None:
            self.bar = _bar(self.seconds, at_once=self.slow)
        self.begin = self.told = clock()
        self.stopped = False
        self.random = Random(0)

    def halted(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def warm_up(self) -> None:
        """Build both sides for the first time."""
        built = clock()
        searching = 0.0
        for side in self.sides:
            if not self.halted():
                self._say_that_it_starts(side)
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
        sides = [side.partial() for side in self.sides]
        seconds = [side.step_seconds for side in self.sides]
        if self.on_rough is None or not all(map(math.isfinite, seconds)):
            return
        one, other = (
            replace(side, times=(taken,)) for side, taken in zip(sides, seconds, strict=True)
        )
        self.on_rough(replace(self.so_far(), baseline=one, candidate=other))
        self.told = clock()

    def _say_that_it_starts(self, side: _Timed) -> None:
        if self.bar is not None and self.slow:
            self.bar.set_description_str(f"starting {side.arm.label}", refresh=True)

    def _make_blocks_equal(self) -> float:
        """Steps of both sides such that their blocks take equally long; the seconds it took."""
        begin = clock()
        for _ in range(SHORT_BLOCKS):
            for side in self.sides:
                side.sprint()
            if self.halted() or clock() - begin > SHORT_TOTAL:
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
        while not self.halted() and (one.alive or other.alive):
            for side in cycle[pairs % 2]:
                if self.halted():
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
        verdict = found.verdict(same_within(partial.device))
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
            if not self.halted():
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
            if self.bar is not None:
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
        return partial.estimate.margin <= ENOUGH * same_within(partial.device)

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
) -> Comparison:
    """The engine of `compare` on two arms.

    They are built up to ``most_builds`` times in ``seconds``: ``close()`` and ``start()`` again. A
    run that is unclear then goes on, to ``patience`` times the budget at most; ``limit`` of a
    partial result is what it may take as things stand. ``on_rough`` receives one pair of warm
    blocks before the measuring proper: no part of the result.
    """
    sides = _Timed(baseline), _Timed(candidate)
    run = _Run(sides, _Builds(seconds, most_builds, patience), on_update, stop, on_rough)
    try:
        run.warm_up()
        run.take()
        run.stopped = run.halted()
    except KeyboardInterrupt:
        # Nothing to show for it.
        if not run.so_far().pairs:
            raise
        run.stopped = True
    finally:
        for side in sides:
            side.spacers.clear()
        if run.bar is not None:
            run.bar.close()
    result = run.so_far()
    if not run.stopped:
        one, other = sides
        result = replace(result, baseline=one.result(), candidate=other.result())
    return result


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


def _bar(seconds: float, *, at_once: bool = False) -> Any:
    shown: dict[str, Any] = {"bar_format": "{desc} |{bar}| {n:.2g}/{total:.2g} s"}
    if at_once:
        shown["delay"] = 0
    return progress(total=seconds, unit="s", **shown)
