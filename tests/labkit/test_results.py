"""Statistics, verdicts and words on planted times: no clock involved."""

import html
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from labkit.results import (
    Comparison,
    Estimate,
    Measurement,
    Workload,
    median_interval,
    runs_of,
    same_value,
)
from labkit.results.comparison import CLAIM_PAIRS
from labkit.results.statistics import BUILD_SPREAD, student_t
from labkit.sweep import Sweep
from labkit.text import share_of


def planted(speedup, pairs=40, noise=0.0, device="cpu", drift=0.0, seed=0, builds=1, layout=0.0):
    """Times in the order A B B A of a machine with multiplicative noise, and a linear drift over
    the run.

    Each of ``builds`` builds has a factor of its own on each side, with a deviation of ``layout``.
    """
    rng = np.random.default_rng(seed)
    factors = np.exp(rng.normal(size=(2, builds)) * layout)
    times, numbers = ([], []), ([], [])
    for position in range(2 * pairs):
        side = (0, 1, 1, 0)[position % 4]
        build = position * builds // (2 * pairs)
        seconds = 0.01 / speedup**side * factors[side, build]
        seconds *= math.exp(rng.normal() * noise) * (1 + drift * position / pairs)
        times[side].append(seconds)
        numbers[side].append(build)
    sides = []
    for side, name in enumerate(("baseline", "candidate")):
        sides.append(Measurement(name, times=tuple(times[side]), builds=tuple(numbers[side])))
    return Comparison(*sides, device)


def test_ratios_and_control_follow_the_order_of_the_blocks():
    result = Comparison(
        Measurement("a", times=(8.0, 9.0, 12.0, 10.0)), Measurement("b", times=(2.0, 4.0, 3.0, 5.0))
    )
    assert result.ratios == (4.0, 2.25, 4.0, 2.0) and result.pairs == 4
    assert result.speedup == pytest.approx(np.median(result.ratios))
    # Runs of two neighbouring pairs, since there is one build only.
    assert result.control == (3.125 / 3.0,)


def test_the_control_holds_builds_against_each_other():
    builds = (0, 0, 1, 1, 2, 2)
    result = Comparison(
        Measurement("a", times=(2.0, 2.0, 3.0, 3.0, 4.0, 4.0), builds=builds),
        Measurement("b", times=(1.0,) * 6, builds=builds),
    )
    assert result.control == (2 / 3, 3 / 4)
    assert result.speedup == pytest.approx((2 * 3 * 4) ** (1 / 3))


@pytest.mark.parametrize(
    ("speedup", "verdict"),
    [(1.5, "faster"), (1.05, "faster"), (1.0, "same"), (0.95, "slower"), (0.4, "slower")],
)
def test_verdicts_on_a_quiet_machine(speedup, verdict):
    result = planted(speedup, noise=0.01)
    assert result.verdict == verdict
    assert result.interval[0] <= result.speedup <= result.interval[1]
    assert abs(result.speedup / speedup - 1) < 0.02


def test_drift_does_not_pass_for_an_effect():
    result = planted(
        1.0, noise=0.005, drift=0.5
    )  # the machine slows down by half while it measures
    assert result.verdict in ("same", "unclear")


def test_a_noisy_run_has_a_wide_interval_and_sees_a_large_effect():
    small, large = planted(1.1, noise=0.3), planted(1.5, noise=0.05)
    low, high = small.interval
    assert small.verdict == "unclear" and high / low > 1.2
    assert large.verdict == "faster" and large.interval[1] / large.interval[0] > 1.02


def test_verdicts_follow_from_interval_and_floor():
    def of(mean, error, floor):
        return Estimate(mean, error, floor, count=11).verdict(0.02)

    # Student's t with ten degrees of freedom is 2.228.
    assert of(0.05, 0.01, 0.02) == "faster" and of(0.05, 0.01, 0.03) == "unclear"
    assert of(-0.05, 0.01, 0.02) == "slower" and of(-0.05, 0.01, 0.03) == "unclear"
    assert of(0.0, 0.008, 0.008) == "same" and of(0.0, 0.01, 0.01) == "unclear"
    # As small a difference is the same, however sure it is.
    assert of(0.01, 0.001, 0.001) == "same" and of(-0.01, 0.001, 0.001) == "same"
    assert of(0.019, 0.001, 0.001) == "faster"
    assert Estimate(1.0, 0.0, 0.0, count=1).verdict(0.02) == "unclear"


