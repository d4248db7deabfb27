"""The runs of a panel without its widgets: one state, and cells that begin meanwhile.

Cells are run by a real IPython shell in this process.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from labkit.comparing import measuring
from labkit.lab import Lab
from labkit.panel import run as running
from labkit.panel.run import CELLS, Run, Runs, State, Watcher
from labkit.restore.switches import torch_flags
from labkit.results import Comparison, Measurement, Workload
from labkit.stages import Stage
from labkit.turn import TURN

THREAD = "labkit-panel"


class Seen(Watcher):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.results: list[Any] = []
        self.prepared: list[tuple[str, float]] = []

    def say(self, text: str, tone: str = "") -> None:
        self.said.append(text)

    def prepares(self, run: Run, stage: Stage, seconds: float) -> None:
        self.prepared.append((stage.words, seconds))

    def finish(self, run: Run, result: Any) -> str:
        self.results.append(result)
        return "Done"


def make_noise(same: int = 1) -> Workload:
    """Steps of such different lengths that no interval narrows, and that draw."""
    return Workload(lambda: (torch.rand(3), time.sleep(random.random() / 200)))


COMPARED = Comparison(Measurement("a"), Measurement("b"))
LAB = Lab(make_noise, same=[1, 2], memory=False)


def asked(work: Callable[..., Any] | None = None) -> Run:
    """A run that lasts until it is stopped."""

    def measure(tell: Any, stop: threading.Event) -> Any:
        return LAB.run(same=2, seconds=60, on_update=tell, stop=stop)

    return Run(work or measure, "Time", 60, ({"same": 1}, {"same": 2}))


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
def runs(seen: Seen) -> Iterator[Runs]:
    made = Runs(seen, asked)
    CELLS.add(made)
    yield made
    made.stop()
    assert made.wait(30)
    assert TURN.holder is None


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    made = InteractiveShell.instance()
    # Without a line in the reader's history of inputs.
    made.history_manager.enabled = False
    yield made
    InteractiveShell.clear_instance()
    CELLS.running = False


def cell(shell: InteractiveShell, source: str) -> Any:
    """Run a cell as a page does."""
    return shell.run_cell(source, store_history=True)


def measures(runs: Runs, pairs: int = 3) -> None:
    """Wait until a run has something to keep."""
    until(
        lambda: runs.latest and runs.latest.position and runs.latest.position.partial.pairs > pairs
    )


def until(reached: Callable[[], Any], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == THREAD]


# --------------------------------------------------------------------------------- the three events


def test_from_press_to_the_end(runs: Runs, seen: Seen) -> None:
    assert runs.state is State.IDLE and runs.latest is None
    runs.press(asked())
    assert runs.state is State.RUNNING and threads() == [THREAD]
    with pytest.raises(RuntimeError, match="measuring already"):
        runs.press(asked())
    measures(runs)
    runs.stop()
    assert runs.state is State.STOPPING
    assert runs.wait(30) and runs.state is State.IDLE and threads() == []
    assert seen.said[-2:] == [running.STOPPING, "Done"]
    (result,) = seen.results
    assert isinstance(result, Comparison) and result.stopped and runs.latest.number == 1
    # Nothing is said after the last word.
    runs.stop()
    assert seen.said[-1] == "Done"


def test_a_stage_is_told_once_a_second_until_there_is_a_figure(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "SECOND", 0.02)
    measured = threading.Event()

    def prepare(tell: Any, stop: threading.Event) -> Any:
        tell(Stage("Building"))
        until(lambda: len(seen.prepared) > 4)
        tell(COMPARED)
        told = len(seen.prepared)
        time.sleep(0.1)
        assert len(seen.prepared) == told
        measured.set()
        return COMPARED

    runs = Runs(seen, asked)
    runs.press(asked(prepare))
    assert runs.wait(30) and measured.is_set()
    assert {words for words, _ in seen.prepared} == {"Building"}
    seconds = [seconds for _, seconds in seen.prepared]
    assert seconds[0] == 0.0 and seconds == sorted(set(seconds))
    names = [each.name for each in threading.enumerate()]
    assert not [name for name in names if name.startswith(THREAD)]


def test_a_change_begins_a_run(runs: Runs) -> None:
    runs.change()
    assert runs.state is State.RUNNING and runs.latest.number == 1


def test_a_change_during_a_run_replaces_it(runs: Runs, seen: Seen) -> None:
    runs.press(asked())
    first = runs.latest
    measures(runs)
    runs.change()
    assert runs.state is State.STOPPING
    until(lambda: runs.latest is not first)
    measures(runs)
    # What was replaced leaves nothing.
    assert seen.results == [] and first.result is None


def test_stop_forgets_a_change(runs: Runs, seen: Seen) -> None:
    runs.press(asked())
    measures(runs)
    runs.change()
    runs.stop()
    assert runs.wait(30)
    assert runs.latest.number == 1 and len(seen.results) == 1


def test_a_change_after_stop_begins_nothing(runs: Runs) -> None:
    runs.press(asked())
    measures(runs)
    runs.stop()
    runs.change()
    assert runs.wait(30) and runs.latest.number == 1


def test_a_refused_change_is_said(runs: Runs, seen: Seen) -> None:
    with measuring(None):
        runs.change()
    assert "another measurement is running" in seen.said[0]
    assert runs.state is State.IDLE


def test_one_run_at_a_time_and_any_panel_can_stop_it(runs: Runs) -> None:
    other = Runs(Seen(), asked)
    runs.press(asked())
    with pytest.raises(RuntimeError, match="Another panel is measuring"):
        other.press(asked())
    assert running.measuring() is runs
    running.measuring().stop()
    assert runs.wait(30)
    other.press(asked())
    other.stop()
    assert other.wait(30)


def test_an_interrupt_as_the_thread_begins_leaves_the_turn_to_it(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == THREAD:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runs.press(asked())
    assert running.measuring() is runs and runs.state is State.RUNNING


def test_a_thread_that_does_not_begin_gives_the_turn_back(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda self: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            runs.press(asked())
    assert TURN.holder is None and runs.state is State.IDLE
    runs.press(asked())


class Untold(Exception):
    """An error that cannot be put in words."""

    def __str__(self) -> str:
        raise LookupError("no words")


@pytest.mark.parametrize("broken", ["finish", "over", "job"])
def test_the_turn_is_given_back_whatever_the_last_word_raises(
    runs: Runs, seen: Seen, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def untold(*_: Any) -> Any:
        raise Untold

    if broken != "job":
        monkeypatch.setattr(seen, broken, untold)
    runs.press(asked(untold) if broken == "job" else asked())
    if broken != "job":
        measures(runs)
    runs.stop()
    assert runs.wait(30)
    kind = Untold if broken == "over" else LookupError
    assert isinstance(runs.latest.error, kind)
    assert TURN.holder is None and runs.state is State.IDLE


def test_stop_a_hundred_times_leaves_no_trace(runs: Runs) -> None:
    runs.press(asked())
    runs.stop()
    # The first use of a thing may keep state for good.
    assert runs.wait(30)
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    moments = random.Random(0)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    flags, count = torch_flags(), threading.active_count()
    for _ in range(100):
        runs.press(asked())
        time.sleep(moments.random() * 0.02)
        runs.stop()
        assert runs.wait(30)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()
    assert np.array_equal(before[2], np.random.get_state()[1])
    assert flags == torch_flags()
    assert threading.active_count() == count


# -------------------------------------------------------------------------- a cell ends the run

DRAWS = """
import random, threading
import numpy, torch
alive = [each.name for each in threading.enumerate() if each.name == "labkit-panel"]
dtype = torch.get_default_dtype()
torch.manual_seed(0); numpy.random.seed(0); random.seed(0)
draws = []
for _ in range(20):
    draws.append((torch.rand(1).item(), numpy.random.rand(), random.random()))
    time.sleep(0.005)
