"""Statistics and verdicts on planted times: no clock involved."""

import math

import numpy as np
import pytest
import torch

from labkit.results import (
    CLAIM_PAIRS,
    Comparison,
    Measurement,
    Workload,
    median_interval,
    same_value,
)


def planted(speedup, pairs=40, noise=0.0, device="cpu", drift=0.0, seed=0):
    """Times in the order A B B A of a machine with multiplicative noise, and a linear drift over the run."""
    rng = np.random.default_rng(seed)
    a, b = [], []
    for position in range(2 * pairs):
        arm = "abba"[position % 4]
        seconds = (
            (0.01 if arm == "a" else 0.01 / speedup)
            * math.exp(rng.normal() * noise)
            * (1 + drift * position / pairs)
        )
        (a if arm == "a" else b).append(seconds)
    return Comparison(
        Measurement("baseline", times=tuple(a)), Measurement("candidate", times=tuple(b)), device
    )


def test_ratios_and_control_follow_the_order_of_the_blocks():
    result = Comparison(
        Measurement("a", times=(8.0, 9.0, 12.0, 10.0)), Measurement("b", times=(2.0, 4.0, 3.0, 5.0))
    )
    assert result.ratios == (4.0, 2.25, 4.0, 2.0)
    assert result.control == (2 / 4, 3 / 5, 9 / 12)  # B1/B2, B3/B4, A2/A3
    assert result.speedup == np.median(result.ratios)


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
    assert result.verdict in ("same", "cannot tell")


def test_a_noisy_run_claims_no_small_effect_but_sees_a_large_one():
    small, large = planted(1.1, noise=0.2), planted(5.0, noise=0.2)
    assert small.noisy and small.verdict == "cannot tell"
    assert large.noisy and large.verdict == "faster"


def test_a_control_that_lies_away_from_1_is_no_excuse_to_call_a_difference_the_same():
    # The first block after each change of arm is slower, time and again: A1 B1 B2 A2 A3 B3 ...
    a, b = (0.01, 0.0112) * 20, (0.0112, 0.01) * 20
    result = Comparison(Measurement("a", times=a), Measurement("b", times=b))
    assert (
        result.noise_floor > 0.1
        and not result.noisy
        and result.interval == pytest.approx((1 / 1.12, 1.12))
    )
    assert result.verdict == "cannot tell"


def test_a_gpu_has_to_be_quieter():
    assert not planted(1.0, noise=0.015, device="cpu").noisy
    assert planted(1.0, noise=0.03, device="cuda", pairs=24).noisy


def test_too_few_pairs_claim_nothing():
    assert planted(3.0, pairs=CLAIM_PAIRS - 1).verdict == "cannot tell"
    assert planted(3.0, pairs=CLAIM_PAIRS).verdict == "faster"


def test_false_positives_on_identical_arms():
    verdicts = [planted(1.0, pairs=24, noise=0.02, seed=seed).verdict for seed in range(200)]
    assert sum(verdict in ("faster", "slower") for verdict in verdicts) <= 10  # 5 %


def test_an_arm_that_failed_makes_no_claim():
    ended = Comparison(Measurement("a", times=(1.0,) * 30), Measurement("b", error="out of memory"))
    assert ended.verdict == "cannot tell" and math.isnan(ended.speedup)
    assert "out of memory" in str(ended)


def test_interval_of_the_median_covers_it():
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        low, high = median_interval(tuple(np.exp(rng.normal(size=30) * 0.1)))
        covered += low <= 1 <= high
    assert covered >= 180  # nominally 190
    assert all(map(math.isnan, median_interval(())))
    assert median_interval((1.0, math.inf, math.inf, math.inf, 2.0))[1] == math.inf


def test_the_reader_s_generator_is_left_alone():
    state = np.random.get_state()[1].copy()
    median_interval((1.0, 2.0, 3.0))
    assert (np.random.get_state()[1] == state).all()


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


def test_the_table_names_what_a_reader_needs():
    text = str(planted(2.0, noise=0.01).with_peaks((2**20, None), (2**21, None)))
    for word in (
        "speed-up 2.0",
        "FASTER",
        "noise floor",
        "40 pairs",
        "1.00 MiB",
        "2.00 MiB",
        "samples/s",
    ):
        assert word in text, text


def test_arms_that_process_different_amounts_are_compared_per_sample():
    big = Comparison(
        Measurement("a", times=(1.0,) * 30, samples=64),
        Measurement("b", times=(2.0,) * 30, samples=256),
    )
    assert big.speedup == 2.0 and big.verdict == "faster"
    assert "for the same number of samples" in str(big)


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
    assert arm.build_count == 2
    assert Measurement("a", times=(1.0, 2.0)).build_count == 1
    assert Measurement("a").build_count == 0
    assert Comparison(arm, Measurement("b", times=(1.0,))).build_count == 1
    with pytest.raises(ValueError, match="1 builds for 2 times of 'a'"):
        Measurement("a", times=(1.0, 2.0), builds=(0,))
