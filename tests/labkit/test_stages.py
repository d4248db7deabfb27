"""What a run prepares is told, and a run that is stopped meanwhile ends at the next step."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from labkit import Lab, Workload, race
from labkit.alternating import alternate
from labkit.arm import LocalArm
from labkit.memory_timeline import MemoryComparison
from labkit.remote import RemoteArm
from labkit.remote.children import Children
from labkit.results import Comparison
from labkit.stages import BUILDING, RECORDING, STARTING, WARMING, Halted, Stage, Stages


class Watch:
    """Notes the stages, and presses Stop at one of them."""

    def __init__(self, press_at: str = "") -> None:
        self.press_at = press_at
        self.stop = threading.Event()
        self.seen: list[str] = []

    def __call__(self, stage: Stage) -> None:
        self.seen.append(stage.words)
        if self.press_at and self.press_at in stage.words:
            self.stop.set()


class Made:
    """Makes workloads, and counts what was built and how many steps were done."""

    def __init__(self) -> None:
        self.built = self.steps = 0

    def __call__(self, side: int = 1) -> Workload:
        self.built += 1
        return Workload(self.step, evaluate=lambda: 1.0)

    def step(self) -> None:
        self.steps += 1
        time.sleep(0.002)


def compared(watch: Watch, made: Made) -> Comparison:
    arms = LocalArm(made, "a"), LocalArm(made, "b")
    return alternate(
        *arms, seconds=0.2, on_update=lambda _: None, on_stage=watch, stop=watch.stop, most_builds=1
    )


def sides(*stages: str) -> list[str]:
    return [f"{what}, side {number} of 2" for number in (1, 2) for what in stages]


def test_a_stage_is_told_with_its_side_unless_the_run_ends() -> None:
    watch = Watch()
    stages = Stages(watch, watch.stop).of(1, 2)
    stages.enter("Building")
    watch.stop.set()
    for ends in (stages.check, lambda: stages.enter("Warming up")):
        with pytest.raises(Halted):
            ends()
    assert watch.seen == ["Building, side 1 of 2"]
    Stages().enter("seen by nobody")


def test_both_sides_are_built_and_warmed_up_in_turn() -> None:
    watch = Watch()
    assert compared(watch, Made()).ratios
    assert watch.seen == sides(BUILDING, WARMING)


@pytest.mark.parametrize(
    ("press_at", "built", "steps"),
    [
        # Of what is being built no step is done any more.
        ("Building, side 1", 1, 0),
        # The first step is part of the stage before.
        ("Warming up, side 1", 1, 1),
        ("Building, side 2", 2, None),
    ],
)
def test_stop_takes_effect_at_the_next_step(press_at: str, built: int, steps: int | None) -> None:
    watch, made = Watch(press_at), Made()
    result = compared(watch, made)
    assert result.stopped and not result.ratios
    assert press_at in watch.seen[-1]
    assert made.built == built and steps in (None, made.steps)


def test_stop_between_the_steps_of_a_warm_up() -> None:
    watch, made = Watch(), Made()

    def step() -> None:
        made.step()
        if made.steps == 3:
            watch.stop.set()

    arms = LocalArm(lambda: Workload(step), "a"), LocalArm(made, "b")
    # A twentieth of it would be spent on warming up.
    result = alternate(*arms, seconds=60, on_update=lambda _: None, stop=watch.stop)
    assert result.stopped and made.built == 0
    # The block in which it was pressed is done.
    assert made.steps <= 12


def test_a_race_and_a_timeline_tell_and_stop_as_well() -> None:
    made = Made()
    told = Watch()
    race({"a": made, "b": made}, target=1.0, steps=2, on_stage=told)
    assert told.seen == sides(BUILDING)
    watch, made = Watch("side 2"), Made()
    result = race({"a": made, "b": made}, target=1.0, steps=2, on_stage=watch, stop=watch.stop)
    # One step warmed the first side up.
    assert result.stopped and not result.runs and (made.built, made.steps) == (2, 1)

    told, made = Watch(), Made()
    lab = Lab(made, side=[1, 2])
    assert isinstance(lab.timeline(side=2, on_stage=told), MemoryComparison)
    assert told.seen == sides(BUILDING, RECORDING)
    watch, made.steps = Watch("Building, side 1"), 0
    halted = lab.timeline(side=2, on_stage=watch, stop=watch.stop)
    assert [side.error for side in halted.arms] == ["stopped", "stopped"] and made.steps == 0


def test_a_lab_and_its_sweep_pass_it_on() -> None:
    watch = Watch()
    lab = Lab(Made(), side=[1, 2], memory=False)
    lab.run(side=2, seconds=0.1, on_stage=watch)
    assert watch.seen[:4] == sides(BUILDING, WARMING)
    watch = Watch("Warming up, side 2")
    swept = lab.sweep("side", seconds=0.1, on_stage=watch, stop=watch.stop)
    assert len(swept) == 1 and swept[0].stopped


def test_a_fresh_process_is_told_and_ended_while_it_starts(monkeypatch: Any) -> None:
    monkeypatch.setattr(Children, "look", 0.05)
    watch = Watch(STARTING)
    arm = RemoteArm(Made(), "a")
    with pytest.raises(Halted):
        arm.start(Stages(watch, watch.stop))
    assert watch.seen == [STARTING] and arm._children.pids == []


def test_a_process_is_ended_while_it_builds(monkeypatch: Any) -> None:
    def make() -> Workload:
        time.sleep(600)
        return Workload(lambda: None)

    monkeypatch.setattr(Children, "look", 0.05)
    watch = Watch(BUILDING)
    arm = RemoteArm(make, "a")
    with pytest.raises(Halted):
        arm.start(Stages(watch, watch.stop))
    assert watch.seen == [STARTING, BUILDING] and arm._children.pids == []
