"""Notebook 19's moving picture: its norms against PyTorch's, its game and its words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
from playwright.sync_api import Page
from torch import Tensor
from torch.nn import functional as F

from .test_explorables import Model, Mulberry32

pytestmark = pytest.mark.browser

SHAPE = IMAGES, CHANNELS, PIXELS = 4, 8, 16
NORMS = ("batch", "layer", "instance", "rms", "group", "frozen")


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "swallowed")


@pytest.fixture(scope="module")
def opens(model: Model) -> dict[str, Any]:
    return model.value("OPENS")


def computed() -> Tensor:
    """What the layer computes, (images, channels, pixels)."""
    random = Mulberry32(19)
    channels = [(3 * random.uniform() - 1.5, 0.6 + 0.8 * random.uniform()) for _ in range(CHANNELS)]
    numbers = [
        mean + deviation * random.normal()
        for _ in range(IMAGES)
        for mean, deviation in channels
        for _ in range(PIXELS)
    ]
    return torch.tensor(numbers, dtype=torch.float64).float().reshape(SHAPE)


def per_pixel(norm: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """A norm over the last axis, applied to the channels of each pixel."""
    return lambda x, _: norm(x.transpose(1, 2)).transpose(1, 2)


def frozen(x: Tensor, trained: Tensor) -> Tensor:
    var, mean = torch.var_mean(trained, (0, 2), correction=0)
    return F.batch_norm(x, mean, var)


# Of what is given, and of what a frozen norm was trained with.
TORCHS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "layer": per_pixel(lambda x: F.layer_norm(x, (CHANNELS,))),
    "instance": lambda x, _: F.instance_norm(x),
    "rms": per_pixel(lambda x: F.rms_norm(x, (CHANNELS,), eps=1e-5)),
    "group": lambda x, _: F.group_norm(x, 2),
    "frozen": frozen,
    "batch": lambda x, _: F.batch_norm(x, None, None, training=True),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def given(state: dict[str, Any], bias: float) -> Tensor:
    """What the norm gets, in double precision, rounded as the layer's output is."""
    x = computed().double()
    if state["to"] == "all":
        x += bias
    else:
        x[:, state["channel"]] += bias
    rounded = x.float().to(DTYPES[state["precision"]]).double()
    return rounded.relu() if state["between"] == "yes" else rounded


def by_torch(state: dict[str, Any], bias: float) -> Tensor:
    return TORCHS[state["norm"]](given(state, bias), given(state, 0))


def all_states(opens: dict[str, Any]) -> list[dict[str, Any]]:
    choices = product(NORMS, ("one", "all"), ("no", "yes"), DTYPES)
    names = ("norm", "to", "between", "precision")
    return [opens | dict(zip(names, choice, strict=True)) for choice in choices]


def test_each_norm_is_that_of_pytorch(model: Model, opens: dict[str, Any]) -> None:
    assert set(model.value("NORMS")) == set(NORMS) == set(TORCHS)
    found = torch.tensor(model.value("COMPUTED"), dtype=torch.float64).reshape(SHAPE)
    torch.testing.assert_close(found, computed().double(), rtol=1e-6, atol=1e-6)
    for state in all_states(opens):
        for bias in (0, 1, -20, 1000):
            now = {**state, "bias": bias}
            outputs = torch.tensor(model("outputs", now), dtype=torch.float64).reshape(SHAPE)
            # Numbers around 1000 are rounded to steps of 6e-5 in fp32.
            torch.testing.assert_close(outputs, by_torch(state, bias), rtol=1e-4, atol=1e-4)


def test_a_change_is_the_root_of_a_mean_square(model: Model, opens: dict[str, Any]) -> None:
    for state in all_states(opens):
        apart = by_torch(state, 5) - by_torch(state, 0)
        each = apart.square().mean((0, 2)).sqrt().tolist()
        now = {**state, "bias": 5}
        assert model("changes", now) == pytest.approx(each, rel=1e-3, abs=1e-4)
        assert model("change", now) == max(model("changes", now))


