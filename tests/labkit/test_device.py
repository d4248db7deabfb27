"""Choices by machine, and how the end of its memory is told."""

import weakref

import pytest
import torch

from labkit import pick
from labkit.device import is_out_of_memory, survive, test_size


def test_pick(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("LABKIT_SIZE", raising=False)
    assert pick(cpu=1, cuda=2, test=3) == 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick(cpu=1, cuda=2, test=3) == 2
    assert pick(cpu=1) == 1
    monkeypatch.setenv("LABKIT_SIZE", "test")
    assert pick(cpu=1, cuda=2, test=3) == 3
    assert pick(cpu=1, cuda=2, test=0) == 0
    assert test_size()


def test_a_misspelt_size_is_an_error(monkeypatch):
    monkeypatch.setenv("LABKIT_SIZE", "tiny")
    with pytest.raises(ValueError, match=r"'tiny'.*'test'"):
        pick(cpu=1, test=2)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("Unable to find a valid cuDNN algorithm to run convolution"),
    ],
)
def test_every_way_to_run_out_of_memory_is_recognised(error):
    assert is_out_of_memory(error)
    with survive() as outcome:
        raise error
    assert outcome.error == "out of memory"


def test_out_of_memory_on_this_cpu():
    with survive() as outcome:
        torch.empty(2**55)
    assert outcome.error == "out of memory"


@pytest.mark.parametrize(
    "error",
    [RuntimeError("shapes do not match"), ValueError("out of memory"), KeyboardInterrupt()],
)
def test_other_errors_come_through(error):
    assert not is_out_of_memory(error)
    with pytest.raises(type(error)), survive(LookupError):
        raise error


def test_surviving_another_error_tells_its_text():
    with survive(LookupError, OSError) as outcome:
        raise KeyError("rank 3")
    assert outcome.error == "'rank 3'"
    with survive(LookupError) as outcome:
        pass
    assert outcome.error is None


def test_what_the_block_held_is_free_after_it():
    held = []

    def work():
        tensor = torch.ones(8)
        held.append(weakref.ref(tensor))
        raise MemoryError

    with survive():
        work()
    assert held[0]() is None
