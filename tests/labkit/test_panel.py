"""The panel without a browser.

Its widgets are operated through their values, as the page does it.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from labkit.busy import Others
from labkit.comparing import measuring
from labkit.lab import Lab
from labkit.memory_timeline import MemoryComparison
from labkit.panel import LabPanel, guess, history, live, race_view, screen
from labkit.panel.run import PanelRun
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement, Workload
from labkit.sweep import Progress, Sweep
from labkit.switches import torch_flags
from labkit.text import format_factor
from labkit.turn import TURN


def make_workload(double: bool = False, size: int = 16, kind: str = "mean") -> Workload:
    inputs = torch.ones(size, size)

    def step() -> torch.Tensor:
        result = inputs @ inputs
        return (inputs @ result if double else result).mean()

    return Workload(step, size)


def endless(**_: Any) -> Workload:
    """Steps of such different lengths that no interval narrows."""
    return Workload(lambda: time.sleep(random.random() / 100))


def make_lab(make: Any = make_workload, **options: Any) -> Lab:
    return Lab(
        make,
        double=[False, True],
        size=[8, 16, 32],
        kind=["mean", "sum", "fast"],
        memory=False,
        **options,
    )


@pytest.fixture
def panel() -> Iterator[LabPanel]:
    panel = LabPanel(make_lab(), seconds=0.3)
    yield panel
    panel.close()
    if panel.latest:
        panel.latest.join(30)
    assert TURN.holder is None


def wait_until(reached: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def test_widgets_follow_the_controls(panel: LabPanel) -> None:
    kinds = {name: type(control.candidate).__name__ for name, control in panel.controls.items()}
    assert kinds == {"double": "Checkbox", "size": "SelectionSlider", "kind": "Dropdown"}
    assert panel.settings("baseline") == {"double": False, "size": 8, "kind": "mean"}
    assert panel.settings() == {"double": True, "size": 8, "kind": "mean"}
    panel.controls["size"].candidate.index = 2
    assert panel.settings()["size"] == 32
    panel.buttons.same.click()
    assert panel.settings() == panel.settings("baseline")
    assert panel.controls["double"].candidate.description == "off"


def test_what_is_unavailable_is_left_out_and_says_why() -> None:
    lab = make_lab(unavailable={"double": "needs a GPU", "kind": {"sum": "too <slow>"}})
    panel = LabPanel(lab)
    assert panel.controls["double"].candidate.disabled
    # The first control that can be set differs.
    assert panel.settings() == {"size": 16, "kind": "mean"}
    assert panel.controls["kind"].values == ("mean", "fast")
    assert panel.buttons.swept.options == ("size", "kind")
    assert panel.controls["double"].label.value == "double\nneeds a GPU"
    assert panel.controls["kind"].label.value == "kind\nsum: too <slow>"
    panel.close()


def test_run_gives_what_lab_run_gives(panel: LabPanel) -> None:
    result = panel.run(wait=True)
    assert isinstance(result, Comparison)
    assert panel.result is result
    assert panel.history == [result]
    assert result.candidate.settings == {"double": True, "size": 8, "kind": "mean"}
    state = panel.screen.live.state
    assert state["running"] is False
    assert state["pairs"] == len(result.ratios)
    assert np.allclose(
        np.frombuffer(state["points"], np.float32), result.ratios[:: -(-len(result.ratios) // 200)]
    )
    assert state["verdict"] == result.verdict
    assert [row[0] for row in state["sides"]] == ["Baseline", "Candidate"]
    assert panel.screen.live.status[0].startswith(f"Done: {result.conclusion}")
    row = panel.screen.live.history[0]
    assert row[:4] == ["1", "double: False → True", "size 8, kind mean", "Time"]
    assert row[4].endswith("×") and row[5] == result.conclusion
    for size, text in ((2**20, "1.00 MiB → 1.00 MiB"), (None, "–")):
        sides = (replace(side, peak_bytes=size) for side in result.arms)
        assert history.row(1, Comparison(*sides, device="cpu", lab="x"))[-1] == text


def test_updates_are_small() -> None:
    arm = Measurement("arm", times=(1.0,) * 5000)
    run = Comparison(arm, arm)
    state = live.state(run, [(float(pairs), 0.9, 1.1) for pairs in range(1000)], run)
    texts = sum(len(str(value)) for name, value in state.items() if name not in ("points", "bands"))
    assert len(state["points"]) + len(state["bands"]) + texts < 2048
    # The newest interval is always there.
    assert np.frombuffer(state["bands"], np.float32)[-3] == 999


def test_a_build_just_begun_leaves_the_interval_as_it_was() -> None:
    """One pair of a new build would count like all pairs of each build before."""

    def partial(*pairs: int) -> Comparison:
        """Builds of so many pairs, the last one off by half."""
        builds = [number for number, count in enumerate(pairs) for _ in range(count)]
        times = [1.5 if build == len(pairs) - 1 and build else 1.0 for build in builds]
        before = Measurement("baseline", times=tuple(times), builds=tuple(builds))
        after = Measurement("candidate", times=(1.0,) * len(times), builds=tuple(builds))
        return Comparison(before, after)

    widget = live.Live()
    chart = live.Chart(widget, 1, 10.0, {"mode": "Time"})

    def drawn(*pairs: int, done: bool = False) -> dict[str, Any]:
        chart._drawn = -math.inf
        chart.draw(Progress(0, 1, partial(*pairs)), done=done)
        return widget.state

    assert drawn(4)["detail"] == "too few pairs so far"
    assert not drawn(5)["bands"]
    known = drawn(20)
    assert known["detail"].startswith("95 % interval")
    for pairs in ((20, 1), (20, 9)):
        begun = drawn(*pairs)
        assert begun["pairs"] == sum(pairs)
        for name in ("detail", "speedup", "verdict", "floor", "bands"):
            assert begun[name] == known[name], name
    longer = drawn(20, 10)
    assert longer["detail"] != known["detail"] and len(longer["bands"]) == 2 * len(known["bands"])
    # Builds that follow a long first one may all be short.
    assert drawn(20, 10, 4, 2)["detail"] != longer["detail"]
    # What a run ends with is shown as it is.
    before = drawn(20, 10, 1)
    assert drawn(20, 10, 1, done=True)["detail"] != before["detail"]
    widget.close()


def test_sweep(panel: LabPanel) -> None:
    panel.buttons.swept.value = "size"
    panel.buttons.follow.value = True
    results = panel.sweep(wait=True)
    assert isinstance(results, Sweep)
    assert [result.candidate.settings["size"] for result in results] == [8, 16, 32]
    assert [result.baseline.settings["size"] for result in results] == [8, 16, 32]
    assert panel.history == list(results)
    assert panel.screen.live.status[0].startswith("Done: 3 comparisons")
    state = panel.screen.live.state
    assert (state["caption"], state["figure"]) == ("as fast as the baseline, at size 32", True)
    assert not panel.screen.live.stale
    panel.run(wait=True)
    assert "figure" not in panel.screen.live.state


def test_a_result_of_other_settings_is_pale(panel: LabPanel) -> None:
    live, size = panel.screen.live, panel.controls["size"].candidate
    panel.buttons.follow_changes.value = False
    size.value = 16
    assert not live.stale, "nothing was measured yet"
    panel.run(wait=True)
    size.value = 32
    assert live.stale and live.status[0] == "The settings have changed: Run measures them."
    size.value = 16
    assert not live.stale
    size.value = 32
    assert live.stale
    panel.run(wait=True)
    assert not live.stale


def test_code_is_the_headless_call(panel: LabPanel) -> None:
    assert panel.screen.live.code == ""
    panel.buttons.code.value = True
    assert (
        panel.screen.live.code
        == "lab.run(double=True, seconds=0.3)\nlab.sweep('double', seconds=0.3)"
    )
    panel.controls["size"].baseline.value = 32
    code = panel.screen.live.code.splitlines()[0]
    assert code == "lab.run(double=True, baseline={'size': 32}, seconds=0.3)"
    assert code in repr(panel)
    result = eval(code, {"lab": panel.lab})
    assert result.baseline.settings["size"] == 32


def test_errors_are_shown_and_raised_by_wait(panel: LabPanel) -> None:
    def broken(**_: Any) -> Workload:
        raise FileNotFoundError("no images here\nand a second line")

    panel.lab.make_workload = broken
    panel.buttons.run.click()
    with pytest.raises(FileNotFoundError, match="no images"):
        panel.wait()
    assert panel.screen.live.status == (
        "FileNotFoundError: no images here (panel.wait() shows where)",
        "bad",
    )
    assert panel.screen.live.state["running"] is False
    assert panel.history == []
    panel.lab.make_workload = make_workload
    assert isinstance(panel.run(wait=True), Comparison)


def test_an_exit_in_the_workload_is_an_error_too(panel: LabPanel) -> None:
    def leaving(**_: Any) -> Workload:
        raise SystemExit("bye")

    panel.lab.make_workload = leaving
    panel.run()
    with pytest.raises(SystemExit, match="bye"):
        panel.wait()
    assert panel.screen.live.status[0].startswith("SystemExit: bye")


class Untold(Exception):
    """An error that cannot be put in words."""

    def __str__(self) -> str:
        raise LookupError("no words")


def test_the_turn_is_given_back_whatever_the_last_word_raises(
    panel: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def untold(**_: Any) -> Workload:
        raise Untold

    def broken(*_: Any) -> None:
        raise OSError("the page is gone")

    panel.lab.make_workload = untold
    panel.run()
    with pytest.raises(LookupError, match="no words"):
        panel.wait(30)
    assert TURN.holder is None
    panel.lab.make_workload = make_workload
    for method in ("finish", "ended"):
        with monkeypatch.context() as patch:
            patch.setattr(panel.screen, method, broken)
            panel.run()
            with pytest.raises(OSError, match="the page is gone"):
                panel.wait(30)
        assert TURN.holder is None
    assert isinstance(panel.run(wait=True), Comparison)


def test_an_arm_without_memory_is_a_result(panel: LabPanel) -> None:
    def hungry(double: bool, **others: Any) -> Workload:
        if double:
            raise MemoryError
        return make_workload(**others)

    panel.lab.make_workload = hungry
    result = panel.run(wait=True)
    assert isinstance(result, Comparison)
    assert "out of memory" in panel.screen.live.status[0]
    assert "out of memory" in panel.screen.live.state["sides"][1][0]
    assert panel.screen.live.state["sides"][0][0] == "Baseline"


def test_one_panel_at_a_time(panel: LabPanel) -> None:
    other = LabPanel(panel.lab, seconds=0.3)
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    panel.run()
    with pytest.raises(RuntimeError, match="Another panel is measuring"):
        other.run()
    other.buttons.run.click()
    assert other.screen.live.status[1] == "bad"
    assert "Another panel is measuring" in other.screen.live.status[0]
    panel.buttons.run.click()
    assert "measuring already" in panel.screen.live.status[0]
    with pytest.raises(TimeoutError, match="still measuring"):
        panel.wait(timeout=0.01)
    other.buttons.stop.click()
    panel.wait(30)
    panel.lab.make_workload = make_workload
    assert isinstance(other.run(wait=True), Comparison)
    said = other.screen.live.status
    other.stop()
    assert said[0].startswith("Done:") and other.screen.live.status == said
    other.close()


def test_stop_says_that_nothing_has_run(panel: LabPanel) -> None:
    panel.buttons.stop.click()
    assert panel.screen.live.status[0] == "Nothing is running."


def test_moves_during_a_run_apply_to_the_next(panel: LabPanel) -> None:
    panel.lab.make_workload = endless
    panel.buttons.follow_changes.value = False
    panel.buttons.budget.value = 60
    panel.run()
    panel.controls["size"].candidate.value = 32
    wait_until(lambda: "points" in panel.screen.live.state)
    panel.stop()
    first = panel.wait(30)
    assert isinstance(first, Comparison)
    assert first.stopped
    assert first.candidate.settings["size"] == 8
    assert panel.settings()["size"] == 32


def test_stop_a_hundred_times(panel: LabPanel) -> None:
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    panel.run()
    panel.stop()
    # The first use of a thing may keep state for good.
    panel.wait(30)
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    moments = random.Random(0)
    before = (
        torch.get_rng_state(),
        random.getstate(),
        np.random.get_state()[1].copy(),
        torch_flags(),
    )
    threads = threading.active_count()
    for _ in range(100):
        panel.run()
        time.sleep(moments.random() * 0.02)
        panel.stop()
        panel.wait(30)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1], torch_flags()
    assert torch.equal(before[0], after[0])
    assert before[1] == after[1]
    assert np.array_equal(before[2], after[2])
    assert before[3] == after[3]
    assert threading.active_count() == threads
    assert TURN.holder is None
    panel.lab.make_workload = make_workload
    panel.buttons.budget.value = 0.3
    assert isinstance(panel.run(wait=True), Comparison)


def test_an_interrupt_as_the_thread_begins_leaves_the_turn_to_it(
    panel: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if isinstance(thread, PanelRun):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            panel.run()
    begun = TURN.holder
    assert isinstance(begun, PanelRun)
    # Stop reaches a run of whichever panel.
    panel.stop()
    begun.join(30)
    assert TURN.holder is None
    panel.lab.make_workload = make_workload
    panel.buttons.budget.value = 0.3
    assert isinstance(panel.run(wait=True), Comparison)


def test_closing_ends_the_run() -> None:
    panel = LabPanel(make_lab(endless), seconds=60)
    panel.run()
    panel.close()
    panel.wait(30)
    assert panel.buttons.run.comm is None


def test_the_thread_does_not_keep_the_kernel_alive(panel: LabPanel) -> None:
    panel.run()
    assert panel.latest is not None
    assert panel.latest.daemon
    panel.wait(30)


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.mark.usefixtures("shell")
def test_shown_panel_publishes_one_figure_and_one_result(panel: LabPanel) -> None:
    with capture_output() as captured:
        panel._ipython_display_()
        # Showing starts nothing.
        assert panel.latest is None
        panel.run(wait=True)
    bundles = [output.data for output in captured.outputs]
    assert "application/vnd.jupyter.widget-view+json" in bundles[0]
    assert "lab.run(double=True" in bundles[0]["text/plain"]
    assert bundles[1:3] == [{"text/plain": ""}] * 2
    figure, result = captured.outputs[3:]
    assert figure.update
    assert figure.data["image/png"].startswith(b"\x89PNG")
    assert result.update
    assert isinstance(panel.result, Comparison)
    assert result.data == {
        "text/html": panel.result._repr_html_(),
        "text/plain": str(panel.result),
    }


@pytest.mark.usefixtures("shell")
def test_after_a_reload_results_go_into_the_panel(panel: LabPanel) -> None:
    with capture_output():
        panel._ipython_display_()
        panel._page_shown(panel.screen.live, {"page": "1"}, [])
        panel.run(wait=True)
        assert panel.screen.live.results == {}
        panel._page_shown(panel.screen.live, {"page": "2"}, [])
        panel.run(wait=True)
    assert panel.screen.live.results["png"].startswith(b"\x89PNG")
    assert isinstance(panel.result, Comparison)
    assert panel.screen.live.results["html"] == panel.result._repr_html_()


def test_numbers_of_every_size() -> None:
    ratios = (1.2345, 1.0045, 0.01234, 0.5, 12.3456, 12345.6, float("nan"))
    shown = [format_factor(ratio) for ratio in ratios]
    assert shown == ["1.23", "1.004", "0.012", "0.50", "12.35", "12,346", "-"]


def test_not_a_lab() -> None:
    with pytest.raises(TypeError, match="it takes a Lab"):
        LabPanel(make_workload)  # type: ignore[arg-type]


def test_a_slider_runs_upwards_wherever_its_first_value_is() -> None:
    lab = Lab(lambda size: Workload(lambda: torch.ones(size).sum(), size), size=[25, 1, 100])
    panel = LabPanel(lab, seconds=0.1)
    slider = panel.controls["size"].baseline
    assert [value for _, value in slider.options] == [1, 25, 100]
    assert slider.value == 25
    panel.close()


def test_a_sweep_s_position_is_what_the_lab_says(panel: LabPanel) -> None:
    """Also where two values are equal, so that they cannot be told apart by what they are."""
    seen = []
    panel.lab.controls["kind"] = ("mean", "mean", "sum")
    draw = live.Chart.draw

    def watch(self: live.Chart, position: Progress, *, done: bool = False) -> None:
        seen.append((position.index, position.count))
        draw(self, position, done=done)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live.Chart, "draw", watch)
        panel.buttons.swept.value = "kind"
        panel.sweep(wait=True)
    assert set(seen) == {(0, 3), (1, 3), (2, 3)}
    assert seen == sorted(seen)


def test_a_measurement_in_a_cell_and_a_panel_share_one_turn(panel: LabPanel) -> None:
    with measuring(None), pytest.raises(RuntimeError, match="another measurement is running"):
        in_another_thread(panel.run)
    assert panel.latest is None
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    panel.run()
    with pytest.raises(RuntimeError, match="another measurement is running"), measuring(None):
        pytest.fail("two measurements at once")
    panel.stop()
    panel.wait(30)
    assert TURN.holder is None


def in_another_thread(work: Callable[[], Any]) -> None:
    """Run ``work`` in a thread, and raise what it raised."""
    raised: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join(30)
    if raised:
        raise raised[0]


def test_nothing_is_said_after_the_last_word(panel: LabPanel) -> None:
    panel.run(wait=True)
    assert panel.latest is not None
    said = panel.screen.live.status
    panel.latest.halt()
    assert panel.screen.live.status == said


def test_the_status_says_what_the_figure_rests_on() -> None:
    generator = random.Random(0)
    sides = []
    for name in "ab":
        times = tuple(0.01 * math.exp(generator.gauss(0, 0.3)) for _ in range(60))
        sides.append(Measurement(name, times=times, builds=(0,) * 20 + (1,) * 20 + (2,) * 20))
    result = Comparison(*sides)
    assert result.verdict == "unclear"
    assert live.summary([result]).startswith("unclear, ")
    assert live.summary([result]).endswith("; 60 pairs of 3 builds")


def test_a_direction_is_told_beside_an_unclear_verdict() -> None:
    sides = [Measurement(name, times=(seconds,) * 3) for name, seconds in (("a", 1.0), ("b", 7.0))]
    result = Comparison(*sides)
    state = live.state(result, [], None)
    assert (state["verdict"], state["badge"]) == ("unclear", "slower, size unclear")
    assert live.summary([result]) == "slower, size unclear, 0.14×; 3 pairs of one build"
    assert history.row(1, result)[5] == "slower, size unclear"


def test_pairs_that_are_too_few_for_an_interval_are_drawn_without_one() -> None:
    """An interval of nan would leave the chart without a scale."""
    result = Comparison(*(Measurement(name, times=(1.0,) * 3) for name in "ab"))
    widget = live.Live()
    live.Chart(widget, 1, 10.0, {"mode": "Time"}).draw(Progress(0, 1, result), done=True)
    assert widget.state["pairs"] == 3 and not widget.state["bands"]
    widget.close()


def test_a_situation_has_one_widget_and_a_link_that_splits_it() -> None:
    lab = Lab(make_workload, double=[False, True], situation={"size": [8, 16], "kind": ["a", "b"]})
    panel = LabPanel(lab, seconds=0.2)
    size = panel.controls["size"]
    assert size.link is not None
    assert panel.controls["double"].link is None
    assert size.linked
    # The technique differs at first, the situation does not.
    assert panel.settings("baseline") == {"double": False, "size": 8, "kind": "a"}
    assert panel.settings() == {"double": True, "size": 8, "kind": "a"}
    size.candidate.value = 16
    assert panel.settings("baseline")["size"] == panel.settings()["size"] == 16
    assert "labkit-linked" in size.baseline._dom_classes
    panel.buttons.code.value = True
    assert panel.screen.live.code.startswith("lab.run(double=True, size=16, seconds=")
    size.link.value = False
    assert "labkit-linked" not in size.baseline._dom_classes
    size.candidate.value = 8
    assert (panel.settings("baseline")["size"], panel.settings()["size"]) == (16, 8)
    size.link.value = True
    assert panel.settings("baseline")["size"] == 8
    panel.close()


def test_a_linked_control_is_swept_on_both_sides() -> None:
    lab = Lab(make_workload, double=[False, True], situation={"size": [8, 16]}, memory=False)
    panel = LabPanel(lab, seconds=0.1)
    panel.buttons.swept.value = "size"
    results = panel.sweep(wait=True)
    assert isinstance(results, Sweep)
    assert [[side.settings["size"] for side in each.arms] for each in results] == [[8, 8], [16, 16]]
    panel.controls["size"].link.value = False
    results = panel.sweep(wait=True)
    assert isinstance(results, Sweep)
    assert [[side.settings["size"] for side in each.arms] for each in results] == [[8, 8], [8, 16]]
    panel.close()


# ----------------------------------------------------- situation, guess, run on change, and modes


def make_learner(rate: float = 0.1, rows: int = 4, ahead: int = 0) -> Workload:
    weight = torch.ones(rows, 4, requires_grad=True)

    def step() -> torch.Tensor:
        weight.grad = None
        loss = weight.square().sum()
        loss.backward()
        with torch.no_grad():
            weight.sub_(rate * weight.grad)
        return loss.detach()

    return Workload(step, rows, evaluate=lambda: float(weight.detach().square().sum()))


RACE = {"target": 1e-2, "steps": 300, "every": 5, "seeds": 2, "higher_is_better": False}


@pytest.fixture
def learner() -> Iterator[LabPanel]:
    lab = Lab(
        make_learner,
        rate=[0.01, 0.1, 0.2],
        ahead=[0, 2],
        situation={"rows": [4, 8, 16]},
        scenarios={"many rows": {"rows": 16}, "fast": {"rate": 0.2, "rows": 8}},
        race={**RACE, "metric": "loss"},
    )
    panel = LabPanel(lab, seconds=0.2)
    yield panel
    panel.close()
    if panel.latest:
        panel.latest.join(30)
    assert TURN.holder is None


def test_a_scenario_sets_everything_by_one_click(learner: LabPanel) -> None:
    assert learner.scenario is None
    learner.controls["ahead"].candidate.value = 2
    learner.controls["rows"].link.value = False
    learner.controls["rows"].candidate.value = 8
    learner.scenarios["many rows"].click()
    # The technique stays, since this one does not name it.
    assert learner.settings("baseline") == {"rate": 0.01, "ahead": 0, "rows": 16}
    assert learner.settings() == {"rate": 0.1, "ahead": 2, "rows": 16}
    assert learner.scenario == "many rows"
    assert "labkit-active" in learner.scenarios["many rows"]._dom_classes
    # Nothing runs before the first Run.
    assert not learner._changes.waits
    assert learner.latest is None
    learner.scenarios["fast"].click()
    assert learner.settings("baseline") == {"rate": 0.01, "ahead": 0, "rows": 8}
    assert learner.settings() == {"rate": 0.2, "ahead": 0, "rows": 8}
    assert "labkit-active" not in learner.scenarios["many rows"]._dom_classes
    learner.buttons.code.value = True
    assert learner.screen.live.code.startswith("lab.run(rate=0.2, rows=8, seconds=0.2)\n")
    learner.controls["rows"].candidate.value = 4
    learner.run(wait=True)
    number = learner.latest.number
    learner.scenarios["fast"].click()
    result = learner.wait(30)
    assert learner.latest.number > number
    assert isinstance(result, Comparison)
    assert result.candidate.settings == {"rate": 0.2, "ahead": 0, "rows": 8}


def test_the_scenario_that_is_shown_is_told_by_all_that_it_names() -> None:
    lab = Lab(
        make_learner,
        rate=[0.01, 0.1, 0.2],
        situation={"rows": [4, 8]},
        scenarios={
            "eight": {"rows": 8},
            "eight, fast": {"rows": 8, "rate": 0.2},
            "four": {},
            "slow": {"rate": 0.01},
        },
    )
    panel = LabPanel(lab)
    assert panel.scenario == "four"
    panel.scenarios["eight"].click()
    assert panel.scenario == "eight"
    panel.scenarios["eight, fast"].click()
    assert panel.scenario == "eight, fast"
    panel.controls["rate"].candidate.value = 0.1
    assert panel.scenario == "eight"
    panel.controls["rows"].link.value = False
    panel.controls["rows"].baseline.value = 4
    assert panel.scenario is None
    panel.scenarios["slow"].click()
    assert panel.scenario == "slow"
    panel.close()


def test_a_scenario_that_this_machine_cannot_show_is_grey_and_says_why() -> None:
    lab = Lab(
        make_learner,
        rate=[0.1, 0.2],
        situation={"rows": [4, 8]},
        scenarios={"eight": {"rows": 8}, "four": {"rows": 4}},
        unavailable={"rows": {8: "needs a GPU"}},
    )
    panel = LabPanel(lab)
    assert panel.scenarios["eight"].disabled
    assert panel.scenarios["eight"].description == "eight (needs a GPU)"
    assert not panel.scenarios["four"].disabled
    panel.close()


def test_the_guess_is_locked_by_the_first_run_drawn_and_held_against_it(learner: LabPanel) -> None:
    learner.guess.slider.value = 4.0
    assert learner.guess.text.value == "4.0× as fast"
    assert learner.guess.again.layout.visibility == "hidden"
    learner.run(wait=True)
    assert learner.guess.slider.disabled
    state = learner.screen.live.state
    assert state["guess"] == 4.0
    assert state["told"].startswith("You guessed 4.0×, measured ")
    assert state["sentence"].startswith("The candidate is ")
    learner.guess.again.click()
    assert not learner.guess.slider.disabled
    learner.guess.slider.value = 1.0
    assert learner.guess.text.value == "1.0× as fast (no difference)"
    learner.run(wait=True)
    assert learner.screen.live.state["guess"] == 1.0
    # Each mode has a guess of its own.
    learner.modes.value = "Memory"
    assert not learner.guess.slider.disabled
    assert learner.guess.question.value == "Your guess: the candidate will need"
    learner.guess.slider.value = 0.5
    assert learner.guess.text.value == "0.50× the memory"
    learner.modes.value = "Time"
    assert learner.guess.value == 1.0
    assert learner.guess.slider.disabled


@pytest.mark.parametrize("mode", ["Time", "Memory"])
def test_a_guess_is_drawn_for_the_settings_that_it_was_made_for(
    learner: LabPanel, mode: str
) -> None:
    learner.buttons.follow_changes.value = False
    learner.modes.value = mode
    learner.guess.slider.value = 4.0
    drawn = []
    for rate in (0.1, 0.2, 0.2, 0.1):
        learner.controls["rate"].candidate.value = rate
        learner.run(wait=True)
        drawn.append(learner.screen.live.state["guess"])
        told = learner.screen.live.state.get("told", "")
        assert told.startswith("You guessed") == (drawn[-1] != 0)
    assert drawn == [4.0, 0, 0, 4.0]


def test_a_run_that_does_not_begin_leaves_the_guess_open(
    learner: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner.guess.slider.value = 4.0
    with measuring(None), pytest.raises(RuntimeError, match="another measurement is running"):
        learner.run()
    assert not learner.guess.locked and not learner.guess.slider.disabled
    learner.controls["rate"].candidate.value = 0.2
    learner.run(wait=True)
    assert learner.screen.live.state["guess"] == 4.0


def test_a_slider_that_was_never_moved_is_no_guess(learner: LabPanel) -> None:
    assert learner.guess.text.value == "move the slider"
    learner.run(wait=True)
    state = learner.screen.live.state
    assert state["guess"] == 0 and not state.get("told", "").startswith("You guessed")
    assert learner.guess.text.value == "no guess" and learner.guess.locked
    learner.guess.again.click()
    learner.guess.slider.value = 2.0
    learner.guess.slider.value = 1.0
    learner.run(wait=True)
    assert learner.screen.live.state["told"].startswith("You guessed 1.0×")
    # The slider of another mode shows that mode's own value, and nobody has moved it.
    learner.modes.value = "Memory"
    assert not learner.guess.made
    learner.modes.value = "Time"
    assert learner.guess.made


@pytest.mark.parametrize(
    ("factor", "measured", "interval", "words"),
    [
        (2.0, 1.0, (0.99, 1.01), "You guessed 2.0×, measured 1.000×: 2.0 times too high."),
        (1.0, 3.0, (2.9, 3.1), "You guessed 1.0×, measured 3.00×: 3.0 times too low."),
        (0.5, 0.25, (0.2, 0.3), "You guessed 0.50×, measured 0.25×: 2.0 times too high."),
        (
            1.5,
            1.3,
            (1.1, 1.6),
            "You guessed 1.5×, measured 1.30×: right, it lies within the interval.",
        ),
        (
            1.0,
            0.42,
            (0.1, 1.2),
            "You guessed 1.0×, measured 0.42×: still possible, the interval is wide.",
        ),
        (1.04, 1.0, (1.0, 1.0), "You guessed 1.0×, measured 1.000×: right, within 5%."),
        (1.0, math.nan, (math.nan, math.nan), ""),
        (1.0, 0.0, (0.0, 0.0), ""),
    ],
)
def test_the_distance_of_a_guess_in_words(
    factor: float, measured: float, interval: tuple[float, float], words: str
) -> None:
    assert guess.distance(factor, measured, interval) == words


def test_a_guess_reaches_far_and_moves_by_few_per_cent() -> None:
    slider = LabPanel(Lab(make_workload, double=[False, True])).guess.slider
    assert slider.base**slider.max == 128
    assert slider.base**slider.min == 1 / 8
    assert 1.05 < slider.base**slider.step < 1.1
    assert guess.in_words("Time", 64.0) == "64× as fast"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        # The weights reach 1e-2 only with the higher rate.
        (
            1e-2,
            "since the candidate reached the target in 2 of 2 seeds, the baseline in 0 of 2.",
        ),
        (-1.0, "since neither side reached the target."),
    ],
)
def test_a_race_that_nobody_ends_says_why_a_guess_is_not_judged(target: float, words: str) -> None:
    race = RACE | {"target": target, "steps": 30}
    panel = LabPanel(Lab(make_learner, rate=[0.001, 0.2], race=race, memory=False))
    panel.modes.value = "Race"
    panel.guess.slider.value = 2.0
    panel.run(wait=True)
    told = panel.screen.live.state["told"]
    assert told == f"You guessed 2.0×: no factor is right, {words}"
    # Without a guess nothing is said of one.
    assert panel.guess.made
    panel.close()


def test_why_a_race_has_no_factor() -> None:
    def result(before: list[bool], after: list[bool]) -> RaceResult:
        runs = []
        for arm, reached in (("baseline", before), ("other", after)):
            for seed, there in enumerate(reached):
                runs.append(RaceRun(arm, seed, ((10, 1.0, 0.5),), there))
        return RaceResult(tuple(runs), 0.9, "accuracy", True)

    why = race_view.why_no_factor
    assert why(result([True, True], [True, True])) == ""
    assert why(result([False, False], [False, True])) == (
        "the candidate reached the target in 1 of 2 seeds, the baseline in 0 of 2"
    )
    assert why(result([True, True], [False, False])) == (
        "the candidate reached the target in 0 of 2 seeds, the baseline in 2 of 2"
    )
    assert why(result([False], [False])) == "neither side reached the target"
    alone = result([True], [])
    assert why(alone) == ""
    assert race_view.race_sentence(alone) == "Only the baseline has run."


def test_a_change_after_the_first_run_starts_the_next(learner: LabPanel) -> None:
    learner.controls["rows"].candidate.value = 8
    assert not learner._changes.waits
    learner.run(wait=True)
    learner.controls["rows"].candidate.value = 16
    learner.controls["rate"].candidate.value = 0.2
    assert learner._changes.waits
    result = learner.wait(30)
    assert isinstance(result, Comparison)
    assert result.candidate.settings == {"rate": 0.2, "ahead": 0, "rows": 16}
    # Both changes in one run.
    assert len(learner.history) == 2
    learner.buttons.follow_changes.value = False
    learner.controls["rows"].candidate.value = 4
    assert not learner._changes.waits
    # Another mode waits for its own first Run.
    learner.buttons.follow_changes.value = True
    learner.modes.value = "Memory"
    learner.controls["rows"].candidate.value = 8
    assert not learner._changes.waits


def test_a_change_during_a_run_replaces_it(panel: LabPanel) -> None:
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    panel.run()
    first = panel.latest
    wait_until(lambda: "points" in panel.screen.live.state)
    panel.lab.make_workload = make_workload
    panel.buttons.budget.value = 0.3
    panel.controls["size"].candidate.value = 32
    result = panel.wait(30)
    assert first is not panel.latest
    assert first.replaced
    assert isinstance(result, Comparison)
    assert result.candidate.settings["size"] == 32
    # What was replaced leaves nothing.
    assert panel.history == [result]


def test_a_change_while_another_panel_measures_is_refused_on_the_page(panel: LabPanel) -> None:
    other = LabPanel(panel.lab, seconds=0.2)
    other.run(wait=True)
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    panel.run()
    other.controls["size"].candidate.value = 32
    other.wait(30)
    assert "Another panel is measuring" in other.screen.live.status[0]
    panel.stop()
    panel.wait(30)
    other.close()


def test_stop_cancels_a_run_that_a_change_was_about_to_start(learner: LabPanel) -> None:
    learner.run(wait=True)
    learner.controls["rows"].candidate.value = 16
    learner.stop()
    assert not learner._changes.waits
    learner.wait(30)
    assert len(learner.history) == 1


def test_memory_shows_what_is_alive_when(learner: LabPanel) -> None:
    assert learner.modes.options == ("Time", "Memory", "Race")
    learner.modes.value = "Memory"
    learner.controls["rows"].link.value = False
    learner.controls["rows"].candidate.value = 16
    result = learner.run(wait=True)
    assert isinstance(result, MemoryComparison)
    state = learner.screen.live.state
    assert state["mode"] == "Memory"
    alive = [np.frombuffer(side["alive"], np.float32) for side in state["timelines"]]
    assert [float(each.max()) for each in alive] == [side.peak for side in result.arms]
    assert [name for _, name in state["timelines"][0]["parts"]][:1] == ["forward"]
    assert state["badge"] == "more memory"
    (title, (before, after)) = state["bars"][0]
    assert title == "Peak memory"
    assert before[1] == round(result.baseline.peak / result.candidate.peak, 3)
    assert after[1] == 1
    assert learner.screen.live.status[0] == f"Done: more memory, {state['speedup']}"
    assert learner.screen.live.history[0][3] == "Memory"
    learner.buttons.code.value = True
    call = learner.screen.live.code.splitlines()[0]
    assert call == "lab.timeline(rate=0.1, rows=16, baseline={'rows': 4})"
    assert eval(call, {"lab": learner.lab}).ratio == result.ratio
    # Time has found nothing yet, and Memory still has what it found.
    learner.modes.value = "Time"
    assert "bars" not in learner.screen.live.state
    learner.modes.value = "Memory"
    assert learner.screen.live.state["timelines"] == state["timelines"]


@pytest.mark.parametrize(
    ("before", "after", "shown", "told"),
    [
        (64, 0, ("0 B", "instead of 1.00 KiB", "less memory"), "the candidate has no tensors"),
        (0, 64, ("1.00 KiB", "instead of 0 B", "more memory"), "the baseline has no tensors"),
        (0, 0, ("0 B", "instead of 0 B", "no tensors"), "neither side has tensors"),
    ],
)
def test_memory_of_a_step_without_tensors(
    before: int, after: int, shown: tuple[str, ...], told: str
) -> None:
    def make_rows(rows: int = 4) -> Workload:
        return Workload(lambda: torch.ones(rows, 4).sum() if rows else None)

    panel = LabPanel(Lab(make_rows, rows=[4, 64, 0]))
    panel.modes.value = "Memory"
    panel.controls["rows"].put(baseline=before, candidate=after)
    panel.guess.slider.value = 2.0
    panel.run(wait=True)
    state = panel.screen.live.state
    assert (state["speedup"], state["caption"], state["badge"]) == shown
    assert state["told"] == f"You guessed 2.0×: no factor is right, since {told}."
    assert panel.screen.live.status[0] == f"Done: {shown[2]}, {shown[0]}"
    row = panel.screen.live.history[0]
    assert row[4] == "–" and "B → " in row[-1]
    panel.close()


def test_race_shows_both_sides_live(learner: LabPanel) -> None:
    states = []
    learner.screen.live.observe(lambda change: states.append(change["new"]), "state")
    learner.modes.value = "Race"
    learner.guess.slider.value = 8.0
    result = learner.run(wait=True)
    assert isinstance(result, RaceResult)
    assert result.lab == "make_learner"
    assert len(result.runs) == 4
    live_ones = [state for state in states if state.get("running") and state.get("curves")]
    assert live_ones
    assert all(len(state["points"]) <= 2048 for state in live_ones)
    assert [state["progress"] for state in live_ones] == sorted(
        state["progress"] for state in live_ones
    )
    state = learner.screen.live.state
    assert [curve[0] for curve in state["curves"]] == [0, 0, 1, 1]
    assert sum(curve[1] for curve in state["curves"]) * 8 == len(state["points"])
    points = np.frombuffer(state["points"], np.float32).reshape(-1, 2)
    run = result.runs[0]
    assert tuple(points[state["curves"][0][1] - 1]) == pytest.approx(run.curve[-1][1:])
    assert state["target"] == RACE["target"]
    assert state["metric"] == "loss"
    assert state["seconds"] == pytest.approx(result.median(result.arms[0]) / 8)
    assert learner.screen.live.status[0].endswith("to the target")
    assert learner.screen.live.history[0][3] == "Race"
    assert state["told"].startswith("You guessed 8.0×")


def test_a_race_is_stopped_and_its_code_is_a_race(learner: LabPanel) -> None:
    learner.lab.race_options["steps"] = 10**9
    learner.lab.race_options["target"] = -1
    learner.modes.value = "Race"
    learner.run()
    wait_until(lambda: learner.screen.live.state.get("curves"))
    learner.stop()
    result = learner.wait(30)
    assert result is None or (isinstance(result, RaceResult) and result.stopped)
    assert learner.screen.live.state["running"] is False
    learner.buttons.code.value = True
    assert learner.screen.live.code.splitlines()[0] == "lab.race({'rate': 0.1})"


def test_a_lab_without_memory_and_race_has_one_mode(panel: LabPanel) -> None:
    assert panel.modes.options == ("Time",)
    assert panel.modes.layout.display == "none"


def test_a_mode_that_is_left_ends_its_run(panel: LabPanel) -> None:
    lab = Lab(endless, size=[8, 16])
    other = LabPanel(lab, seconds=60)
    other.run()
    wait_until(lambda: "points" in other.screen.live.state)
    other.modes.value = "Memory"
    assert TURN.holder is None
    assert isinstance(other.result, Comparison)
    assert other.result.stopped
    assert "points" not in other.screen.live.state
    other.close()


def test_what_is_rarely_used_stands_behind_more(panel: LabPanel) -> None:
    hidden = panel.buttons._hidden
    assert hidden.layout.display == "none"
    panel.buttons.more.value = True
    assert hidden.layout.display == ""
    panel.buttons.details.value = True
    assert "labkit-detailed" in panel.widget._dom_classes
    panel.buttons.details.value = False
    assert "labkit-detailed" not in panel.widget._dom_classes


@pytest.mark.parametrize(
    ("arrives", "figure", "badge", "sentence"),
    [
        ((), "0 of 5", "unclear", "No run reached accuracy of at least 0.5."),
        (("new",), "5 of 5", "faster", "in 5 of 5 seeds, the baseline in 0 of 5."),
        (("old",), "0 of 5", "slower", "in 0 of 5 seeds, the baseline in 5 of 5."),
        (("old", "new"), "2.00×", "faster", "is 2.00 times as fast"),
    ],
)
def test_a_race_that_a_side_does_not_finish(
    arrives: tuple[str, ...], figure: str, badge: str, sentence: str
) -> None:
    runs = []
    for seed in range(5):
        for name, seconds in (("old", 2.0 + seed), ("new", 1.0 + seed / 2)):
            metric = 0.6 if name in arrives else 0.1
            runs.append(RaceRun(name, seed, ((10, seconds, metric),), name in arrives))
    race = RaceResult(tuple(runs), 0.5, "accuracy", True)
    told = race_view.told(race)
    assert (told["speedup"], told["verdict"]) == (figure, badge)
    assert "inf" not in told["speedup"] + told["detail"]
    words = race_view.race_sentence(race)
    assert sentence in words and "inf" not in words + race_view.race_summary(race)


def test_other_programs_that_are_in_the_way_are_told(
    panel: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screen, "LOOK", 0.0)
    monkeypatch.setattr(Others, "taken", lambda self: 64.0)
    panel.run(wait=True)
    assert panel.screen.live.notice.startswith("Other programs took 64.0 of ")
    monkeypatch.setattr(Others, "taken", lambda self: 0.0)
    panel.run(wait=True)
    assert panel.screen.live.notice == ""


def test_a_change_during_a_sweep_leaves_it_alone(panel: LabPanel) -> None:
    panel.run(wait=True)
    panel.buttons.swept.value = "size"
    panel.sweep()
    swept = panel.latest
    panel.controls["kind"].candidate.value = "sum"
    results = panel.wait(60)
    assert panel.latest is swept
    assert isinstance(results, Sweep)
    assert [result.candidate.settings["size"] for result in results] == [8, 16, 32]
    assert {result.candidate.settings["kind"] for result in results} == {"mean"}


def test_a_notebook_is_told_in_one_line_that_the_kernel_is_busy(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shell = InteractiveShell()
    shell.user_ns.update(TURN=TURN, someone=threading.Thread())
    TURN.take(threading.current_thread())
    try:
        shell.run_cell("TURN.take(someone)")
    finally:
        TURN.give_back_to(0, threading.current_thread())
    said = capsys.readouterr().out
    assert said.startswith("Busy: another measurement is running") and said.count("\n") == 1


@pytest.fixture
def endless_panel(panel: LabPanel) -> LabPanel:
    """Its run lasts until Stop."""
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60
    return panel


def listeners(shell: InteractiveShell) -> list[Any]:
    """Who is told that a cell begins."""
    return list(shell.events.callbacks["pre_run_cell"])


def run_cell(shell: InteractiveShell, source: str) -> None:
    """Run a cell as a page does, without a line in the reader's history of inputs."""
    shell.history_manager.enabled = False
    shell.run_cell(source, store_history=True).raise_error()


