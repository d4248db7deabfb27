"""What notebook 00 draws and says of the reader's own runs, from times that are made up."""

import math
import random

import pytest

from course.measured.own_pairs import NOTHING, own_pairs
from course.measured.waffle import FEWEST, cycles, experiments, in_turn, one_after_the_other, waffle
from labkit import Lab, Workload
from labkit.panel import LabPanel
from labkit.results import Comparison, Measurement


def run_of(pairs: int, drift: float, rows: tuple[int, int] = (64, 64)) -> Comparison:
    """Blocks of 10 ms on a machine that takes ``drift`` of it longer at the end, with noise."""
    noise = random.Random(1)
    sides: tuple[list[float], list[float]] = ([], [])
    for place in range(pairs):
        # A B, then B A.
        for order, side in enumerate((0, 1) if place % 2 == 0 else (1, 0)):
            slower = 1 + drift * (2 * place + order) / (2 * pairs)
            sides[side].append(0.010 * slower * (1 + 0.01 * noise.gauss(0, 1)))
    names = zip(("baseline", "candidate"), rows, sides, strict=True)
    return Comparison(*(Measurement(name, {"rows": n}, tuple(ts)) for name, n, ts in names))


def test_blocks_stand_in_the_order_in_which_they_were_timed() -> None:
    before, after = (Measurement(name, times=times) for name, times in AB.items())
    assert cycles(Comparison(before, after)) == [(1.0, 2.0, 3.0, 4.0), (5.0, 6.0, 7.0, 8.0)]


AB = {"baseline": (1.0, 4.0, 5.0, 8.0, 9.0), "candidate": (2.0, 3.0, 6.0, 7.0, 10.0)}


def test_each_experiment_reaches_over_the_whole_run() -> None:
    found = experiments([(float(i), 0.0, 0.0, 0.0) for i in range(52)])
    assert len(found) == 10
    assert [cycle[0] for cycle in found[3]] == [3, 13, 23, 33, 43]


def test_drift_misleads_one_order_and_not_the_other() -> None:
    found = experiments(cycles(run_of(400, drift=0.1)))
    assert len(found) == 40
    assert sum(map(one_after_the_other, found)) > 35
    assert sum(map(in_turn, found)) < 6
    calm = experiments(cycles(run_of(400, drift=0.0)))
    assert sum(map(one_after_the_other, calm)) < 8


@pytest.mark.parametrize("judge", [in_turn, one_after_the_other])
def test_a_twentieth_is_wrong_by_chance(judge) -> None:
    found = experiments(cycles(run_of(20_000, drift=0.0)))
    assert sum(map(judge, found)) / len(found) == pytest.approx(0.05, abs=0.015)


def test_the_waffle_has_a_square_for_each_experiment() -> None:
    drawn = waffle(run_of(400, drift=0.1))
    assert drawn.count("k-slower") + drawn.count("k-floor") >= 2 * 40
    assert "40 experiments: one program, so each claim is wrong" in drawn
    assert "of 40 claim a difference" in drawn
    assert "this machine drifted; pairs are not misled" in drawn
    assert "hardly drifted" in waffle(run_of(400, drift=0.0))
    assert drawn.count('class="k-whisker"') == 2
    assert 'role="img" aria-label="One program twice: of 40 experiments ' in drawn


def test_other_results_have_no_waffle() -> None:
    assert waffle(run_of(400, drift=0.0, rows=(64, 1))) == ""
    assert waffle(run_of(10 * FEWEST - 10, drift=0.0)) == ""
    assert waffle(None) == ""


def test_the_reader_s_function_is_asked_of_the_latest_pairs() -> None:
    lab = Lab(lambda rows: Workload(lambda: math.sqrt(rows)), rows=[64, 1])
    panel = LabPanel(lab, seconds=0.1)
    try:
        assert own_pairs(max, panel) == NOTHING
        panel.view.history += [run_of(40, 0.0), lab.timeline()]
        given = []

        def speedup(a: list[float], b: list[float]) -> float:
            given.append((a, b))
            return 1.25

        told = own_pairs(speedup, panel)
    finally:
        panel.close()
    assert "on the 40 pairs of your last run: 1.25x" in told
    assert "labkit says 0.999x: the median of the same ratios" in told
    ((a, b),) = given
    assert isinstance(a, list) and len(a) == len(b) == 40
