"""The exercise of notebook 23: a small tool that finds three faults in any step."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from course.exercises import check_23_find
from course.exercises.front_23 import FAULTS, mystery


def operators(step):
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        step()
    return [event.name for event in taken.events()]


def right(step):
    names = operators(step)
    found = set()
    if "aten::isnan" in names:
        found.add("anomaly")
    if names.count("aten::item") > names.count("aten::isnan"):
        found.add("reads")
    if names.count("aten::zero_") > 1:
        found.add("zeros")
    return found


def everything_is_wrong(step):
    return set(FAULTS)


def nothing_is_wrong(step):
    step()
    return set()


def forgets_that_anomaly_mode_reads(step):
    names = operators(step)
    return right(step) | ({"reads"} if "aten::item" in names else set())


def other_words(step):
    return {"slow"}


def no_set(step):
    return 3


def empty(step): ...


def test_the_solution_passes(capsys):
    assert check_23_find(right) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (empty, "return a set of words"),
        (no_set, "3 is no set of words"),
        (other_words, "['slow'] are none of the words"),
        (nothing_is_wrong, "you did not find 'reads'"),
        (everything_is_wrong, "in a step that has no fault"),
        (forgets_that_anomaly_mode_reads, "you found 'reads' in a step that has ['anomaly']"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_23_find(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ") and hint in printed, printed


def test_a_mystery_leaves_anomaly_mode_as_it_was():
    mystery("anomaly")()
    assert not torch.is_anomaly_enabled()


def test_errors_of_the_reader_s_own_are_raised():
    with pytest.raises(ZeroDivisionError):
        check_23_find(lambda step: 1 // 0)
