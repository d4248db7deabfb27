"""The exercises of notebook 23: a sampler, whose wrong answers are in `tests/labs`, and of the
deeper one the share of a timeline in which nothing runs.
"""

import itertools
import sys
import threading

import pytest

from course.exercises import check_23_idle, check_23_sample
from tests.labs.lab_23 import sampler


def empty(intervals): ...


def test_a_check_leaves_no_thread_and_python_as_it_was():
    before = set(threading.enumerate()), threading.excepthook
    assert check_23_sample(sampler()) is True
    assert (set(threading.enumerate()), threading.excepthook) == before


def test_an_error_in_the_thread_that_looks_is_the_reader_s_to_see():
    def sample(work, file, every=0.002):
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start()
        work()
        thread.join()

    with pytest.raises(ZeroDivisionError):
        check_23_sample(sample)


def test_the_looks_of_a_thread_that_an_earlier_answer_left_do_not_count():
    end = threading.Event()

    def look():
        while not end.wait(0.001):
            sys._current_frames()

    left = threading.Thread(target=look)
    left.start()
    try:
        assert check_23_sample(sampler()) is True
    finally:
        end.set()
        left.join()


def test_a_sampler_that_hangs_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr("course.exercises.front_23.PATIENCE", 0.6)
    end = threading.Event()

    def sample(work, file, every=0.002):
        work()
        end.wait(20)

    try:
        assert check_23_sample(sample) is False
    finally:
        end.set()
    assert "sample did not return within 0.6 s" in capsys.readouterr().out


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