def test_one_build_is_said_and_allows_for_what_others_would_differ_by():
    one, several = planted(1.0, noise=1e-5), planted(1.0, noise=1e-5, builds=5)
    assert "40 pairs of one build" in str(one) and "40 pairs of 5 builds" in str(several)
    low, high = one.interval
    assert math.log(high / low) / 2 == pytest.approx(2 * BUILD_SPREAD, rel=0.01)
    assert several.interval == pytest.approx((1, 1), abs=1e-4)
    two = planted(1.0, noise=1e-5, builds=2).interval
    assert math.log(two[1] / two[0]) == pytest.approx(math.log(high / low) / math.sqrt(2), rel=0.01)


@pytest.mark.parametrize(("builds", "least"), [(3, 180), (10, 180)])
def test_the_interval_covers_the_planted_ratio_over_builds(builds, least):
    covered = 0
    for seed in range(200):
        low, high = planted(
            1.05, pairs=60, noise=0.01, builds=builds, layout=0.01, seed=seed
        ).interval
        covered += low <= 1.05 <= high
    assert covered >= least


def test_builds_taken_for_one_would_cover_far_too_seldom():
    covered = 0
    for seed in range(100):
        result = planted(1.05, pairs=60, noise=0.01, builds=5, layout=0.02, seed=seed)
        pooled = Comparison(*(replace(side, builds=()) for side in result.arms))
        assert pooled.build_count == 1
        covered += pooled.interval[0] <= 1.05 <= pooled.interval[1]
    assert covered < 90


def test_the_interval_covers_when_neighbouring_pairs_are_alike():
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        state, times = 0.0, []
        for _ in range(300):
            # A state of the machine that lasts for some ten pairs.
            state = 0.9 * state + rng.normal() * 0.02
            times.append(math.exp(state))
        result = Comparison(
            Measurement("a", times=tuple(times)), Measurement("b", times=(1.0,) * 300)
        )
        low, high = result.interval
        covered += low <= 1 <= high
    assert covered >= 175


def test_runs_hold_all_values_in_their_order():
    for count in (2, 5, 19, 20, 21, 133):
        runs = runs_of(tuple(range(count)))
        assert [value for run in runs for value in run] == list(range(count))
        assert all(len(run) >= 2 for run in runs) and len(runs) <= 10
    assert runs_of((1.0,)) == [] and runs_of(()) == []


def test_student_s_t():
    assert student_t(1) == 12.706 and student_t(9) == 2.262
    assert student_t(30) == pytest.approx(2.042, abs=0.005)
    assert student_t(10**6) == pytest.approx(1.96, abs=1e-3)
    with pytest.raises(ValueError, match="freedom=0"):
        student_t(0)


def test_too_few_pairs_claim_nothing():
    assert planted(3.0, pairs=CLAIM_PAIRS - 1).verdict == "unclear"
    assert planted(3.0, pairs=CLAIM_PAIRS).verdict == "faster"


def test_false_positives_on_identical_arms():
    verdicts = [planted(1.0, pairs=24, noise=0.02, seed=seed).verdict for seed in range(200)]
    assert sum(verdict in ("faster", "slower") for verdict in verdicts) <= 10  # 5 %


@pytest.mark.parametrize(
    ("builds", "noise", "layout"), [(1, 0.005, 0.003), (1, 0.02, 0.003), (1, 0.3, 0), (3, 0.1, 0)]
)
@pytest.mark.parametrize("pairs", [2, 3, 4, 5, 6, 8, 12])
def test_a_direction_is_seldom_told_of_identical_sides(pairs, builds, noise, layout):
    told = 0
    for seed in range(200):
        result = planted(1.0, pairs, noise, seed=seed, builds=builds, layout=layout)
        told += result.direction != ""
    assert told <= 10  # 5 %


def test_a_direction_of_builds_needs_as_many_builds():
    """All pairs of a build agree where its addresses make one side slow."""
    told = 0
    for seed in range(200):
        told += planted(1.0, 60, 0.001, seed=seed, builds=4, layout=0.1).direction != ""
    assert told <= 10


@pytest.mark.parametrize("pairs", [2, 3, 4, 5, 6, 40])
@pytest.mark.parametrize(("speedup", "direction"), [(0.14, "slower"), (7.0, "faster")])
def test_a_great_difference_is_told_with_few_pairs(speedup, direction, pairs):
    told = 0
    for seed in range(100):
        result = planted(speedup, pairs, noise=0.03, seed=seed)
        told += result.direction == direction
        assert result.direction in ("", direction)
        assert not result.direction or direction in result.in_short()
    assert told >= 95