"""


def drawn() -> list[tuple[float, float, float]]:
    """What the cell above draws where no panel is."""
    names: dict[str, Any] = {"time": time}
    exec(DRAWS, names)
    return names["draws"]


def make_double(same: int = 1) -> Workload:
    torch.set_default_dtype(torch.float64)
    return make_noise(same)


@pytest.mark.parametrize("moment", ["begun", "measuring", "waiting"])
def test_a_cell_draws_and_computes_as_without_a_panel(
    runs: Runs, seen: Seen, shell: InteractiveShell, moment: str
) -> None:
    alone = drawn()
    CELLS.add(runs)
    shell.user_ns["time"] = time
    lab = Lab(make_double, same=[1, 2], memory=False)

    def measure(tell: Any, stop: threading.Event) -> Any:
        return lab.run(same=2, seconds=60, on_update=tell, stop=stop)

    for _ in range(3):
        if moment == "waiting":
            runs.change()
        else:
            runs.press(asked(measure))
        if moment == "measuring":
            measures(runs)
        cell(shell, DRAWS).raise_error()
        assert shell.user_ns["draws"] == alone
        assert shell.user_ns["dtype"] == torch.float32 == torch.get_default_dtype()
        assert shell.user_ns["alive"] == []
        assert runs.state is State.IDLE
        assert seen.said[-1] == "Ended: another cell began. Press Run to measure again."
    if moment == "measuring":
        assert all(result.stopped and result.pairs for result in seen.results)
        assert len(seen.results) == 3


def test_what_is_drawn_after_the_run_goes_on_where_it_was(
    runs: Runs, shell: InteractiveShell
) -> None:
    """A cell that does not seed gets the draws that follow those before the run."""
    CELLS.add(runs)
    shell.user_ns["torch"] = torch
    torch.manual_seed(5)
    expected = torch.rand(4).tolist()
    torch.manual_seed(5)
    for number in range(4):
        runs.press(asked())
        measures(runs)
        cell(shell, "draw = torch.rand(1).item()").raise_error()
        assert shell.user_ns["draw"] == pytest.approx(expected[number])


def test_a_cell_says_that_it_waits_for_a_long_block(
    runs: Runs, seen: Seen, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    CELLS.add(runs)
    ended = threading.Event()

    def epoch(_: Any, __: Any) -> Any:
        ended.wait(30)
        return "kept"

    runs.press(asked(epoch))
    threading.Timer(4 * running.SILENT, ended.set).start()
    cell(shell, "print('the cell')").raise_error()
    assert ended.is_set() and seen.results == ["kept"]
    said = capsys.readouterr().out
    assert said.startswith(running.CELL_WAITS) and said.endswith("the cell\n")
    # Where the block is short, nothing is said.
    runs.press(asked())
    measures(runs)
    cell(shell, "1")
    assert running.CELL_WAITS not in capsys.readouterr().out


def test_an_interrupt_gives_the_waiting_cell_up(
    runs: Runs, seen: Seen, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]
) -> None:
    CELLS.add(runs)
    ended = threading.Event()
    runs.press(asked(lambda *_: ended.wait(30)))
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        # However long the cell takes to begin.
        while runs.state is not State.STOPPING:
            time.sleep(0.01)
        time.sleep(2 * running.SILENT)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    shell.user_ns["ran"] = False
    result = cell(shell, "ran = True")
    assert not shell.user_ns["ran"] and not result.success
    assert isinstance(result.error_in_exec, running.Interrupted)
    assert "KeyboardInterrupt: the cell did not run" in capsys.readouterr().out
    # The run still ends by itself, and cells run again.
    assert runs.state is State.STOPPING and threads() == [THREAD]
    ended.set()
    cell(shell, "ran = True").raise_error()
    assert shell.user_ns["ran"] and threads() == []


def test_what_is_no_cell_ends_no_run(runs: Runs, shell: InteractiveShell) -> None:
    """What a page asks the kernel for unseen, and the cell that starts a run itself."""
    CELLS.add(runs)
    shell.user_ns.update(runs=runs, asked=asked)
    cell(shell, "runs.press(asked())").raise_error()
    measures(runs)
    shell.run_cell("1 + 1", silent=True)
    shell.run_cell("1 + 1", store_history=False)
    assert runs.state is State.RUNNING
    cell(shell, "1 + 1")
    assert runs.state is State.IDLE


def test_nothing_begins_beside_a_cell(runs: Runs, seen: Seen, shell: InteractiveShell) -> None:
    """A kernel with subshells takes clicks while a cell runs."""
    CELLS.add(runs)
    refused = []

    def click() -> None:
        try:
            runs.press(asked())
        except RuntimeError as error:
            refused.append(str(error))

    shell.user_ns.update(click=click, threading=threading, runs=runs, time=time)
    source = "thread = threading.Thread(target=click); thread.start(); thread.join()"
    cell(shell, source).raise_error()
    assert refused == [running.CELL_RUNS] and runs.latest is None
    cell(shell, "runs.change()").raise_error()
    assert seen.said[-1] == running.CELL_RUNS and runs.latest is None
    click()
    assert runs.latest is not None
