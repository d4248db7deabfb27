"""The evidence of 17: what real tools show of a planted fault, and how it is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from course.measured import evidence
from course.measured.evidence import FAULTY, FINE, NAMED, NAN, Evidence, Row, Seen, draw
from course.notebook_files import NOTEBOOKS
from labkit import Lab, Workload
from labkit.results import Comparison
from tests.course.test_front import names_of
from tests.labs.lab_17 import right

BOXES = 8


def network(width: int) -> nn.Sequential:
    boxes = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(BOXES - 1)]
    return nn.Sequential(*boxes, nn.Sequential(nn.Linear(width, 3)))


@pytest.fixture
def found() -> Evidence:
    return Evidence(network, torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]), updates=2, own=right)


def test_hooks_name_the_box_and_anomaly_mode_the_loss(found: Evidence) -> None:
    seen = found.seen("outputs", 4)
    assert list(seen.marks) == [FINE] * FAULTY + [NAN] * (BOXES + 1 - FAULTY)
    assert seen.words == "box 5 is the first with nan"
    for tool in ("anomaly", "anomaly, 1 in 50"):
        seen = found.seen(tool, 4)
        assert list(seen.marks) == [""] * BOXES + [NAMED]
        assert seen.words == "names the loss (LogSoftmaxBackward0)"


def test_the_readers_function_names_the_planted_module(found: Evidence) -> None:
    seen = found.seen("yours", 4)
    assert seen.words == "names module 4.2, in box 5"
    assert seen.marks[FAULTY] == NAMED and "".join(seen.marks) == NAMED
    inputs, targets = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    other = Evidence(network, inputs, targets, updates=2, own=lambda *_: "inputs")
    assert other.seen("yours", 4) == Seen([""] * (BOXES + 1), "says 'inputs'")


def test_a_profiler_shows_times_and_other_tools_nothing(found: Evidence) -> None:
    seen = found.seen("profiler", 4)
    assert len(seen.marks) == BOXES + 1
    assert all(int(mark) >= 0 for mark in seen.marks)
    for tool in ("off", "deterministic"):
        assert "".join(found.seen(tool, 4).marks) == ""


def test_random_numbers_and_switches_are_as_before(found: Evidence) -> None:
    before = torch.get_rng_state()
    for tool in ("outputs", "anomaly", "profiler", "yours"):
        found.seen(tool, 4)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.is_anomaly_enabled()


def test_anomaly_mode_without_a_nan_says_so() -> None:
    seen = evidence.anomaly(network(4), torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))
    assert seen.words == "no function of the backward pass returns nan"


def test_a_box_that_is_no_sequence_is_refused() -> None:
    plain = Evidence(
        lambda width: nn.Sequential(*[nn.Linear(width, width) for _ in range(BOXES)]),
        torch.randn(5, 4),
        torch.zeros(5, dtype=torch.long),
        updates=2,
        own=right,
    )
    with pytest.raises(TypeError, match=r"box 5 is a Linear; use nn\.Sequential"):
        plain.seen("off", 4)


def test_the_picture_has_both_sides_and_their_time_per_update(found: Evidence) -> None:
    def make_workload(tool: str, width: int) -> Workload:
        return Workload(lambda: torch.ones(8).sum(), 2, "updates")

    lab = Lab(make_workload, tool=["anomaly", "off"], situation={"width": [4]}, memory=False)
    result = lab.run(tool="off", seconds=0.05)
    assert isinstance(result, Comparison)
    picture = found(result)
    assert "anomaly: names the loss (LogSoftmaxBackward0)." in picture
    assert "off: shows only that the loss is nan." in picture
    assert picture.count("per update") >= 2
    assert found(None) == ""


def test_bars_are_as_long_as_the_times() -> None:
    rows = [
        Row("baseline", "anomaly", 0.004, Seen([""] * 9, "a")),
        Row("candidate", "off", 0.001, Seen([""] * 9, "b")),
    ]
    bars = re.findall(r'<rect[^>]*k-(?:baseline|candidate)"[^>]*>', draw(rows))
    baseline, candidate = (float(re.search(r' width="([\d.]+)"', bar)[1]) for bar in bars)
    assert baseline == pytest.approx(4 * candidate, rel=0.01)


def test_the_notebooks_network_is_planted() -> None:
    path = Path(NOTEBOOKS / "17_debug_tools.ipynb")
    with names_of(path) as names:
        for tool, words in (
            ("outputs", "box 5 is the first with nan"),
            ("anomaly", "names the loss"),
        ):
            assert names["evidence"].seen(tool, 16).words.startswith(words)
