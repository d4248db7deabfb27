"""Notebook 07's moving picture: its formats against torch's, gradients lost, updates that stay."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from playwright.sync_api import Page

from .test_explorables import Model

pytestmark = pytest.mark.browser

WORDS = {8: torch.uint8, 16: torch.int16, 32: torch.int32}
# Of each format so many numbers are looked at.
MANY = 1000


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "bits_and_window")


def types(model: Model) -> dict[str, torch.dtype]:
    return {name: getattr(torch, each["torch"]) for name, each in model.value("FORMATS").items()}


def each_of(model: Model, function: str, name: str, values: list[Any]) -> list[Any]:
    """A function of the model for each value, in one call; JSON has no inf and no nan."""
    source = """([module, name, format, values]) => values.map(
        value => String(window[module][name](format, Array.isArray(value) ? value : Number(value))))
    """
    return model.page.evaluate(source, [model.name, function, name, values])


def same(told: str, wanted: float) -> bool:
    number = float(told.replace("Infinity", "inf"))
    return number == wanted or (math.isnan(number) and math.isnan(wanted))


def test_the_formats_are_those_of_torch(model: Model) -> None:
    for name, dtype in types(model).items():
        info, told = torch.finfo(dtype), model.value("FORMATS")[name]
        assert told["max"] == info.max and 2.0 ** told["bottom"] == info.smallest_normal
        assert 1 + told["exponent"] + told["fraction"] == info.bits
        assert 2.0 ** -told["fraction"] == info.eps


def test_bits_mean_what_they_mean_to_torch(model: Model) -> None:
    for name, dtype in types(model).items():
        bits = torch.finfo(dtype).bits
        words = torch.arange(0, 2**bits, max(1, 2**bits // MANY))
        numbers = words.to(WORDS[bits]).view(dtype).double().tolist()
        patterns = [[int(bit) for bit in f"{word:0{bits}b}"] for word in words.tolist()]
        told = each_of(model, "numberOf", name, patterns)
        assert all(map(same, told, numbers)), name
        finite = [(p, x) for p, x in zip(patterns, numbers, strict=True) if math.isfinite(x)]
        back = each_of(model, "bitsOf", name, [repr(x) for _, x in finite if x])
        assert back == [",".join(map(str, pattern)) for pattern, x in finite if x]


def test_a_number_is_rounded_as_torch_rounds_it(model: Model) -> None:
    torch.manual_seed(0)
    for name, dtype in types(model).items():
        info = torch.finfo(dtype)
        sizes = torch.linspace(math.log2(info.tiny) - 12, math.log2(info.max) - 1, MANY).double()
        numbers = 2**sizes * torch.randn(MANY).sign()
        # Middles between neighbours go to the even one.
        numbers = torch.cat([numbers, 1 + info.eps * torch.arange(1, 9) / 2, numbers.new_zeros(1)])
        exact = numbers.float().double()
        told = each_of(model, "rounded", name, exact.tolist())
        wanted = exact.float().to(dtype).double().tolist()
        assert all(map(same, told, wanted)), name


def test_what_is_too_large_becomes_inf_or_the_largest_number(model: Model) -> None:
    for name, beyond in {"fp16": 65520, "e5m2": 61440, "bf16": 3.4e38}.items():
        assert each_of(model, "rounded", name, [beyond, -beyond]) == ["Infinity", "-Infinity"]
    assert each_of(model, "rounded", "fp16", [65519]) == ["65504"]
    # torch 2.15 keeps it so; older ones make nan of what lies beyond 464.
    assert each_of(model, "rounded", "e4m3", [449, 500, "-Infinity"]) == ["448", "448", "-448"]


def test_gradients_are_lost_as_torch_loses_them(model: Model) -> None:
    """A gradient in the middle of each power of two stands for all of its bar."""
    least, counts = model.value("LEAST"), torch.tensor(model.value("COUNTS"))
    for name, dtype in types(model).items():
        for scale in range(0, 47, 3):
            sizes = 1.4 * 2.0 ** (least + scale + torch.arange(len(counts)).double())
            kept = sizes.float().to(dtype).double()
            zero = counts[kept == 0].sum().item()
            large = counts[(kept - sizes).abs() > 0.2 * sizes].sum().item() - zero
            few = counts[(sizes < torch.finfo(dtype).smallest_normal) & (kept > 0)].sum().item()
            found = model("fates", {"format": name, "scale": scale})
            assert found["zero"] == zero and found["few"] == few
            if few == 0:
                assert found["large"] == large
            assert sum(found.values()) == counts.sum()


def test_one_scale_of_the_bet_loses_none(model: Model) -> None:
    opens = model.value("OPENS")
    assert model("answer", opens) == [24]
    found = model("fates", opens)
    assert found["zero"] / sum(found.values()) == pytest.approx(0.98, abs=0.005)
    assert model("answer", {**opens, "format": "bf16"}) == model.value("BETS")
    # Their reach is wider than e4m3's.
    assert model("answer", {**opens, "format": "e4m3"}) == []
    for scale in range(47):
        lost = model("fates", {"format": "e4m3", "scale": scale})
        assert lost["zero"] + lost["large"] > 0


@pytest.mark.parametrize("update", [0.001, 0.003, 0.01])
def test_updates_add_up_as_in_torch(model: Model, update: float) -> None:
    for name, dtype in types(model).items():
        weight = torch.ones(())
        for _ in range(100):
            weight = (weight.double() + update).float().to(dtype).float()
        state = {**model.value("OPENS"), "format": name, "update": update, "times": 100}
        assert model("walked", state) == pytest.approx(weight.item(), rel=1e-6)


def test_a_weight_stays_in_bf16_and_moves_in_fp16(model: Model) -> None:
    state = {**model.value("OPENS"), "times": 100}
    assert model("walked", {**state, "format": "bf16"}) == 1
    assert model("walked", {**state, "format": "fp16"}) == pytest.approx(1.3, abs=0.01)


def test_the_bits_are_those_of_what_is_stored_now(model: Model) -> None:
    source = """async (module) => {
        const el = document.createElement('div');
        document.body.append(el);
        const close = window[module].default.render({ el });
        const nodes = [...el.querySelectorAll('.xp-bit')];
        const bits = () => nodes.map(node => node.textContent).join('');
        const [add] = el.querySelectorAll('[aria-label="times added"]');
        const before = bits();
        add.value = add.max;
        add.dispatchEvent(new Event('input', { bubbles: true }));
        await new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)));
        const after = bits();
        close();
        el.remove();
        return [before, after];
    }"""
    before, after = model.page.evaluate(source, model.name)
    assert before == "0011110000000000" and after != before
