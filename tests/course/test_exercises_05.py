"""The exercise of notebook 05: the batch size that reaches the target first."""

import pytest

from course.exercises import check_05_fastest_batch


def right(c, s, noise_scale):
    return (noise_scale * c / s) ** 0.5


def rounded(c, s, noise_scale):
    return round(right(c, s, noise_scale))


def searched(c, s, noise_scale):
    return min(range(1, 10_000), key=lambda size: (c + s * size) * (1 + noise_scale / size))


def empty(c, s, noise_scale): ...


@pytest.mark.parametrize("answer", [right, rounded, searched])
def test_solutions_pass(answer, capsys):
    assert check_05_fastest_batch(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_05_fastest_batch(answer) is False
    assert capsys.readouterr().out == "not yet: return a batch size\n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        # the knee alone
        (lambda c, s, noise: c / s, "a batch of 4000 takes 1.53 times"),
        # the noise scale alone
        (lambda c, s, noise: noise, "a batch of 100 takes 1.53 times"),
        (lambda c, s, noise: c / s + noise, "a batch of 4100 takes"),
        # the arithmetic mean
        (lambda c, s, noise: (c / s + noise) / 2, "a batch of 2050 takes"),
        # no root
        (lambda c, s, noise: noise * c / s, "a batch of 400000 takes"),
        # upside down
        (lambda c, s, noise: (noise * s / c) ** 0.5, "a batch of 0.158114 takes"),
        (lambda c, s, noise: right(c, s, noise) + 2, "takes 1 times"),
        (lambda c, s, noise: (c * s * noise) ** 0.5, "takes"),
        (lambda c, s, noise: 0, "gave 0: a positive number is wanted"),
        (lambda c, s, noise: float("nan"), "gave nan: a positive number is wanted"),
        (lambda c, s, noise: float("inf"), "gave inf: a positive number is wanted"),
        (lambda c, s, noise: "632", "gave '632': a positive number is wanted"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_05_fastest_batch(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert hint in printed


def test_an_error_of_the_reader_s_own_is_shown():
    with pytest.raises(ZeroDivisionError):
        check_05_fastest_batch(lambda c, s, noise: 1 / 0)
