"""The stamp on a claim: what runs of a reader say."""

import pytest

from course.stamp import DEPENDS, NOT, OPEN, TRUE, stamp
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement

CLAIM = "None is faster"
WAY = ("zeros", "none")


def run(ratio, way=WAY, scatter=0.001, pairs=40, **setting):
    """A comparison of this speed-up; the sides scatter against each other."""
    sides = []
    for side, (value, seconds) in enumerate(zip(way, (ratio, 1.0), strict=True)):
        times = tuple(seconds * (1 + scatter * ((place // 2 + side) % 2)) for place in range(pairs))
        settings = {"way": value, **setting}
        sides.append(Measurement(f"way={value}", settings, times=times))
    return Comparison(*sides)


@pytest.mark.parametrize(
    ("ratios", "word"),
    [
        ((1.3, 1.5), TRUE),
        ((0.8, 0.7), NOT),
        ((1.0, 0.7), NOT),
        ((1.3, 0.7), DEPENDS),
        ((1.3, 1.0), DEPENDS),
        ((), OPEN),
    ],
)
def test_the_word_is_that_of_all_runs(ratios, word):
    runs = [run(ratio, width=width) for width, ratio in enumerate(ratios)]
    found = stamp(CLAIM, runs, way=WAY)
    assert found.word == word
    assert str(found).startswith(f"“{CLAIM}”: {word}\n")
    assert word.upper() in found._repr_html_()


def test_what_is_unclear_is_shown_and_decides_nothing():
    unclear = run(1.02, scatter=0.4, pairs=8, width=8)
    assert unclear.tone == "unclear"
    assert stamp(CLAIM, [unclear], way=WAY).word == OPEN
    found = stamp(CLAIM, [run(1.5, width=4), unclear], way=WAY)
    assert found.word == TRUE
    assert [row[0] for row in found.rows] == ["where", "width 4", "width 8"]
    assert "unclear" in found.rows[2][1]


def test_an_unclear_run_whose_interval_leaves_out_1_says_why():
    builds = tuple(number for number in range(10) for _ in range(4))
    times = tuple(1.1 * (1 + 0.1 * (-1) ** number) for number in builds)
    before = Measurement("way=zeros", {"way": "zeros"}, times=times, builds=builds)
    after = Measurement("way=none", {"way": "none"}, times=(1.0,) * 40, builds=builds)
    found = stamp(CLAIM, [Comparison(before, after)], way=WAY)
    assert found.rows[1][1].endswith("unclear; inside the noise floor")
    assert found.word == OPEN
    wide = stamp(CLAIM, [run(1.02, scatter=0.4, pairs=8)], way=WAY)
    assert wide.rows[1][1].endswith("unclear")


def kinds(*runs):
    return stamp(CLAIM, runs, {"rows": (1, 256)}, way=WAY)


def test_a_claim_on_steps_in_general_needs_a_run_of_each_kind():
    few, many, unclear = run(1.5, rows=1), run(1.5, rows=256), run(1.02, scatter=0.4, pairs=8)
    unclear.candidate.settings["rows"] = unclear.baseline.settings["rows"] = 256
    assert kinds(few).word == kinds(many).word == OPEN
    assert "Run a scenario with rows 256, too" in str(kinds(few))
    assert "with rows 256, too" in kinds(few)._repr_html_()
    assert kinds(few, many).word == TRUE
    assert kinds(few, many).note == ""
    assert kinds(few, run(1.0, rows=256)).word == DEPENDS
    # A kind without a clear gain is no faster one.
    assert kinds(few, unclear).word == DEPENDS
    # Nor a slower one.
    assert kinds(run(0.7, rows=1), unclear).word == OPEN
    assert kinds(run(0.7, rows=1), unclear).note == (
        "Unclear: rows 256. Run that again, then this cell."
    )
    assert kinds(run(0.7, rows=1), run(1.0, rows=256)).word == NOT


def test_the_newest_run_of_a_setting_counts_and_other_changes_do_not():
    other = run(0.2, way=("zeros", "yours"), width=8)
    same = run(1.0, way=("none", "none"), width=16)
    found = stamp(CLAIM, [run(0.5), other, same, "a race", run(1.5)], way=WAY)
    assert found.word == TRUE
    assert len(found.runs) == 1 and found.runs[0][0] == "as it is"


def test_without_a_run_it_says_what_to_do():
    assert "Run the panel's scenarios" in str(stamp(CLAIM, [], way=WAY))
    assert "Run the panel&#x27;s scenarios" in stamp(CLAIM, [], way=WAY)._repr_html_()


def test_a_change_has_to_be_named():
    with pytest.raises(ValueError, match="say what changes"):
        stamp(CLAIM, [])


def race(candidate, baseline, seeds=3):
    """A race in which so many seeds of each side arrive."""
    runs = []
    for arm, arrived in (("baseline", baseline), ("stored='fp16'", candidate)):
        for seed in range(seeds):
            runs.append(RaceRun(arm, seed, ((1, 0.1, 0.5),), reached=seed < arrived))
    return RaceResult(tuple(runs), 0.4, "accuracy", True)


def test_a_race_counts_by_who_arrives():
    both, one, none = race(3, 3), race(0, 3), race(0, 0)
    assert stamp(CLAIM, {"fp16": both}).word == TRUE
    assert stamp(CLAIM, {"fp16": one}).word == NOT
    assert stamp(CLAIM, {"fp16": both, "small": one}).word == DEPENDS
    # Where the baseline does not arrive either, nothing is learned.
    assert stamp(CLAIM, {"fp16": none}).word == OPEN
    assert stamp(CLAIM, {"fp16": both, "hard": none}).word == TRUE
    rows = stamp(CLAIM, {"small": one}).rows
    assert rows[1] == ["small", "0 of 3 arrive; of the baseline 3 of 3"]
    assert stamp(CLAIM, {}).word == OPEN
