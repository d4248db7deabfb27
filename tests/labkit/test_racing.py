"""Races on trainings whose outcome is known in closed form."""

import math
import re
import threading
import time
from random import Random

import pytest
import torch

from labkit import Workload, race
from labkit.racing import RaceResult, RaceRun
from labkit.results.race import fisher
from tests.benchmarks import bench_races


def halving(rate):
    """A training whose metric shrinks by ``rate`` a step, from a start that the seed sets."""

    def make():
        value = [1.0 + torch.rand(1).item()]

        def step():
            value[0] *= rate

        return Workload(step, evaluate=lambda: value[0])

    return make


def test_steps_to_the_target_are_exact():
    result = race(
        {"slow": halving(0.9), "fast": halving(0.5)},
        target=1e-3,
        steps=200,
        seeds=5,
        metric="loss",
        higher_is_better=False,
    )
    for run in result.runs:
        rate = {"slow": 0.9, "fast": 0.5}[run.arm]
        torch.manual_seed(run.seed)
        start = 1.0 + torch.rand(1).item()
        assert run.reached
        assert run.steps == math.ceil(math.log(1e-3 / start) / math.log(rate))
        assert [point[0] for point in run.curve] == list(range(1, int(run.steps) + 1))
    ratio, low, high = result.speedup("fast", "steps")
    assert low <= ratio <= high and 5 < ratio < 8


def test_runs_that_never_arrive_are_shown_as_such():
    result = race(
        {"good": halving(0.5), "stuck": halving(1.0)},
        target=0.1,
        steps=20,
        seeds=3,
        higher_is_better=False,
    )
    assert result.median("stuck") == math.inf and result.median("stuck", "steps") == math.inf
    assert [run.reached for run in result.of("stuck")] == [False] * 3
    assert all(len(run.curve) == 20 for run in result.of("stuck"))
    assert result.speedup("stuck")[0] == 0
    text = str(result)
    assert result.rows[2] == ["stuck", "-", "-", "-", "0 of 3 seeds"]
    assert result.arrival("stuck") == "0 of 3 arrived"
    words = re.sub("<style>.*?</style>|<[^>]*>", " ", result._repr_html_(), flags=re.DOTALL)
    assert "inf" not in text and "inf" not in words


def test_divergence_ends_a_run():
    result = race(
        {"nan": lambda: Workload(lambda: None, evaluate=lambda: math.nan)},
        target=1,
        steps=50,
        seeds=1,
    )
    assert len(result.runs[0].curve) == 1 and not result.runs[0].reached


def test_every_and_the_last_partial_block():
    result = race(
        {"up": lambda: Workload(lambda: None, evaluate=lambda: 0.0)},
        target=1,
        steps=10,
        every=4,
        seeds=1,
    )
    assert [point[0] for point in result.runs[0].curve] == [4, 8, 10]


def test_seeds_are_the_same_for_every_arm_and_the_reader_s_generator_is_given_back():
    state = torch.get_rng_state()
    result = race(
        {"a": halving(1.0), "b": halving(1.0)}, target=0, steps=1, seeds=4, higher_is_better=False
    )
    metric = {arm: [run.curve[0][2] for run in result.of(arm)] for arm in "ab"}
    assert metric["a"] == metric["b"] and len(set(metric["a"])) == 4
    assert torch.equal(torch.get_rng_state(), state)


def test_stop_and_interrupt_keep_the_finished_runs():
    stop = threading.Event()
    result = race(
        {"a": halving(0.5)},
        target=0.1,
        steps=50,
        higher_is_better=False,
        seeds=5,
        stop=stop,
        on_update=lambda r: stop.set(),
    )
    assert result.stopped and len(result.runs) == 1

    def interrupt(partial):
        raise KeyboardInterrupt

    result = race(
        {"a": halving(0.5)},
        target=0.1,
        steps=50,
        higher_is_better=False,
        seeds=5,
        on_update=interrupt,
    )
    assert result.stopped and len(result.runs) == 1


def test_an_arm_that_runs_out_of_memory_never_arrives():
    def hungry():
        return Workload(lambda: torch.empty(2**55), evaluate=lambda: 0.0)

    result = race(
        {"a": halving(0.5), "hungry": hungry}, target=0.1, steps=50, higher_is_better=False, seeds=2
    )
    assert [run.error for run in result.of("hungry")] == ["out of memory"] * 2
    assert result.median("hungry") == math.inf and all(run.reached for run in result.of("a"))
    assert "0 of 2 seeds (out of memory)" in str(result)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"every": 1.5}, "every=1.5"),
        ({"seeds": -1}, "seeds=-1"),
        ({"target": math.nan}, "target=nan"),
    ],
)
def test_bad_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        race({"a": halving(0.5)}, **({"target": 1.0, "steps": 10} | change))


