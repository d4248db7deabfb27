"""What is alive when in a step, of two sides."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from labkit import Lab, Workload
from labkit.memory_timeline import MemoryComparison, Timeline


def make_workload(width: int = 16, keep: bool = True) -> Workload:
    layers = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    inputs = torch.randn(64, width)

    def step() -> torch.Tensor:
        with torch.set_grad_enabled(keep):
            loss = model(inputs).square().mean()
        if keep:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    return Workload(step, 64)


@pytest.fixture
def lab() -> Lab:
    return Lab(make_workload, keep=[True, False], situation={"width": [16, 32]})


def test_the_timeline_s_most_is_the_peak_and_its_parts_are_those_of_a_step(lab: Lab) -> None:
    found = lab.timeline(width=32)
    side = found.baseline
    assert side.settings == {"keep": True, "width": 32}
    assert max(side.alive) == side.peak
    assert [name for _, name in side.parts] == ["forward", "backward", "optimizer"]
    assert 0 == side.parts[0][0] < side.parts[1][0] < side.parts[2][0] < len(side.alive)
    # Weights, Adam's two states with a counter each, and the batch.
    weights = 4 * 4 * (32 * 32 + 32)
    assert side.before == 3 * weights + 4 * 8 + 4 * 64 * 32
    # The forward pass keeps what it makes for the backward pass.
    backward = side.parts[1][0]
    assert side.alive[backward - 1] > side.alive[0] + 4 * 4 * 64 * 32


def test_a_step_without_gradients_keeps_less(lab: Lab) -> None:
    found = lab.timeline(keep=False)
    assert found.ratio == found.candidate.peak / found.baseline.peak < 1
    assert [name for _, name in found.candidate.parts] == ["forward"]
    assert found.changed == {"keep": (True, False)}
    assert found.shared == {"width": 16}
    words = str(found)
    assert "of the memory of the baseline" in words
    assert words.splitlines()[0] in found._repr_html_()


def make_rows(rows: int = 4) -> Workload:
    return Workload(lambda: torch.ones(rows, 4).sum() if rows else None)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (64, 0, "The candidate has no tensors: there is nothing to compare."),
        (0, 64, "The baseline has no tensors: there is nothing to compare."),
        (0, 0, "Neither side has tensors: there is nothing to compare."),
    ],
)
def test_a_step_without_tensors_is_said_in_a_whole_sentence(
    before: int, after: int, sentence: str
) -> None:
    found = Lab(make_rows, rows=[4, 64, 0]).timeline(rows=after, baseline={"rows": before})
    assert str(found).splitlines()[0] == sentence
    assert sentence in found._repr_html_()


def test_no_part_is_named_where_the_step_has_none() -> None:
    sides = [Timeline(name, peak=size) for name, size in (("a", 2**20), ("b", 2**19))]
    sentence = str(MemoryComparison(*sides)).splitlines()[0]
    assert sentence == (
        "The candidate needs 50 % of the memory of the baseline: 512 KiB instead of 1.00 MiB."
    )


def test_memory_that_runs_out_is_a_result() -> None:
    def make(size: int) -> Workload:
        return Workload(lambda: torch.ones(size).sum())

    found = Lab(make, size=[8, 2**55]).timeline(size=2**55)
    assert found.candidate.error == "out of memory"
    assert found.baseline.peak
    assert math.isnan(found.ratio)
    assert "candidate ended by out of memory" in str(found)
