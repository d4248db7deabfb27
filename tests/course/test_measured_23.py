"""The measured timeline of 23: what is recorded of a step, and how it is drawn."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ET
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType

from course.measured import recording, timeline
from course.measured.findings import (
    FOLDED,
    MOST,
    NO_TIME,
    NOTHING,
    folded,
    how_much_without,
    in_short,
)
from course.measured.recording import Block, Recording, record
from course.measured.timeline import Row, both_steps, draw, one_step
from labkit import Lab, Workload
from labkit.charts import svg
from labkit.results import Comparison, Measurement
from whyslow import Diagnosis, Finding

PAUSE = 0.02


def workload(pause: float = PAUSE, closed: list[bool] | None = None) -> Workload:
    """A step that first makes its batch without any operator."""
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 32)

    def step() -> None:
        time.sleep(pause)
        model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    def close() -> None:
        if closed is not None:
            closed.append(True)

    return Workload(step, 64, close=close)


def length(blocks: tuple[Block, ...], part: str) -> float:
    return sum(block.end - block.begin for block in blocks if block.part == part)


def test_a_step_is_recorded_in_its_parts() -> None:
    found = record(workload().step)
    assert [block.part for block in found.host] == ["data", "forward", "backward", "update"]
    assert found.host[0].begin == 0 and found.host[-1].end == found.milliseconds
    for before, after in zip(found.host, found.host[1:], strict=False):
        assert before.end == after.begin
    assert found.where == "operators"
    assert {block.part for block in found.work} == {"forward", "backward", "update"}
    # Operators of a CPU run one after the other, each in the part that has called it.
    ends = 0.0
    for block in found.work:
        (around,) = [each for each in found.host if each.part == block.part]
        assert ends <= block.begin <= block.end
        assert around.begin <= block.begin and block.end <= around.end
        ends = block.end


def test_the_step_of_median_length_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST", 5)
    pauses = iter([0, 0, 0.2, 0.02, 0.05, 0, 0.2])

    def step() -> None:
        time.sleep(next(pauses))
        torch.ones(3)

    assert 50 <= record(step).milliseconds < 200


def test_a_long_step_is_not_run_often() -> None:
    runs: list[int] = []
    record(lambda: (runs.append(1), time.sleep(0.3), torch.ones(3)))
    assert len(runs) == recording.WARM + recording.LEAST


def test_a_pause_before_the_forward_pass_is_data_in_which_no_operator_runs() -> None:
    found = record(workload().step)
    assert length(found.host, "data") >= 1000 * PAUSE
    assert length(found.work, "data") == 0
    assert found.idle > 0.5


class Clock:
    """Events as torch's profiler gives them, in microseconds."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def add(
        self, name: str, begin: float, end: float = 0, *, id: int = 0, on: Any = DeviceType.CPU
    ) -> None:
        span = SimpleNamespace(start=1000 * begin, end=1000 * max(begin, end))
        self.events.append(SimpleNamespace(name=name, time_range=span, device_type=on, id=id))

    def step(self, begin: float) -> None:
        for part, after in (("data", 0), ("forward", 2), ("backward", 4), ("update", 6)):
            self.add(recording.MARK + part, begin + after)
        self.add(recording.MARK + "waits", begin + 7)
        self.add(recording.MARK + "end", begin + 10)


def test_a_kernel_belongs_to_the_part_that_launched_it() -> None:
    clock = Clock()
    clock.step(100)
    clock.add("cudaLaunchKernel", 103, 103.1, id=7)
    clock.add("aten::mm", 102.9, 103.2, id=3)
    # It begins when the host is in its update, and ends after it.
    clock.add("gemm", 106.5, 109, id=7, on=DeviceType.CUDA)
    clock.add(recording.MARK + "forward", 106.5, 109, on=DeviceType.CUDA)
    (found,) = recording._steps(clock.events)
    assert found.where == "device" and found.milliseconds == pytest.approx(10)
    (kernel,) = found.work
    assert kernel.part == "forward"
    assert (kernel.begin, kernel.end) == (pytest.approx(6.5), pytest.approx(9))
    assert [block.part for block in found.host][-1] == "waits"