def test_no_arms_and_no_metric():
    with pytest.raises(ValueError, match="at least one side"):
        race({}, target=1, steps=1)
    with pytest.raises(ValueError, match="no metric: return Workload"):
        race({"a": lambda: Workload(lambda: None)}, target=1, steps=1)
    with pytest.raises(TypeError, match="must return Workload"):
        race({"a": lambda: None}, target=1, steps=1)


def test_unknown_arm():
    result = RaceResult((RaceRun("a", 0, ((1, 0.5, 1.0),), True),), 1.0, "metric", True)
    with pytest.raises(KeyError, match="no side 'b'"):
        result.of("b")
    assert result.median("a") == 0.5


def finished(before, after):
    """A race of two sides with these seconds to the target; infinite: never arrived."""
    runs = []
    for side, seconds in (("one", before), ("other", after)):
        for seed, taken in enumerate(seconds):
            reached = taken < math.inf
            runs.append(RaceRun(side, seed, ((10, taken if reached else 1.0, 0.5),), reached))
    return RaceResult(tuple(runs), 1.0, "metric", True)


@pytest.mark.parametrize(
    ("after", "verdict"),
    [
        ((0.5, 0.51, 0.49, 0.5, 0.52), "faster"),
        ((2.0, 2.1, 1.9, 2.0, 2.2), "slower"),
        ((1.0, 1.001, 0.999, 1.0, 1.0), "same"),
        ((0.5, 2.0, 0.4, 1.1, 1.0), "unclear"),
        ((math.inf,) * 5, "slower"),
        ((1.0, 1.0, 1.0, math.inf, math.inf), "unclear"),
    ],
)
def test_a_verdict_of_five_seeds(after, verdict):
    result = finished((1.0,) * 5, after)
    assert result.verdict("other") == verdict
    turned = finished(after, (1.0,) * 5).verdict("other")
    assert turned == {"faster": "slower", "slower": "faster"}.get(verdict, verdict)
    if verdict != "slower" or after[0] < math.inf:
        words = verdict if after[-1] < math.inf else "both arrive"
        assert f": {words}" in str(result)


def test_two_seeds_tell_nothing_but_a_great_difference():
    assert finished((1.0, 1.0), (0.9, 0.8)).verdict("other") == "unclear"
    assert finished((1.0, 1.0), (math.inf, math.inf)).verdict("other") == "unclear"
    assert finished((1.0,), (0.1,)).verdict("other") == "unclear"


def test_the_interval_of_a_race_is_student_s():
    ratio, low, high = finished((1.0, 1.0, 1.0), (1.0, 1.1, 1.21)).speedup("other")
    step = math.log(1.1)
    assert ratio == pytest.approx(1 / 1.1)
    assert math.log(high / low) / 2 == pytest.approx(4.303 * step / math.sqrt(3), rel=1e-3)


def test_equal_sides_are_seldom_called_different():
    random = Random(0)
    claimed = 0
    for _ in range(300):
        before, after = ([math.exp(random.gauss(0, 0.2)) for _ in range(7)] for _ in range(2))
        claimed += finished(before, after).verdict("other") in ("faster", "slower")
    assert claimed <= 9


def test_runs_that_never_arrive_leave_no_interval():
    ratio, *interval = finished((1.0, math.inf, 1.0), (math.inf, 1.0, 0.5)).speedup("other")
    assert ratio == 2.0 and all(map(math.isnan, interval))
    assert all(map(math.isnan, finished((math.inf,), (math.inf,)).speedup("other")))
    # Nor does a seed that neither side finished.
    both = finished((1.0, 1.1, 1.2, math.inf), (0.5, 0.5, 0.5, math.inf))
    assert both.told_by("other") == "counts" and both.verdict("other") == "unclear"
    assert math.isnan(both.speedup("other")[1])


NEVER = math.inf


