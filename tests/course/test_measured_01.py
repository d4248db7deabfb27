"""The calls of a step and their times, drawn: notebook 01's picture of the reader's machine."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from course.measured.calls import POINT, YOURS, Calls, Part
from labkit.results import Comparison, Measurement

N = 32
SECONDS = {"column": 8e-3, "row": 4e-3, "8 rows": 1e-3, "all": 5e-4, YOURS: 2e-3}


def pieces(per_call, n):
    """As the notebook has them."""
    every = slice(None)
    if per_call == "column":
        return [(every, j) for j in range(n)]
    if per_call == "row":
        return [(i, every) for i in range(n)]
    rows = 8 if per_call == "8 rows" else n
    return [(slice(i, i + rows), every) for i in range(0, n, rows)]


def side(per_call, task="product", n=N, slower=1):
    settings = {"per_call": per_call, "task": task, "n": n}
    return Measurement(per_call, settings, times=(slower * SECONDS[per_call],) * 4)


def comparison(before, after, **settings):
    return Comparison(side(before, **settings), side(after, **settings))


def label(picture):
    return ET.fromstring(picture).get("aria-label")


def words(picture):
    return re.sub(r"<style>.*?</style>|<[^>]+>", " ", picture)


@pytest.fixture
def calls():
    return Calls(pieces, tile=8)


def blue(picture):
    """The places and sizes of what one call takes, grid by grid."""
    rects = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}rect")
    found = []
    for field, part in pairwise(rects):
        if field.get("class") == "k-field":
            place = [float(part.get(name)) - float(field.get(name)) for name in ("x", "y")]
            size = [float(part.get(name)) for name in ("width", "height")]
            found.append(tuple(round(each, 1) for each in (*place, *size)))
    return found


def test_a_call_takes_its_column_or_its_row(calls):
    drawn = calls(comparison("column", "row"))
    assert label(drawn) == "column: 8.00 ms, 32 calls; row: 4.00 ms, 32 calls"
    a, b, c = blue(drawn)[:3]
    # A column of A and of C, all of B.
    assert a == c and a[1] == 0 and a[2:] == (2, 42)
    assert b == (0, 0, 42, 42)
    a, b, c = blue(drawn)[3:]
    assert a == b and a[0] == 0 and a[2:] == (42, 2)
    assert c == (0, 0, 42, 42)
    # 16 numbers in a line: two for each row of 32.
    assert f"32 calls, {32 * (64 + 32 + 32):,} lines touched" in words(drawn)
    assert f"32 calls, {32 * (64 + 2 + 2):,} lines touched" in words(drawn)


def test_the_steps_so_far_are_kept_and_multiplied(calls):
    calls(comparison("column", "row"))
    calls(comparison("row", "8 rows"))
    drawn = calls(comparison("8 rows", "all"))
    names = [each.split(":")[0] for each in label(drawn).split("; ")]
    assert names == ["column", "row", "8 rows", "all"]
    assert "2.00 × 4.00 × 2.00 = 16.00 times as fast as column" in words(drawn)
    assert "one call, 192 lines touched" in words(drawn)
    assert drawn.count("k-fill k-baseline") == 3


def test_the_sentence_is_about_the_newest_run(calls):
    for before, after in (("column", "row"), ("row", "8 rows"), ("8 rows", "all")):
        calls(comparison(before, after))
    drawn = words(calls(comparison("column", YOURS)))
    assert f"{YOURS}: 4.00 times as fast as column" in drawn and "all: " not in drawn
    # A step once more: what led there is kept.
    again = Calls(pieces, tile=8)
    for before, after in (("column", "row"), ("row", "8 rows"), ("row", "8 rows")):
        drawn = words(again(comparison(before, after)))
    assert "2.00 × 4.00 = 8.00 times as fast as column" in drawn


def test_earlier_bars_are_scaled_to_the_newest_run(calls):
    first = calls(comparison("column", "row"))
    assert "scaled" not in first
    drawn = calls(comparison("row", "8 rows", slower=2))
    # Row took 4 ms before, 8 now: so would column have taken twice as long.
    assert label(drawn).startswith("column: 16.0 ms, 32 calls; row: 8.00 ms")
    assert "8 rows: 2.00 ms" in label(drawn) and "scaled" in words(drawn)


def test_no_line_of_words_is_cut(calls):
    for task in ("product", "add one", "distances"):
        calls(comparison("column", "row", task=task))
        assert "…" not in calls(comparison("row", "8 rows", task=task))


def test_another_size_begins_anew(calls):
    calls(comparison("column", "row"))
    assert "column" not in label(calls(comparison("row", "8 rows", n=16)))
    assert "column" in label(calls(comparison("row", "8 rows")))


def test_the_reader_s_tiles_are_of_all_three_matrices(calls):
    drawn = calls(comparison("column", YOURS))
    # 4 x 4 x 4 tiles of 8 lines in each matrix.
    assert f"64 calls, {64 * 3 * 8:,} lines touched" in words(drawn)
    assert blue(drawn)[3:] == [(10.5, 10.5, 10.5, 10.5)] * 3
    small = calls(comparison("column", YOURS, n=4))
    assert "one call, 12 lines touched" in words(small)


def test_adding_has_one_grid_and_distances_a_large_tensor(calls):
    added = calls(comparison("row", "column", task="add one"))
    assert len(blue(added)) == 2 and "A = B × C" not in words(added)
    assert f"{32 * 2} lines touched" in words(added) and "1,024 lines touched" in words(added)
    drawn = calls(comparison("8 rows", "all", task="distances"))
    size = 4 * POINT * N * N // 1024
    assert f"one call, a tensor of {size} KiB per call" in words(drawn)
    assert "4 calls, a tensor of 64.0 KiB per call" in words(drawn)


def test_what_is_no_comparison_of_times_is_left_to_the_panel(calls):
    assert calls("a race") == ""
    ended = Measurement("row", {"per_call": "row", "task": "product", "n": N}, error="stopped")
    assert calls(Comparison(side("column"), ended)) == ""


def test_a_part_of_a_line_counts_as_one():
    assert Part(3, 1).lines == 3 and Part(3, 17).lines == 6