def test_operators_within_others_and_of_other_steps_are_left_out() -> None:
    clock = Clock()
    clock.step(0)
    clock.step(20)
    clock.add("aten::linear", 2.5, 3.5)
    clock.add("aten::addmm", 2.6, 3.4)
    clock.add("aten::relu", 15)
    first, second = recording._steps(clock.events)
    assert first.work == (Block("forward", 2.5, 3.5),)
    # The CPU has nothing to wait for.
    assert first.idle == pytest.approx(1 - 1 / 7)
    assert second.work == ()
    assert [block.part for block in first.host] == ["data", "forward", "backward", "update"]


# ------------------------------------------------------------------------------------ the picture


def recorded(*work: Block, milliseconds: float = 10) -> Recording:
    host = Block("data", 0, milliseconds / 2), Block("forward", milliseconds / 2, milliseconds)
    return Recording(host, work, "operators", milliseconds)


def bars(picture: str, look: str) -> list[tuple[float, float]]:
    """Beginning and width of each bar of that look."""
    found = []
    for each in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}rect"):
        if each.get("class") == " ".join(f"k-{name}" for name in look.split()):
            found.append((float(each.get("x", "")), float(each.get("width", ""))))
    return found


def test_both_steps_are_drawn_on_one_scale() -> None:
    long, short = recorded(), recorded(milliseconds=5)
    picture = draw([Row("baseline", long), Row("candidate", short)])
    (before, after) = bars(picture, timeline.LOOKS["data"])[:2]
    assert before[0] == after[0]
    ends = [sum(bar) for look in timeline.LOOKS.values() for bar in bars(picture, look)]
    assert max(ends) <= 640
    # The small gap behind each bar.
    assert before[1] + 0.4 == pytest.approx(2 * (after[1] + 0.4), abs=0.2)
    words = "baseline: 10.0 ms, device works 0 %; candidate: 5.00 ms, device works 0 %"
    assert words in picture


def test_neighbours_are_joined_and_gaps_are_kept() -> None:
    near = [Block("forward", 5 + 0.01 * i, 5.009 + 0.01 * i) for i in range(200)]
    far = Block("forward", 8, 9)
    picture = draw([Row("one step", recorded(*near, far))])
    # The host's, those that are joined, the far one, and the legend's.
    assert len(bars(picture, timeline.LOOKS["forward"])) == 4


def test_the_device_waits_where_nothing_works() -> None:
    picture = draw([Row("one step", recorded(Block("forward", 5, 7), Block("forward", 8, 9)))])
    data, *_ = bars(picture, timeline.LOOKS["data"])
    lengths = [width + 0.4 for _, width in bars(picture, timeline.LOOKS["gap"])]
    half = data[1] + 0.4
    # Before, between and behind the operators; then the legend's.
    assert lengths[:3] == pytest.approx([half, half / 5, half / 5], abs=0.2)
    assert len(lengths) == 4