@pytest.mark.parametrize(
    ("before", "after", "by", "words"),
    [
        ((1.0, 1.0, 1.0), (0.5, 0.5, 0.5), "times", "2.00× as fast as one: faster"),
        ((1.0, 1.0, 1.0), (0.5, 0.5, NEVER), "counts", "in 2 of 3 seeds, one in 3 of 3: both "),
        ((1.0, 1.0, 1.0), (0.5, NEVER, NEVER), "counts", "in 1 of 3 seeds, one in 3 of 3: "),
        ((1.0, NEVER, NEVER), (0.5, NEVER, NEVER), "counts", "in 1 of 3 seeds, "),
        # Few ratios are finite, and their median is; but most of the baseline never arrived.
        ((1.0, NEVER, NEVER), (0.5, 0.5, 0.5), "counts", "in 3 of 3 seeds, "),
        ((1.0, 1.0, NEVER, NEVER, NEVER), (0.5, 0.5, 0.5, NEVER, NEVER), "counts", "in 3 of 5 "),
        # A seed of the candidate's alone, since the race was stopped.
        ((NEVER,), (NEVER, 1.0), "counts", "in 1 of 2 seeds, "),
        ((NEVER,), (NEVER,), "nothing", "other did not reach it"),
    ],
)
def test_all_words_of_a_race_tell_the_same_case(before, after, by, words):
    result = finished(before, after)
    assert result.told_by("other") == by
    assert words in result.sentence and result.sentence in str(result)
    assert ("×" in result.headline[1]) == ("×" in result.sentence) == (by == "times")
    shown = every_text(result)[1]
    assert ("2.00×" in shown) if by == "times" else (words in shown)
    assert (result.certainty("other") != "") == (by == "times")


def every_text(result):
    """All that is said of a race: text, and HTML without marks."""
    markup = re.sub("<style>.*?</style>|<[^>]*>", " ", result._repr_html_(), flags=re.DOTALL)
    return [" ".join(text.split()) for text in (str(result), markup)]


def simulated(seeds, every=0.0, lost=0.0, random=None):
    """Two sides whose times to the target scatter by 15 %; the true ratio is 1.3.

    ``every``: in whole multiples of it; ``lost``: the share of runs that never arrive.
    """
    sides = []
    for mean in (1.3, 1.0):
        times = [mean * math.exp(random.gauss(0, 0.15)) for _ in range(seeds)]
        if every:
            times = [every * math.ceil(taken / every) for taken in times]
        sides.append([NEVER if random.random() < lost else taken for taken in times])
    return finished(*sides)


@pytest.mark.parametrize("every", [0.0, 0.125])
@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 6, 9])
def test_what_is_printed_as_a_95_per_cent_interval_covers_the_true_value(seeds, every):
    random = Random(seeds)
    ratios, medians = [], []
    for _ in range(400):
        result = simulated(seeds, every, random=random)
        _, low, high = result.speedup("other")
        if not math.isnan(low):
            ratios.append(low <= 1.3 <= high)
        low, high = result.interval("other")
        if not every and not math.isnan(low):
            medians.append(low <= 1.0 <= high)
    assert len(ratios) == (400 if seeds >= 3 else 0)
    assert len(medians) == (400 if seeds >= 6 and not every else 0)
    for covered in (ratios, medians):
        assert sum(covered) >= 0.92 * len(covered)
    says = any("95 % interval" in text for text in every_text(result))
    assert says == (seeds >= 3)


@pytest.mark.parametrize("scatter", bench_races.SCATTERS)
@pytest.mark.parametrize("seeds", [2, 3, 5, 9])
def test_intervals_of_races_whose_seeds_are_slow_or_quick_for_both_sides(seeds, scatter):
    scatter = bench_races.SCATTERS[scatter]
    found = bench_races.tally(1.3, seeds, scatter, 200)
    assert found.covered >= 0.9 * found.factors
    if not scatter.lost:
        assert found.factors == (200 if seeds >= 3 else 0)
    if not scatter.every:
        assert found.medians_covered >= 0.9 * found.medians
        assert found.medians == (200 if seeds >= 6 else 0)
    assert found.verdicts["slower"] <= 4


def test_where_a_run_never_arrived_nothing_is_called_an_interval_of_a_factor():
    random = Random(0)
    for _ in range(100):
        result = simulated(5, lost=0.3, random=random)
        if result.told_by("other") != "counts":
            continue
        counts = f"in {result.tally('other')} seeds, one in {result.tally('one')}"
        for text in every_text(result):
            assert counts in text and "95 %" not in text and "as fast" not in text


