"""22's picture of a result: two runners on a track of steps, and what a step calls."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from course.measured.runners import BOX, Runner, Runners, draw, in_words, paid, round_above
from labkit import Lab, Workload

EAGER = Runner("eager", 0.002, 0.002, 36)
COMPILED = Runner("compile", 8.0, 0.001, 2)


@pytest.fixture
def built() -> list[str]:
    return []


@pytest.fixture
def make(built: list[str]) -> Callable[..., Workload]:
    def make_workload(execution: str, kind: str) -> Workload:
        x = torch.ones(8)

        def step() -> torch.Tensor:
            built.append(execution)
            return x + 1 if execution == "compile" else ((x * 2) + 1).relu()

        return Workload(step)

    return make_workload


def lab_of(runners: Runners, make: Callable[..., Workload]) -> Lab:
    return Lab(
        runners.watch(make),
        execution=["eager", "compile"],
        situation={"kind": ["chain", "other"]},
        memory=False,
    )


def code(execution: str, kind: str) -> Any:
    return execution


def test_a_first_step_counts_once_for_all_that_runs_the_same_code(
    make: Callable[..., Workload],
) -> None:
    runners = Runners(code, {"compile": 8.0})
    lab = lab_of(runners, make)
    chain, other = (lab.settings({"execution": "compile", "kind": k}) for k in ("chain", "other"))
    for settings in (chain, other):
        lab.make_workload(**settings)
    assert runners.seen(chain).first == runners.seen(other).first == 8.0
    assert runners.seen(chain).operators == 1
    eager = lab.settings({})
    lab.make_workload(**eager)
    assert 0 < runners.seen(eager).first < 8 and runners.seen(eager).operators == 3
    with pytest.raises(KeyError):
        Runners(code).seen(chain)


def test_a_step_is_watched_when_it_is_built_and_not_while_it_is_timed(
    make: Callable[..., Workload], built: list[str]
) -> None:
    runners = Runners(code)
    lab = lab_of(runners, make)
    lab.make_workload(**lab.settings({}))
    # The first one, one more, and the one that is counted.
    assert len(built) == 3
    workload = lab.make_workload(**lab.settings({}))
    assert len(built) == 3
    workload.step()
    assert len(built) == 4


def test_a_result_is_drawn_and_nothing_else(make: Callable[..., Workload]) -> None:
    runners = Runners(code, {"compile": 8.0})
    lab = lab_of(runners, make)
    drawn = runners(lab.run(execution="compile", seconds=0.2))
    assert "eager" in drawn and "8.00 s" in drawn
    assert "3 operators called" in drawn and "one operator called" in drawn
    assert runners(None) == "" and runners(lab.sweep("execution", seconds=0.1)) == ""
    unwatched = Lab(make, execution=["eager", "compile"], situation={"kind": ["a"]}, memory=False)
    assert runners(unwatched.run(execution="compile", seconds=0.1)) == ""


def test_graphs_that_every_step_traces_anew_are_counted_and_told() -> None:
    def make_workload(execution: str, kind: str) -> Workload:
        def program() -> None:
            torch.compiler.reset()
            dynamic = execution != "each size"
            run = torch.compile(torch.relu, dynamic=dynamic, backend="eager")
            for size in (3, 4, 5):
                run(torch.ones(size))

        return Workload(program)

    runners = Runners(code)
    lab = Lab(
        runners.watch(make_workload),
        execution=["each size", "any size"],
        situation={"kind": ["five sizes"]},
        memory=False,
    )
    drawn = runners(lab.run(execution="any size", seconds=0.1))
    assert "called, 3 graphs traced" in drawn and "called, one graph traced" in drawn
    assert "traced" not in draw(EAGER, COMPILED, "faster")


def test_paid_is_where_both_have_taken_as_long() -> None:
    after = paid(EAGER, COMPILED, faster=True)
    assert after == 1 + math.ceil(7.998 / 0.001)
    assert COMPILED.after(int(after)) <= EAGER.after(int(after)) + 1e-9
    assert COMPILED.after(int(after) - 2) > EAGER.after(int(after) - 2)
    assert math.isinf(paid(EAGER, COMPILED, faster=False))
    assert math.isinf(paid(COMPILED, EAGER, faster=True))
    assert paid(EAGER, Runner("warm", 0.001, 0.001, 2), faster=True) == 1


def test_who_has_paid_is_first_and_who_has_not_stands() -> None:
    drawn = draw(EAGER, COMPILED, "faster")
    # 1.2 times 7,999, and up to a round number.
    assert "10,000 steps: 20.0 s" in drawn and "10,000 steps: 18.0 s" in drawn
    assert "paid" in drawn and in_words(7999, "faster") in drawn
    never = draw(EAGER, COMPILED, "slower")
    assert ">paid<" not in never and "1,000 steps" in never
    assert "here the second runner never catches up" in never
    unclear = draw(EAGER, COMPILED, "unclear")
    assert "never catches up" not in unclear and "is not clear" in unclear
    assert COMPILED.done(EAGER.after(1000), 1000) == 0
    assert EAGER.done(EAGER.after(1000), 1000) == 1000


def test_first_steps_have_one_scale() -> None:
    """Else both boxes were full, of a moment and of eight seconds."""
    drawn = draw(EAGER, COMPILED, "faster")
    found = re.findall(r'width="([\d.]+)"[^>]*class="k-band k-arm5"', drawn)
    widths = list(map(float, found))
    assert len(widths) == 2
    assert widths[0] / widths[1] == pytest.approx(EAGER.first / COMPILED.first, abs=0.01)
    assert widths[1] == pytest.approx(BOX, abs=0.1)


def test_who_is_ahead_at_once_has_nothing_to_pay() -> None:
    drawn = draw(EAGER, Runner("warm", 0.001, 0.001, 2), "faster")
    assert "ahead from its first step on" in drawn and ">paid<" not in drawn


def test_round_numbers() -> None:
    assert [round_above(each) for each in (0, 1, 11, 200, 201, 5001)] == [
        *(10, 10, 20, 200, 500, 10000)
    ]
