"""Plans in files: they know what they were made for, and refuse everything else by name."""

import json

import pytest
import torch
from torch import nn

from course import models
from sublinear.apply import apply
from sublinear.plan import Plan
from sublinear.planner import plan
from sublinear.profiling import profile


def made(width: int = 16) -> tuple[nn.Module, torch.Tensor]:
    return models.mlp([8, *[width] * 5, 4]), torch.randn(32, 8)


def in_file(path, width: int = 16) -> Plan:
    model, x = made(width)
    chain = profile(model, x, repeats=1)
    plan(chain).to_json(path)
    return Plan.from_json(path)


def test_a_plan_from_a_file_runs_the_same_model(tmp_path) -> None:
    loaded = in_file(tmp_path / "plan.json")
    model, x = made()
    apply(model, loaded, x)(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_the_file_says_what_it_was_made_for(tmp_path) -> None:
    loaded = in_file(tmp_path / "plan.json")
    known = json.loads((tmp_path / "plan.json").read_text())["made_for"]
    assert known["batch_size"] == 32 and known["sample"] == "8 float32"
    assert known["peak_bytes"] > 0 and known["seconds"] > 0
    assert known["blocks"][0][1] == "16x8 + 16"
    assert loaded.made_for is not None and loaded.made_for.peak_bytes == known["peak_bytes"]


def test_another_model_is_refused_with_both_named(tmp_path) -> None:
    loaded = in_file(tmp_path / "plan.json")
    model, x = made(width=12)
    with pytest.raises(ValueError, match=r"weights 16x8 \+ 16, the model's is .* 12x8 \+ 12"):
        apply(model, loaded, x)


def test_other_samples_are_refused(tmp_path) -> None:
    loaded = in_file(tmp_path / "plan.json")
    model, x = made()
    with pytest.raises(ValueError, match=r"samples of 8 float32, these have 8 float64"):
        apply(model, loaded, x.double())
    with pytest.raises(ValueError, match=r"made for 32 samples, .* these are 33"):
        apply(model, loaded, torch.randn(33, 8))
    assert apply(model, loaded, x[:7]) is not None


def test_a_broken_fingerprint_is_named(tmp_path) -> None:
    data = in_file(tmp_path / "plan.json").to_json()
    del data["made_for"]["blocks"]
    with pytest.raises(ValueError, match="'made_for': KeyError"):
        Plan.from_json(data)
