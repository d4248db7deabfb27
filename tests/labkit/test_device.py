"""Random generators and torch's switches come back as they were."""

import random

import numpy as np
import pytest
import torch

from labkit import pick, seed_all
from labkit.device import (
    is_out_of_memory,
    preserve_flags,
    preserve_rng,
    set_torch_flags,
    test_size,
    torch_flags,
)


def draw():
    return (
        random.random(),
        np.random.rand(),
        torch.rand(1).item(),
        torch.nn.functional.dropout(torch.ones(8)).tolist(),
    )


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_preserve_rng(error):
    seed_all(3)
    expected = draw()
    seed_all(3)
    try:
        with preserve_rng():
            draw()
            seed_all(99)
            if error:
                raise error
    except (RuntimeError, KeyboardInterrupt):
        assert error
    assert draw() == expected


def flip_everything():
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    torch.backends.cudnn.deterministic = True
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.mkldnn.enabled = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)


def test_every_switch_is_given_back():
    before = torch_flags()
    with pytest.raises(RuntimeError), preserve_flags():
        flip_everything()
        changed = {name for name, value in torch_flags().items() if value != before[name]}
        assert {
            "num_threads",
            "cudnn.benchmark",
            "deterministic",
            "anomaly",
            "default_dtype",
            "grad_enabled",
        } <= changed
        raise RuntimeError
    assert torch_flags() == before


def test_contradicting_precision_switches_are_given_back_too():
    before = torch_flags()
    torch.backends.cuda.matmul.fp32_precision = "tf32"  # torch now refuses to read the old switch
    try:
        mixed = torch_flags()
        assert "float32_matmul_precision" not in mixed
        with preserve_flags():
            torch.set_float32_matmul_precision("medium")
        assert torch_flags()["cuda.matmul.fp32_precision"] == "tf32"
    finally:
        set_torch_flags(before)
    assert torch_flags() == before


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


def test_out_of_memory_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
