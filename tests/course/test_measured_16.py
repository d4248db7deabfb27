"""Whose memory a batch has, and what making it is of a step: notebook 16's measured picture."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest
import torch

from course.measured import memories
from course.measured.memories import CELLS, COPIED, SHARED, Side
from labkit import Lab, Workload
from labkit.results import Comparison

NUMBERS = np.arange(6, dtype=np.float32)
GIVEN = {"array": NUMBERS, "list": [NUMBERS[:3], NUMBERS[3:]]}
CONVERT = {
    "tensor": torch.tensor,
    "as_tensor": torch.as_tensor,
    "stack first": lambda given, **to: torch.as_tensor(np.stack(given), **to),
}
CPU = torch.device("cpu")


def run(source: str, convert: str, work: str = "training step") -> Comparison:
    def make(convert: str, source: str, work: str) -> Workload:
        return Workload(lambda: time.sleep(0.002), 1)

    lab = Lab(make, convert=list(CONVERT), source=list(GIVEN), work=["training step", "call alone"])
    baseline = {"source": source, "work": work}
    return lab.run(baseline=baseline, convert=convert, source=source, work=work, seconds=0.1)


def words(picture: str) -> list[str]:
    """All texts of a picture."""
    root = ET.fromstring(picture.replace("&nbsp;", " "))
    return ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("text")]


def boxes(picture: str, kind: str) -> list[dict[str, str]]:
    root = ET.fromstring(picture)
    return [each.attrib for each in root.iter() if each.get("class") == kind]


def side(fate: str, making: float, step: float = 0.02, **more: Any) -> Side:
    given = {"name": "baseline: tensor", "pieces": 1, "numbers": 1000}
    return Side(fate=fate, making=making, step=step, **given | more)


def test_memory_is_shared_where_numpy_says_so():
    assert memories.shares(torch.as_tensor(NUMBERS), NUMBERS)
    assert not memories.shares(torch.tensor(NUMBERS), NUMBERS)
    assert not memories.shares(torch.as_tensor(GIVEN["list"][0]), GIVEN["list"])
    assert not memories.shares(torch.empty(6, device="meta"), NUMBERS)


def test_a_run_is_drawn_with_the_fates_of_its_calls():
    picture = memories.of(GIVEN, CONVERT, CPU)
    told = words(picture(run("array", "as_tensor")))
    assert "baseline: tensor" in told and "candidate: as_tensor" in told
    fates = [each.split()[0] for each in told if " of " in each and " in " in each]
    assert fates == [COPIED, SHARED]
    told = words(picture(run("list", "stack first")))
    fates = [each.split()[0] for each in told if " of " in each and " in " in each]
    assert fates == [COPIED, COPIED]
    assert told[-1].startswith("For each number ")


def test_only_a_comparison_of_times_is_drawn():
    picture = memories.of(GIVEN, CONVERT, CPU)
    assert picture(None) == picture("a race") == ""


def test_where_the_call_is_the_step_nothing_is_left_of_it():
    told = words(memories.of(GIVEN, CONVERT, CPU)(run("array", "as_tensor", "call alone")))
    assert "The step is the call alone." in told
    assert "rest of the step" not in told


def test_a_copy_has_memory_of_its_own_and_shared_memory_both_ribbons():
    pair = memories.draw([side(COPIED, 0.01), side(SHARED, 0.001)])
    # Cells: two memories of the copy, one that is shared; a ribbon for each name.
    assert len(boxes(pair, "k-field")) == 3 * CELLS
    arrays, tensors = boxes(pair, "k-fill k-arm5"), boxes(pair, "k-fill k-arm3")
    # One more of each in the legend; of the tensors' also a bar for each side.
    assert len(arrays) == 2 * CELLS + 1 and len(tensors) == 2 * CELLS + 3
    alone = {float(each["y"]) for each in arrays[:CELLS]}
    assert len(alone) == 1


def test_bars_are_the_shares_of_the_steps():
    pair = memories.draw([side(COPIED, 0.015), side(SHARED, 0.002, step=0.01)])
    bars = [each for each in boxes(pair, "k-fill k-arm3") if each["height"] == "14"]
    rests = [each for each in boxes(pair, "k-fill k-baseline") if each["height"] == "14"]
    wide = [float(each["width"]) for each in (*bars, *rests)]
    assert [each / sum(wide[::2]) for each in wide] == pytest.approx(
        [0.75, 0.1, 0.25, 0.4], abs=0.002
    )


@pytest.mark.parametrize(
    ("sides", "says"),
    [
        (
            (side(COPIED, 0.01), side(COPIED, 1e-4)),
            "Making the tensor: 50 % of a step, then 0.5 %.",
        ),
        ((side(COPIED, 0.01), side(SHARED, 1e-6)), "Making the tensor: 50 % of a step, then under"),
        ((side(COPIED, 1e-6), side(SHARED, 1e-7)), "Making the tensor: under 0.1 % of either step"),
        ((side(COPIED, 0.02), side(SHARED, 0.02)), "The step is the call alone."),
    ],
)
def test_the_first_sentence_tells_what_making_the_tensor_is(sides: tuple[Side, Side], says: str):
    told = memories.sentences(list(sides))
    assert told[0].startswith(says)
    assert len(told) == 1 + all(each.fate == COPIED for each in sides)