def test_a_direction_is_told_where_the_size_is_unclear():
    noisy = planted(0.4, pairs=8, noise=0.4, seed=12)
    assert noisy.details[0].startswith("8 of 8 pairs slower; how much is open; 95 % interval 0.")
    assert "how much is open" not in planted(0.4).details[0]
    assert noisy.verdict == "unclear" and noisy.direction == "slower"
    assert noisy.conclusion == "slower, size unclear"
    assert noisy.in_short().endswith("slower, size unclear")
    sure = planted(0.4, pairs=40, noise=0.01)
    assert (sure.verdict, sure.conclusion) == ("slower", "slower")
    assert (noisy.headline, noisy.tone) == (("slower", "about 2.5 times"), "slower")
    # One pair alone, a side that ended, or a difference that may be that of addresses: nothing.
    assert planted(0.14, pairs=1).direction == ""
    failed = replace(noisy, candidate=replace(noisy.candidate, error="out of memory"))
    assert (failed.direction, failed.conclusion) == ("", "unclear")
    assert planted(1.015, pairs=12, noise=0.0001).direction == ""


def test_an_arm_that_failed_makes_no_claim():
    ended = Comparison(Measurement("a", times=(1.0,) * 30), Measurement("b", error="out of memory"))
    assert ended.verdict == "unclear" and math.isnan(ended.speedup)
    assert "out of memory" in str(ended)


@pytest.mark.parametrize("count", [*range(1, 13), 30])
def test_what_is_called_a_95_per_cent_interval_of_a_median_covers_it(count):
    rng = np.random.default_rng(count)
    covered = told = 0
    for _ in range(500):
        low, high = median_interval(tuple(np.exp(rng.normal(size=count) * 0.2)))
        told += not math.isnan(low)
        covered += low <= 1 <= high
    # Of five values not even the range would cover it in 95 of 100.
    assert told == (500 if count > 5 else 0)
    assert covered >= 0.94 * told


def test_the_interval_of_a_median_may_be_infinite_or_missing():
    assert all(map(math.isnan, median_interval(())))
    assert median_interval((2.0, 1.0, 3.0, math.inf, math.inf, math.inf)) == (1.0, math.inf)
    assert median_interval(tuple(map(float, range(1, 10)))) == (2.0, 8.0)


def test_figures_of_a_measurement():
    arm = Measurement("a", times=(1.0, 2.0, 3.0, 4.0, 5.0), samples=30)
    assert (arm.median, arm.iqr, arm.throughput) == (3.0, 2.0, 10.0)
    assert math.isnan(Measurement("a").median)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("no function",), TypeError, "'no function'"),
        ((lambda: None, 0), ValueError, "samples=0"),
        ((lambda: None, -1), ValueError, "-1"),
    ],
)
def test_workload_checks_its_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        Workload(*arguments)


def words_of(result):
    """What stands first in the HTML, before what is folded, without marks."""
    first = re.sub("<style>.*?</style>|<svg.*?</svg>", "", result._repr_html_(), flags=re.DOTALL)
    return html.unescape(re.sub("<[^>]*>", " ", first.split("<details>")[0]))


def test_a_comparison_is_a_sentence_two_bars_and_two_lines():
    result = planted(2.0, noise=0.01).with_peaks((2**20, None), (2**21, None))
    result = replace(result, seconds=1.5, stopped=True)
    sentence, before, after, *details = str(result).splitlines()
    assert sentence == "Faster, 1.99× as fast as the baseline; saves 4.99 of 10.0 ms a step."
    assert sentence == result.sentence
    assert before.startswith("baseline") and before.endswith("10.0 ms  1.00 MiB")
    assert before.count("█") == 24 and after.count("█") == 12
    assert details == list(result.details)
    surety, method = details
    assert re.fullmatch(
        r"95 % interval 1\.97 to 2\.02; noise floor 0\.\d %; 40 pairs of one build", surety
    )
    assert method == "1.5 s on cpu; stopped early"
    assert " ".join(words_of(result).split()).startswith("faster 1.99× as fast as the baseline; s")
    assert result.rows[0] == ["", "baseline", "candidate"]
    assert ["peak memory", "1.00 MiB", "2.00 MiB"] in result.rows


