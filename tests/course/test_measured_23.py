"""The measured listing of 23: how lines are sampled, and how both sides are drawn."""

from __future__ import annotations

import inspect
import linecache
import threading
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import whyslow
from course import programs
from course.measured import listing
from course.measured.listing import Side, draw, sample
from labkit import Lab, Workload, seed_all
from labkit.results import Comparison, Measurement

# ----------------------------------------------------------------------------------- the programs


@pytest.mark.parametrize("script", programs.SCRIPTS)
def test_each_line_that_can_be_mended_is_there(script: str) -> None:
    for line, (before, after) in programs.MENDS.items():
        program = programs.load(script, [line])
        old = programs.load(script).lines
        changed = [
            number for number, text in enumerate(old, 1) if text != program.lines[number - 1]
        ]
        assert changed == [line]
        assert before in old[line - 1] and after in program.lines[line - 1]
        # Python shows the mended text, in a traceback, too.
        assert linecache.getline(program.file, line).rstrip() == program.lines[line - 1]
    assert programs.load(script).file == str(programs.HERE / script)


def test_what_a_mended_program_learns_is_the_same() -> None:
    """In each script, to the last bit of the weights."""
    for script in programs.SCRIPTS:
        learned = []
        for mended in ((), programs.MENDS):
            seed_all(0)
            program = programs.load(script, mended)
            program.epoch()
            weights = program.epoch.__globals__["model"].parameters()
            learned.append(torch.nn.utils.parameters_to_vector(weights).detach())
        assert torch.equal(*learned)


def test_what_cannot_be_loaded_is_named() -> None:
    with pytest.raises(ValueError, match=r"script='other.py': use one of train.py, digits.py"):
        programs.load("other.py")
    with pytest.raises(ValueError, match="line 21 cannot be mended; use lines of 20, 43, 44"):
        programs.load("train.py", [20, 21])


def test_a_program_is_seen_by_whyslow_in_its_own_lines() -> None:
    program = programs.load("train.py", [20])
    with whyslow.watch(show=False) as watch:
        while watch.report.looks < 20:
            program.epoch()
    lines = [line for line in watch.report.every_line if line.file == program.file]
    assert lines and all(line.source == program.lines[line.number - 1].strip() for line in lines)
    assert "train.py, line 20 mended" in watch.report._repr_html_()
    # The reader bets first.
    html = listing.folded(watch.report)._repr_html_()
    assert "<details open" not in html
    assert html.index("<details") < html.index("train.py, line 20 mended")


# ------------------------------------------------------------------------------------ the sampler


def test_a_sampler_counts_the_innermost_line_of_a_file() -> None:
    def inner() -> None:
        threading.Event().wait(0.2)

    def outer() -> None:
        inner()

    found = sample(outer, __file__, every=0.005)
    [line] = found
    assert line == inspect.getsourcelines(inner)[1] + 1
    assert 0.05 < found[line] < 20
    assert sample(outer, "other.py") == {}


def test_a_sampler_ends_with_an_error() -> None:
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError):
        sample(lambda: 1 // 0, __file__)
    assert threading.active_count() == before


# ------------------------------------------------------------------------------------ the picture


def side(role: str, mended: tuple[int, ...], seconds: float, shares: dict[int, float]) -> Side:
    return Side(role, programs.load("train.py", mended), seconds, shares)


def both() -> list[Side]:
    before = side("baseline", (), 0.2, {20: 0.5, 40: 0.25, 38: 0.24, 42: 0.01})
    return [before, side("candidate", (20,), 0.1, {20: 0.1, 40: 0.5, 38: 0.4})]


def texts(picture: str) -> list[str]:
    found = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    return ["".join(each.itertext()) for each in found]


def bars(picture: str, look: str) -> list[float]:
    kind = " ".join(f"k-{name}" for name in look.split())
    found = ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}rect")
    return [float(each.get("width", "")) for each in found if each.get("class") == kind]


def test_lines_are_drawn_in_milliseconds_on_one_scale() -> None:
    picture = draw(both(), "looks")
    # The last one is the legend's.
    *before, _ = bars(picture, listing.LOOKS["baseline"])
    *after, _ = bars(picture, listing.LOOKS["candidate"])
    scale = (listing.END - 8) / 0.1
    assert before == pytest.approx([0.1 * scale, 0.048 * scale, 0.05 * scale], abs=0.1)
    assert after == pytest.approx([0.01 * scale, 0.04 * scale, 0.05 * scale], abs=0.1)
    words = texts(picture)
    assert "100 → 10 ms" in words and "50 → 50 ms" in words
    assert {"baseline as it is", "candidate line 20 mended", "looks"} <= set(words)


def test_a_mended_line_has_both_texts_and_little_is_left_out() -> None:
    words = texts(draw(both(), "looks"))
    code = [each for each in words if each[:2].isdigit() and "  " in each]
    assert code == [
        "20  image = self.images[i] / self.images.max()",
        "20  image = self.images[i] / 255",
        "38  scores = model(x)",
        "40  loss.backward()",
    ]
    # A mended line without time is drawn, too.
    read = [side("baseline", (), 0.2, {20: 1.0}), side("candidate", (43,), 0.2, {20: 1.0})]
    assert "43  losses.append(loss.detach())" in texts(draw(read, "looks"))


def test_a_script_is_shown_with_the_numbers_of_its_lines() -> None:
    shown = listing.source("digits.py")
    assert " 20          image = self.images[i] / self.images.max()" in repr(shown)
    html = shown._repr_html_()
    assert "<summary>All of digits.py</summary>" in html and "<details open" not in html
    assert html.count("<tr>") == len(programs.load("digits.py").lines)


def test_a_panel_s_picture_is_drawn_by_the_sampler_that_watched() -> None:
    built: list[str] = []

    def make_workload(script: str, watched: str, **switches: bool) -> Workload:
        program = programs.of({"script": script, **switches})
        return Workload(program.epoch, program.images)

    def yours(work: Callable[[], object], file: str) -> Any:
        built.append(file)
        work()
        return {40: 1.0}

    switches: dict[str, list[Any]] = {f"line_{line}": [False, True] for line in programs.MENDS}
    situation = {"script": ["train.py", "digits.py"]}
    lab = Lab(make_workload, watched=["no", "yours"], situation=situation, memory=False, **switches)
    picture = listing.of(lambda: yours)
    threads = torch.get_num_threads()
    drawn = picture(lab.run(line_20=True, seconds=0.2))
    assert built == [] and "line 20 mended" in drawn and "looks every 2 ms" in drawn
    drawn = picture(lab.run(watched="yours", script="digits.py", seconds=0.2))
    assert [Path(file).name for file in built] == ["digits.py"] * 2
    assert "your own sampler" in drawn and "40  loss.backward()" in texts(drawn)
    assert torch.get_num_threads() == threads
    assert picture("another result") == ""
    nothing = Comparison(Measurement("baseline"), Measurement("candidate"))
    assert picture(nothing) == ""
