"""The measured saw of notebook 11, from made-up timelines. No browser is asked."""

import html
import re
import xml.etree.ElementTree as ET

import pytest

from course.measured.saws import Saws, _over, stretches, teeth, worked
from labkit.charts.plot import Box
from labkit.memory_timeline import BACKWARD, FORWARD, OPTIMIZER, MemoryComparison, Timeline

BEFORE = 100


def side(alive, parts, **settings):
    alive = tuple(BEFORE + size for size in alive)
    return Timeline("", settings, alive, tuple(parts), BEFORE, max(alive))


def plain():
    up = [10 * number for number in range(1, 13)]
    return side([*up, *up[::-1], 0, 0], [(0, FORWARD), (12, BACKWARD), (24, OPTIMIZER)], pieces=0)


def saw(pieces, **settings):
    """Forward keeps little; then so many teeth, each with small bumps on its way down."""
    tooth = [20, 40, 60, 40, 52, 20, 25, 0]
    alive = [5] * 12 + tooth * pieces + [0, 0]
    end = 12 + 8 * pieces
    parts = [(0, FORWARD), (12, BACKWARD), (end, OPTIMIZER)]
    return side(alive, parts, pieces=pieces, **settings)


def drawn(saws, candidate):
    return html.unescape(saws(MemoryComparison(plain(), candidate)))


@pytest.mark.parametrize("pieces", [1, 3, 8])
def test_a_piece_is_a_tooth(pieces):
    found = stretches(saw(pieces))
    assert [kind for _, _, kind in found].count("forward again") == pieces
    assert teeth(saw(pieces)) == ("1 tooth" if pieces == 1 else f"{pieces} teeth")
    # One after the other, up to the optimizer.
    assert found[0] == (0, 12, FORWARD)
    assert [end for _, end, _ in found[:-1]] == [begin for begin, _, _ in found[1:]]
    assert found[-1][1] == worked(saw(pieces)) == 12 + 8 * pieces


def test_without_checkpoints_and_where_gradients_pile_up_there_are_no_teeth():
    assert teeth(plain()) == "no teeth"
    rising = side([0] * 5 + list(range(0, 90, 3)), [(0, FORWARD), (5, BACKWARD)])
    assert teeth(rising) == "no teeth"
    nothing = side([0] * 20, [(0, FORWARD), (5, BACKWARD)])
    assert teeth(nothing) == "no teeth"


def test_the_picture_has_both_peaks_and_the_teeth():
    picture = drawn(Saws(), saw(8, by="torch"))
    ET.fromstring(picture)
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", picture)
    assert "peak 160 B · 8 teeth" in text and "without checkpoints: 220 B" in text
    assert "torch's checkpoint" not in text
    assert "checkpoints: 160 B instead of 220 B, 8 teeth" in picture
    assert picture.count('class="k-fill k-arm5"') == 8 + 1  # and one in the legend


def test_the_reader_s_saw_is_drawn_over_torchs_of_the_same_setting():
    saws = Saws()
    alone = drawn(saws, saw(8, by="yours"))
    assert "torch's checkpoint" not in alone
    drawn(saws, saw(8, by="torch"))
    drawn(saws, saw(3, by="torch"))
    third = drawn(saws, saw(8, by="yours"))
    assert "torch's checkpoint: 160 B" in third and "your checkpoints: 160 B" in third
    assert third.count("k-whisker") == alone.count("k-whisker") + 2
    assert "torch's checkpoint" not in drawn(saws, saw(4, by="yours"))


def test_a_baseline_of_torch_s_checkpoints_is_named_so():
    baseline, candidate = saw(8, by="torch"), saw(8, by="yours")
    picture = html.unescape(Saws()(MemoryComparison(baseline, candidate)))
    assert "torch's checkpoint: 160 B" in picture and "without checkpoints" not in picture
    assert "your checkpoints: 160 B instead of 160 B" in picture


def test_what_is_no_memory_is_left_to_the_panel():
    failed = Timeline("", {}, error="OutOfMemoryError")
    empty = Timeline("", {}, (), (), 0, 10)
    assert Saws()("a race") == ""
    assert drawn(Saws(), failed) == "" and drawn(Saws(), empty) == ""


def test_torchs_parts_lie_over_those_of_the_saw():
    """Also where one of the two has more operators in forward."""
    torchs = saw(8, by="torch")
    longer = side(
        [5] * 24 + [value - BEFORE for value in torchs.alive[12:]],
        [(begin + 12 * (begin > 0), name) for begin, name in torchs.parts],
        pieces=8,
        by="yours",
    )
    box = Box(0, 0, 100, 100, (0, worked(longer)), (0, 200))
    low = [x for x, y in _over(torchs, longer, box) if y == pytest.approx(box.y(BEFORE + 5))]
    assert max(low) == pytest.approx(box.x(24))


def test_a_peak_that_comes_after_the_picture_is_said():
    parts = [(0, FORWARD), (5, BACKWARD), (15, OPTIMIZER)]
    late = side([1] * 5 + list(range(10)) + [50, 0], parts, pieces=8)
    assert "peak 150 B, later, in optimizer.step() · no teeth" in drawn(Saws(), late)
    assert "later" not in drawn(Saws(), saw(8))
