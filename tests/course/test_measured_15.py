"""The page faults of a step, counted and drawn: notebook 15's picture of the reader's machine."""

import mmap
import pickle
import sys
import xml.etree.ElementTree as ET

import cloudpickle
import pytest

from course import allocator
from course.measured import page_faults, pages
from course.measured.page_faults import COUNTED, WARM, PageFaults
from course.measured.pages import Side
from labkit import Lab, Workload
from labkit.results import Comparison, Measurement

TOUCHED = 64


def touch() -> None:
    """So many fresh pages, given back at the end."""
    with mmap.mmap(-1, TOUCHED * mmap.PAGESIZE) as fresh:
        fresh[:: mmap.PAGESIZE] = b"x" * TOUCHED


def use_memory() -> None:
    """Eight blocks of the allocator, as large as gradients, freed together at the end."""
    blocks = [bytearray(2**22) for _ in range(8)]
    blocks.clear()


def test_a_step_is_counted_once_it_is_warm():
    faults = PageFaults()
    step = faults.watch(touch, way="none", width=4)
    for _ in range(WARM):
        step()
    assert faults.of({"way": "none", "width": 4}) is None
    for _ in range(COUNTED[-1]):
        step()
    # In the order in which they come.
    found = faults.of({"width": 4, "way": "none"})
    assert TOUCHED <= found < 2 * TOUCHED
    assert faults.of({"way": "zeros", "width": 4}) is None


def test_a_count_is_the_mean_of_the_steps_so_far():
    faults, fresh = PageFaults(), iter([False] * WARM + [True, False, False, False, True])
    step = faults.watch(lambda: next(fresh) and touch(), way="none")
    found = []
    for _ in range(WARM + 5):
        step()
        found.append(faults.of({"way": "none"}))
    assert found[WARM] >= TOUCHED
    # Counted again behind the second and the fourth.
    assert found[WARM + 1] < found[WARM]
    assert found[WARM + 1] == found[WARM + 2] > found[WARM + 3] == found[WARM + 4]


def test_a_step_returns_what_it_did():
    step = PageFaults().watch(iter(range(20)).__next__)
    assert [step() for _ in range(20)] == list(range(20))


def test_a_copy_notes_into_the_same_folder_and_leaves_it_there():
    faults = PageFaults()
    copy = pickle.loads(pickle.dumps(faults))
    step = copy.watch(lambda: None, way="zeros")
    for _ in range(WARM + COUNTED[-1]):
        step()
    del copy, step
    assert faults.of({"way": "zeros"}) < TOUCHED


def test_a_page_fault_takes_time_and_much_less_than_a_millisecond():
    assert 0 <= page_faults.fault_seconds() < 1e-3


@pytest.fixture
def by_value():
    """The functions of this module go to processes as a notebook's do."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def test_processes_of_a_lab_tell_what_they_counted(by_value):
    faults = PageFaults()

    def make_workload(fresh):
        return Workload(touch if fresh else lambda: None)

    made = faults.counted(make_workload)
    lab = Lab(made, runs_in="process", memory=False, fresh=[False, True])
    result = lab.run(fresh=True, seconds=0.2)
    found = [faults.of(side.settings) for side in result.arms]
    assert found[0] < TOUCHED <= found[1]


@pytest.fixture
def counted():
    """Page faults of steps with zeros and with None."""
    faults = PageFaults()
    for way, step in (("zeros", lambda: None), ("none", touch)):
        watched = faults.watch(step, way=way)
        for _ in range(WARM + COUNTED[-1]):
            watched()
    return faults


def comparison(*ways):
    sides = [
        Measurement(way, {"way": way}, times=(seconds,) * 4)
        for way, seconds in zip(ways, (0.02, 0.01), strict=True)
    ]
    return Comparison(*sides)


def test_the_picture_has_the_faults_of_both_sides(counted, monkeypatch):
    monkeypatch.setattr(pages, "fault_seconds", lambda: 2e-6)
    draw = pages.of(counted, lambda settings: 4 * TOUCHED * mmap.PAGESIZE)
    drawn = draw(comparison("zeros", "none"))
    words = ET.fromstring(drawn).get("aria-label")
    assert "baseline, zeros: 20.0 ms per step, no page fault" in words
    assert "candidate, none: 10.0 ms per step, 6" in words
    assert "page fault: 2.00 µs" in drawn
    # A quarter of the pages of the candidate, and the red part of its bar and of the legend.
    assert drawn.count("k-slower") >= 48 / 4 + 2


def test_what_it_does_not_draw_is_left_to_the_panel(counted):
    draw = pages.of(counted, lambda settings: mmap.PAGESIZE)
    assert draw("a race") == ""
    assert draw(comparison("zeros", "yours")) == ""
    none = comparison("zeros", "none").candidate
    ended = Comparison(Measurement("zeros", {"way": "zeros"}, error="stopped"), none)
    assert draw(ended) == ""


def widths(drawn, kind):
    """Of the rectangles of a kind, without the legend's."""
    name = "{http://www.w3.org/2000/svg}rect"
    kinds = [each for each in ET.fromstring(drawn).iter(name) if each.get("class") == kind]
    return [float(each.get("width")) for each in kinds if each.get("width") != "12"]


def legend_of(drawn):
    """The small words of a picture."""
    texts = ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")
    return [each.text for each in texts if each.get("class") == "k-small"]


