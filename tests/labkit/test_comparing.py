"""The measuring engine: order of blocks, switches of an arm, budgets, faults.

Nothing here asserts a time.
"""

import contextlib
import gc
import itertools
import math
import statistics
import threading
import time
import weakref
from random import Random
from typing import ClassVar

import pytest
import torch

from labkit import Lab, Workload, alternating, compare, measure
from labkit.alternating import BLOCK_SECONDS, MIN_BUILDS, SHORT_TOTAL, alternate, equal_steps
from labkit.arm import LocalArm
from labkit.builds import MOST_BUILDS, builds_that_fit
from labkit.comparing import measuring, patience_of
from labkit.restore.switches import torch_flags
from labkit.stages import BUILDING, UNWATCHED
from tests.benchmarks import bench_stopping


@pytest.fixture(autouse=True)
def everything_is_given_back():
    """After each test, whatever happened in it: switches, generators and threads as before."""
    flags, generator, threads = torch_flags(), torch.get_rng_state(), set(threading.enumerate())
    yield
    assert torch_flags() == flags
    assert torch.equal(torch.get_rng_state(), generator)
    assert set(threading.enumerate()) == threads
    assert gc.isenabled()


class Clock:
    """A clock that goes on only when a side works."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(alternating, "clock", clock)
    return clock


class FakeSide:
    """A side whose steps and builds take the seconds that it is told, on a clock of its own.

    ``layout`` maps the number of a build to a factor of its steps' time; ``fails`` is the number of
    the build that runs out of memory; ``interrupted`` says what other programs take from a block.
    """

    alive: ClassVar[list] = []

    def __init__(
        self,
        label,
        log,
        clock,
        seconds=0.01,
        building=0.0,
        layout=None,
        fails=None,
        interrupted=None,
    ):
        self.label, self.log, self.clock = label, log, clock
        self.interrupted = interrupted
        self.seconds, self.building = seconds, building
        self.layout, self.fails = layout or {}, fails
        self.settings, self.samples, self.unit, self.device = {}, 1, "samples", "cpu"
        self.build = -1
        self.on_start = None

    def start(self, stages=UNWATCHED):
        stages.enter(BUILDING)
        assert self.label not in self.alive, "two builds of one side at once"
        self.build += 1
        self.log.append(f"start {self.label}")
        self.clock.now += self.building
        if self.on_start:
            self.on_start(self)
        if self.build == self.fails:
            raise MemoryError
        self.alive.append(self.label)
        return self.block(1)

    def block(self, steps):
        self.log.append(self.label)
        seconds = steps * self.seconds * self.layout.get(self.build, 1.0)
        if self.interrupted:
            seconds += self.interrupted(seconds)
        self.clock.now += seconds
        return seconds

    def check(self):
        self.log.append(f"check {self.label}")

    def close(self):
        self.log.append(f"close {self.label}")
        if self.label in self.alive:
            self.alive.remove(self.label)


@pytest.fixture
def sides(clock):
    """Makes two such sides with one log; a dict of options for each."""
    FakeSide.alive.clear()

    def make(before=None, after=None, **both):
        log = []
        one = FakeSide("a", log, clock, **(both | (before or {})))
        other = FakeSide("b", log, clock, **(both | (after or {})))
        return one, other, log

    return make


def alternated(one, other, seconds, **options):
    """A comparison of two arms, which are built again; closed at the end."""
    options = {"on_update": None, "stop": None} | options
    with measuring(1), contextlib.ExitStack() as stack:
        for side in (one, other):
            stack.callback(side.close)
        return alternate(one, other, seconds=seconds, **options)


def letters(log):
    """The blocks and untimed steps in turn, as one string."""
    return "".join(name for name in log if name in ("a", "b"))


def test_blocks_alternate_a_b_b_a(sides):
    one, other, log = sides(after={"seconds": 0.02}, building=10.0)
    result = alternated(one, other, seconds=1)
    # Without warming up and short blocks, and with one build: the change of side is not timed.
    begin = log.index("start b") + 1
    blocks = ["".join(group) for _, group in itertools.groupby(letters(log[begin:]))]
    timed = blocks[blocks.index("bbb") - 1 :]
    assert timed[:5] == ["aa", "bbb", "aaa", "bbb", "aaa"]
    # Blocks are equally long: two steps of the quick side against one.
    assert (result.baseline.steps_per_block, result.candidate.steps_per_block) == (2, 1)
    assert result.speedup == pytest.approx(0.5) and result.verdict == "slower"
    assert set(result.control) == {1.0}
    assert log[-4:] == ["check a", "check b", "close b", "close a"]


@pytest.mark.parametrize(
    ("one", "other", "steps"),
    [
        (1e-3, 1e-3, (5, 5)),
        # 5 steps against 7 or 8 would be 7 % apart.
        (3e-3, 2e-3, (2, 3)),
        (0.96e-3, 0.64e-3, (6, 9)),
        (2e-6, 3e-6, (2500, 1667)),
        # Nothing better within twice the length.
        (6.0e-3, 6.3e-3, (1, 1)),
    ],
)
def test_steps_that_make_blocks_equally_long(one, other, steps):
    assert equal_steps(one, other, 5e-3) == steps


def test_blocks_are_equal_also_where_other_programs_take_time_away(sides):
    # What is longer than 2 ms loses 4 ms: no block of 5 ms tells how long a step takes.
    def slices(seconds):
        return 0.004 if seconds > 0.002 else 0.0

    one, other, _ = sides(
        before={"seconds": 1.5e-3}, after={"seconds": 1e-3, "interrupted": slices}
    )
    result = alternated(one, other, seconds=1)
    assert 1.5 * result.baseline.steps_per_block == result.candidate.steps_per_block


def test_cheap_builds_are_many_and_cost_nobody_s_time(sides):
    # Builds that differ, so that the run is not ended early.
    layout = {number: 1 + 0.05 * (-1) ** number for number in range(MOST_BUILDS)}
    one, other, log = sides(building=0.001, before={"layout": layout})
    result = alternated(one, other, seconds=20)
    assert result.build_count == MOST_BUILDS == log.count("start a") == log.count("start b")
    assert set(result.candidate.times) == {0.01}
    for seconds, build in zip(result.baseline.times, result.baseline.builds, strict=True):
        assert seconds == pytest.approx(0.01 * layout[build])
    assert result.baseline.builds == result.candidate.builds
    assert list(result.baseline.builds) == sorted(result.baseline.builds)
    sizes = [result.baseline.builds.count(number) for number in range(MOST_BUILDS)]
    assert max(sizes) - min(sizes) <= 4


@pytest.mark.parametrize(("building", "builds"), [(4, 6), (10, 3), (20, 2), (30, 1), (300, 1)])
def test_as_many_builds_as_a_quarter_of_the_budget_holds(sides, building, builds):
    # Less what warming up takes, for both sides together.
    one, other, _ = sides(building=building / 2 - 0.3)
    assert alternated(one, other, seconds=100.0).build_count == builds


def test_three_builds_where_they_take_a_tenth():
    assert builds_that_fit(10.0, 1.0) == 3
    assert builds_that_fit(10.0, 1.3) == 2
    assert builds_that_fit(10.0, 2.6) == 1
    assert builds_that_fit(10.0, 0.0) == MOST_BUILDS


def test_the_budget_holds_the_building_again(sides, clock):
    one, other, _ = sides(building=0.4)
    alternated(one, other, seconds=10)
    first = 2 * (0.4 + 0.01) + 2 * 0.25 + SHORT_TOTAL
    assert clock.now <= first + 10 + 0.1


def test_steps_that_cannot_be_built_again_are_of_one_build():
    made = []

    def step():
        made.append(1)

    result = compare(step, step, seconds=0.2)
    assert result.build_count == 1 and set(result.baseline.builds) == {0}
    assert "pairs of one build" in str(result)


def test_builds_that_differ_widen_the_interval(sides):
    layout = {number: 1 + 0.01 * (number % 3 - 1) for number in range(MOST_BUILDS)}
    equal, other, _ = sides()
    narrow = alternated(equal, other, seconds=20)
    one, other, _ = sides(before={"layout": layout})
    result = alternated(one, other, seconds=20)
    assert narrow.verdict == "same" and narrow.interval == pytest.approx((1, 1), abs=1e-6)
    low, high = result.interval
    # Student's t with nine degrees of freedom, of ten values with this deviation.
    parts = [math.log(layout[number]) for number in range(MOST_BUILDS)]
    error = statistics.stdev(parts) / math.sqrt(MOST_BUILDS)
    assert math.log(high / low) / 2 == pytest.approx(2.262 * error, rel=1e-3)
    # As if it were one build, the interval would be that of the runs of pairs.
    assert result.build_count == MOST_BUILDS


def test_out_of_memory_in_a_build_ends_that_side_only(sides):
    one, other, log = sides(after={"fails": 2}, building=0.001)
    result = alternated(one, other, seconds=20)
    assert result.candidate.error == "out of memory" and result.baseline.error is None
    assert max(result.candidate.builds) == 1
    assert max(result.baseline.builds) > 2
    assert result.verdict == "unclear" and result.build_count == 2
    assert not FakeSide.alive and log.count("check b") == 0


def test_a_side_s_own_error_in_a_build_is_raised(sides):
    def explode(side):
        if side.build == 1:
            raise ZeroDivisionError

    one, other, _ = sides()
    other.on_start = explode
    with pytest.raises(ZeroDivisionError):
        alternated(one, other, seconds=20)
    assert not FakeSide.alive


def test_a_stop_during_a_build_gives_what_was_measured(sides):
    stop = threading.Event()

    def press(side):
        if side.build == 3:
            stop.set()

    one, other, log = sides()
    one.on_start = press
    result = alternated(one, other, seconds=20, stop=stop)
    assert result.stopped and result.build_count == 3
    assert log.count("start a") == 4 and "check a" not in log
    assert not FakeSide.alive


def test_an_interrupt_during_a_build_gives_what_was_measured(sides):
    def press(side):
        if side.build == 2:
            raise KeyboardInterrupt

    one, other, _ = sides()
    other.on_start = press
    result = alternated(one, other, seconds=20)
    assert result.stopped and result.build_count == 2
    assert not FakeSide.alive


def test_a_narrow_interval_ends_a_run_but_not_before_several_builds(sides, clock):
    one, other, _ = sides()
    result = alternated(one, other, seconds=40)
    assert result.build_count == MIN_BUILDS and clock.now < 40
    noisy = {number: 1 + 0.05 * (-1) ** number for number in range(MOST_BUILDS)}
    one, other, _ = sides(before={"layout": noisy})
    assert alternated(one, other, seconds=40).build_count == MOST_BUILDS


def by_turns(step):
    """Builds that are slower and faster by turns: the mean of them is 1."""
    return {number: 1 + step * (-1) ** number for number in range(4 * MOST_BUILDS)}


def test_a_run_that_is_clear_at_the_end_of_its_budget_ends_there(sides):
    one, other, _ = sides(before={"seconds": 0.015, "layout": by_turns(0.05)})
    result = alternated(one, other, 20, patience=3)
    assert result.verdict == "faster" and result.build_count == MOST_BUILDS
    assert 20 <= result.seconds < 20.1 and result.limit == 20


def test_an_unclear_run_goes_on_in_whole_builds_to_three_budgets(sides):
    updates = []
    one, other, _ = sides(before={"layout": by_turns(0.1)})
    result = alternated(one, other, 20, patience=3, on_update=updates.append)
    assert result.verdict == "unclear" and result.limit == 60
    assert 57 <= result.seconds < 60.5
    sizes = [result.baseline.builds.count(number) for number in range(result.build_count)]
    assert result.build_count == 3 * MOST_BUILDS - 1 and max(sizes) < 1.2 * min(sizes)
    # The limit is that of the budget until it is over.
    assert {so_far.limit for so_far in updates if so_far.seconds < 20} == {20}
    assert {so_far.limit for so_far in updates if so_far.seconds > 20.1} == {60}


def test_without_patience_an_unclear_run_ends_with_its_budget(sides):
    one, other, _ = sides(before={"layout": by_turns(0.1)})
    result = alternated(one, other, 20)
    assert result.verdict == "unclear" and result.seconds < 20.1 and result.limit == 20


def test_an_unclear_run_ends_as_soon_as_it_is_clear(sides):
    # After the tenth build they do not differ any more.
    layout = dict(list(by_turns(0.05).items())[:MOST_BUILDS])
    one, other, _ = sides(before={"layout": layout, "seconds": 0.0104})
    result = alternated(one, other, 20, patience=3)
    assert alternated(*sides(before={"layout": layout, "seconds": 0.0104})[:2], 20).verdict == (
        "unclear"
    )
    assert result.verdict == "faster" and 21 < result.seconds < 59


@pytest.mark.parametrize(
    ("building", "builds", "seconds"),
    [
        # Three builds in the budget: each of the others as long as those.
        (0.9, 8, 28),
        # One in the budget, three in three.
        (3.2, 3, 27),
        # None but the first: looks at each half budget.
        (20.0, 1, 30),
    ],
)
def test_costly_builds_of_an_unclear_run(sides, building, builds, seconds):
    random = Random(0)
    one, other, _ = sides(
        building=building / 2,
        before={"seconds": 0.016},
        after={"interrupted": lambda _: random.uniform(0, 0.012)},
    )
    result = alternated(one, other, 10, patience=3)
    assert (result.verdict, result.build_count) == ("unclear", builds)
    assert result.seconds == pytest.approx(seconds, abs=1)


def test_a_side_that_has_ended_is_not_waited_for(sides):
    one, other, _ = sides(after={"fails": 2}, building=0.001)
    result = alternated(one, other, 20, patience=3)
    assert result.candidate.error and result.seconds < 20.1


def test_a_stop_ends_a_run_that_has_gone_on(sides):
    stop = threading.Event()

    def press(so_far):
        if so_far.limit > 20:
            stop.set()

    one, other, _ = sides(before={"layout": by_turns(0.1)})
    result = alternated(one, other, 20, patience=3, on_update=press, stop=stop)
    assert result.stopped and 20 < result.seconds < 25


@pytest.mark.parametrize("scatter", ["builds differ", "three builds", "one build"])
def test_going_on_until_it_is_clear_keeps_the_interval_and_claims_little(scatter):
    """The counts of all scatters, of more runs: tests/benchmarks/bench_stopping.py."""
    scatter = bench_stopping.SCATTERS[scatter]
    equal, other = (bench_stopping.tally(ratio, scatter, 100) for ratio in (1.0, 1.02))
    assert equal.prolonged > 20 and other.prolonged > 20
    assert equal.covered + other.covered >= 180
    assert equal.claims <= 4


@pytest.mark.parametrize("wrong", [0, 0.5, -1, math.inf, math.nan])
def test_a_senseless_patience(wrong):
    with pytest.raises(ValueError, match=r"patience=.*: use a number of budgets, 1 or more"):
        patience_of(wrong)
    with pytest.raises(TypeError, match="patience='2'"):
        patience_of("2")


def test_each_build_starts_from_the_lab_s_seed():
    drawn = []

    def make_workload(scale):
        drawn.append((scale, torch.rand(1).item()))
        return Workload(lambda: None)

    result = Lab(make_workload, scale=[1, 2], memory=False, seed=3).run(scale=2, seconds=0.5)
    assert result.build_count > 1
    assert len({value for _, value in drawn}) == 1 and {scale for scale, _ in drawn} == {1, 2}


def test_short_steps_are_gathered_into_blocks_that_can_be_timed():
    steps = []
    result = measure(lambda: steps.append(1), seconds=0.4)
    assert result.steps_per_block > 100
    assert result.median * result.steps_per_block > BLOCK_SECONDS / 4
    assert len(result.times) >= 6 and result.cold is not None


def test_a_slow_first_step_is_no_reason_for_short_blocks():
    calls = []

    def step():
        calls.append(1)
        if len(calls) == 1:
            time.sleep(0.1)  # compilation, say: a quarter of the budget

    assert measure(step, seconds=0.4).steps_per_block > 100
    calls.clear()
    assert (
        measure(step, seconds=0.05).steps_per_block > 100
    )  # also when it took longer than the whole budget


def test_compare_counts_what_the_steps_did():
    calls = {"a": 0, "b": 0}

    def step(name):
        calls[name] += 1
        return torch.ones(64, 64) @ torch.ones(64, 64)

    result = compare(
        Workload(lambda: step("a"), 32), Workload(lambda: step("b"), 32), seconds=0.2, restore=False
    )
    for arm, name in zip(result.arms, "ab", strict=True):
        assert calls[name] >= 1 + arm.steps_per_block * len(arm.times)
        assert arm.throughput == pytest.approx(32 / arm.median)


def test_switches_belong_to_the_arm_that_sets_them():
    seen = {"on": set(), "off": set()}

    def make(name, value):
        def workload():
            torch.backends.cudnn.benchmark = value
            torch.set_num_threads(2 if value else 1)

            def step():
                seen[name].add((torch.backends.cudnn.benchmark, torch.get_num_threads()))

            return Workload(step)

        return workload

    on, off = LocalArm(make("on", True), "on"), LocalArm(make("off", False), "off")
    alternated(on, off, seconds=0.1)
    assert seen == {"on": {(True, 2)}, "off": {(False, 1)}}


def test_a_switch_flipped_inside_the_step_stays_with_the_arm():
    def flip():
        torch.backends.cudnn.deterministic = True

    seen = set()
    compare(flip, lambda: seen.add(torch.backends.cudnn.deterministic), seconds=0.05, restore=False)
    assert seen == {False}


def test_one_thread_unless_asked_otherwise():
    seen = []
    compare(lambda: seen.append(torch.get_num_threads()), lambda: None, seconds=0.05, restore=False)
    assert set(seen) == {1}
    seen.clear()
    measure(lambda: seen.append(torch.get_num_threads()), seconds=0.05, threads=2, restore=False)
    assert set(seen) == {2}


def test_updates_carry_partial_results_and_come_between_blocks():
    updates, inside = [], []

    def step():
        inside.append(True)
        torch.ones(100).sum()
        inside.pop()

    def on_update(partial):
        assert not inside
        updates.append(partial)

    result = compare(step, step, seconds=1.0, on_update=on_update)
    assert updates and all(
        len(first.ratios) <= len(second.ratios) for first, second in itertools.pairwise(updates)
    )
    assert len(updates) <= result.seconds * 5 + 1


def test_stop_before_and_during_a_run():
    def run(stop, on_update=None):
        arms = [LocalArm(lambda: Workload(lambda: None), name) for name in "ab"]
        return alternate(*arms, seconds=60, on_update=on_update, stop=stop)

    stop = threading.Event()
    stop.set()
    result = run(stop)
    assert result.stopped and result.verdict == "unclear" and not result.ratios
    stop = threading.Event()
    result = run(stop, on_update=lambda partial: stop.set())
    assert result.stopped and result.ratios and "stopped early" in str(result)


def test_a_rough_first_number_comes_before_all_others_and_is_no_part_of_the_result():
    told = []
    lab = Lab(lambda twice: Workload(work(2 if twice else 1)), twice=[False, True], memory=False)
    result = lab.run(
        twice=True,
        seconds=0.3,
        on_rough=lambda rough: told.append(("rough", rough)),
        on_update=lambda partial: told.append(("partial", partial)),
    )
    kinds = [kind for kind, _ in told]
    assert kinds[0] == "rough" and kinds.count("rough") == 1
    rough = told[0][1]
    assert rough.pairs == 1 and rough.verdict == "unclear"
    assert rough.candidate.settings == {"twice": True}
    assert rough.candidate.times[0] not in result.candidate.times


def work(products):
    matrix = torch.randn(64, 64)

    def step():
        for _ in range(products):
            matrix @ matrix

    return step


def test_an_interrupt_returns_what_there_is():
    calls = []

    def step():
        calls.append(1)
        torch.ones(1000).sum()
        if interrupt_now:
            raise KeyboardInterrupt

    interrupt_now = False

    def on_update(partial):
        nonlocal interrupt_now
        interrupt_now = len(partial.ratios) > 2

    result = compare(step, lambda: None, seconds=60, on_update=on_update)
    assert result.stopped and len(result.ratios) > 2


def test_an_interrupt_with_nothing_measured_is_raised():
    def step():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(step, lambda: None, seconds=1)


def test_out_of_memory_ends_one_arm_and_the_other_is_still_measured():
    held = torch.ones(10)
    alive = []

    def hungry():
        big = torch.ones(1000)
        alive.append(weakref.ref(big))
        torch.empty(2**55)

    result = compare(lambda: held.sum(), hungry, seconds=0.2)
    assert result.candidate.error == "out of memory" and not result.candidate.times
    assert result.baseline.times and result.baseline.error is None
    assert result.verdict == "unclear" and "out of memory" in str(result)
    gc.collect()
    assert all(reference() is None for reference in alive)  # its memory is free again


def test_out_of_memory_after_some_steps():
    count = 0

    def step():
        nonlocal count
        count += 1
        torch.empty(2**55 if count > 300 else 2**10)

    result = compare(step, lambda: torch.ones(100).sum(), seconds=0.2)
    assert result.baseline.error == "out of memory"
    assert result.candidate.times


@pytest.mark.parametrize(
    "value", [torch.tensor(float("nan")), float("inf"), torch.tensor([1.0, float("nan")])]
)
def test_a_broken_training_is_not_compared(value):
    with pytest.raises(FloatingPointError, match=r"'candidate' returned (nan|inf)"):
        compare(lambda: torch.zeros(()), lambda: value, seconds=0.1)


def test_training_that_breaks_during_the_run():
    count = 0

    def step():
        nonlocal count
        count += 1
        return torch.tensor(float("nan") if count > 200 else 1.0)

    with pytest.raises(FloatingPointError, match="'baseline' returned nan"):
        compare(step, lambda: None, seconds=0.1)


def test_an_error_in_a_step_says_in_which_arm():
    with pytest.raises(ZeroDivisionError) as caught:
        compare(lambda: None, lambda: 1 / 0, seconds=0.1)
    assert any("candidate" in note for note in caught.value.__notes__)


def test_a_budget_that_is_no_number_is_named():
    with pytest.raises(TypeError, match="seconds='3': use a positive time budget"):
        compare(lambda: None, lambda: None, seconds="3")


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_a_senseless_budget(seconds):
    with pytest.raises(ValueError, match="seconds="):
        compare(lambda: None, lambda: None, seconds=seconds)


@pytest.mark.parametrize("threads", [0, -2, 1.5])
def test_senseless_threads(threads):
    with pytest.raises(ValueError, match="threads="):
        measure(lambda: None, threads=threads)


def test_not_a_step():
    with pytest.raises(TypeError, match="42"):
        compare(42, lambda: None)


def test_the_caller_s_workload_is_not_closed():
    closed = []
    workload = Workload(lambda: None, close=lambda: closed.append(1))
    compare(workload, workload, seconds=0.05)
    assert not closed


def test_what_is_no_step_is_named() -> None:
    with pytest.raises(TypeError, match=r"baseline=0\.5: use a function without arguments"):
        compare(0.5, lambda: None, seconds=0.05)
    with pytest.raises(TypeError, match="baseline is a ReLU: use a function without arguments"):
        compare(torch.nn.ReLU(), lambda: None)
    with pytest.raises(TypeError, match="candidate=None: use a function"):
        compare(lambda: None, None, seconds=0.05)


def test_a_step_that_reads_its_iterator_to_the_end_is_told_so() -> None:
    batches = iter(range(5))
    with pytest.raises(RuntimeError, match=r"has read its iterator to the end: .*one batch"):
        compare(lambda: next(batches), lambda: None, seconds=0.05)


def test_a_step_that_only_makes_a_generator_is_refused() -> None:
    def training():
        yield 1

    for step in (training, lambda: training()):
        with pytest.raises(TypeError, match="'step' returned a generator, whose body has not run"):
            measure(step, seconds=0.05)