def test_a_cell_that_begins_while_a_panel_measures_is_told_on_both_sides(
    endless_panel: LabPanel, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    panel, live = endless_panel, endless_panel.screen.live
    with capture_output() as captured:
        panel._ipython_display_()
        panel.run()
        wait_until(lambda: live.state.get("bands"))
        assert "Another cell" not in live.notice
        shell.user_ns["seen"] = []
        run_cell(shell, "seen.append(1)")
        assert shell.user_ns["seen"] == [1]
        assert live.notice.startswith("Another cell began") and "Run again" in live.notice
        panel.screen._asked = 0.0
        time.sleep(0.3)
        assert live.notice.startswith("Another cell began")
        panel.stop()
        panel.wait()
    assert "A panel is measuring" in captured.stderr
    assert live.state["sentence"].endswith("Another cell ran meanwhile: both were disturbed.")
    assert "another cell ran meanwhile" in live.status[0].lower()
    (result,) = [out.data for out in captured.outputs if "speed-up" in out.data["text/plain"]]
    for text in result.values():
        assert "Another cell ran meanwhile" in text
    # The next run begins without it.
    panel.run()
    assert "Another cell" not in live.notice
    wait_until(lambda: live.state.get("bands"))
    panel.stop()
    panel.wait()
    assert "meanwhile" not in live.state["sentence"] + live.status[0]


def test_what_is_no_cell_disturbs_no_run(
    endless_panel: LabPanel, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a page asks the kernel for unseen, and what the cell that starts a run does itself."""
    panel, live = endless_panel, endless_panel.screen.live
    shell.user_ns["panel"] = panel
    run_cell(shell, "1 + 1")
    run_cell(shell, "panel.run()")
    wait_until(lambda: "points" in live.state)
    shell.run_cell("1 + 1", silent=True)
    shell.run_cell("1 + 1", store_history=False)
    panel.stop()
    panel.wait()
    run_cell(shell, "1 + 1")
    assert "Another cell" not in live.notice
    assert "A panel is measuring" not in capsys.readouterr().err


def test_cells_that_follow_at_once_are_told_of_no_run_that_waits_for_a_click(
    panel: LabPanel, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    shell.user_ns["panel"] = panel
    run_cell(shell, "panel._ipython_display_()")
    run_cell(shell, "panel.controls['size'].candidate.index = 1")
    assert listeners(shell) == [] and panel.latest is None
    assert "A panel is measuring" not in capsys.readouterr().err


@pytest.mark.parametrize("end", ["by itself", "stop", "close", "error", "replaced", "not begun"])
def test_nobody_waits_for_cells_when_a_run_is_over(
    panel: LabPanel, shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    before = listeners(shell)
    if end in ("stop", "close", "replaced"):
        panel.lab.make_workload = endless
        panel.buttons.budget.value = 60
    if end == "error":
        panel.lab.make_workload = lambda **_: 1 / 0
    if end == "not begun":
        monkeypatch.setattr(PanelRun, "is_alive", lambda self: False)
        monkeypatch.setattr(threading.Thread, "start", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            panel.run()
        assert listeners(shell) == before
        return
    panel.run()
    run = panel.latest
    assert run is not None
    if end in ("stop", "close", "replaced"):
        assert len(listeners(shell)) == len(before) + 1
    if end == "replaced":
        panel.controls["size"].candidate.index = 1
        wait_until(lambda: panel.latest is not run)
        assert len(listeners(shell)) == len(before) + 1
    if end in ("stop", "replaced"):
        panel.stop()
    if end == "close":
        panel.close()
    assert panel.latest is not None
    panel.latest.join(30)
    assert listeners(shell) == before
