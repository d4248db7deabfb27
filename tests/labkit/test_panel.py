"""The panel without a browser.

Its widgets are operated through their values, as the page does it.
"""

from __future__ import annotations

import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from labkit.busy import Others
from labkit.comparing import measuring
from labkit.lab import Lab
from labkit.memory_timeline import MemoryComparison
from labkit.panel import Bet, LabPanel, guess, view
from labkit.panel.run import CELL_BEGAN, CELLS, STOPPING, Run, State
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison, Measurement, Workload
from labkit.stages import Stage
from labkit.sweep import Progress, Sweep
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
    close(panel)


def close(panel: LabPanel) -> None:
    panel.close()
    assert panel.runs.wait(30)
    assert TURN.holder is None


def without_end(panel: LabPanel) -> None:
    panel.lab.make_workload = endless
    panel.buttons.budget.value = 60


def with_end(panel: LabPanel) -> None:
    panel.lab.make_workload = make_workload
    panel.buttons.budget.value = 0.3 if panel.buttons.budget.index is not None else 1


def wait_until(reached: Any, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def has_pairs(panel: LabPanel) -> bool:
    latest = panel.latest
    return bool(latest and latest.position and latest.position.partial.pairs > 3)


def words(html: str) -> str:
    """What a reader sees of it."""
    texts = re.sub("<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL)
    return " ".join(unescape(texts).split())


def state(panel: LabPanel) -> dict[str, Any]:
    return panel.view.live.state


def status(panel: LabPanel) -> str:
    return panel.view.live.status[0]


# ------------------------------------------------------------------------------- what is set


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
    close(panel)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: LabPanel(make_workload), TypeError, "it takes a Lab"),  # type: ignore[arg-type]
        (lambda: LabPanel(make_lab(), opens="race"), ValueError, "opens='race': use 'time'"),
        (lambda: LabPanel(make_lab(), bets={"a": Bet("?")}), ValueError, "scenarios .* are none"),
    ],
)
def test_bad_options(make: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make()


def test_a_slider_runs_upwards_wherever_its_first_value_is() -> None:
    lab = Lab(lambda size: Workload(lambda: torch.ones(size).sum(), size), size=[25, 1, 100])
    panel = LabPanel(lab, seconds=0.1)
    slider = panel.controls["size"].baseline
    assert [value for _, value in slider.options] == [1, 25, 100]
    assert slider.value == 25
    close(panel)


def test_a_situation_has_one_widget() -> None:
    lab = Lab(make_workload, double=[False, True], situation={"size": [8, 16], "kind": ["a", "b"]})
    panel = LabPanel(lab, seconds=0.2)
    size = panel.controls["size"]
    assert size.baseline is size.candidate
    # The technique differs at first, the situation does not.
    assert panel.settings("baseline") == {"double": False, "size": 8, "kind": "a"}
    assert panel.settings() == {"double": True, "size": 8, "kind": "a"}
    assert panel.summary.value == "Baseline: double=False · both sides: size=8, kind='a'"
    size.candidate.value = 16
    assert panel.settings("baseline")["size"] == panel.settings()["size"] == 16
    assert panel.summary.value == "Baseline: double=False · both sides: size=16, kind='a'"
    panel.buttons.code.value = True
    assert panel.view.live.code.startswith("lab.run(double=True, size=16, seconds=")
    close(panel)


def test_few_controls_are_seen_at_first(panel: LabPanel) -> None:
    assert "labkit-opened" not in panel.widget._dom_classes
    panel.buttons.more.value = True
    assert "labkit-opened" in panel.widget._dom_classes
    assert panel.buttons.more.description == "Less"
    panel.buttons.more.value = False
    assert "labkit-opened" not in panel.widget._dom_classes


def test_code_is_the_headless_call(panel: LabPanel) -> None:
    live = panel.view.live
    assert live.code == ""
    panel.buttons.code.value = True
    # A sweep is of numbers, where there are some.
    sweep = "lab.sweep('size', double=True, seconds=0.3)"
    assert live.code == f"lab.run(double=True, seconds=0.3)\n{sweep}"
    panel.controls["size"].baseline.value = 32
    code = live.code.splitlines()[0]
    assert code == "lab.run(double=True, baseline={'size': 32}, seconds=0.3)"
    assert code in repr(panel)
    result = eval(code, {"lab": panel.lab})
    assert result.baseline.settings["size"] == 32


# ---------------------------------------------------------------------------------- a run by time


def test_run_gives_what_lab_run_gives(panel: LabPanel) -> None:
    result = panel.run(wait=True)
    assert isinstance(result, Comparison)
    assert panel.result is result
    assert panel.history == [result]
    assert result.candidate.settings == {"double": True, "size": 8, "kind": "mean"}
    shown = state(panel)
    assert shown["running"] is False and shown["verdict"] == result.verdict
    verdict, factor = result.headline
    head = words(shown["head"])
    # Between them stands "disturbed" where another program ran.
    assert head.startswith(f"{factor} {verdict}") and "as fast as the baseline" in head
    assert shown["picture"].startswith("<svg")
    for part in result.details:
        assert part in words(shown["sure"])
    assert status(panel) == f"Done: {result.sentence}"
    row = view.history_row(1, result)
    assert row[:5] == ["1", "double: False → True; size 8, kind mean", "Time", factor, verdict]
    for text in row:
        assert text in words(panel.view.live.history)


def partial(*pairs: int) -> Comparison:
    """Builds of so many pairs, the last one off by half."""
    builds = [number for number, count in enumerate(pairs) for _ in range(count)]
    times = [1.5 if build == len(pairs) - 1 and build else 1.0 for build in builds]
    before = Measurement("baseline", times=tuple(times), builds=tuple(builds))
    after = Measurement("candidate", times=(1.0,) * len(times), builds=tuple(builds))
    return Comparison(before, after, seconds=1.0)


def test_a_build_just_begun_leaves_the_figures_as_they_were(panel: LabPanel) -> None:
    """One pair of a new build would count like all pairs of each build before."""
    run = Run(lambda *_: partial(), "Time", 10.0, ({}, {}), number=1)
    panel.view.begun(run)

    def drawn(*pairs: int) -> dict[str, Any]:
        panel.view._drawn = -math.inf
        news = Progress(0, 1, partial(*pairs))
        panel.view.show(run, news)
        run.position = news
        return state(panel)

    assert "too few pairs" in words(drawn(4)["head"])
    known = drawn(20)
    assert words(known["head"]).startswith("1.000× same so far")
    assert known["left"] == "9 s left"
    for pairs in ((20, 1), (20, 9)):
        begun = drawn(*pairs)
        assert (begun["head"], begun["picture"]) == (known["head"], known["picture"])
    longer = drawn(20, 10)
    assert longer["head"] != known["head"]
    # Builds that follow a long first one may all be short.
    assert drawn(20, 10, 4, 2)["head"] != longer["head"]


def test_what_goes_on_beyond_its_budget_says_for_how_long_at_most(panel: LabPanel) -> None:
    run = Run(lambda *_: partial(), "Time", 10.0, ({}, {}), number=1)
    panel.view.begun(run)
    panel.view.show(run, Progress(0, 1, replace(partial(20), seconds=12.0, limit=30.0)))
    assert state(panel)["left"] == "not clear yet, at most 18 s left"
    assert state(panel)["progress"] == 1.0


def test_what_keeps_the_figures_away_is_said_with_its_seconds(panel: LabPanel) -> None:
    run = Run(lambda *_: partial(), "Time", 10.0, ({}, {}), number=1)
    panel.view.begun(run)
    building = Stage("Building, side 1 of 2")
    for seconds in (0.0, 7.2):
        panel.view.prepares(run, building, seconds)
        assert status(panel) == building.words
        assert state(panel)["left"] == f"{seconds:.0f} s so far"
    news = Progress(0, 1, partial(20))
    panel.view.show(run, news)
    run.position = news
    assert (status(panel), state(panel)["left"]) == ("Measuring", "9 s left")
    # Another build in between is worth a word only where it takes long.
    panel.view.prepares(run, building, 0.0)
    assert (status(panel), state(panel)["left"]) == ("Measuring", "9 s left")
    panel.view.prepares(run, building, 1.0)
    assert (status(panel), state(panel)["left"]) == (building.words, "1 s so far")
    assert state(panel)["head"]
    panel.view._drawn = -math.inf
    panel.view.show(run, news)
    assert (status(panel), state(panel)["left"]) == ("Measuring", "9 s left")
    # The count goes on after Stop, whose answer stays.
    run.stop.set()
    panel.view.say(STOPPING)
    panel.view.prepares(run, building, 3.0)
    assert (status(panel), state(panel)["left"]) == (STOPPING, "3 s so far")


def test_stop_takes_effect_while_a_side_is_built(panel: LabPanel) -> None:
    begun, steps = threading.Event(), []

    def slow(**_: Any) -> Workload:
        begun.set()
        assert panel.latest is not None and panel.latest.stop.wait(30)
        return Workload(lambda: steps.append(1))

    panel.lab.make_workload = slow
    panel.run()
    assert begun.wait(30) and status(panel) == "Building, side 1 of 2"
    panel.stop()
    assert panel.wait(30) is not None and steps == []
    assert status(panel) == view.NOTHING_YET


def test_little_is_sent_while_it_is_timed(panel: LabPanel) -> None:
    run = Run(lambda *_: partial(), "Time", 10.0, ({}, {}), number=1)
    panel.view.begun(run)
    sent: list[dict[str, Any]] = []
    panel.view.live.observe(lambda change: sent.append(change["new"]), "state")
    for pairs in range(200, 210):
        news = Progress(0, 1, partial(pairs))
        panel.view.show(run, news)
        run.position = news
    assert len(sent) == 1, "twice a second at most"
    assert sum(len(str(value)) for value in sent[0].values()) < 12_000


def test_sweep(panel: LabPanel) -> None:
    panel.buttons.swept.value = "size"
    panel.buttons.follow.value = True
    results = panel.sweep(wait=True)
    assert isinstance(results, Sweep)
    assert [result.candidate.settings["size"] for result in results] == [8, 16, 32]
    assert [result.baseline.settings["size"] for result in results] == [8, 16, 32]
    assert panel.history == list(results)
    assert status(panel) == f"Done: {results.sentence}"
    assert results.sentence in words(state(panel)["head"])
    assert not panel.view.live.stale


def test_a_sweep_says_where_it_is(panel: LabPanel) -> None:
    """Also where two values are equal, so that they cannot be told apart by what they are."""
    panel.lab.controls["kind"] = ("mean", "mean", "sum")
    said: list[str] = []
    panel.view.live.observe(lambda change: said.append(change["new"][0]), "status")
    panel.buttons.swept.value = "kind"
    panel.sweep(wait=True)
    places = [text.split(": ")[1] for text in said if text.startswith("Sweeping kind")]
    assert places == ["mean, 1 of 3", "mean, 2 of 3", "sum, 3 of 3"]


def test_a_situation_is_swept_on_both_sides() -> None:
    lab = Lab(make_workload, double=[False, True], situation={"size": [8, 16]}, memory=False)
    panel = LabPanel(lab, seconds=0.1)
    panel.buttons.swept.value = "size"
    results = panel.sweep(wait=True)
    assert isinstance(results, Sweep)
    sizes = [[side.settings["size"] for side in each.arms] for each in results]
    assert sizes == [[8, 8], [16, 16]]
    close(panel)


def test_a_change_during_a_sweep_leaves_it_alone(panel: LabPanel) -> None:
    panel.run(wait=True)
    panel.buttons.swept.value = "size"
    panel.sweep()
    swept = panel.latest
    panel.controls["kind"].candidate.value = "sum"
    results = panel.wait(60)
    assert panel.latest is swept
    assert isinstance(results, Sweep)
    assert {result.candidate.settings["kind"] for result in results} == {"mean"}


def test_a_result_of_other_settings_is_pale(panel: LabPanel) -> None:
    live, size = panel.view.live, panel.controls["size"].candidate
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


def test_a_direction_is_told_beside_an_unclear_size() -> None:
    sides = [Measurement(name, times=(seconds,) * 3) for name, seconds in (("a", 1.0), ("b", 7.0))]
    result = Comparison(*sides)
    head = view.head_of(result)
    assert words(head) == "about 7 times slower how much exactly is not clear yet"
    assert 'data-verdict="slower"' in head
    assert view.history_row(1, result)[3:5] == ["about 7 times", "slower"]


def test_the_factor_stands_once_and_the_difference_beside_it() -> None:
    before = Measurement("a", times=(0.041,) * 40, builds=(0, 1, 2, 3) * 10)
    after = Measurement("b", times=(0.0205,) * 40, builds=(0, 1, 2, 3) * 10)
    head = words(view.head_of(Comparison(before, after)))
    assert head == "2.00× faster as fast as the baseline saves 20.5 of 41.0 ms a step"
    so_far = words(view.head_of(Comparison(before, after), running=True))
    assert so_far.startswith("2.00× faster so far")
    doubted = view.head_of(Comparison(before, after), doubted=True)
    assert words(doubted).startswith("2.00× faster, disturbed as fast")
    assert 'data-verdict="unclear"' in doubted


# --------------------------------------------------------------------- errors, stop, other panels


def test_errors_are_shown_and_raised_by_wait(panel: LabPanel) -> None:
    def broken(**_: Any) -> Workload:
        raise FileNotFoundError("no images here\nand a second line")

    panel.lab.make_workload = broken
    panel.buttons.run.click()
    with pytest.raises(FileNotFoundError, match="no images"):
        panel.wait()
    said = "FileNotFoundError: no images here (panel.wait() shows where)"
    assert panel.view.live.status == (said, "bad")
    assert state(panel)["running"] is False and not panel.view.live.busy
    assert panel.history == []
    assert "Here: the time of a step" in words(state(panel)["picture"])
    panel.lab.make_workload = make_workload
    assert isinstance(panel.run(wait=True), Comparison)


def test_an_exit_in_the_workload_is_an_error_too(panel: LabPanel) -> None:
    def leaving(**_: Any) -> Workload:
        raise SystemExit("bye")

    panel.lab.make_workload = leaving
    panel.run()
    with pytest.raises(SystemExit, match="bye"):
        panel.wait()
    assert status(panel).startswith("SystemExit: bye")


def test_an_arm_without_memory_is_a_result(panel: LabPanel) -> None:
    def hungry(double: bool, **others: Any) -> Workload:
        if double:
            raise MemoryError
        return make_workload(**others)

    panel.lab.make_workload = hungry
    result = panel.run(wait=True)
    assert isinstance(result, Comparison)
    assert "The candidate ended by out of memory" in status(panel)
    assert "out of memory" in words(state(panel)["head"])
    assert "out of memory" in words(state(panel)["picture"])


def test_one_panel_at_a_time(panel: LabPanel) -> None:
    other = LabPanel(panel.lab, seconds=0.3)
    without_end(panel)
    panel.run()
    with pytest.raises(RuntimeError, match="Another panel is measuring"):
        other.run()
    other.buttons.run.click()
    assert other.view.live.status[1] == "bad"
    assert "Another panel is measuring" in status(other)
    # Stop takes Run's place there: the other panel may be out of sight.
    assert other.view.live.busy
    panel.buttons.run.click()
    assert "measuring already" in status(panel)
    with pytest.raises(TimeoutError, match="still measuring"):
        panel.wait(timeout=0.01)
    other.buttons.stop.click()
    assert not other.view.live.busy
    panel.wait(30)
    panel.lab.make_workload = make_workload
    assert isinstance(other.run(wait=True), Comparison)
    said = other.view.live.status
    other.stop()
    assert said[0].startswith("Done:") and other.view.live.status == said
    close(other)


def test_stop_says_that_nothing_has_run(panel: LabPanel) -> None:
    panel.buttons.stop.click()
    assert status(panel) == "Nothing is running."


def test_a_stopped_run_keeps_what_it_has_and_moves_apply_to_the_next(panel: LabPanel) -> None:
    without_end(panel)
    panel.buttons.follow_changes.value = False
    panel.run()
    assert panel.view.live.busy
    panel.controls["size"].candidate.value = 32
    wait_until(lambda: has_pairs(panel))
    panel.stop()
    first = panel.wait(30)
    assert isinstance(first, Comparison)
    assert first.stopped and status(panel).startswith("Stopped: ")
    assert not panel.view.live.busy
    assert first.candidate.settings["size"] == 8
    assert panel.settings()["size"] == 32


def test_a_run_that_was_stopped_too_soon_leaves_nothing(panel: LabPanel) -> None:
    panel.lab.make_workload = lambda **_: Workload(lambda: time.sleep(0.1))
    panel.run()
    panel.stop()
    panel.wait(30)
    assert status(panel) == view.NOTHING_YET and panel.history == []
    assert state(panel)["head"] == ""


def test_closing_ends_the_run() -> None:
    panel = LabPanel(make_lab(endless), seconds=60)
    panel.run()
    close(panel)
    assert panel.buttons.run.comm is None


def test_a_measurement_in_a_cell_and_a_panel_share_one_turn(panel: LabPanel) -> None:
    with measuring(None), pytest.raises(RuntimeError, match="another measurement is running"):
        in_another_thread(panel.run)
    assert panel.latest is None
    without_end(panel)
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


def test_other_programs_that_are_in_the_way_are_told(
    panel: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "LOOK", 0.0)
    monkeypatch.setattr(Others, "taken", lambda self: 64.0)
    panel.run(wait=True)
    assert panel.view.live.notice.startswith("Other programs took 64.0 of ")
    monkeypatch.setattr(Others, "taken", lambda self: 0.0)
    panel.run(wait=True)
    assert panel.view.live.notice == ""


# --------------------------------------------------------------------------------- outputs, cells


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    made = InteractiveShell.instance()
    made.history_manager.enabled = False
    yield made
    InteractiveShell.clear_instance()
    CELLS.running = False


@pytest.mark.usefixtures("shell")
def test_a_shown_panel_publishes_one_result(panel: LabPanel) -> None:
    with capture_output() as captured:
        panel._ipython_display_()
        # Showing starts nothing.
        assert panel.latest is None
        panel.run(wait=True)
    bundles = [output.data for output in captured.outputs]
    assert "application/vnd.jupyter.widget-view+json" in bundles[0]
    assert "lab.run(double=True" in bundles[0]["text/plain"]
    assert bundles[1] == {"text/plain": ""}
    (result,) = captured.outputs[2:]
    assert result.update
    assert isinstance(panel.result, Comparison)
    html, text = panel.result._repr_html_(), str(panel.result)
    assert result.data == {"text/html": html, "text/plain": text}
    assert "<svg" in html


@pytest.mark.usefixtures("shell")
def test_the_notebook_s_own_picture_is_shown_and_kept() -> None:
    seen = []

    def picture(result: Any) -> str:
        seen.append(result)
        return "<svg><text>mine</text></svg>"

    panel = LabPanel(make_lab(), seconds=0.2, picture=picture)
    with capture_output() as captured:
        panel._ipython_display_()
        result = panel.run(wait=True)
    assert seen == [result]
    assert state(panel)["picture"] == "<svg><text>mine</text></svg>"
    # The panel's own picture is behind "How sure?".
    assert "labkit-svg" in state(panel)["sure"]
    assert captured.outputs[-1].data["text/html"].startswith("<svg><text>mine</text></svg>")
    panel.sweep(wait=True)
    assert seen == [result] and "labkit-svg" in state(panel)["picture"]
    close(panel)


def test_an_error_of_the_notebook_s_picture_is_told() -> None:
    panel = LabPanel(make_lab(), seconds=0.1, picture=lambda result: 1 / 0)
    panel.run()
    with pytest.raises(ZeroDivisionError):
        panel.wait()
    assert status(panel).startswith("ZeroDivisionError")
    assert isinstance(panel.result, Comparison) and panel.history == [panel.result]
    close(panel)


@pytest.mark.usefixtures("shell")
def test_after_a_reload_the_panel_says_what_the_notebook_lacks(
    panel: LabPanel,
) -> None:
    with capture_output():
        panel._ipython_display_()
        panel._page_shown(panel.view.live, {"page": "1"}, [])
        panel.run(wait=True)
        assert "reloaded" not in panel.view.live.notice
        panel._page_shown(panel.view.live, {"page": "2"}, [])
        notices: list[str] = []
        panel.view.live.observe(lambda change: notices.append(change["new"]), "notice")
        panel.run(wait=True)
    assert notices[0].startswith("The page was reloaded: run the cell again")


def test_a_cell_that_begins_ends_the_run_and_keeps_its_result(
    panel: LabPanel, shell: InteractiveShell
) -> None:
    CELLS.add(panel.runs)
    without_end(panel)
    with capture_output() as captured:
        panel._ipython_display_()
        panel.run()
        wait_until(lambda: has_pairs(panel))
        shell.run_cell("1", store_history=True).raise_error()
    assert panel.runs.state is State.IDLE and status(panel) == CELL_BEGAN
    assert isinstance(panel.result, Comparison) and panel.result.stopped
    assert panel.history == [panel.result] and not panel.view.live.busy
    assert "stopped early" in words(state(panel)["sure"])
    assert "stopped early" in captured.outputs[-1].data["text/plain"]
    # A control starts the next run as before.
    panel.lab.make_workload = make_workload
    panel.controls["size"].candidate.value = 16
    assert panel.runs.state is State.RUNNING


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


# ------------------------------------------------------------ scenarios, bets, changes, and modes


def make_learner(rate: float = 0.1, rows: int = 4, ahead: int = 0) -> Workload:
    weight = torch.ones(rows + ahead, 4, requires_grad=True)

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
def learner(monkeypatch: pytest.MonkeyPatch) -> Iterator[LabPanel]:
    monkeypatch.setattr(guess, "SCORE", guess.Score())
    lab = Lab(
        make_learner,
        rate=[0.01, 0.1, 0.2],
        ahead=[0, 2],
        situation={"rows": [4, 8, 16]},
        scenarios={"many rows": {"rows": 16}, "fast": {"rate": 0.2, "rows": 8}},
        race={**RACE, "metric": "loss"},
    )
    panel = LabPanel(lab, seconds=0.2, bets={"fast": Bet("Which is faster?", "order")})
    yield panel
    close(panel)


def leave_scenario(learner: LabPanel) -> None:
    """Settings that no scenario of it has."""
    learner.controls["rows"].candidate.value = 4
    assert learner.scenario is None


def test_a_panel_opens_on_the_first_scenario_that_this_machine_can_show() -> None:
    lab = Lab(
        make_learner,
        rate=[0.01, 0.1],
        situation={"rows": [4, 8, 16]},
        scenarios={"withheld": {"rows": 8}, "shown": {"rows": 16}},
        unavailable={"rows": {8: "not here"}},
    )
    panel = LabPanel(lab)
    assert panel.scenario == "shown" and panel.latest is None
    close(panel)


def test_a_scenario_sets_everything_by_one_click(learner: LabPanel) -> None:
    assert learner.scenario == "many rows"
    learner.controls["ahead"].candidate.value = 2
    learner.controls["rows"].candidate.value = 8
    learner.scenarios["many rows"].click()
    # The technique stays, since this one does not name it.
    assert learner.settings("baseline") == {"rate": 0.01, "ahead": 0, "rows": 16}
    assert learner.settings() == {"rate": 0.1, "ahead": 2, "rows": 16}
    assert learner.scenario == "many rows"
    assert "labkit-active" in learner.scenarios["many rows"]._dom_classes
    learner.scenarios["fast"].click()
    assert learner.settings("baseline") == {"rate": 0.01, "ahead": 0, "rows": 8}
    assert learner.settings() == {"rate": 0.2, "ahead": 0, "rows": 8}
    assert "labkit-active" not in learner.scenarios["many rows"]._dom_classes
    learner.buttons.code.value = True
    assert learner.view.live.code.startswith("lab.run(rate=0.2, rows=8, seconds=0.2)\n")
    # Nothing runs before the first Run.
    assert learner.runs.state is State.IDLE and learner.latest is None


def test_a_scenario_may_set_the_baseline_too(learner: LabPanel) -> None:
    step = {"baseline": {"rate": 0.1}, "rate": 0.2}
    learner.offer("a step further", None, **step)
    assert learner.settings("baseline") == {"rate": 0.1, "ahead": 0, "rows": 4}
    assert learner.settings() == {"rate": 0.2, "ahead": 0, "rows": 4}
    assert learner.scenario == "a step further"
    learner.controls["rate"].baseline.value = 0.01
    assert learner.scenario is None
    learner.scenarios["fast"].click()
    assert learner.settings("baseline")["rate"] == 0.01
    learner.scenarios["a step further"].click()
    assert learner.settings("baseline")["rate"] == 0.1


def test_a_scenario_arms_its_question_and_run_reveals(learner: LabPanel) -> None:
    leave_scenario(learner)
    learner.run(wait=True)
    learner.scenarios["fast"].click()
    assert learner.bet.question.value == "Which is faster?"
    # Its bet is open: nothing begins by itself.
    assert learner.runs.state is State.IDLE and learner.view.live.stale
    learner.bet.choices.value = "neither"
    learner.run(wait=True)
    assert learner.bet.choices.disabled
    assert "You bet on neither:" in words(state(learner)["head"])
    assert guess.RULES["order"] in words(state(learner)["head"])
    learner.scenarios["many rows"].click()
    assert learner.bet.question.value == "How many times as fast will the candidate be?"
    assert not learner.bet.slider.disabled
    # Revealed before: its answer and its result stand there, and nothing begins.
    learner.scenarios["fast"].click()
    assert learner.bet.choices.value == "neither"
    assert learner.runs.state is State.IDLE and learner.latest.number == 2
    assert not learner.view.live.stale
    assert "You bet on neither:" in words(state(learner)["head"])


def test_a_scenario_shows_what_it_found_when_it_ran_last(learner: LabPanel) -> None:
    learner.offer("middle", rate=0.1, rows=16)
    heads = {}
    for name in ("middle", "fast"):
        learner.choose(name)
        learner.run(wait=True)
        heads[name] = state(learner)["head"]
    for name in ("middle", "fast", "middle"):
        learner.scenarios[name].click()
        assert learner.runs.state is State.IDLE
        assert state(learner)["head"] == heads[name] and not learner.view.live.stale
    # Each mode has its own record of it.
    learner.modes.value = "Memory"
    assert state(learner)["head"] == ""
    learner.modes.value = "Time"
    assert state(learner)["head"] == heads["middle"]
    # Run measures anew, and that is what is shown from then on.
    learner.run(wait=True)
    newest = state(learner)["head"]
    learner.choose("fast")
    learner.choose("middle")
    assert state(learner)["head"] == newest and len(learner.history) == 3


def test_what_a_scenario_found_with_other_settings_is_not_its_record(learner: LabPanel) -> None:
    learner.run(wait=True)
    found = state(learner)["head"]
    learner.choose("fast")
    # This one leaves the technique as it is, which is another one by now.
    learner.choose("many rows")
    assert state(learner)["head"] == found and learner.view.live.stale
    learner.choose("fast")
    learner.run(wait=True)
    learner.offer("fast", rate=0.1, rows=8)
    assert learner.view.live.stale and not learner.bet.locked


def test_a_run_that_another_scenario_ends_does_not_hide_its_record(learner: LabPanel) -> None:
    learner.offer("middle", rate=0.1, rows=16)
    learner.choose("fast")
    learner.run(wait=True)
    found = state(learner)["head"]
    learner.choose("middle")
    without_end(learner)
    learner.run()
    wait_until(lambda: has_pairs(learner))
    learner.choose("fast")
    learner.wait(30)
    assert state(learner)["head"] == found and not state(learner)["running"]
    assert not learner.view.live.busy
    learner.choose("middle")
    assert state(learner)["head"] != found and "stopped early" in state(learner)["sure"]


def test_another_scenario_ends_the_run_that_goes_on(learner: LabPanel) -> None:
    without_end(learner)
    learner.run()
    wait_until(lambda: has_pairs(learner))
    learner.scenarios["fast"].click()
    result = learner.wait(30)
    assert learner.latest.number == 1
    assert isinstance(result, Comparison) and result.stopped


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
    assert panel.scenario == "eight"
    panel.scenarios["four"].click()
    assert panel.scenario == "four"
    panel.scenarios["eight"].click()
    panel.scenarios["eight, fast"].click()
    assert panel.scenario == "eight, fast"
    panel.controls["rate"].candidate.value = 0.1
    assert panel.scenario == "eight"
    panel.scenarios["four"].click()
    panel.controls["rows"].candidate.value = 8
    assert panel.scenario == "eight"
    panel.scenarios["slow"].click()
    assert panel.scenario == "slow"
    close(panel)


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
    close(panel)


def test_the_bet_is_locked_by_run_drawn_and_held_against_it(learner: LabPanel) -> None:
    bet = learner.bet
    bet.slider.value = 4.0
    assert bet.text.value == "4.0× as fast"
    assert bet.again.layout.visibility == "hidden"
    learner.run(wait=True)
    assert bet.slider.disabled
    assert "You bet 4.0×, measured " in words(state(learner)["head"])
    assert "4.00×" in words(state(learner)["picture"])
    assert bet.score.value in ("", "0 of 1 bet right")
    bet.again.click()
    assert not bet.slider.disabled
    bet.slider.value = 1.0
    assert bet.text.value == "no difference"
    learner.run(wait=True)
    # Each mode has a bet of its own.
    learner.modes.value = "Memory"
    assert not bet.slider.disabled and bet.answer is None
    assert bet.question.value == "How much of the baseline's memory will the candidate need?"
    bet.slider.value = 0.5
    assert bet.text.value == "50 % of the memory"
    learner.modes.value = "Race"
    assert bet.slider.layout.display == "none" and bet.choices.value is None
    learner.modes.value = "Time"
    assert bet.slider.value == 1.0 and bet.slider.disabled


@pytest.mark.parametrize("mode", ["Time", "Memory"])
def test_a_bet_is_for_the_settings_that_it_was_made_for(learner: LabPanel, mode: str) -> None:
    learner.buttons.follow_changes.value = False
    learner.modes.value = mode
    learner.bet.slider.value = 2.0
    told = []
    for rate in (0.1, 0.2, 0.2, 0.1):
        learner.controls["rate"].candidate.value = rate
        learner.run(wait=True)
        told.append("You bet 2" in words(state(learner)["head"]))
    assert told == [True, False, False, True]


def test_a_run_that_does_not_begin_leaves_the_bet_open(learner: LabPanel) -> None:
    learner.bet.slider.value = 4.0
    with measuring(None), pytest.raises(RuntimeError, match="another measurement is running"):
        learner.run()
    assert not learner.bet.locked and not learner.bet.slider.disabled


def test_what_was_never_moved_is_no_bet(learner: LabPanel) -> None:
    bet = learner.bet
    assert bet.text.value == "move the slider"
    learner.run(wait=True)
    assert "You bet" not in state(learner)["head"]
    assert bet.text.value == "no bet" and bet.locked
    bet.again.click()
    bet.slider.value = 2.0
    bet.slider.value = 1.0
    learner.run(wait=True)
    assert "You bet 1.0×" in state(learner)["head"]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_decides_no_bet_counts_where_it_has_ended(
    learner: LabPanel, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guess, "judge", lambda *_, **__: guess.Judgement(None, "It stays open."))
    without_end(learner)
    learner.buttons.budget.value = 60 if stopped else 0.2
    learner.bet.slider.value = 2.0
    learner.run()
    if stopped:
        wait_until(lambda: has_pairs(learner))
        learner.stop()
    learner.wait(30)
    assert "It stays open." in words(state(learner)["head"])
    assert guess.SCORE.undecided and not guess.SCORE.decided
    assert guess.SCORE.measured is not stopped


def test_no_difference_is_one_press(learner: LabPanel) -> None:
    bet = learner.bet
    bet.even.click()
    assert bet.answer == 1.0 and bet.text.value == "no difference"
    learner.run(wait=True)
    assert "You bet 1.0×" in words(state(learner)["head"])
    assert bet.even.layout.visibility == "hidden"
    bet.again.click()
    bet.slider.value = 4.0
    bet.even.click()
    assert bet.slider.value == 1.0 and bet.answer == 1.0
    learner.modes.value = "Race"
    assert bet.even.layout.display == "none"


def test_a_bet_on_memory_is_a_share_of_it(learner: LabPanel) -> None:
    factors = learner.bet.slider
    learner.modes.value = "Memory"
    shares = learner.bet.slider
    assert shares is not factors and factors.layout.display == "none"
    assert (2**shares.min, 2**shares.max) == (1 / 64, 2) and shares.value == 1.0
    shares.value = 0.25
    assert learner.bet.text.value == "25 % of the memory"
    learner.modes.value = "Time"
    assert learner.bet.answer is None and shares.layout.display == "none"
    learner.modes.value = "Memory"
    assert learner.bet.answer == shares.value == 0.25


def test_a_right_bet_is_marked_and_the_rule_stands_below(learner: LabPanel) -> None:
    learner.modes.value = "Memory"
    learner.bet.even.click()
    learner.run(wait=True)
    head = state(learner)["head"]
    right = learner.result.ratio <= guess.NEAR and learner.result.ratio >= 1 / guess.NEAR
    assert f'data-right="{"yes" if right else "no"}"' in head
    assert guess.RULES["bytes"] in words(head)


def test_what_the_browser_tells_late_of_another_scale_is_no_bet(learner: LabPanel) -> None:
    learner.bet.slider.value = 4.0
    before = learner.bet.slider
    learner.modes.value = "Memory"
    before.value = 4.5
    assert learner.bet.answer is None and learner.bet.text.value == "move the slider"
    learner.modes.value = "Time"
    assert learner.bet.answer == 4.0


def test_a_bet_reaches_as_far_as_its_question_and_moves_by_few_per_cent(learner: LabPanel) -> None:
    for most in (16, 128, 16):
        learner.offer("far", Bet("How many times?", most=most), rows=16)
        slider = learner.bet.slider
        assert slider.base**slider.max == most and ("labkit-far" in slider._dom_classes) == (
            most > 16
        )
        assert slider.base**slider.min == 1 / most and slider.value == 1
        slider.value = most
        assert learner.bet.answer == most
    assert 1.05 < slider.base**slider.step < 1.1


@pytest.mark.parametrize(("seconds", "shown"), [(1.2, "unclear"), (1.4, "faster")])
def test_a_small_difference_beside_other_programs_is_no_verdict(
    learner: LabPanel, monkeypatch: pytest.MonkeyPatch, seconds: float, shown: str
) -> None:
    times = [(each,) * 40 for each in (seconds, 1.0)]
    sides = [Measurement(name, times=each) for name, each in zip("ab", times, strict=True)]
    found = Comparison(*(replace(side, builds=(0, 1, 2, 3) * 10) for side in sides))
    monkeypatch.setattr(view, "LOOK", 0.0)
    monkeypatch.setattr(Others, "taken", lambda self: 64.0)
    run = Run(lambda *_: None, "Time", 10.0, ({}, {}), number=1)
    learner.view.begun(run)
    learner.view.prepares(run, Stage("Building"), 0.0)
    learner.view.finish(run, found)
    assert learner.view.live.state["verdict"] == shown


def test_what_disturbs_times_disturbs_no_count_of_bytes(
    learner: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was said of one run does not stand beside another's."""
    monkeypatch.setattr(view, "LOOK", 0.0)
    monkeypatch.setattr(Others, "taken", lambda self: 64.0)
    notice = "Other programs took 64.0 of "
    learner.run(wait=True)
    assert learner.view.live.notice.startswith(notice)
    learner.modes.value = "Memory"
    assert learner.view.live.notice == ""
    learner.run(wait=True)
    assert learner.view.live.notice == ""
    learner.modes.value = "Time"
    assert learner.view.live.notice.startswith(notice)


def test_a_change_after_the_first_run_starts_the_next(learner: LabPanel) -> None:
    rows = learner.controls["rows"].candidate
    rows.value = 8
    assert learner.runs.state is State.IDLE
    learner.run(wait=True)
    rows.value = 4
    learner.controls["rate"].candidate.value = 0.2
    assert learner.runs.state is State.STOPPING
    result = learner.wait(30)
    assert isinstance(result, Comparison)
    assert result.candidate.settings == {"rate": 0.2, "ahead": 0, "rows": 4}
    # What was replaced leaves nothing.
    assert len(learner.history) == 2
    assert not learner.view.live.stale
    learner.buttons.follow_changes.value = False
    rows.value = 8
    assert learner.runs.state is State.IDLE
    # Another mode waits for its own first Run.
    learner.buttons.follow_changes.value = True
    learner.modes.value = "Memory"
    rows.value = 4
    assert learner.runs.state is State.IDLE


def test_a_change_while_another_panel_measures_is_refused_on_the_page(panel: LabPanel) -> None:
    other = LabPanel(panel.lab, seconds=0.2)
    other.run(wait=True)
    without_end(panel)
    panel.run()
    other.controls["size"].candidate.value = 32
    other.wait(30)
    assert "Another panel is measuring" in status(other)
    panel.stop()
    panel.wait(30)
    close(other)


def test_memory_shows_what_is_alive_when(learner: LabPanel) -> None:
    assert learner.modes.options == ("Time", "Memory", "Race")
    learner.modes.value = "Memory"
    leave_scenario(learner)
    learner.controls["ahead"].candidate.value = 2
    result = learner.run(wait=True)
    assert isinstance(result, MemoryComparison)
    shown = state(learner)
    assert shown["mode"] == "Memory"
    assert words(shown["head"]).startswith(f"{result.headline[1]} more memory")
    assert "forward" in words(shown["picture"])
    assert status(learner) == f"Done: {result.sentence}"
    assert view.history_row(1, result)[2] == "Memory"
    learner.buttons.code.value = True
    call = learner.view.live.code.splitlines()[0]
    assert call == "lab.timeline(rate=0.1, ahead=2)"
    assert eval(call, {"lab": learner.lab}).ratio == result.ratio
    # Time has found nothing yet, and Memory still has what it found.
    learner.modes.value = "Time"
    assert state(learner)["head"] == ""
    learner.modes.value = "Memory"
    assert state(learner)["picture"] == shown["picture"]


@pytest.mark.parametrize(
    ("before", "after", "shown", "told"),
    [
        (64, 0, "less memory", "the candidate has no tensors"),
        (0, 64, "more memory", "the baseline has no tensors"),
        (0, 0, "no tensors", "neither side has tensors"),
    ],
)
def test_memory_of_a_step_without_tensors(before: int, after: int, shown: str, told: str) -> None:
    def make_rows(rows: int = 4) -> Workload:
        return Workload(lambda: torch.ones(rows, 4).sum() if rows else None)

    panel = LabPanel(Lab(make_rows, rows=[4, 64, 0]), opens="memory")
    panel.controls["rows"].baseline.value = before
    panel.controls["rows"].candidate.value = after
    panel.bet.slider.value = 2.0
    result = panel.run(wait=True)
    assert isinstance(result, MemoryComparison)
    head = words(state(panel)["head"])
    assert head.startswith(f"{shown} {result.sentence}")
    assert f"You bet 200 %: no figure decides that, since {told}." in head
    assert view.history_row(1, result)[3] == "–"
    close(panel)


def test_a_race_says_its_target_before_it_runs_and_shows_both_sides_live(
    learner: LabPanel,
) -> None:
    states: list[dict[str, Any]] = []
    learner.view.live.observe(lambda change: states.append(change["new"]), "state")
    learner.modes.value = "Race"
    assert words(state(learner)["head"]) == "Race to loss of at most 0.01, in at most 300 steps"
    assert "target 0.01" in words(state(learner)["picture"])
    learner.bet.choices.value = "both"
    result = learner.run(wait=True)
    assert isinstance(result, RaceResult)
    assert result.lab == "make_learner" and len(result.runs) == 4
    going = [state for state in states if state.get("running")]
    assert [each["progress"] for each in going] == sorted(each["progress"] for each in going)
    head = words(state(learner)["head"])
    assert "as fast to loss of at most 0.01" in head and "You bet on both: right." in head
    # What is sure of the factor is behind "How sure?".
    certainty = result.certainty(result.arms[1])
    assert certainty not in head and certainty in words(state(learner)["sure"])
    assert learner.bet.score.value == "1 of 1 bet right"
    assert status(learner) == f"Done: {result.sentence}"
    assert view.history_row(1, result)[2] == "Race"


def test_a_race_says_how_long_it_still_takes(
    learner: LabPanel, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter((1.0, 3.0, 5.0))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    assert learner.view._left(0.5, 4) == ""
    assert learner.view._left(1.5, 4) == "at most 5 s left"
    runs = tuple(RaceRun(arm, 0, ((10, 1.0, 0.5),), True) for arm in ("a", "b"))
    learner.view._race = RaceResult(runs, 1.0, "loss", False)
    assert learner.view._left(2.5, 4) == "about 3 s left"
    monkeypatch.undo()


def test_a_race_that_explodes_is_drawn_as_well(learner: LabPanel) -> None:
    lab = Lab(make_learner, rate=[0.1, 5.0], race={**RACE, "steps": 60}, memory=False)
    panel = LabPanel(lab, opens="race")
    assert panel.modes.value == "Race"
    panel.bet.choices.value = "only the baseline"
    result = panel.run(wait=True)
    assert isinstance(result, RaceResult) and result.arrived(result.arms[1]) == 0
    head = words(state(panel)["head"])
    assert head.startswith("0 of 2 seeds") and "the baseline in 2 of 2" in head
    assert "You bet on only the baseline: right." in head
    assert "k-beyond" in state(panel)["picture"]
    close(panel)


def test_a_race_is_stopped_and_its_code_is_a_race(learner: LabPanel) -> None:
    learner.lab.race_options.update(steps=10**9, target=-1)
    leave_scenario(learner)
    learner.modes.value = "Race"
    learner.run()
    wait_until(lambda: status(learner).startswith("Training"))
    wait_until(lambda: re.fullmatch(r"at most \d+ s left", state(learner)["left"]))
    learner.stop()
    result = learner.wait(30)
    assert result is None or (isinstance(result, RaceResult) and result.stopped)
    assert state(learner)["running"] is False
    learner.buttons.code.value = True
    assert learner.view.live.code.splitlines()[0] == "lab.race({'rate': 0.1})"


@pytest.mark.parametrize(
    ("arrives", "figure", "tone"),
    [
        ((), "", "unclear"),
        (("new",), "5 of 5 seeds against 0 of 5 arrives more often", "faster"),
        (("old",), "0 of 5 seeds against 5 of 5 arrives less often", "slower"),
        (("old", "new"), "2.00×", "faster"),
    ],
)
def test_a_race_that_a_side_does_not_finish(
    arrives: tuple[str, ...], figure: str, tone: str
) -> None:
    runs = []
    for seed in range(5):
        for name, seconds in (("old", 2.0 + seed), ("new", 1.0 + seed / 2)):
            metric = 0.6 if name in arrives else 0.1
            runs.append(RaceRun(name, seed, ((10, seconds, metric),), name in arrives))
    race = RaceResult(tuple(runs), 0.5, "accuracy", True)
    head = view.head_of(race)
    assert words(head).startswith(figure or "neither arrives") and view.tone_of(race) == tone
    everything = " ".join([words(head), words(view.grounds_of(race)), *view.history_row(1, race)])
    assert not re.search(r"\binf\b|\bnan\b", everything)


def test_of_a_race_that_both_mostly_end_the_median_of_steps_is_told() -> None:
    runs = []
    for seed, (before, after) in enumerate([(520, 460), (560, 480), (580, 500), (600, 490)]):
        runs.append(RaceRun("old", seed, ((before, 1.0, 0.6),), seed < 3))
        runs.append(RaceRun("new", seed, ((after, 1.0, 0.6),), True))
    head = words(view.head_of(RaceResult(tuple(runs), 0.5, "accuracy", True)))
    assert "both arrive" in head and "Steps, in the median: 485 against 570." in head
    nobody = replace(runs[0], reached=False), replace(runs[1], reached=False), *runs[3::2]
    head = words(view.head_of(RaceResult(nobody, 0.5, "accuracy", True)))
    assert "in the median" not in head


def test_a_stopped_race_decides_no_bet_and_says_that_it_is_not_whole(learner: LabPanel) -> None:
    learner.modes.value = "Race"
    learner.bet.choices.value = "none"
    score = learner.bet.score.value
    run = learner._run_of_now()
    runs = tuple(RaceRun(name, 0, ((10, 1.0, 5.0),), False) for name in ("old", "new"))
    learner.view.begun(run)
    learner.view.finish(run, RaceResult(runs, 0.5, "loss", False, stopped=True))
    head = words(state(learner)["head"])
    assert "neither arrives so far" in head
    assert "You bet on none. Stopped: it decides no bet." in head
    assert learner.bet.score.value == score
    sure = words(state(learner)["sure"])
    assert "0 of 1 seed" in sure and "1 seeds" not in sure


def test_a_lab_without_memory_and_race_has_one_mode(panel: LabPanel) -> None:
    assert panel.modes.options == ("Time",)
    assert panel.modes.layout.display == "none"


def test_a_mode_that_is_left_ends_its_run() -> None:
    panel = LabPanel(Lab(endless, size=[8, 16]), seconds=60)
    panel.run()
    wait_until(lambda: has_pairs(panel))
    panel.modes.value = "Memory"
    result = panel.wait(30)
    assert isinstance(result, Comparison) and result.stopped
    # What it found is shown where it belongs.
    assert state(panel)["head"] == "" and state(panel)["mode"] == "Memory"
    panel.modes.value = "Time"
    assert state(panel)["picture"].startswith("<svg")
    close(panel)


NAMED = Bet("Which is faster?", "order", sides=("quick", "slow"))


@pytest.mark.parametrize("mode", ["Time", "Memory", "Race"])
def test_a_bet_s_names_stand_in_place_of_settings(learner: LabPanel, mode: str) -> None:
    learner.offer("named", NAMED, rate=0.2)
    learner.modes.value = mode
    learner.run(wait=True)
    shown = words(state(learner)["picture"] + state(learner)["sure"])
    assert "quick" in shown and "slow" in shown and "rate=" not in shown
    # The history says what was set.
    assert "0.2" in words(learner.view.live.history)
    # Where the sides are not the scenario's, its names would be wrong.
    learner.controls["rate"].candidate.value = 0.1
    learner.wait(30)
    learner.run(wait=True)
    assert "quick" not in words(state(learner)["picture"])


def test_a_race_says_by_name_who_trains_and_who_arrives(learner: LabPanel) -> None:
    learner.offer("named", NAMED, rate=0.2)
    learner.modes.value = "Race"
    learner.run(wait=True)
    assert status(learner).startswith("Done: Race to ")
    assert "quick" in status(learner) and "rate" not in status(learner)
    # What was found keeps its settings: records and stamps go by them.
    assert learner.result.arms == ("baseline", "rate=0.2")
