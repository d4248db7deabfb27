"""An accelerator that is not CUDA: found, waited for, and said not to have been measured on.

It is played here by a queue of work, on which one operator takes a second of a clock that does not
move until somebody waits for the queue.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from course.machine import _seconds, fast_dtypes, machine_card
from labkit import Timer, Workload, device, pick_device, seed_all
from labkit.alternating import alternate
from labkit.arm import LocalArm
from labkit.restore import preserve_rng
from labkit.results import Comparison, Measurement


class Queue:
    """The accelerator, its module and its clock."""

    def __init__(self) -> None:
        self.waiting = 0
        self.now = 0.0
        self.emptied = 0
        self.index = 0
        self.numbers = torch.tensor([7])

    def work(self) -> None:
        """Queue an operator."""
        self.waiting += 1

    def synchronize(self, *_: object) -> None:
        self.now += self.waiting
        self.waiting = 0

    def empty_cache(self) -> None:
        self.emptied += 1

    def get_rng_state(self) -> torch.Tensor:
        return self.numbers.clone()

    def set_rng_state(self, state: torch.Tensor) -> None:
        self.numbers = state

    def manual_seed(self, seed: int) -> None:
        self.numbers = torch.tensor([seed])


@pytest.fixture
def mps(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    queue = Queue()
    found = torch.device("mps")
    accelerator = torch.accelerator
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(accelerator, "current_accelerator", lambda check_available=False: found)
    monkeypatch.setattr(accelerator, "is_available", lambda: True)
    monkeypatch.setattr(accelerator, "synchronize", queue.synchronize)
    monkeypatch.setattr(accelerator, "current_device_index", lambda: queue.index)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: queue)
    monkeypatch.setattr("labkit.arm._load_libraries", lambda kind: queue.work())
    device._other_accelerator.cache_clear()
    yield queue
    device._other_accelerator.cache_clear()


@pytest.fixture
def clock(mps: Queue, monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The accelerator's own clock in the place of this machine's."""
    monkeypatch.setattr(time, "perf_counter", lambda: mps.now)
    return mps


def test_it_is_found(mps: Queue) -> None:
    assert pick_device() == torch.device("mps")
    assert device.accelerator_in_use() == "mps"


def test_without_one_the_cpu_is_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    device._other_accelerator.cache_clear()
    for found in (None, torch.device("cuda")):
        monkeypatch.setattr(
            torch.accelerator, "current_accelerator", lambda check_available=False, it=found: it
        )
        device._other_accelerator.cache_clear()
        assert pick_device() == torch.device("cpu") and device.accelerator_in_use() is None
    device._other_accelerator.cache_clear()


def test_it_can_be_left_alone(mps: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    assert pick_device() == torch.device("cpu")
    assert "accelerator" not in machine_card()
    monkeypatch.setenv("LABKIT_DEVICE", "gpu")
    with pytest.raises(ValueError, match="LABKIT_DEVICE='gpu': use 'cpu'"):
        pick_device()


def test_one_that_can_tell_is_unused_at_first(mps: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: module)
    assert device.accelerator_in_use() is None
    module.is_initialized = lambda: True
    assert device.accelerator_in_use() == "mps"


def test_blocks_are_timed_with_all_their_work(clock: Queue) -> None:
    arm = LocalArm(lambda: Workload(clock.work), "a")
    # The warm-up is over before the first step begins, and is no part of it.
    assert arm.start() == 1
    assert arm.device == "mps"
    # Neither is what the reader has queued before.
    clock.waiting = 50
    assert arm.block(5) == 5
    arm.close()
    assert clock.emptied


def test_a_loss_on_the_cpu_tells_that_the_step_works_there(mps: Queue) -> None:
    arm = LocalArm(lambda: Workload(lambda: torch.zeros(())), "a")
    arm.start()
    assert arm.device == "cpu"
    arm.close()


def test_only_the_current_one_is_waited_for(mps: Queue) -> None:
    for sound in ("mps", "mps:0", "cpu", "meta", "cuda:1"):
        device.check_current(torch.device(sound))
    with pytest.raises(ValueError, match=r"on mps:1, .*set_device_index\(1\) first"):
        device.check_current(torch.device("mps:1"))
    mps.index = 1
    device.check_current(torch.device("mps:1"))
    with pytest.raises(ValueError, match="on mps:0, "):
        device.check_current(torch.device("mps:0"))


def test_a_timer_waits(clock: Queue) -> None:
    clock.waiting = 3
    with Timer(sync=True) as timer:
        clock.work()
    assert timer.times == [1]


def test_the_machine_card_waits_and_says_so(clock: Queue) -> None:
    assert _seconds(clock.work, torch.device("mps"), repeat=4, budget=10) == 1
    card = machine_card()
    assert card["accelerator"].startswith("mps (not measured by us); LABKIT_DEVICE=cpu")
    assert card["gpu"] is None
    assert fast_dtypes() == {"bfloat16": None, "float16": None}


def test_generators_are_given_back(mps: Queue) -> None:
    with preserve_rng():
        mps.manual_seed(99)
        seed_all(3)
    assert mps.numbers.item() == 7


def test_results_say_that_nobody_has_measured_on_it() -> None:
    sides = [Measurement(name, times=(1.0, 1.001) * 20) for name in ("baseline", "candidate")]
    result = Comparison(*sides, device="mps")
    assert "on mps (not measured by us)" in str(result)
    assert "on mps (not measured by us)" in result._repr_html_()
    on_cpu = replace(result, device="cpu")
    assert (result.verdict, result.interval) == (on_cpu.verdict, on_cpu.interval)


def test_a_comparison_knows_where_it_ran(mps: Queue) -> None:
    arms = [LocalArm(lambda: Workload(lambda: None), name) for name in ("baseline", "candidate")]
    result = alternate(*arms, seconds=0.05, on_update=lambda so_far: None, stop=None, most_builds=1)
    assert result.device == "mps"
    for arm in arms:
        arm.close()