def test_two_seeds_are_told_one_by_one():
    result = finished((1.0, 2.0), (0.5, 1.6))
    words = "2.00 and 1.25 in two seeds"
    assert result.details == (f"other: {words}",)
    assert "other is 2.00× and 1.25× as fast as one: unclear." in result.sentence
    assert result.headline == ("unclear", "2.00× and 1.25×") and "1.58" not in str(result)
    for text in every_text(result):
        assert words in text
    assert result.rows[1][:3] == ["one", "1.50 s", "1.00 s – 2.00 s"]


def test_several_candidates_are_told_one_by_one():
    runs = []
    for side, seconds in (("sgd", 2.0), ("adam", 1.0), ("late", NEVER)):
        runs.append(
            RaceRun(side, 0, ((10, 1.0 if seconds == NEVER else seconds, 0.5),), seconds < NEVER)
        )
    result = RaceResult(tuple(runs), 0.8, "accuracy", True, stopped=True)
    assert result.sentence == (
        "Race to accuracy of at least 0.8: adam is 2.00× as fast as sgd: unclear; "
        "late reached it in 0 of 1 seed, sgd in 1 of 1: unclear."
    )
    assert result.details == ("adam: one seed", "stopped early")
    assert result.sentence in every_text(result)[1]
    nothing = RaceResult((), 0.8, "accuracy", True)
    assert str(nothing) == "Race to accuracy of at least 0.8: no run yet."
    assert nothing.headline == ("unclear", "")


@pytest.mark.parametrize(
    ("before", "after", "headline"),
    [
        ((1.0, 1.0, 1.0, NEVER), (0.5,) * 4, ("both arrive", "4 of 4 seeds against 3 of 4")),
        # Half is not more than half.
        (
            (1.0, 1.0, NEVER, NEVER),
            (0.5,) * 4,
            ("arrives more often, few seeds", "4 of 4 seeds against 2 of 4"),
        ),
        ((1.0,), (NEVER,), ("unclear", "0 of 1 seed against 1 of 1")),
    ],
)
def test_verdict_and_counts_of_both_sides_say_the_same(before, after, headline):
    result = finished(before, after)
    assert result.headline == headline
    assert result.sentence.endswith(f": {headline[0]}.")
    assert result.verdict("other") == "unclear"


def test_one_seed_is_no_plural():
    assert finished((1.0,), (0.5,)).seeds == "one seed"
    assert finished((1.0, 2.0), (0.5, 0.5)).seeds == "2 seeds"
    assert finished((NEVER,), (NEVER,)).rows[1][-1] == "0 of 1 seed"


def test_fisher_s_exact_test():
    assert fisher(5, 0, of=5) == pytest.approx(2 / 252)
    assert fisher(4, 0, of=4) == pytest.approx(2 / 70)
    assert fisher(3, 3, of=5) == pytest.approx(1.0)


def test_repeats_of_a_seed_are_paired_in_their_order():
    runs = []
    for side, seconds in (("one", (1.0, 2.0, 5.0)), ("other", (2.0, 1.0))):
        for taken in seconds:
            runs.append(RaceRun(side, 0, ((1, taken, 0.5),), True))
    assert RaceResult(tuple(runs), 1.0, "metric", True).ratios("other") == (0.5, 2.0)


def test_a_target_that_is_no_number_is_named():
    with pytest.raises(ValueError, match="target='x': use a finite number"):
        race({"a": lambda: Workload(lambda: None)}, target="x", steps=1)


def test_a_run_is_told_while_it_goes_on() -> None:
    """Its curve so far, at most five times a second; what it tells changes no result."""
    told: list[RaceRun] = []

    def make() -> Workload:
        values = iter(range(1000))
        return Workload(lambda: time.sleep(0.02), evaluate=lambda: next(values))

    result = race({"a": make}, target=30, steps=100, seeds=1, on_point=told.append)
    assert 2 <= len(told) <= 6
    assert [run.reached for run in told] == [False] * len(told)
    lengths = [len(run.curve) for run in told]
    assert lengths == sorted(set(lengths))
    assert told[-1].curve == result.runs[0].curve[: lengths[-1]]
    assert {(run.arm, run.seed) for run in told} == {("a", 0)}


def test_what_makes_no_side_is_named() -> None:
    with pytest.raises(TypeError, match=r"arms\['b'\]=3: use a function that returns a Workload"):
        race({"a": lambda: None, "b": 3}, target=1, steps=1)
    with pytest.raises(TypeError, match="what makes 'a' returned 3"):
        race({"a": lambda: 3}, target=1, steps=1)
