"""The panel without a browser.

Its widgets are operated through their values, as the page does it.
"""

from __future__ import annotations

import gc
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from labkit.lab import Lab
from labkit.measure import measuring
from labkit.panel import LabPanel, live
from labkit.results import Comparison, Measurement, Workload
from labkit.sweep import Progress, Sweep
from labkit.switches import torch_flags
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
    texts = [cell.value for cell in panel.widget.children[0].children if hasattr(cell, "value")]
    assert "double\nneeds a GPU" in texts
    assert "kind\nsum: too <slow>" in texts
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
    assert panel.screen.live.status[0].startswith(f"Done: {result.verdict}")
    assert panel.screen.live.history[0][:3] == ["1", "double: False → True", "size 8, kind mean"]


def test_updates_are_small() -> None:
    arm = Measurement("arm", times=(1.0,) * 5000)
    state = live.state(Comparison(arm, arm), [(float(pairs), 0.9, 1.1) for pairs in range(1000)])
    texts = sum(len(str(value)) for name, value in state.items() if name not in ("points", "bands"))
    assert len(state["points"]) + len(state["bands"]) + texts < 2048
    # The newest interval is always there.
    assert np.frombuffer(state["bands"], np.float32)[-3] == 999


def test_sweep(panel: LabPanel) -> None:
    panel.buttons.swept.value = "size"
    panel.buttons.follow.value = True
    results = panel.sweep(wait=True)
    assert isinstance(results, Sweep)
    assert [result.candidate.settings["size"] for result in results] == [8, 16, 32]
    assert [result.baseline.settings["size"] for result in results] == [8, 16, 32]
    assert panel.history == list(results)
    assert panel.screen.live.status[0].startswith("Done: 3 comparisons")


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
    other.stop()
    assert other.screen.live.status[0] == "Nothing is running."
    other.close()


def test_moves_during_a_run_apply_to_the_next(panel: LabPanel) -> None:
    panel.lab.make_workload = endless
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


@pytest.fixture
def quick_collections() -> Iterator[None]:
    """Each run collects garbage: let it not search all of torch every time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collections")
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
    shown = [live.factor(ratio) for ratio in (1.2345, 0.01234, 0.5, 12.3456, 12345.6, float("nan"))]
    assert shown == ["1.23", "0.012", "0.50", "12.35", "12,346", "–"]


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
