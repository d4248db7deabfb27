"""The exercises of notebook 23: a small tool that finds three faults in any step, and the share of
a timeline in which nothing runs.
"""

import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course.exercises import check_23_find, check_23_idle
from course.exercises.front_23 import FAULTS, mystery


class Noted(TorchDispatchMode):
    """The names of all operators. The profiler of the notebook's solution may lose one."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def operators(step):
    with Noted() as noted:
        step()
    return noted.names


def right(step):
    names = operators(step)
    found = set()
    if "isnan" in names:
        found.add("anomaly")
    if names.count("_local_scalar_dense") > names.count("isnan"):
        found.add("reads")
    if names.count("zero_") > 1:
        found.add("zeros")
    return found


def everything_is_wrong(step):
    return set(FAULTS)


def nothing_is_wrong(step):
    step()
    return set()


def forgets_that_anomaly_mode_reads(step):
    names = operators(step)
    return right(step) | ({"reads"} if "_local_scalar_dense" in names else set())


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


def test_what_an_answer_prints_stands_below_the_faults_of_its_step(capsys):
    def prints(step):
        print(len(operators(step)), "operators")
        return right(step)

    assert check_23_find(prints) is True
    printed = capsys.readouterr().out.splitlines()
    assert printed[:8:2] == [
        "A step with no fault:",
        "A step with reads:",
        "A step with zeros:",
        "A step with anomaly:",
    ]
    assert all(line.endswith(" operators") for line in printed[1:10:2])
    assert printed[8] == "A step with reads, zeros, anomaly:"


def test_what_is_printed_before_an_error_is_shown(capsys):
    def fails(step):
        print("here")
        return 1 // 0

    with pytest.raises(ZeroDivisionError):
        check_23_find(fails)
    assert capsys.readouterr().out == "A step with no fault:\nhere\n"


def test_a_mystery_leaves_anomaly_mode_as_it_was():
    mystery("anomaly")()
    assert not torch.is_anomaly_enabled()


def test_errors_of_the_reader_s_own_are_raised():
    with pytest.raises(ZeroDivisionError):
        check_23_find(lambda step: 1 // 0)


# ----------------------------------------------------------------------------------- the idle share


def idle(intervals):
    busy, until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    if not intervals:
        return 0.0
    return 1 - busy / (until - min(begin for begin, _ in intervals))


def adds_up(intervals):
    whole = max(end for _, end in intervals) - min(begin for begin, _ in intervals)
    return 1 - sum(end - begin for begin, end in intervals) / whole


def begins_at_zero(intervals):
    return 1 - sum(end - begin for begin, end in intervals) / max(end for _, end in intervals)


def trusts_the_order(intervals):
    gaps = sum(after[0] - before[1] for before, after in itertools.pairwise(intervals))
    return gaps / (intervals[-1][1] - intervals[0][0])


def looks_at_neighbours(intervals):
    every = sorted(intervals)
    gaps = sum(max(0, after[0] - before[1]) for before, after in itertools.pairwise(every))
    return gaps / (max(end for _, end in every) - every[0][0])


def forgets_the_empty_one(intervals):
    return idle(intervals) if intervals else None


def test_the_idle_share_passes(capsys):
    assert check_23_idle(idle) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (empty, "want 0, yours returns None"),
        (begins_at_zero, "[(108, 110), (100, 102)] want 0.6"),
        (trusts_the_order, "[(108, 110), (100, 102)] want 0.6"),
        (adds_up, "[(0, 6), (1, 2), (8, 10)] want 0.2"),
        (looks_at_neighbours, "want 0.2"),
        (forgets_the_empty_one, "[] want 0, yours returns None"),
    ],
)
def test_wrong_idle_shares_are_told_why(answer, hint, capsys):
    assert check_23_idle(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ") and hint in printed, printed
