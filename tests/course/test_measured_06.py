"""The measured roofline of notebook 06: what is counted, measured and drawn, without a browser."""

import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import nn

from course.measured import roof
from course.measured.roof import Dot, Roofs, draw, measured_roofs, under_roofs
from course.measured.work import Work, work_of
from labkit import Lab, Workload, count
from labkit.results import Comparison, Measurement

ROOFS = Roofs({"fp32": 1e11, "bf16": 1e12}, 1e10)


def dot(form: str = "bf16", intensity: float = 20.0, rate: float = 5e10) -> Dot:
    return Dot(form, form, Work(int(intensity * 1e6), int(1e6)), intensity * 1e6 / rate)


# ----------------------------------------------------------------------------------- the counting


def test_bytes_are_those_that_each_product_reads_and_writes() -> None:
    a, b = torch.ones(4, 6), torch.ones(6, 2)
    found = work_of(lambda: torch.relu(a @ b))
    # The product reads 24 + 12 numbers and writes 8.
    assert found == Work(flops=2 * 4 * 6 * 2, bytes=4 * (24 + 12 + 8))
    assert found.intensity == pytest.approx(96 / 176)


def test_without_a_product_nothing_counts_and_operations_are_those_of_count() -> None:
    layer, x = nn.Linear(8, 8), torch.ones(4, 8)
    assert work_of(lambda: x.bfloat16().exp().view(-1)) == Work(0, 0)

    def step() -> None:
        layer(x).sum().backward()

    assert work_of(step).flops == count(step).flops > 0


def test_half_the_bytes_are_twice_the_operations_per_byte() -> None:
    full = torch.ones(16, 16)
    half = full.bfloat16()
    ratio = work_of(lambda: half @ half).intensity / work_of(lambda: full @ full).intensity
    assert ratio == pytest.approx(2)


def test_a_step_under_autocast_lies_to_the_right_as_in_the_moving_picture() -> None:
    """Its conversions move bytes, too; they are no part of a product."""
    full, half = (work_of(make_workload(form, "layer", 16).step) for form in ("fp32", "bf16"))
    assert half.flops == full.flops
    assert half.intensity == pytest.approx(2 * full.intensity, rel=0.05)


# --------------------------------------------------------------------------------------- the roofs


def test_roofs_are_measured_once_on_the_threads_of_the_run(monkeypatch: Any) -> None:
    threads = []

    def rate(dtype: torch.dtype, device: Any, *, tf32: bool = False) -> float | None:
        threads.append(torch.get_num_threads())
        return {torch.float32: 2e11, torch.bfloat16: None}[dtype]

    monkeypatch.setattr(roof, "matmul_rate", rate)
    monkeypatch.setattr(roof, "copy_rate", lambda source, target: 3e10)
    measured_roofs.cache_clear()
    before = torch.get_num_threads()
    try:
        assert measured_roofs(1) == Roofs({"fp32": 2e11}, 3e10)
        assert measured_roofs(1) is measured_roofs(1)
    finally:
        measured_roofs.cache_clear()
    assert threads == [1, 1]
    assert torch.get_num_threads() == before


def test_a_roof_goes_up_with_the_bytes_and_then_is_flat() -> None:
    assert [ROOFS.at("fp32", intensity) for intensity in (1, 10, 50)] == [1e10, 1e11, 1e11]
    assert ROOFS.at("bf16", 50) == 5e11


# ------------------------------------------------------------------------------------- the picture


def test_both_roofs_and_both_dots_are_named() -> None:
    drawn = draw(ROOFS, [dot("fp32", 10, 3e10), dot("bf16", 20, 6e10)])
    for words in ("roof of fp32: 100 G", "roof of bf16: 1 T"):
        assert words in drawn
    assert 'aria-label="fp32: 30.0 G operations/s, 30% of its roof. bf16: 60.0 G' in drawn
    assert "above" not in drawn


@pytest.mark.parametrize("form", ["fp32", "bf16"])
@pytest.mark.parametrize("share", [0.5, 0.8, 0.97])
@pytest.mark.parametrize("peak", [5e9, 1.3e11, 1e12])
def test_no_name_lies_on_another(peak: float, share: float, form: str) -> None:
    """Also of dots close to a roof at the right, where the roofs' names are."""
    roofs = ROOFS._replace(peaks={"fp32": 1e11, "bf16": peak})
    rate = share * roofs.peaks[form]
    dots = [dot("fp32", 60, 0.5 * min(peak, 1e11)), dot("bf16", 120, rate)]
    found = roof.names(roofs, dots, roof._plane(roofs, dots))
    assert [name.words for name in found[2:]] == ["fp32", "bf16"]
    for one, other in combinations(found, 2):
        assert not one.room.meets(other.room), (one, other)


