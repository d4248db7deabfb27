"""How long a race still takes, by planted runs."""

from __future__ import annotations

from labkit.panel.pace import Pace
from labkit.racing import RaceResult, RaceRun


def run(arm: str, steps: int, seconds: float, seed: int = 0) -> RaceRun:
    return RaceRun(arm, seed, ((steps, seconds, 0.5),), True)


def race(*runs: RaceRun) -> RaceResult:
    return RaceResult(runs, 0.9, "accuracy", True)


def test_before_a_step_nothing_is_known() -> None:
    pace = Pace()
    assert pace.left(steps=100, seeds=2) == ""
    pace.note(race(), RaceRun("a", 0, (), False), 0.0)
    assert pace.left(steps=100, seeds=2) == ""


def test_while_a_side_has_finished_no_run_it_is_the_most_it_may_take() -> None:
    pace = Pace()
    # 2 * 2 * 100 steps of 0.1 s, of which one second is over.
    pace.note(race(), run("a", 10, 1.0), 5.0)
    assert pace.left(steps=100, seeds=2) == "at most 39 s left"


def test_finished_runs_tell_how_long_those_to_come_are() -> None:
    pace = Pace()
    pace.note(race(run("a", 50, 5.0), run("b", 20, 4.0)), None, 9.0)
    # Each side once more, as long as before.
    assert pace.left(steps=100, seeds=2) == "about 9 s left"
    pace.note(race(run("a", 50, 5.0), run("b", 20, 4.0)), run("b", 10, 2.0, seed=1), 11.0)
    assert pace.left(steps=100, seeds=2) == "about 7 s left"


def test_the_metric_takes_its_time_as_well() -> None:
    pace = Pace()
    pace.note(race(), run("a", 10, 1.0), 1.0)
    pace.note(race(run("a", 50, 5.0), run("b", 20, 4.0)), None, 17.0)
    # 16 s by the clock for 8 s of training.
    assert pace.left(steps=100, seeds=2) == "about 18 s left"


def test_a_run_without_a_step_counts_as_none() -> None:
    pace = Pace()
    pace.note(race(run("a", 50, 5.0), RaceRun("b", 0, (), False, "out of memory")), None, 5.0)
    assert pace.left(steps=100, seeds=2) == "about 5 s left"
