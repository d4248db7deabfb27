"""24's picture of a result: memory in tables of scores, time with the kernel that ran."""

import re

import pytest
import torch
import torch.nn.functional as F

from course.measured.backends import NOTHING, TABLE, kernel_of
from course.measured.tables import Tables
from labkit import Lab, Workload

HEADS, WIDTH = 2, 8


def make_workload(attention: str, mask: str, length: int) -> Workload:
    q, k, v = (torch.randn(1, HEADS, length, WIDTH) for _ in range(3))

    def step() -> torch.Tensor:
        if attention == "naive":
            return (q @ k.mT).softmax(-1) @ v
        if attention == "yours":
            return v + 1
        return F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal")

    return Workload(step)


@pytest.fixture
def tables() -> Tables:
    return Tables(HEADS, 4)


@pytest.fixture
def lab(tables: Tables) -> Lab:
    controls = {"mask": ["none", "causal"], "length": [128, 256]}
    return Lab(tables.watch(make_workload), attention=["naive", "SDPA", "yours"], **controls)


def test_memory_is_drawn_in_tables(lab: Lab, tables: Tables) -> None:
    result = lab.timeline(attention="SDPA")
    drawn = tables(result)
    assert tables.table(128) == HEADS * 128 * 128 * 4
    amounts = [side.peak / tables.table(128) for side in result.arms]
    assert amounts[0] > 2 > 1 > amounts[1]
    for side, amount in zip(result.arms, amounts, strict=True):
        assert f"{side.peak_text} = {amount:.2g} table" in drawn
    assert drawn.count('class="k-field"') == sum(-(-amount // 1) for amount in amounts)
    assert "naive, no mask, 128 tokens" in drawn and "SDPA, no mask, 128 tokens" in drawn


def test_a_longer_text_has_a_larger_table(lab: Lab, tables: Tables) -> None:
    drawn = tables(lab.timeline(length=256))
    assert "128 KiB and 512 KiB" in drawn
    sides = {float(width) for width in re.findall(r'<rect[^>]*?width="([\d.]+)"', drawn)}
    assert max(sides) == pytest.approx(2 * min(sides), rel=0.02)


def test_time_names_the_kernel(lab: Lab, tables: Tables) -> None:
    drawn = tables(lab.run(attention="SDPA", mask="causal", seconds=0.2))
    assert "stores the table of scores" in drawn
    assert "kernel: flash, for a CPU" in drawn
    assert "naive, no mask, 128 tokens" in drawn and "SDPA, is_causal, 128 tokens" in drawn
    drawn = tables(lab.run(attention="yours", length=256, seconds=0.2))
    assert "your tiles" in drawn and "yours, no mask, 256 tokens" in drawn
    causal = lab.run(baseline={"mask": "causal"}, mask="causal", attention="SDPA", seconds=0.2)
    assert "SDPA, 128 tokens" in tables(causal)


def test_other_results_have_no_picture(lab: Lab, tables: Tables) -> None:
    assert tables(lab.sweep("length", seconds=0.1)) == ""
    assert tables(None) == ""


def test_a_kernel_is_known_by_its_operators() -> None:
    q = torch.ones(1, 2, 4, 8)
    assert kernel_of(lambda: F.scaled_dot_product_attention(q, q, q)) == "flash, for a CPU"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert kernel_of(lambda: F.scaled_dot_product_attention(q, q, q)) == TABLE
    assert kernel_of(lambda: q + 1) == NOTHING
    # Its gradients, too, are computed in tiles.
    q.requires_grad_()
    assert "flash" in kernel_of(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())


# What shuts out the fast kernel of a CPU, and what does not.
TOKENS, ALONE = torch.ones(1, 2, 4, 8), {"attn_mask": torch.zeros(4, 4)}
CALLS = {
    "a mask": ((TOKENS, TOKENS, TOKENS), ALONE, "flash, for a CPU"),
    "is_causal": ((TOKENS, TOKENS, TOKENS), {"is_causal": True}, "flash, for a CPU"),
    "bf16": ((TOKENS.bfloat16(),) * 3, {}, "flash, for a CPU"),
    "dropout": ((TOKENS, TOKENS, TOKENS), {"dropout_p": 0.1}, TABLE),
    "a mask that learns": (
        (TOKENS, TOKENS, TOKENS),
        {"attn_mask": torch.zeros(4, 4, requires_grad=True)},
        TABLE,
    ),
    "wider values": ((TOKENS, TOKENS, torch.ones(1, 2, 4, 12)), {}, TABLE),
    "a batch of one": ((TOKENS.expand(3, 2, 4, 8).clone(), TOKENS, TOKENS), {}, TABLE),
    "a turned tensor": ((TOKENS, TOKENS, torch.ones(1, 2, 8, 4).mT), {}, TABLE),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_shuts_out_the_fast_kernel_is_seen(name: str) -> None:
    tensors, options, kernel = CALLS[name]
    assert kernel_of(lambda: F.scaled_dot_product_attention(*tensors, **options)) == kernel