def test_red_is_the_share_of_pages_and_of_time():
    half = Side("none", seconds=0.01, faults=1000, pages=2000)
    drawn = pages.draw([half], 5e-6)
    # Cells, and behind them the bar.
    red, free = widths(drawn, "k-fill k-slower"), widths(drawn, "k-line k-thin k-baseline")
    (rest,) = widths(drawn, "k-fill k-candidate")
    assert (len(red), len(free)) == (25, 24)
    assert red[-1] == pytest.approx(rest, abs=0.2)
    assert pages.share(half._replace(faults=9000)) == 1
    # More time than the step has cannot be lost in it.
    whole = pages.draw([half._replace(faults=9000)], 5e-6)
    assert (len(widths(whole, "k-fill k-slower")), pages.splits([half], 5e-6)) == (49, True)
    assert widths(whole, "k-fill k-slower")[-1] == 0
    assert "A fault alone takes 5.00 µs, here less" in whole


def test_without_a_page_fault_nothing_is_red():
    drawn = pages.draw([Side("zeros", 0.01, 0, 2000)], 0.0)
    assert max(widths(drawn, "k-fill k-slower"), default=0) == 0
    assert legend_of(drawn) == ["zeros", "the step"]
    # Pages that stay hold zeros, as in the moving picture.
    assert len(widths(drawn, "k-fill k-baseline")) == 48


def test_what_the_passes_of_zeros_add_is_drawn_where_page_faults_are_no_part_of_it():
    zeros, none = Side("baseline, zeros", 0.02, 9, 2000), Side("candidate, none", 0.015, 9, 2000)
    drawn = pages.draw([zeros, none], 1e-6)
    more, rest = widths(drawn, "k-fill k-arm5"), widths(drawn, "k-fill k-candidate")
    assert more[0] == pytest.approx(rest[0] / 3, abs=1) and more[1] == 0
    assert pages.PASSES[1] in drawn
    assert "page fault: 1.00 µs" in drawn
    for others in (
        [zeros, none._replace(faults=2000)],
        [none._replace(name="baseline, zeros"), zeros._replace(name="candidate, none")],
        [zeros, none._replace(name="candidate, yours")],
    ):
        assert pages.PASSES[1] not in pages.draw(others, 1e-6)


def test_a_sentence_says_what_became_of_freed_memory():
    zeros, none = Side("baseline, zeros", 0.02, 0, 2000), Side("candidate, none", 0.02, 0, 2000)
    again = [zeros, none._replace(faults=2000)]
    assert pages.sentence(again) == "Pages come again: 2,000 more page faults with None."
    assert "with zeros" in pages.sentence([zeros._replace(faults=2000), none])
    # A few beside 2,000 pages are as good as none.
    few = "What None frees stays: hardly a page comes again."
    assert pages.sentence([zeros, none._replace(faults=99)]) == few
    # Not of zeros, whose page faults stand beside it.
    assert pages.sentence([zeros._replace(faults=99), none]) == few
    kept = Side("candidate, yours", 0.02, 0, 2000)
    assert pages.sentence([zeros, kept]).startswith("Neither side frees gradients")
    both = [side._replace(faults=2000) for side in (zeros, none)]
    assert pages.sentence(both).startswith("Both sides")
    assert pages.sentence(again) in pages.draw(again, 1e-6)


def test_a_winner_with_more_page_faults_is_explained():
    zeros, none = Side("baseline, zeros", 0.03, 0, 2000), Side("candidate, none", 0.02, 2000, 2000)
    assert pages.notes([zeros, none], 1e-6, none)[0].startswith("Yet None is faster: four passes")
    assert "Yet None is faster" in pages.draw([zeros, none], 1e-6, none)
    for winner in (zeros, None):
        assert pages.notes([zeros, none], 1e-6, winner) == []


def test_faults_of_new_gradients_are_no_pages_of_those_that_are_kept():
    none, yours = (
        Side("baseline, none", 0.02, 3000, 2000),
        Side("candidate, yours", 0.01, 900, 2000),
    )
    assert pages.notes([none, yours], 1e-6, yours) == [
        "yours: faults of new gradients, dropped once added."
    ]
    drawn = pages.draw([none, yours], 1e-6, yours)
    # The cells of one side, and two bars.
    assert len(widths(drawn, "k-fill k-slower")) == 48 + 2
    assert legend_of(drawn) == ["free", "zeros", "page fault: 1.00 µs", "the rest"]


def test_the_verdict_of_a_comparison_names_the_winner(counted, monkeypatch):
    monkeypatch.setattr(pages, "fault_seconds", lambda: 2e-6)
    draw = pages.of(counted, lambda settings: TOUCHED * mmap.PAGESIZE)
    assert "Yet None is faster" in draw(comparison("zeros", "none"))


def test_the_allocator_says_where_it_cannot_be_told(monkeypatch):
    assert "GPU" in allocator.why_not("cuda")
    monkeypatch.setattr(allocator.platform, "libc_ver", lambda: ("", ""))
    assert "GNU" in allocator.why_not()
    with pytest.raises(OSError, match="GNU"):
        allocator.keep_memory()


@pytest.mark.skipif(allocator.why_not() is not None, reason=str(allocator.why_not()))
def test_memory_that_is_kept_comes_without_page_faults(by_value):
    faults = PageFaults()

    def make_workload(keeps):
        if keeps:
            allocator.keep_memory()
        return Workload(use_memory)

    made = faults.counted(make_workload)
    lab = Lab(made, runs_in="process", memory=False, keeps=[False, True])
    result = lab.run(keeps=True, seconds=0.2)
    given_back, kept = (faults.of(side.settings) for side in result.arms)
    assert kept < 100 < given_back