def test_what_is_not_there_is_not_in_the_legend() -> None:
    picture = draw([Row("one step", recorded())])
    texts = {each.text for each in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")}
    assert {"data", "forward", "host", "device", "device waits", "0 ms"} <= texts
    assert not {"backward", "host waits"} & texts
    assert "(with profiler)" in picture


def test_a_long_legend_has_a_second_line() -> None:
    host = [Block(part, at, at + 1) for at, part in enumerate(list(timeline.LOOKS)[:5])]
    row = Row("one step", Recording(tuple(host), (), "device", 5))
    lines = list(timeline._legend([row]))
    assert [part for line in lines for part in line] == list(timeline.LOOKS)
    assert len(lines) == 2
    texts = ET.fromstring(draw([row])).iter("{http://www.w3.org/2000/svg}text")
    places = {each.text: (float(each.get("x", "")), float(each.get("y", ""))) for each in texts}
    assert places["device waits"][1] > places["data"][1]
    for name in ("device waits", "host waits", "update"):
        # Letters of a narrow page.
        assert places[name][0] + svg.LETTER * len(name) <= svg.WIDTH


@pytest.mark.parametrize("milliseconds", [0.031, 0.9, 4, 12.7, 999.9])
def test_the_scale_has_a_few_round_marks(milliseconds: float) -> None:
    marks = list(timeline._scale(milliseconds, 0))
    assert 2 * 3 <= len(marks) <= 2 * 6


def test_a_panel_gets_the_lanes_of_a_comparison_and_nothing_else() -> None:
    closed: list[bool] = []

    def make_workload(pause: float) -> Workload:
        return workload(pause, closed)

    lab = Lab(make_workload, pause=[PAUSE, 0.0], memory=False)
    result = lab.run(pause=0.0, seconds=0.2)
    closed.clear()
    state, threads = torch.random.get_rng_state(), torch.get_num_threads()
    picture = both_steps(make_workload)(result)
    assert closed == [True, True]
    assert torch.equal(state, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads
    before, after = bars(picture, timeline.LOOKS["data"])[:2]
    assert before[1] > 10 * after[1]
    assert both_steps(make_workload)("another result") == ""
    nothing = Comparison(Measurement("baseline"), Measurement("candidate"))
    assert both_steps(make_workload)(nothing) == ""


def test_a_step_alone_shows_itself_in_a_cell() -> None:
    shown = one_step(workload().step)
    assert "device works" in repr(shown)
    assert "max-width: 720px" in shown._repr_html_()
    assert "<svg" in shown._repr_html_()


# ----------------------------------------------------------------------------------- the findings


def finding(**changes: Any) -> Finding:
    given = {"name": "anomaly mode", "share": 0.5, "interval": (0.48, 0.52)}
    given |= {"how": "by experiment", "remedy": "Take it out:\nreally."}
    return Finding(**given | changes)


def test_a_finding_is_one_line_with_its_share_and_what_that_allows() -> None:
    notes = "a note", "other programs took 1.5 of 2 cores"
    shown = in_short(Diagnosis((finding(),), 0.01, 8.0, notes=notes))
    for words in ("anomaly mode", "50% [48%, 52%]", "2.00×", "Take it out"):
        assert words in shown
    assert "Other programs took 1.5 of 2 cores: run this cell again when they are done." in shown
    # A step time stands in the panel alone.
    for words in ("a note", "really", "by experiment", "10 ms", "10.0 ms"):
        assert words not in shown


def test_a_diagnosis_is_folded_until_the_reader_opens_it() -> None:
    shown = folded(Diagnosis((finding(),), 0.01, 8.0))
    text = shown._repr_html_()
    assert f"<summary>{FOLDED}</summary>" in text and "<details open" not in text
    assert text.index("<details") < text.index("2.00×") < text.index("</details>")
    assert "anomaly mode" in repr(shown)


def test_a_bet_does_not_tell_the_share_of_what_it_asks_for() -> None:
    found = Diagnosis((finding(name="anomaly mode left on", share=0.64),), 0.01, 8.0)
    question = how_much_without(found, "anomaly mode")
    asked = "How many times as fast without anomaly mode?"
    assert question == f"Its share stands in the diagnosis above. {asked}"
    nothing = Diagnosis((), 0.01, 8.0)
    assert how_much_without(nothing, "anomaly mode") == f"{NO_TIME} {asked}"


def test_the_largest_findings_are_shown() -> None:
    every = tuple(finding(name=f"cause {number}") for number in range(MOST + 2))
    shown = in_short(Diagnosis(every, 0.01, 8.0))
    assert f"cause {MOST - 1}" in shown and f"cause {MOST}" not in shown


def test_without_a_finding_the_panel_is_the_way_to_a_share() -> None:
    shown = folded(Diagnosis((), 0.01, 8.0))._repr_html_()
    assert NOTHING in shown and "<table" not in shown


def test_what_was_not_tried_is_said() -> None:
    unmeasured = {"anomaly mode": "no time", "workers": "one core", "lists": "no time"}
    shown = in_short(Diagnosis((), 0.01, 8.0, unmeasured=unmeasured))
    assert "Not tried: anomaly mode, lists (no time)." in shown
    assert "Not tried: workers (one core)." in shown


def test_what_fills_memory_makes_no_step_faster() -> None:
    shown = in_short(Diagnosis((finding(of="memory"),), 0.01, 8.0))
    assert "50% of the memory" in shown and "as fast" not in shown
