"""The measuring engine: order of blocks, switches of an arm, budgets, faults. Nothing here asserts a time."""

import gc
import itertools
import threading
import time
import weakref

import pytest
import torch

from labkit import Workload, compare, measure
from labkit.arms import LocalArm
from labkit.measure import BLOCK_SECONDS
from labkit.switches import torch_flags


@pytest.fixture(autouse=True)
def everything_is_given_back():
    """After each test, whatever happened in it: switches, generators and threads as before."""
    flags, generator, threads = torch_flags(), torch.get_rng_state(), set(threading.enumerate())
    yield
    assert torch_flags() == flags
    assert torch.equal(torch.get_rng_state(), generator)
    assert set(threading.enumerate()) == threads
    assert gc.isenabled()


class Recorder:
    """An arm whose blocks take the seconds it is told, on no clock at all."""

    def __init__(self, label, log, seconds=0.01):
        self.label, self.log, self.seconds = label, log, seconds
        self.settings, self.samples, self.unit, self.device = {}, 1, "samples", "cpu"

    def start(self):
        return self.seconds

    def block(self, steps):
        self.log.append(self.label)
        return self.seconds * steps

    def check(self):
        self.log.append(f"check {self.label}")

    def close(self):
        self.log.append(f"close {self.label}")


def test_blocks_alternate_a_b_b_a():
    log = []
    result = compare(Recorder("a", log), Recorder("b", log, 0.02), seconds=0.01)
    blocks = [
        "".join(group) for _, group in itertools.groupby(name for name in log if name in "ab")
    ]
    # After a block each to warm up: one step after each change of arm is not timed, so a bb a a bb a ... is
    assert blocks[2:7] == ["aa", "bbb", "aaa", "bbb", "aaa"]
    assert sum(map(len, blocks[2:])) == pytest.approx(3 * len(result.ratios), abs=1)
    assert result.speedup == pytest.approx(0.5) and result.verdict == "slower"
    assert result.control == (1.0,) * len(result.control)
    assert log[-4:] == ["check a", "check b", "close b", "close a"]


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

    result = compare(Workload(lambda: step("a"), 32), Workload(lambda: step("b"), 32), seconds=0.2)
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
    compare(on, off, seconds=0.1)
    assert seen == {"on": {(True, 2)}, "off": {(False, 1)}}


def test_a_switch_flipped_inside_the_step_stays_with_the_arm():
    def flip():
        torch.backends.cudnn.deterministic = True

    seen = set()
    compare(flip, lambda: seen.add(torch.backends.cudnn.deterministic), seconds=0.05)
    assert seen == {False}


def test_one_thread_unless_asked_otherwise():
    seen = []
    compare(lambda: seen.append(torch.get_num_threads()), lambda: None, seconds=0.05)
    assert set(seen) == {1}
    seen.clear()
    measure(lambda: seen.append(torch.get_num_threads()), seconds=0.05, threads=2)
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
    stop = threading.Event()
    stop.set()
    result = compare(lambda: None, lambda: None, seconds=60, stop=stop)
    assert result.stopped and result.verdict == "cannot tell" and not result.ratios
    stop = threading.Event()
    result = compare(
        lambda: None, lambda: None, seconds=60, on_update=lambda partial: stop.set(), stop=stop
    )
    assert result.stopped and result.ratios and "stopped early" in str(result)


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
    assert result.verdict == "cannot tell" and "out of memory" in str(result)
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