@pytest.mark.parametrize(
    ("speedup", "options", "words"),
    [
        (0.5, {}, "Slower, 0.50× as fast as the baseline; costs 10.0 ms more than 10.0 ms a step."),
        (0.004, {}, "Slower, 0.004× as fast as the baseline, 250 times as long; costs 2.49 s more"),
        (1.0, {}, "Same, 1.000× as fast as the baseline: no difference beyond 2 %."),
        (1.01, {"pairs": 4}, "Unclear, 1.010× as fast as the baseline: too few pairs"),
        (1.02, {"noise": 0.03}, "baseline: if the sides differ, then by less than "),
        (1.02, {"noise": 0.2}, "as fast as the baseline: the pairs differ too much to tell"),
        (1 / 7.2, {"pairs": 3}, "Slower, about 7 times; how much exactly is not clear yet."),
        (1.42, {"pairs": 3}, "Faster, about 1.4 times; how much exactly is not clear yet."),
        (7.0, {"pairs": 1}, "Unclear, 7.00× as fast as the baseline: too few pairs"),
    ],
)
def test_the_sentence_says_what_is_known(speedup, options, words):
    result = planted(speedup, **options)
    assert words in result.sentence
    shown = " ".join(words_of(result).split()).lower()
    assert result.remark.strip("; .") in shown and result.headline[0] in shown
    assert "seconds" not in result.sentence


def test_a_small_saving_is_told_in_the_unit_of_the_step():
    saved = planted(41.2 / 40.9, pairs=200)
    saved = replace(saved, baseline=replace(saved.baseline, times=(0.0412,) * 200))
    saved = replace(saved, candidate=replace(saved.candidate, times=(0.0402,) * 200))
    assert saved.saving == "saves 1.00 of 41.2 ms a step"
    assert share_of(0.0003, 0.0412) == ("0.30", "41.2 ms")
    slow = planted(1 / 7800, pairs=200)
    slow = replace(slow, baseline=replace(slow.baseline, times=(439e-9,) * 200))
    slow = replace(slow, candidate=replace(slow.candidate, times=(0.00342,) * 200))
    assert slow.saving == "costs 3.42 ms more than 439 ns a step"
    assert planted(1.0).saving == "" == planted(0.14, pairs=3).saving


def test_factor_interval_and_verdict_in_short():
    result = planted(1.5)
    assert re.fullmatch(r"1\.50x \[1\.\d\d, 1\.\d\d\] faster", result.in_short())
    assert re.fullmatch(r"1\.500x \[1\.\d{3}, 1\.\d{3}\] faster", result.in_short(3))
    assert planted(1.5, pairs=1).in_short() == "1.50x unclear"
    ended = replace(result, candidate=Measurement("b", error="out of memory"))
    assert ended.in_short() == "ended by out of memory"


def test_what_stopped_or_ended_is_told_in_words():
    nothing = Comparison(Measurement("a"), Measurement("b"), stopped=True)
    assert nothing.sentence == "Stopped before there was anything to compare."
    ended = replace(planted(2.0), candidate=Measurement("b", error="out of memory"))
    words = "The candidate ended by out of memory: there is nothing to compare."
    assert ended.sentence == words and words in words_of(ended)
    assert "nan" not in str(ended) + words_of(ended)


def test_the_sides_are_called_by_what_they_set_differently():
    before, after = {"amp": False, "size": 8}, {"amp": True, "size": 8}
    result = Comparison(Measurement("a", before), Measurement("b", after))
    assert (
        result.own_settings == ("amp=False", "amp=True")
        and "both sides: size=8" in result.details[0]
    )
    bare = Comparison(Measurement("old", {}), Measurement("candidate", {}))
    assert bare.own_settings == ("old", "")


def test_a_measurement_says_what_a_step_takes():
    words = "One step takes 2.00 s (median of 3 blocks, IQR 1.00 s): 4.00 samples/s."
    measured = Measurement("a", times=(1.0, 2.0, 3.0), samples=8)
    assert str(measured).startswith(words) and words in words_of(measured)
    assert Measurement("a").sentence == "Nothing was timed."
    assert Measurement("a", error="out of memory").sentence == "The step ended by out of memory."


def test_an_interval_without_1_may_still_lie_inside_the_noise_floor():
    # Neighbouring builds differ more than builds do on the whole.
    builds = tuple(number for number in range(10) for _ in range(4))
    times = tuple(1.1 * (1 + 0.1 * (-1) ** number) for number in builds)
    before = Measurement("a", times=times, builds=builds)
    result = Comparison(before, Measurement("b", times=(1.0,) * 40, builds=builds))
    low, high = result.interval
    assert result.verdict == "unclear" and 1 < low < high
    assert result.inside_noise_floor
    for other in (planted(2.0), planted(1.0), planted(1.0, pairs=2), planted(0.4, pairs=8)):
        assert not other.inside_noise_floor


