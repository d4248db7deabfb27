"""What checks do that no table of answers in `tests/labs` can say."""

import sys
import threading

import pytest
import torch.distributed as dist

from course import exercises
from tests.labs import deeper_14, lab_23


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
