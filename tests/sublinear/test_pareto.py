"""All methods on one figure and in one table."""

from itertools import pairwise

import pytest
from small_chains import random_chain

from course.plan_pareto import pareto
from sublinear.plan import simulate
from sublinear.planner import BUDGETED, METHODS

CHAIN = random_chain(16, seed=11, menu=2)
RESULT = pareto(CHAIN, count=8)


def test_points_are_what_their_plans_cost():
    assert list(dict.fromkeys(point.method for point in RESULT.points)) == list(METHODS)
    for point in RESULT.points:
        costs = simulate(CHAIN, point.plan)
        assert (point.peak_bytes, point.seconds) == (costs.peak_bytes, costs.seconds)
        assert point.plan.method == point.method
    assert RESULT.plain.seconds == next(
        point.seconds for point in RESULT.points if point.method == "none"
    )


@pytest.mark.parametrize("method", BUDGETED)
def test_no_point_of_a_search_beats_another_of_it(method):
    mine = [point for point in RESULT.points if point.method == method]
    assert 2 < len(mine) <= 9
    for before, after in pairwise(mine):
        assert before.peak_bytes < after.peak_bytes and before.seconds > after.seconds
    assert mine[-1].seconds == RESULT.plain.seconds
    assert mine[0].peak_bytes == simulate(CHAIN, BUDGETED[method].lowest_peak(CHAIN)).peak_bytes


def test_no_single_plan_has_a_lower_peak_than_the_floor():
    floor = min(point.peak_bytes for point in RESULT.points if point.method == "menu")
    single = [point for point in RESULT.points if point.method not in BUDGETED]
    assert len(single) == 6 and all(point.peak_bytes >= floor for point in single)


def test_the_table_names_every_method_and_relates_it_to_plain():
    lines = str(RESULT).splitlines()
    assert lines[0] == "batch 32 on a made-up device, estimated"
    assert lines[1].split() == ["method", "peak", "of", "plain", "time", "of", "plain"]
    assert len(lines) == 2 + len(RESULT.points)
    (plain,) = [line for line in lines if line.startswith("none")]
    assert plain.split()[3] == plain.split()[-1] == "1.000"


@pytest.mark.parametrize("dark", [False, True])
def test_the_figure_shows_every_method_once(dark):
    (axis,) = RESULT.figure(dark=dark).axes
    assert [text.get_text() for text in axis.get_legend().get_texts()] == list(METHODS)
    assert axis.get_xlabel() == "peak memory / plain"


def test_some_methods_only():
    few = pareto(CHAIN, methods=["none", "optimal"], count=3)
    assert {point.method for point in few.points} == {"none", "optimal"}


@pytest.mark.parametrize(
    ("wrong", "message"), [({"methods": ["best"]}, "'best'"), ({"count": 1}, "count=1")]
)
def test_bad_input_is_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        pareto(CHAIN, **wrong)
