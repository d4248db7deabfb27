"""What checks do that no table of answers in `tests/labs` can say."""

import math
import sys
import threading

import pytest
import torch
import torch.distributed as dist

from course import exercises
from course.exercises import front_07, front_10
from course.exercises.front_01 import Counting
from tests.labs import deeper_14, lab_02, lab_10, lab_11, lab_20, lab_23


def test_01_a_matrix_counts_what_is_fetched():
    B = Counting(torch.arange(12.0).view(3, 4), "B", 2)
    assert B[0:2, 2:4].tolist() == [[2, 3], [6, 7]]
    assert B[2, 3] == 11 and B[2:4, 3:5].numel() == 1
    assert B.moved == 4 + 1 + 1
    # What was fetched is a copy: it may be changed.
    B[0:2, 0:2].zero_()
    assert B[0, 1] == 1


def test_02_the_reader_s_shuffling_uses_torch_s_numbers():
    state = torch.get_rng_state()
    assert exercises.check_02_sgd_epoch(lab_02.RIGHT)
    assert not torch.get_rng_state().equal(state)


def test_07_the_case_of_the_hints_is_a_power_of_two():
    """Halving and doubling it are exact."""
    assert math.frexp(front_07.SCALE)[0] == 0.5


def test_10_a_thread_prints_its_own_errors_only(monkeypatch, capsys):
    class Typo(lab_10.Right):
        def do(self, function, arguments):
            self.value = function(*argument)  # noqa: F821

    printed = []
    monkeypatch.setattr(front_10, "PATIENCE", 1.0)
    monkeypatch.setattr(threading, "excepthook", lambda ended: printed.append(ended.exc_type))
    for answer in (lab_10.DiesOfAnError, Typo):
        hook = threading.excepthook
        assert exercises.check_10_device(answer) is False
        assert threading.excepthook is hook
    assert printed == [NameError]
    assert "catch it in the thread" in capsys.readouterr().out


@pytest.mark.parametrize("backward", [lab_11.without_grad_mode, lab_11.without_detach])
def test_11_a_mistake_that_torch_tells_of_is_one_sentence(backward, capsys, recwarn):
    assert exercises.check_11_recompute(lab_11.function(lab_11.keep, backward)) is False
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert not [each for each in recwarn if "not a leaf" in str(each.message)]


def test_14_a_process_group_of_the_reader_s_is_used_and_left_alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert exercises.check_14_one_reduction(deeper_14.RIGHT) is True
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()


def test_23_an_error_in_the_thread_that_looks_is_the_reader_s_to_see():
    def sample(work, file, every=0.002):
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start()
        work()
        thread.join()

    with pytest.raises(ZeroDivisionError):
        exercises.check_23_sample(sample)


def test_23_the_looks_of_a_thread_that_an_earlier_answer_left_do_not_count():
    end = threading.Event()

    def look():
        while not end.wait(0.001):
            sys._current_frames()

    left = threading.Thread(target=look)
    left.start()
    try:
        assert exercises.check_23_sample(lab_23.RIGHT) is True
    finally:
        end.set()
        left.join()


def test_23_a_sampler_that_hangs_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr("course.exercises.front_23.PATIENCE", 0.6)
    end = threading.Event()

    def sample(work, file, every=0.002):
        work()
        end.wait(20)

    try:
        assert exercises.check_23_sample(sample) is False
    finally:
        end.set()
    assert "sample did not return within 0.6 s" in capsys.readouterr().out


def test_20_another_mean_is_given_no_reason(capsys):
    exercises.check_20_validate(lab_20.the_first_batch)
    assert "too much weight" not in capsys.readouterr().out
