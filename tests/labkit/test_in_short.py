"""A comparison in one line, as notebooks print it."""

import re

from labkit.results import Comparison, Measurement


def side(*times: float, error: str | None = None) -> Measurement:
    return Measurement("a step", times=times, error=error)


def test_factor_interval_and_verdict() -> None:
    result = Comparison(side(*[3.0] * 40), side(*[2.0] * 40))
    assert re.fullmatch(r"1\.50x \[1\.\d\d, 1\.\d\d\] faster", result.in_short())
    assert re.fullmatch(r"1\.500x \[1\.\d{3}, 1\.\d{3}\] faster", result.in_short(3))


def test_too_few_pairs_have_no_interval() -> None:
    assert Comparison(side(3.0), side(2.0)).in_short() == "1.50x unclear"


def test_what_ended_a_side() -> None:
    result = Comparison(side(1.0), side(error="out of memory"))
    assert result.in_short() == "ended by out of memory"
