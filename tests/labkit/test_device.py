"""Choices by machine, and how the end of its memory is told."""

import errno
import random
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit import device, pick, seed_all
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


@pytest.mark.parametrize(
    ("gigabytes", "expected"),
    [(8, "small"), (16, "small"), (21, "small"), (24, "large"), (80, "large")],
)
def test_a_small_card_takes_its_own_value(monkeypatch, gigabytes, expected):
    monkeypatch.delenv("LABKIT_SIZE", raising=False)
    monkeypatch.setattr(device, "pick_device", lambda: torch.device("cuda"))
    monkeypatch.setattr(
        torch.cuda,
        "get_device_properties",
        lambda _: SimpleNamespace(total_memory=gigabytes * 10**9),
    )
    assert pick(cpu="cpu", cuda="large", small="small") == expected
    assert pick(cpu="cpu", cuda="large") == "large"
    # A value that is false is a value.
    assert pick(cpu=1, cuda=2, small=0) == {"small": 0, "large": 2}[expected]


def test_the_memory_is_asked_for_only_where_it_decides(monkeypatch):
    asked = []
    card = SimpleNamespace(total_memory=10**9)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: asked.append(1) or card)
    monkeypatch.setattr(device, "pick_device", lambda: torch.device("cpu"))
    monkeypatch.delenv("LABKIT_SIZE", raising=False)
    assert pick(cpu=1, cuda=2, small=3) == 1
    monkeypatch.setattr(device, "pick_device", lambda: torch.device("cuda"))
    assert pick(cpu=1, cuda=2) == 2
    assert pick(cpu=1) == 1
    monkeypatch.setenv("LABKIT_SIZE", "test")
    assert pick(cpu=1, cuda=2, small=3, test=4) == 4
    assert not asked


def test_another_accelerator_takes_the_sizes_of_the_cpu(monkeypatch):
    monkeypatch.delenv("LABKIT_SIZE", raising=False)
    monkeypatch.setattr(device, "pick_device", lambda: torch.device("mps"))
    assert pick(cpu=1, cuda=2, small=3) == 1


def test_a_small_value_without_a_large_one_is_refused():
    with pytest.raises(TypeError, match=r"pick\(small=3\).*give the value of the others as cuda"):
        pick(cpu=1, small=3)


def test_a_misspelt_size_is_an_error(monkeypatch):
    monkeypatch.setenv("LABKIT_SIZE", "tiny")
    with pytest.raises(ValueError, match=r"'tiny'.*'test'"):
        pick(cpu=1, test=2)


# As torch and the libraries word it.
OUT_OF_MEMORY_TEXTS = [
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 7.79 GiB",
    "HIP out of memory. Tried to allocate 2.00 GiB",
    "XPU out of memory. Tried to allocate 59.61 GiB. GPU 0 has a total capacity of 28.55 GiB",
    "MPS backend out of memory (MPS allocated: 17.21 GiB, max allowed: 20.13 GiB)",
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUDA driver error: CUDA_ERROR_OUT_OF_MEMORY",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "cuFFT error: CUFFT_ALLOC_FAILED",
    "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
    "miopenStatusAllocFailed",
    "NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled cuda error\n"
    "Last error:\nCuda failure 2 'out of memory'",
    "Failed to CUDA calloc async 608 bytes",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)",
    "Invalid buffer size: 24.00 GiB",
    "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried",
    "DefaultCPUAllocator: not enough memory: you tried to allocate 400000000000 bytes.",
    "unable to mmap 400 bytes from file <x.pt>: Cannot allocate memory (12)",
    "std::bad_alloc",
]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("whatever it says"),
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        *map(RuntimeError, OUT_OF_MEMORY_TEXTS),
    ],
    ids=str,
)
def test_every_way_to_run_out_of_memory_is_recognised(error: Exception) -> None:
    assert is_out_of_memory(error)
    with survive() as outcome:
        raise error
    assert outcome.error == "out of memory"


@pytest.mark.parametrize("refused", [0, 3])
@pytest.mark.parametrize(
    "text",
    [
        "FIND was unable to find an engine to execute this computation",
        "Unable to find a valid cuDNN algorithm to run convolution",
    ],
)
def test_an_ambiguous_text_is_judged_by_the_allocator(
    text: str, refused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: {"num_ooms": refused})
    assert is_out_of_memory(RuntimeError(text)) == (refused > 0)


def test_out_of_memory_on_this_cpu():
    with survive() as outcome:
        torch.empty(2**55)
    assert outcome.error == "out of memory"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("shapes do not match"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("out of resource: shared memory, Required: 262144, Hardware limit: 232448"),
        RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"),
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("out of memory"),
        KeyboardInterrupt(),
    ],
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


@pytest.mark.parametrize(
    ("seed", "kind"),
    [("3", TypeError), (1.5, TypeError), (None, TypeError), (2**64, ValueError)],
)
def test_a_seed_that_is_none_seeds_nothing(seed, kind):
    before = torch.get_rng_state(), random.getstate()
    with pytest.raises(kind, match=r"seed=.*: use a whole number"):
        seed_all(seed)
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def test_a_seed_may_be_numpy_s_or_negative():
    state = np.random.get_state()
    with torch.random.fork_rng():
        for seed in (np.int64(3), -1):
            seed_all(seed)
            first = torch.rand(1), np.random.rand()
            seed_all(seed)
            assert first == (torch.rand(1), np.random.rand())
    np.random.set_state(state)