def test_batch_and_instance_norm_swallow_a_bias_and_no_other(
    model: Model, opens: dict[str, Any]
) -> None:
    def who(**changes: Any) -> set[str]:
        states = [{**opens, **changes, "norm": norm} for norm in NORMS]
        answers = {state["norm"]: model("answer", state) for state in states}
        assert all(answer in (["swallows"], ["notices"]) for answer in answers.values())
        return {norm for norm, answer in answers.items() if answer == ["swallows"]}

    assert who() == {"batch", "instance"}
    # In any channel, and wherever the reader has dragged it meanwhile.
    for channel, bias in product(range(CHANNELS), (0, -1000)):
        assert who(channel=channel, bias=bias) == {"batch", "instance"}
    assert who(to="all") == {"batch", "instance", "group", "layer"}
    assert who(between="yes") == set()
    assert who(precision="bf16") == set()


def test_in_bf16_a_large_bias_leaves_few_bits(model: Model, opens: dict[str, Any]) -> None:
    state = {**opens, "norm": "batch", "precision": "bf16"}
    by = [model("change", {**state, "bias": bias}) for bias in (0, 1, 10, 100, 1000)]
    assert by[0] == 0 and by == sorted(by)
    assert 0.001 < by[1] < 0.01 < by[2] < 0.05 < by[3] < 0.3 < by[4]


def test_bf16_is_that_of_pytorch(model: Model) -> None:
    random = Mulberry32(1)
    values = [random.normal() * 10 ** (i % 7 - 3) for i in range(200)]
    # In the middle between two, and an exact one.
    values += [1.00390625, 1.01171875, -3.5, 0.0]
    wanted = torch.tensor(values, dtype=torch.float64).float().bfloat16().double().tolist()
    assert [model("bf16", value) for value in values] == wanted


def test_biases_are_symmetric_and_in_order(model: Model) -> None:
    biases = model.value("BIASES")
    assert biases == sorted(biases) and biases == [-bias for bias in biases[::-1]]
    assert biases[-1] == 1000 and 0 in biases and 10 in biases


def test_the_first_mark_of_a_norm_counts_unless_the_answer_was_seen(
    model: Model, opens: dict[str, Any]
) -> None:
    def marks(*values: bool | None) -> dict[str, Any]:
        return dict(zip(NORMS, values, strict=False))

    assert model("mark", opens, True, False) == {"marks": {"batch": True}}
    assert model("mark", opens, True, True) == {"marks": {"batch": None}}
    assert model("mark", {**opens, "marks": marks(False)}, True, False) == {}
    assert model("score", {**opens, "marks": marks(True, None, False)}) == "1 of 3 right."
    whole = model("score", {**opens, "marks": marks(*[True] * 6)})
    assert whole.startswith("6 of 6 right. ★ You know who notices. Now try ReLU")
    after = {**opens, "marks": marks(*[True] * 6), "between": "yes"}
    assert model("score", after) == "6 of 6 right. ★ You know who notices."
    assert "★" not in model("score", {**opens, "marks": marks(*[True] * 5, None)})


def test_the_next_norm_is_another_until_all_had_their_turn(model: Model) -> None:
    seen = ["batch"]
    for _ in range(5):
        seen.append(model("next", {"norm": seen[-1]}))
    assert tuple(seen) == NORMS
    assert model("next", {"norm": "frozen"}) == "batch"


def test_what_a_bias_did_is_said_with_its_reason(model: Model, opens: dict[str, Any]) -> None:
    def said(**changes: Any) -> str:
        return model("inWords", {**opens, "bias": 10, **changes})

    assert model("effect", opens) == "the bias is still 0, drag the channel."
    assert said(norm="batch").startswith(
        "Batch norm: no output changes. It subtracts each channel's mean, and with it the bias."
    )
    per_pixel_mean = {**opens, "norm": "layer"}
    layer = by_torch(per_pixel_mean, 10) - by_torch(per_pixel_mean, 0)
    percent = 100 * layer.square().mean((0, 2)).sqrt().max().item()
    told = f"Layer norm: outputs change by {percent:.0f} % of their deviation."
    assert told in said(norm="layer")
    assert "no output changes. All channels have the same bias" in said(norm="layer", to="all")
    assert "RMS norm: outputs change" in said(norm="rms", to="all")
    assert "The bias decides what ReLU cuts off" in said(norm="batch", between="yes")
    assert "rounded to 8 bits" in said(norm="batch", precision="bf16")
    assert "rounded to 8 bits" not in said(norm="batch", precision="bf16", bias=0)