def test_a_sweep_is_a_sequence_with_one_line_a_value():
    def swept(speedup, value, pairs=40):
        both = planted(speedup, pairs)
        sides = (replace(side, settings={"size": value}) for side in both.arms)
        return Comparison(*sides)

    results = swept(2.0, 8), swept(0.5, 64), swept(2.5, 256), swept(0.14, 512, pairs=3)
    sweep = Sweep("size", results)
    assert len(sweep) == 4 and list(sweep) == list(results) and sweep[1] is results[1]
    assert sweep[1:] == Sweep("size", results[1:]) and sweep.values == (8, 64, 256, 512)
    words = "Sweep of size: faster at 8, 256; slower at 64; slower, size unclear at 512."
    assert sweep.sentence == words and words in words_of(sweep)
    lines = str(sweep).splitlines()
    assert lines[0] == words and len(lines) == 7
    assert re.fullmatch(r"64 +10\.0 ms +20\.0 ms +0\.50 +\[.*\] +slower", lines[3])
    assert Sweep("size").sentence == "Sweep of size: no results."


def test_arms_that_process_different_amounts_are_compared_per_sample():
    big = Comparison(
        Measurement("a", times=(1.0,) * 30, samples=64),
        Measurement("b", times=(2.0,) * 30, samples=256),
    )
    assert big.speedup == 2.0 and big.verdict == "faster" and big.saving == ""
    assert "as fast as the baseline for the same number of samples." in big.sentence
    assert [bar.text for bar in big.speed_bars] == ["64.0 samples/s", "128 samples/s"]


def test_the_bars_say_what_the_pairs_say():
    """The candidate was disturbed in half of its pairs, and the baseline beside it."""
    before = (1.0,) * 20 + (3.0,) * 21
    after = (0.5,) * 20 + (1.4,) * 20 + (1.6,)
    found = Comparison(Measurement("a", times=before), Measurement("b", times=after))
    assert found.candidate.median == 1.4 and found.baseline.median == 3.0
    slow, quick = found.step_times
    assert (slow, slow / quick) == (3.0, pytest.approx(found.speedup)) and found.speedup < 2.2
    assert [bar.value for bar in found.speed_bars] == [slow, quick]
    low, high = found.speed_bars[1].interval
    assert (low / quick, high / quick) == pytest.approx((0.5 / 1.4, 1.0))
    # Of one that failed nothing is derived.
    failed = replace(found, candidate=replace(found.candidate, times=(), error="RuntimeError"))
    assert math.isnan(failed.step_times[1])


def test_a_step_that_wants_an_argument():
    with pytest.raises(
        TypeError, match=r"a step takes no arguments \(missing .* 'inputs'\): bind them"
    ):
        Workload(lambda inputs: None)


def test_what_the_sides_set_differently_and_alike():
    before = {"amp": False, "dtype": torch.float32, "rate": 1, "size": 8, "only_here": 1}
    after = {"amp": True, "dtype": torch.bfloat16, "rate": 1.0, "size": 8, "only_there": 2}
    result = Comparison(Measurement("a", before), Measurement("b", after))
    assert result.changed == {
        "amp": (False, True),
        "dtype": (torch.float32, torch.bfloat16),
        "only_there": (None, 2),
        "only_here": (1, None),
    }
    assert result.shared == {"rate": 1.0, "size": 8}


def test_values_are_compared_as_numbers_or_as_texts():
    # A record holds dtypes and infinities by their names.
    for one, other in ((torch.float32, "torch.float32"), (math.inf, "inf"), (64, 64.0)):
        assert same_value(one, other) and same_value(other, one)
    assert not same_value(1, 2) and not same_value("a", "b") and not same_value(None, False)
    assert same_value(math.nan, math.nan)


def test_builds_are_as_many_as_times():
    arm = Measurement("a", times=(1.0, 2.0, 3.0, 4.0), builds=(0, 0, 1, 1))
    assert Comparison(arm, arm).build_count == 2
    assert Comparison(arm, Measurement("b", times=(1.0,))).build_count == 1
    assert Comparison(arm, Measurement("b")).build_count == 0
    with pytest.raises(ValueError, match="1 builds for 2 times of 'a'"):
        Measurement("a", times=(1.0, 2.0), builds=(0,))
