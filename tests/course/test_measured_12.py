"""A planned network, drawn as the moving picture has it: notebook 12's picture."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import torch

from course import networks
from course.exercises.front_12 import piece_peaks
from course.measured import cuts
from course.planning import METHODS, Tables, cut_at, plan_of, sizes
from labkit import Lab, Workload
from sublinear import Block, Chain, Checkpoint, Keep, Option, Plan

SAVED, OUTPUTS = [6, 5, 4, 3], [2, 2, 1, 1]


@pytest.fixture
def chain() -> Chain:
    blocks = []
    for number, (saved, output) in enumerate(zip(SAVED, OUTPUTS, strict=True)):
        keep = Option("save all", saved, 1.0, 2.0, saved, 0)
        block = Block(str(number), output, (keep,), gradient_bytes=0, bare_peak=output, forward=1.0)
        blocks.append(block)
    return Chain(tuple(blocks), 1, 10, batch_size=1, device="paper", source="estimated")


@pytest.mark.parametrize("places", [[], [2], [1, 3], [1, 2, 3]])
def test_one_level_has_the_peaks_of_the_game(chain: Chain, places: list[int]) -> None:
    found = cuts.stands(cut_at(chain, places))
    highest: dict[int, int] = {}
    for each in found:
        highest[each.piece] = max(each.top, highest.get(each.piece, 0))
    assert list(highest.values()) == piece_peaks(SAVED, OUTPUTS, places)
    assert [each.saves for each in found] == SAVED


def test_inside_a_checkpoint_what_is_before_it_is_held(chain: Chain) -> None:
    """[0 (1 (2)) 3]: block 0 is saved, 1 runs again, 2 again within that."""
    inside = Checkpoint((Keep(1), Checkpoint((Keep(2),))))
    found = cuts.stands(Plan((Keep(0), inside, Keep(3)), "by hand", chain))
    assert [(each.outputs, each.before) for each in found] == [(0, 0), (0, 6), (0, 11), (1, 6)]
    assert list(cuts._boundaries(Plan((Keep(0), inside, Keep(3)), "", chain))) == [1, 2, 3]
    with pytest.raises(ValueError, match="no chain"):
        cuts.stands(Plan((Keep(0),), "by hand"))


def lab(picture: cuts.Cuts) -> Lab:
    tables = Tables({"small": lambda act: networks.convolutions(3, 4, act)}, 8, torch.device("cpu"))

    def make(method: str, activation: str) -> Workload:
        names = (activation, "small", 2)
        net, x, _ = tables.new(*names)
        picture.note(plan_of(tables.chain(*names), method, 60), method, activation)
        return Workload(lambda: net(x).sum().backward(), 2)

    return Lab(make, method=["keep all", "exact cuts"], activation=["ReLU", "GELU"])


def test_both_sides_are_drawn_with_their_measured_peaks() -> None:
    picture = cuts.Cuts()
    result = lab(picture).timeline(method="exact cuts")
    drawn = picture(result)
    texts = " ".join(ET.fromstring(drawn).itertext())
    assert f"measured peak {result.candidate.peak_text}" in texts
    assert f"baseline: {result.baseline.peak_text}" in texts and "saved by blocks" in texts
    assert "highest piece" in texts and "gradients and what operators need" in texts
    assert cuts.Cuts()(result) == "" and picture("no comparison") == ""


def test_gelu_s_layers_save_two_tensors_and_relu_s_one() -> None:
    """The output of ReLU is what the next layer keeps anyway."""
    tables = Tables({"small": lambda act: networks.convolutions(8, 4, act)}, 8, torch.device("cpu"))
    maps = {}
    for activation in ("ReLU", "GELU"):
        saved, _ = sizes(tables.chain(activation, "small", 2))
        maps[activation] = round(sum(saved) / (2 * 4 * 8 * 8 * 4))
    # Nobody needs the output of the last GELU: the mean's gradient takes its shape alone.
    assert maps == {"ReLU": 8, "GELU": 15}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_plan_and_only_the_menu_minds_the_budget(method: str) -> None:
    build = {"small": lambda act: networks.resnet((2, 2), 4, act)}
    chain = Tables(build, 16, torch.device("cpu")).chain("ReLU", "small", 4)
    peaks = [plan_of(chain, method, budget).costs.peak_bytes for budget in (100, 1)]
    assert (peaks[0] > peaks[1]) == (method == "menu")
