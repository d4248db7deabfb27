"""The measured trays of notebook 13, from made-up timelines and a real one. No browser is asked."""

import html
import re
import xml.etree.ElementTree as ET

import pytest
import torch
from torch import nn

from course.measured.trays import KEPT, UPDATE, Tray, name, picture, trays
from labkit.memory_timeline import (
    BACKWARD,
    FORWARD,
    OPTIMIZER,
    MemoryComparison,
    Timeline,
    record,
)

BEFORE, GRADIENTS, WORK = 100, 30, 40


def side(count, kept, update=True, **settings):
    """So many micro-batches: forward keeps, backward frees and adds to gradients; the update."""
    alive, parts = [], []
    for number in range(count):
        held = GRADIENTS if number else 0
        parts += [(len(alive), FORWARD), (len(alive) + 10, BACKWARD)]
        up = [held + kept * step // 10 for step in range(1, 11)]
        # The last operator adds a new gradient, which is gone behind it.
        alive += [held, *up[1:], *up[::-1][:9], GRADIENTS + held]
    if update:
        parts.append((len(alive), OPTIMIZER))
        alive += [GRADIENTS, GRADIENTS, GRADIENTS + WORK, 0]
    found = tuple(BEFORE + size for size in alive)
    return Timeline("", settings, found, tuple(parts), BEFORE, max(found))


def test_a_micro_batch_begins_with_the_gradients_of_those_before():
    first, second, last, update = trays(side(3, 50))
    assert first == Tray(BEFORE, BEFORE + 50, KEPT)
    assert second == last == Tray(BEFORE + GRADIENTS, BEFORE + GRADIENTS + 50, KEPT)
    assert update == Tray(BEFORE + GRADIENTS, BEFORE + GRADIENTS + WORK, UPDATE)
    assert name([first, update]) == "whole batch" and name([first, second]) == "2 micro-batches"


@pytest.mark.parametrize("count", [2, 8, 16])
def test_each_micro_batch_is_a_bar_with_its_peak(count):
    before, after = side(1, 400), side(count, 400 // count)
    drawn = html.unescape(picture(MemoryComparison(before, after)))
    ET.fromstring(drawn)
    # Three parts of each bar: there before, gradients, its own.
    assert drawn.count("k-fill k-arm5") == 1 + count + 1
    assert drawn.count("k-fill k-arm4") == 2 + 1
    assert f"peak {before.peak_text}" in drawn and f"peak {after.peak_text}" in drawn
    assert "whole batch" in drawn and f"{count} micro-batches" in drawn
    # No bar leaves the plot.
    rights = [
        float(x) + float(w) for x, w in re.findall(r'<rect x="(\S+)" y="\S+" width="(\S+)"', drawn)
    ]
    assert rights and max(rights) <= 632.1


def test_an_update_that_is_no_part_of_its_own_is_drawn_on_neither_side():
    drawn = picture(MemoryComparison(side(1, 80), side(4, 20, update=False)))
    assert drawn.count("k-fill k-arm4") == 0
    assert drawn.count("k-fill k-arm5") == 1 + 4 + 1


def test_what_is_no_comparison_of_memory_is_left_to_the_panel():
    assert picture("other") == ""
    none = Timeline("", error="out of memory")
    assert picture(MemoryComparison(side(1, 80), none)) == ""


def test_the_bars_of_a_real_step():
    """Gradients of 64 x 64 weights, in the bars behind the first."""
    net = nn.Sequential(nn.Linear(64, 64, bias=False), nn.Tanh(), nn.Linear(64, 64, bias=False))
    optimizer = torch.optim.AdamW(net.parameters())
    parts = torch.randn(4, 16, 64)

    def step():
        for part in parts:
            net(part).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    timeline = record(step, "cpu")
    *found, update = trays(timeline)
    size = 2 * 64 * 64 * 4
    assert [tray.what for tray in found] == 4 * [KEPT] and update.what == UPDATE
    assert found[0].begin == timeline.before
    assert all(size <= tray.begin - timeline.before < 1.5 * size for tray in [*found[1:], update])
