"""The exercise of 00_start_here: the empty stub and wrong answers fail, right ones pass."""

import statistics

import pytest

from course.exercises import check_00_speedup


def stub(a, b):
    raise NotImplementedError


@pytest.mark.parametrize(
    "wrong",
    [
        stub,
        lambda a, b: None,
        # ratio of the means
        lambda a, b: sum(a) / sum(b),
        lambda a, b: (
            statistics.median(a) / statistics.median(b)
            # ratio of the medians: not paired
        ),
        # upside down
        lambda a, b: statistics.median(y / x for x, y in zip(a, b, strict=True)),
        # one of the two in the middle
        lambda a, b: sorted(x / y for x, y in zip(a, b, strict=True))[len(a) // 2],
        lambda a, b: min(x / y for x, y in zip(a, b, strict=True)) * 0.99,
    ],
)
def test_not_yet(wrong, capsys):
    assert not check_00_speedup(wrong)
    assert capsys.readouterr().out.startswith("not yet: ")


def test_solved(capsys):
    assert check_00_speedup(
        lambda a, b: statistics.median(x / y for x, y in zip(a, b, strict=True))
    )
    assert capsys.readouterr().out.startswith("✓")