@pytest.mark.parametrize("intensity", [0.02, 3.0, 400.0])
@pytest.mark.parametrize("rate", [1e6, 9e11])
def test_everything_lies_in_the_picture(intensity: float, rate: float) -> None:
    drawn = draw(ROOFS, [dot("fp32", intensity, rate), dot("bf16", 2 * intensity, rate)])
    _, _, width, height = map(float, re.findall(r'viewBox="([^"]+)"', drawn)[0].split())
    points = re.findall(r"[ML]([\d.-]+) ([\d.-]+)", drawn)
    assert len(points) > 8
    for x, y in points:
        assert 0 <= float(x) <= width and 0 <= float(y) <= height


def test_roofs_without_a_slope_in_sight_and_a_format_without_a_roof() -> None:
    low = Roofs({"fp32": 1e11, "bf16": 1e9}, 1e10)
    drawn = draw(low, [dot("fp32", 40, 5e10), dot("bf16", 80, 9e8)])
    assert "roof of bf16: 1 G" in drawn
    alone = draw(Roofs({"fp32": 1e11}, 1e10), [dot("fp32", 4, 1e10), dot("bf16", 8, 1e10)])
    assert "roof of bf16" not in alone and ">bf16</text>" in alone


def test_why_a_dot_lies_above_its_roof_is_said() -> None:
    cached = draw(ROOFS, [dot("fp32", 2, 5e10), dot("bf16", 4, 1e10)])
    assert cached.count("A dot above the slope: a cache keeps what it moves.") == 1
    emulated = draw(ROOFS._replace(peaks={"fp32": 1e11, "bf16": 1e9}), [dot("bf16", 20, 2e9)] * 2)
    assert "bf16 is above its roof" in emulated


# --------------------------------------------------------------------------------- from the panel


def make_workload(precision: str, model: str, width: int) -> Workload:
    layer, x = nn.Linear(width, width), torch.ones(4, width)

    def step() -> None:
        with torch.autocast("cpu", torch.bfloat16, precision != "fp32"):
            layer(x).sum().backward()

    return Workload(step)


LAB = Lab(
    make_workload,
    precision=["fp32", "bf16", "yours"],
    situation={"model": ["layer", "tiny"], "width": [8, 16]},
)


def compared(
    precision: str = "bf16", seconds: float = 1e-3, model: str = "layer", width: int = 16
) -> Comparison:
    sides = []
    for name, each, took in (("baseline", "fp32", 1e-3), ("candidate", precision, seconds)):
        settings = {"precision": each, "model": model, "width": width}
        sides.append(Measurement(name, settings, times=(took,) * 4))
    return Comparison(*sides)


@pytest.fixture
def _fixed_roofs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roof, "measured_roofs", lambda threads: ROOFS)


@pytest.mark.usefixtures("_fixed_roofs")
def test_a_comparison_is_drawn_with_its_own_figures() -> None:
    state = torch.get_rng_state()
    drawn = under_roofs(LAB)(compared("yours", seconds=2e-3))
    assert torch.equal(torch.get_rng_state(), state)
    flops = count(make_workload("fp32", "layer", 16).step).flops
    assert f"fp32: {flops / 1e-3 / 1e6:.2f} M operations/s" in drawn
    assert f"yours: {flops / 2e-3 / 1e6:.2f} M operations/s" in drawn


@pytest.mark.usefixtures("_fixed_roofs")
def test_what_it_does_not_draw_is_left_to_the_panel() -> None:
    picture = under_roofs(LAB)
    assert picture(object()) == ""
    failed = compared()
    failed = replace(failed, candidate=replace(failed.candidate, error="out of memory"))
    assert picture(failed) == ""
    untimed = replace(compared().baseline, times=()), replace(compared().candidate, times=())
    assert picture(Comparison(*untimed)) == ""


class Records:
    """Two machines that gained, and one that gained more with another model."""

    def matching(self, own: Comparison) -> list[tuple[str, Comparison]]:
        return [
            ("old-cpu, 2026-11-21", compared(seconds=0.9e-3)),
            ("amx-cpu, 2026-11-22, at width=1024", compared(seconds=0.5e-3, width=1024)),
            ("other-cpu, 2026-11-23, at model='tiny'", compared(seconds=0.1e-3, model="tiny")),
        ]


@pytest.mark.usefixtures("_fixed_roofs")
@pytest.mark.parametrize("seconds", [7e-3, 0.5e-3])
def test_the_machine_that_gained_most_is_written_below(seconds: float) -> None:
    """Also where the reader's gains: one that only pretends to be without bf16 does."""
    picture = under_roofs(LAB, Records())
    drawn = picture(compared(seconds=seconds))
    assert "On another machine: 2.00 times as fast." in drawn
    assert "Recorded on amx-cpu, 2026-11-22" in drawn and "There: width=1024" in drawn
    assert "old-cpu" not in drawn and "other-cpu" not in drawn
    tiny = picture(compared(seconds=seconds, model="tiny"))
    assert "Recorded on other-cpu" in tiny and "amx-cpu" not in tiny
    assert "Recorded on" not in under_roofs(LAB)(compared(seconds=seconds))


@pytest.mark.usefixtures("_fixed_roofs")
def test_no_line_under_the_picture_is_cut() -> None:
    drawn = under_roofs(LAB, Records())(compared(seconds=7e-3))
    assert "A dashed gap" in drawn and "…" not in drawn
