"""The board: what is measured, shown and kept, and that no fault loses anything."""

import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ipywidgets as W
import pytest
import torch

from course.board import (
    Board,
    board,
    buttons,
    cell,
    measure,
    outlook,
    rate,
    record,
    recorded,
    store,
)
from course.board.advice import advice, advised, briefly, in_short, wants_a_whole_race
from course.board.code import code_of
from course.board.live import Lap, Live
from course.board.live import picture as race
from course.board.measure import Limit
from course.board.page import SPEEDRUN, SPOILS, html, rows
from course.board.rate import Rate, images_per_second
from course.board.stars import Stars, doublings
from course.board.store import BoardError, Choice, Choices, Figure
from course.board.table import speedrun_table
from course.board.wager import Wager
from course.board.waterfall import RAN, duration, waterfall
from course.cli import main
from course.notebook_files import read_notebook
from course.probe import Abilities
from course.switches import NEEDED, SWITCHES, TASK, label, labelled
from labkit.panel import guess
from labkit.racing import RaceResult, RaceRun
from labkit.show import Markup
from labkit.text import format_factor
from labkit.turn import TURN

ROOT = Path(__file__).resolve().parents[2]
MACHINE = "a processor, 2 cores"
OTHERS = "Other programs took 2.0 of 2 cores."


def figure(switch: str, factor: float = 2.0, **changes: Any) -> Figure:
    found = Figure(switch, "time", (), factor, (0.9 * factor, 1.1 * factor), "faster", 200.0)
    return replace(found, **changes)


def measured(switch: str) -> Board:
    """A board whose cell has measured a switch."""
    return board(switch, seconds=1)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The reader's file, which is not there yet."""
    path = tmp_path / "data" / "board.json"
    monkeypatch.setenv("LABKIT_BOARD", str(path))
    return path


@pytest.fixture
def displayed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a cell displays: its head, its buttons, its picture; then what replaces them."""
    import IPython.display

    shown: list[Any] = []
    monkeypatch.setattr(IPython.display, "display", lambda what, **_: shown.append(what))
    monkeypatch.setattr(IPython.display, "update_display", lambda what, **_: shown.append(what))
    return shown


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[str, ...]]]:
    """No measuring: every switch brings a factor of two. What was asked for is listed."""
    asked = []

    def fake(switch: str, present: tuple[str, ...], *_: Any, **__: Any) -> Figure:
        asked.append((switch, present))
        return figure(switch, on_top_of=measure.on_top_of(switch, present))

    monkeypatch.setattr(cell, "measure", fake)
    monkeypatch.setattr(cell, "images_per_second", lambda *_, **__: Rate(500.0))
    return asked


# -------------------------------------------------------------------------------- measuring


def test_a_timed_switch_is_measured() -> None:
    found = measure.measure("data_loading", ["vectorization"])
    assert (found.switch, found.mode, found.on_top_of) == (
        "data_loading",
        "time",
        ("vectorization",),
    )
    assert found.factor > 0 and found.rate > 0 and found.memory > 0
    assert found.verdict in ("faster", "slower", "same", "unclear")


class Script:
    """A speedrun without any work: its epochs move a clock that stands still else."""

    def __init__(self, without: float, with_it: float, epochs: int = 10**9) -> None:
        self.now = 0.0
        self.seconds = {False: without, True: with_it}
        self.epochs = epochs
        self.compiling = 0.0
        self.run: list[tuple[bool, int]] = []

    def clock(self) -> float:
        return self.now

    def train(self, switches: Any, task: Any, seed: int = 0) -> Any:
        """``seconds`` for each image, beside what compiling takes once in a training."""
        switched, begin = SWITCH in switches, self.now
        if "compile" in switches:
            self.now += self.compiling
        for epoch in range(1, self.epochs + 1):
            self.now += self.seconds[switched] * (task.images + task.validation)
            self.run.append((switched, task.images))
            yield self.now - begin, float(epoch == self.epochs), 0.0


SWITCH = "mixed_precision"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a `Script` in the place of the speedrun, in the sizes of a CPU."""

    def put(*seconds: float, **options: Any) -> Script:
        made = Script(*seconds, **options)
        monkeypatch.setattr(measure, "train", made.train)
        monkeypatch.setattr(time, "perf_counter", made.clock)
        monkeypatch.setattr(sys.modules["labkit.alternating"], "clock", made.clock)
        monkeypatch.setattr(measure, "SECONDS", 10.0)
        sizes = measure.TIMED._replace(images=128, validation=26)
        monkeypatch.setattr(measure, "TIMED", sizes)
        return made

    return put


@pytest.mark.parametrize(
    ("seconds", "slower"),
    [(0.001, 1), (0.004, 0.5), (0.01, 3), (0.004, 13), (0.001, 100), (0.01, 13), (0.01, 100)],
)
def test_a_switch_is_timed_within_a_minute(script: Any, seconds: float, slower: float) -> None:
    """Also a hundred times slower: epochs become shorter, and end with what there is."""
    run = script(seconds, seconds * slower)
    if 77 * seconds * (1 + slower) * 5 > 60:
        with pytest.raises(measure.TooSlow, match="no time for a single pair") as caught:
            measure.measure(SWITCH, [], most=60)
        assert caught.value.rate == pytest.approx(64 / 77 / seconds, rel=0.01)
        again = script(seconds, seconds * slower)
        found = measure.measure(SWITCH, [], most=60 * caught.value.minutes)
        assert found.pairs >= measure.CLAIM_PAIRS and found.direction == "slower"
        assert again.now <= 60 * caught.value.minutes
    else:
        found = measure.measure(SWITCH, [], most=60)
        assert found.pairs >= 1 and found.factor == pytest.approx(1 / slower)
        allowed = {0.5: ("faster", "unclear"), 1: ("same", "unclear")}
        assert found.direction in allowed.get(slower, ("slower",))
    # Of a side's first epoch nothing is known before.
    assert run.now <= max(60, 77 * seconds * (2 + slower))
    assert {images for _, images in run.run[1:]} <= {64, 128}


def test_a_quick_script_is_timed_as_ever(script: Any) -> None:
    run = script(0.001, 0.002)
    found = measure.measure(SWITCH, [], most=60)
    # Libraries are loaded, and each side is looked at.
    assert [images for _, images in run.run[:4]] == [8, 64, 64, 128]
    assert {images for _, images in run.run[4:]} == {128}
    assert found.verdict == "slower" and not found.stopped


def test_who_names_seconds_waits_for_them(script: Any) -> None:
    run = script(0.01, 1.0)
    assert measure.measure(SWITCH, [], seconds=10.0).factor == pytest.approx(0.01)
    assert run.now > 60


def test_an_epoch_has_a_whole_batch(script: Any) -> None:
    run = script(0.01, 0.03)
    measure.measure(SWITCH, ["batch_size"], most=60)
    assert {images for _, images in run.run[1:]} == {128}


def test_compiling_is_no_part_of_the_minute(script: Any) -> None:
    run = script(0.001, 0.002)
    run.compiling = 100.0
    assert measure.measure(SWITCH, ["compile"], most=60).pairs >= 1
    assert run.now > 200


@pytest.mark.parametrize(
    ("epoch", "factor", "pairs"),
    [(0.5, 1.0, 3), (5.0, 1.0, 3), (7.0, 1.0, 2), (19.0, 1.0, 1), (30.0, math.nan, 0)],
)
def test_a_race_ends_within_two_minutes(
    script: Any, epoch: float, factor: float, pairs: int
) -> None:
    """Three epochs of each side; nothing is learned before the last one. Three seeds, if they fit:
    of one alone nobody can say who arrives.
    """
    images = measure.EARLY.images + measure.EARLY.validation
    run = script(epoch / images, epoch / images, epochs=3)
    found = measure.measure("optimizers", [], most=120)
    assert found.factor == pytest.approx(factor, nan_ok=True)
    assert found.pairs == pairs and run.now <= 120


def test_a_race_without_an_epoch_of_each_side_is_no_figure(script: Any) -> None:
    images = measure.EARLY.images + measure.EARLY.validation
    script(125 / images, 125 / images, epochs=3)
    with pytest.raises(measure.TooSlow) as caught:
        measure.measure("optimizers", [], most=120)
    # Below it is batch norm: nothing is known of the slow script.
    assert math.isnan(caught.value.rate)
    script(125 / images, 125 / images, epochs=measure.EARLY.cycle)
    assert measure.measure("optimizers", [], most=60 * caught.value.minutes).pairs == 1


def test_a_race_that_is_too_slow_goes_as_far_as_both_have_come(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the time for each side: in six epochs one learns half as much as the other in two."""
    run = script(0.01, 0.03, epochs=20)

    def train(switches: Any, task: Any, seed: int = 0) -> Any:
        on = "optimizers" in switches
        begin = run.now
        for epoch in range(1, 21):
            run.now += 29.0 if on else 9.0
            yield run.now - begin, 0.12 * epoch if on else 0.04 * epoch, 0.0

    monkeypatch.setattr(measure, "train", train)
    monkeypatch.setattr(measure, "EARLY", measure.EARLY._replace(target=0.3))
    found = measure.measure("optimizers", [], most=120)
    assert run.now <= 120
    # 0.24 of the accuracy: after 54 s, and after 58 s.
    assert (found.mode, found.pairs, found.stopped) == ("cut race", 1, False)
    assert found.factor == pytest.approx(54 / 58) and found.verdict == "unclear"
    assert "as far as two minutes allowed" in str(waterfall(Choices(), found, images=20_000))


def test_a_race_that_was_stopped_has_no_figure_and_one_that_learned_nothing_no_factor(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = script(0.01, 0.03)
    stop = threading.Event()

    def train(switches: Any, task: Any, seed: int = 0) -> Any:
        for _ in range(20):
            run.now += 20.0
            yield run.now, 0.1, 0.0

    monkeypatch.setattr(measure, "train", train)
    monkeypatch.setattr(measure, "EARLY", measure.EARLY._replace(target=0.3))
    found = measure.measure("optimizers", [], most=120)
    assert math.isnan(found.factor) and found.direction == "unclear" and run.now <= 120
    assert found.rate == pytest.approx(measure.EARLY.images / 20, rel=1)
    assert "no factor, unclear" in str(waterfall(Choices(), found, images=20_000))
    end = stop.set
    with pytest.raises(measure.NoFigure, match="was stopped"):
        measure.measure("optimizers", [], most=120, stop=stop, tell=lambda *_: end())


@pytest.mark.parametrize(
    ("switch", "options", "words"),
    [
        (SWITCH, {}, "A minute at most"),
        ("optimizers", {}, "Two minutes at most"),
        ("compile", {}, "A minute at most, and compiling"),
        (SWITCH, {"seconds": 20.0}, "20 s of measuring"),
        (SWITCH, {"minutes": 6}, "6 minutes at most"),
        ("compile", {"minutes": 2.5}, "2.5 minutes at most, and compiling"),
        (SWITCH, {"whole": True}, "minutes to an hour"),
    ],
)
def test_what_is_promised_is_what_bounds(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    switch: str,
    options: dict[str, Any],
    words: str,
) -> None:
    asked = []

    def fake(*arguments: Any, **_: Any) -> Figure:
        asked.append(arguments[2:])
        return figure(switch)

    monkeypatch.setattr(cell, "measure", fake)
    monkeypatch.setattr(cell, "images_per_second", lambda *_, **__: Rate(500.0))
    Board(switch).measure(**options)
    assert words in capsys.readouterr().out
    ((seconds, whole, most),) = asked
    assert (seconds, whole) == (options.get("seconds"), options.get("whole", False))
    expected = 60 * options.get("minutes", math.inf)
    if not options:
        expected = 120 if switch == "optimizers" else 60
    assert most == pytest.approx(expected, abs=1)


def test_minutes_are_above_nothing(path: Path, figures: list[Any]) -> None:
    for minutes in (0, -1, math.nan):
        with pytest.raises(ValueError, match=f"minutes={minutes}: a number above 0"):
            board("as_tensor", minutes=minutes)
    assert not figures


def test_what_is_slow_is_timed_longer(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that there are pairs enough for a verdict, within three times as long."""
    asked = []
    run = measure.Lab.run

    def watched(self: Any, *arguments: Any, seconds: float, **settings: Any) -> Any:
        asked.append(seconds)
        return run(self, *arguments, seconds=seconds, **settings)

    monkeypatch.setattr(measure.Lab, "run", watched)
    for seconds in (0.003, 0.006, 1.0):
        script(seconds, seconds)
        measure.measure(SWITCH, [])
    quick, slow, slowest = asked
    assert quick == 10 and 10 < slow < 30 and slowest == 30


def test_a_side_that_ended_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    run = measure.Lab.run

    def ended(self: Any, *arguments: Any, seconds: float, **settings: Any) -> Any:
        asked.append(seconds)
        result = run(self, *arguments, seconds=0.1, **settings)
        gone = replace(result.candidate, times=(), builds=(), error="out of memory")
        return replace(result, candidate=gone)

    monkeypatch.setattr(measure.Lab, "run", ended)
    with pytest.raises(measure.NoFigure, match="out of memory"):
        measure.measure("data_loading", [])
    assert len(asked) == 1


def test_a_switch_that_learns_otherwise_races() -> None:
    found = measure.measure("gradient_clipping", [])
    assert found.mode == "race" and found.rate > 0


def test_a_short_race_has_batch_norm_on_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is raced may be batch norm itself, or be raced to the end: then nothing is added."""
    monkeypatch.setattr(measure, "_raced", lambda switch, below, *_: below)
    assert measure.measure("optimizers", ["as_tensor"]) == ("as_tensor", "normalization")
    assert measure.measure("optimizers", ["normalization"]) == ("normalization",)
    assert measure.measure("normalization", ["as_tensor"]) == ("as_tensor",)
    assert measure.measure("optimizers", [], whole=True) == ()


def test_a_switch_is_not_measured_on_top_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = []
    monkeypatch.setattr(
        measure, "train", lambda switches, *_: sides.append(tuple(switches)) or iter([(1, 1, 1)])
    )
    measure.run_once(measure.EARLY, "on", ("as_tensor",), 0)
    monkeypatch.setattr(measure, "_raced", lambda switch, below, *_: below)
    below = ["normalization", "optimizers"]
    assert measure.measure("optimizers", below) == ("normalization",)
    assert sides == [("as_tensor",)]


def test_a_race_has_pairs_of_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switched side takes half the epochs; the whole task is raced on five seeds."""

    def train(switches: Any, task: Any, seed: int) -> Any:
        epochs = 1 if switches else 2
        for epoch in range(1, epochs + 1):
            yield 10.0 * epoch, 1.0 if epoch == epochs else 0.0, 0.0

    monkeypatch.setattr(measure, "train", train)
    found = measure.measure("optimizers", [], whole=True)
    assert found.mode == "whole race" and found.factor == pytest.approx(2)
    assert found.rate == pytest.approx(TASK.images / 10)
    result = measure.race_to(TASK, {"off": (), "on": ("optimizers",)})
    assert [run.seed for run in result.of("on")] == [0, 1, 2, 3, 4]


def test_a_race_that_is_interrupted_has_its_complete_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def train(switches: Any, task: Any, seed: int) -> Any:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(seed)
        yield 1.0, 1.0, 0.0

    monkeypatch.setattr(measure, "train", train)
    result = measure.race_to(TASK, {"off": (), "on": ("optimizers",)})
    assert result.stopped and len(result.runs) == 2


def test_a_race_gives_back_the_flags_that_a_switch_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.backends.cudnn.benchmark
    seen = []

    def train(switches: Any, *_: Any) -> Any:
        seen.append(torch.backends.cudnn.benchmark)
        torch.backends.cudnn.benchmark = not before
        yield 1.0, 1.0, 0.0

    monkeypatch.setattr(measure, "train", train)
    measure.race_to(TASK, {"off": (), "on": ("cudnn_benchmark",)})
    assert seen == [before] * 10
    assert torch.backends.cudnn.benchmark == before


def test_the_slow_script_tells_its_rate() -> None:
    assert images_per_second(0.05) > 0


@pytest.mark.parametrize(
    ("seconds", "epochs"), [(0.001, [8, 64, 128, 128]), (0.05, [8, 64, 64, 64, 64]), (1, [8, 64])]
)
def test_a_slow_script_is_timed_by_a_single_batch(
    script: Any, monkeypatch: pytest.MonkeyPatch, seconds: float, epochs: list[int]
) -> None:
    """The first epoch loads libraries, and an epoch longer than the budget is the only one."""
    run = script(seconds, seconds)
    monkeypatch.setattr(rate, "TIMED", measure.TIMED)
    found = images_per_second(5.0)
    assert [images for _, images in run.run][: len(epochs)] == epochs
    assert found == pytest.approx(64 / 77 / seconds, rel=0.01)


def test_a_rate_that_is_stopped_is_what_is_known(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(1.0, 1.0)
    monkeypatch.setattr(rate, "TIMED", measure.TIMED)
    stop, seen = threading.Event(), []

    def tell(live: Live) -> None:
        seen.append((live.seconds, live.doing))
        if live.seconds:
            stop.set()

    assert math.isnan(images_per_second(5.0, stop=stop, tell=tell))
    assert seen == [(0, "timing the slow script"), (10, "timing the slow script")]


# ------------------------------------------------------------------------- keeping and showing


def test_what_is_kept_is_measured_on_top_of(
    path: Path, figures: list[tuple[str, tuple[str, ...]]]
) -> None:
    measured("data_loading").keep()
    measured("as_tensor").leave()
    measured("mixed_precision").keep()
    assert figures == [
        ("data_loading", ()),
        ("as_tensor", ("data_loading",)),
        ("mixed_precision", ("data_loading",)),
    ]
    again = Board()
    assert again.choices.switches == ("data_loading", "mixed_precision")
    content = json.loads(path.read_text())
    assert content["schema"] == 1
    (machine,) = content["machines"].values()
    assert [entry["kept"] for entry in machine["switches"].values()] == [True, False, True]


def test_a_path_does_not_name_the_reader_s_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert store.shown(tmp_path / "data" / "board.json") == str(Path("~/data/board.json"))
    assert store.shown(Path("/elsewhere/board.json")) == str(Path("/elsewhere/board.json"))


def test_a_figure_is_saved_as_not_kept_before_a_choice(path: Path, figures: list[Any]) -> None:
    """The next notebook's board knows that it was tried."""
    shown = measured("data_loading")
    assert shown.undecided and not shown.said
    later = Board("as_tensor")
    assert later.choices.switches == () and later.choices.rate == 200.0
    assert "1 of 22 switches tried" in str(later)
    shown.keep()
    # What is kept changes by a choice alone.
    before = path.read_text()
    again = measured("data_loading")
    assert again.undecided and path.read_text() == before


def test_a_choice_may_be_changed(path: Path, figures: list[Any]) -> None:
    shown = measured("data_loading")
    shown.keep()
    shown.leave()
    assert Board().choices.switches == ()


def test_keeping_needs_a_figure(path: Path) -> None:
    with pytest.raises(ValueError, match=r"board\('data_loading', minutes=1\)"):
        board().keep()


def test_an_unknown_switch_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="'amp': no such switch"):
        board("amp")


def test_in_the_test_size_no_file_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, figures: list[Any]
) -> None:
    for variable in ("XDG_DATA_HOME", "HOME", "APPDATA"):
        monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("LABKIT_BOARD", raising=False)
    shown = measured("data_loading")
    shown.keep()
    assert "nothing is saved" in shown.said
    assert list(tmp_path.iterdir()) == []
    assert tmp_path in store.board_path().parents


def bars(page: str) -> list[tuple[str, str]]:
    """Of the picture of a board: the lengths of what is thick, of 624 in all, and what it is."""
    pattern = r'width="([\d.]+)" height="14" class="k-(fill k-\w+|floor|band k-\w+)'
    return re.findall(pattern, page)


def hatched(page: str) -> list[str]:
    """What is hatched, by its tone."""
    return re.findall(r'class="k-line k-thin k-(\w+) k-hatched"', page)


def test_the_waterfall_multiplies() -> None:
    kept = Choices().with_choice(Choice(figure("data_loading"), kept=True))
    kept = kept.with_choice(Choice(figure("as_tensor", on_top_of=("data_loading",)), kept=False))
    latest = figure("mixed_precision", 1.25, on_top_of=("data_loading",))
    found = waterfall(kept, latest, images=20_000)
    assert [(step.name, step.after) for step in found.steps] == [
        ("slow script", 100.0),
        ("data_loading", 50.0),
        ("mixed_precision", 40.0),
    ]
    assert found.left == ("as_tensor",) and found.tried == 3
    text, page = str(found), html(found)
    for part in ("100 s → 40 s", "50 s", "1.25x", "if you keep it", "keep it?", "as_tensor"):
        assert part in text
    assert "Together: 2.50x." in text and f"3 of {len(SWITCHES)} switches tried" in page
    # The ghosts of slow script and today, then what each switch left, and in grey what it took.
    assert bars(page) == [
        ("624", "band k-baseline"),
        ("312", "band k-candidate"),
        ("312", "fill k-candidate"),
        ("312", "floor"),
        ("249.6", "fill k-faster"),
        ("62.4", "floor"),
    ]
    assert not hatched(page)


def test_a_race_that_nobody_won_changes_no_bar() -> None:
    lost = figure("optimizers", math.nan, interval=(math.nan, math.nan), verdict="unclear")
    found = waterfall(Choices(), lost, images=20_000)
    assert [step.after for step in found.steps] == [100.0, 100.0]
    assert "no factor, not counted" in html(found) and "no factor, unclear" in str(found)


def test_an_unclear_gain_is_hatched_and_not_counted() -> None:
    odd = figure("data_loading", 1.5, interval=(0.9, 2.4), verdict="unclear")
    choices = Choices().with_choice(Choice(odd, kept=True))
    found = waterfall(choices, figure("as_tensor", 2.0), images=20_000)
    assert [step.after for step in found.steps] == [100.0, 100.0, 50.0]
    text, page = str(found), html(found)
    assert "100 s → 50 s" in text and "Together: 2.00x." in text
    assert "Without a clear factor: data_loading: 1.50x unclear, not counted" in text
    # What the reader has today, and the bar of the switch.
    assert hatched(page) == ["candidate", "unclear"]


def busy() -> Choices:
    """What was kept on a busy machine: nothing is clear, and one was raced alone."""
    unclear = {"verdict": "unclear", "interval": (0.6, 2.6), "disturbed": True}
    figures = [
        figure("vectorization", 1.5, **unclear),
        figure("debug_tools", 1.25, **unclear),
        figure("normalization", 5.0, mode="race", **unclear),
        # Small, and beside other programs.
        figure("decode_once", 1.2, disturbed=True),
    ]
    choices = Choices(rate=200.0)
    for each in figures:
        choices = choices.with_choice(Choice(each, kept=True))
    return choices


def test_what_is_not_clear_makes_a_rough_total_that_nothing_follows() -> None:
    found = waterfall(busy(), None, images=20_000)
    rough = "rough: 4 of 4 kept switches are not clear yet; without batch norm: a short race makes"
    # 1.5 times 1.25 times 1.2: what was raced is not in it.
    assert found.today == pytest.approx(100 / 2.25) and found.today_in_words() == "about 44 s"
    for shown in (str(found), html(found)):
        assert rough in shown and "about 44 s" in shown and "by what is clear so far" in shown
    long, tone = bars(html(found))[1]
    assert (float(long), tone) == (pytest.approx(624 / 2.25, abs=0.1), "band k-candidate")
    assert hatched(html(found)) == ["candidate", *4 * ["unclear"]]
    # Sure figures stay, and no star is won.
    assert {step.after for step in found.steps} == {
        100.0
    } and found.of_your_script() == "about 100 s"
    assert found.stars.won == 0 and found.stars.estimate == 1 and "☆☆☆" in html(found)
    untimed = waterfall(replace(busy(), disturbed=True), None, images=20_000)
    assert untimed.today_in_words() == "about 2.2×" and rough in html(untimed)
    # A clear one is counted as ever, and what is not decided yet is not in it.
    latest = figure("channels_last", 4.0, verdict="unclear", interval=(0.5, 9.0))
    both = busy().with_choice(Choice(figure("as_tensor"), kept=True))
    found = waterfall(both, latest, images=20_000)
    assert found.today == pytest.approx(50 / 2.25) and "rough: 4 of 5 kept" in html(found)


def test_a_run_or_a_missed_target_leaves_nothing_rough() -> None:
    ran = busy().with_run(store.Run(busy().switches, 40.0))
    found = waterfall(ran, None, images=20_000)
    assert (found.today_in_words(), found.provisional.words) == ("40 s", "")
    # What was kept since then is rough on top of it.
    later = figure("as_tensor", 2.0, verdict="unclear", interval=(0.5, 9.0))
    found = waterfall(ran.with_choice(Choice(later, kept=True)), None, images=20_000)
    assert found.today == 20.0 and found.provisional.words.startswith(
        "rough: 1 of 5 kept switches is"
    )
    missed = replace(busy().with_run(store.Run(busy().switches, math.inf)), disturbed=True)
    never = busy().with_choice(Choice(figure("optimizers", 0.0), kept=True))
    for each in (missed, never):
        assert waterfall(each, None, images=20_000).provisional.words == ""


def test_bars_agree_with_their_figures_and_what_is_not_counted_is_hatched_to_its_end() -> None:
    shown = rows(waterfall(busy(), None, images=20_000))
    assert [row.before / row.after for row in shown] == pytest.approx([1.5, 1.25, 5.0, 1.2])
    assert all(row.hatched for row in shown)
    assert "floor" not in [kind for _, kind in bars(html(waterfall(busy(), None, images=20_000)))]


def test_a_gain_in_all_pairs_counts_as_about_so_much() -> None:
    """What was kept for it would else move nothing."""
    sure = few(2.0, pairs=6, agree="faster", interval=(0.098, 26.78))
    found = waterfall(Choices(), sure, images=20_000)
    assert found.steps[-1].after == 50.0 and hatched(html(found)) == ["unclear"]
    for text in (str(found), html(found)):
        assert "100 s → about 50 s" in text and "Together: about 2.00x." in text
        assert "faster in all 6 pairs" in text and "0.098" not in text
    choice = Choice(sure, kept=True)
    kept = replace(waterfall(Choices().with_choice(choice), None, images=20_000), decided=choice)
    assert "✓ about 50 s less" in html(kept)


def test_times_are_speeds_while_the_slow_script_is_not_timed() -> None:
    """A race comes first: its rate is that of a script with batch norm."""
    raced = figure("optimizers", 2.0, on_top_of=("normalization",), mode="race")
    found = waterfall(Choices(), raced, images=20_000)
    # Raced to an early accuracy it says nothing of the whole way.
    assert str(found).startswith("1× as fast as the slow script; 1 of 22")
    assert hatched(html(found)) == ["unclear"]
    timed = waterfall(Choices(), figure("as_tensor", on_top_of=("compile",)), images=20_000)
    assert str(timed).startswith("about 2.00× as fast as the slow script; if you keep it")
    assert bars(html(timed))[-2:] == [("312", "fill k-faster"), ("312", "floor")]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(8.84, "8.8 s"), (88, "88 s"), (1050, "17.5 min"), (6_100, "1.7 h"), (math.nan, "?")],
)
def test_a_duration_in_words(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def few(factor: float, pairs: int = 2, agree: str = "slower", **changes: Any) -> Figure:
    """A factor of too few pairs for an interval."""
    nothing = {"interval": (math.nan, math.nan), "verdict": "unclear"}
    return figure("mixed_precision", factor, **nothing | changes, pairs=pairs, agree=agree)


def test_a_loss_in_all_pairs_is_drawn_and_told() -> None:
    found = waterfall(Choices(), few(0.078), images=20_000)
    assert [round(step.after) for step in found.steps] == [100, 1282]
    page = html(found)
    for text in (str(found), page):
        assert "1.000x" not in text and "1.00x" not in text
        assert "100 s → about 21.4 min" in text and "slower in both pairs" in text
        assert "costs about 12.82 times the time" in text and "better not kept" in text
        assert "keep it?" not in text and "Together: about 0.078x" in text
    assert 'data-verdict="slower"' in page
    # To the right of what it took before: up to the end, where it is the longest.
    assert bars(page)[-1] == ("48.7", "fill k-candidate") and hatched(page) == ["slower"]
    assert "L624 " in page
    assert "decide nothing" not in str(found) + page


def test_a_clear_loss_is_solid() -> None:
    page = html(waterfall(Choices(), few(0.5, verdict="slower"), images=20_000))
    assert bars(page)[-2:] == [("312", "fill k-candidate"), ("312", "fill k-slower")]
    assert not hatched(page)


def test_a_target_out_of_reach_is_no_bar_that_looks_like_before() -> None:
    page = html(waterfall(Choices(), few(0.0), images=20_000))
    assert hatched(page) == ["slower"] and "target reached only without it" in page


@pytest.mark.parametrize(
    ("measured", "direction"),
    [
        (few(0.5), "slower"),
        (few(0.5, pairs=1), "slower"),
        (few(0.5, agree=""), "unclear"),
        (few(2.0, pairs=6, agree="faster"), "faster"),
        (few(2.0, pairs=5, agree="faster"), "unclear"),
        (few(math.inf, pairs=1, agree="faster", interval=(math.inf, math.inf)), "unclear"),
        (few(0.5, interval=(0.3, 0.9), agree=""), "slower"),
        (few(0.9, interval=(0.7, 1.1), agree=""), "unclear"),
        (few(1.5, interval=(1.2, 1.9), agree=""), "faster"),
        (few(0.99, interval=(0.985, 0.995), agree="slower", verdict="same"), "same"),
        (few(0.0, agree="slower"), "slower"),
        (few(math.nan, pairs=0, agree=""), "unclear"),
        # It was bet on: nothing shows which way it goes, and it is little.
        (few(0.99, interval=(0.95, 1.03), agree=""), "same"),
        (few(0.97, interval=(0.95, 0.99), agree=""), "slower"),
        (few(1.0, interval=(0.9, 1.11), agree=""), "unclear"),
    ],
)
def test_a_direction_is_measured_where_interval_or_all_pairs_tell_it(
    measured: Figure, direction: str
) -> None:
    assert measured.direction == direction
    expected = {"slower": "leave", "faster": "keep"}.get(direction, "")
    assert advised(measured) == expected


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (
            few(0.5, pairs=1),
            "better not kept here: it costs about 2.00 times the time, slower in the only pair",
        ),
        (few(0.5, pairs=3), "it costs about 2.00 times the time, slower in all 3 pairs"),
        (few(0.5, verdict="slower"), "better not kept here: it costs 2.00 times the time"),
        (few(0.0), "better not kept here: it kept the training from its target"),
        (few(2.0, 6, "faster"), "faster here in all 6 pairs; by how much is not clear yet"),
        (few(2.0, verdict="faster"), "is 2.00 times as fast here: worth keeping"),
        (few(1.0, verdict="same"), "makes no difference here"),
        (few(1.1, agree=""), "the 2 pairs differ too much. More time would help"),
        (few(1.1, agree="", disturbed=True), "Close some, and measure it longer"),
        (few(1.1, agree="", stopped=True), "Let it run to its end"),
        (few(0.99, agree="", interval=(0.95, 1.03)), "difference that shows, less than 10 %"),
    ],
)
def test_the_advice_says_on_what_it_rests(measured: Figure, words: str) -> None:
    assert words in advice(measured)
    assert words in str(waterfall(Choices(), measured, images=20_000))


def test_the_product_is_never_told_of_what_has_no_factor() -> None:
    alone = figure("normalization", math.inf, interval=(math.inf, math.inf))
    text = str(waterfall(Choices(), alone, images=20_000))
    assert "1.00" not in text and "target reached only with it" in text
    kept = Choices().with_choice(Choice(figure("as_tensor"), kept=True))
    text = str(waterfall(kept, few(0.25), images=20_000))
    assert "Together: about 0.50x." in text


def test_what_all_pairs_say_is_kept_with_the_figure(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [measure.agreed(ratios) for ratios in ((0.5, 0.7), (1.4,), (0.5, 1.5), (1.0,), ())] == [
        *("slower", "faster", "", "", ""),
    ]
    # A few that are near 1 agree by luck.
    assert [measure.agreed((0.95,) * pairs) for pairs in (1, 5, 6)] == ["", "", "slower"]
    store.change(path, MACHINE, lambda choices: choices.with_choice(Choice(few(0.5), kept=True)))
    (choice,) = store.read(path, MACHINE).kept
    assert repr(choice.figure) == repr(few(0.5))
    # Files from before have neither.
    content = json.loads(path.read_text())
    for name in ("pairs", "agree"):
        del content["machines"][MACHINE]["switches"]["mixed_precision"][name]
    path.write_text(json.dumps(content))
    (choice,) = store.read(path, MACHINE).kept
    assert (choice.figure.pairs, choice.figure.direction) == (0, "unclear")


def test_a_loss_that_is_kept_all_the_same_is_told(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    factors = iter((0.078, 0.077, 0.076))
    monkeypatch.setattr(cell, "measure", lambda *_, **__: few(next(factors)))
    found = measured("mixed_precision")
    found.keep()
    assert "Kept, in" in found.said and "costs about 12.82 times the time" in found.said
    assert "measured on top of it" in found.said
    found.leave()
    assert "on top of it" not in found.said
    capsys.readouterr()
    assert main(["board", "mixed_precision"]) == 0
    assert "better not kept" in capsys.readouterr().out
    assert main(["board", "mixed_precision", "--keep"]) == 0
    told = capsys.readouterr().out
    assert "measured on top of it" in told and "--leave" in told
    assert Board().choices.switches == ("mixed_precision",)


@pytest.mark.parametrize(
    ("found", "primary"),
    [
        (few(2.0, pairs=6, agree="faster"), ["Keep it"]),
        (few(0.5), ["Do not keep it"]),
        (few(1.0, agree=""), []),
    ],
)
def test_the_advised_button_is_the_primary_one(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    displayed: list[Any],
    found: Figure,
    primary: list[str],
) -> None:
    monkeypatch.setattr(cell, "measure", lambda *_, **__: found)
    measured("mixed_precision")._ipython_display_()
    buttons = displayed[1].children[1:-1]
    assert [each.description for each in buttons if each.button_style == "primary"] == primary
    assert {each.button_style for each in buttons} <= {"primary", ""}


def test_without_figures_it_says_so(path: Path) -> None:
    assert "not timed" in str(board()) and "not timed" in board()._repr_html_()
    # Nor has anybody recorded this task.
    assert recorded.nearest() is None and "recorded" not in str(board())


def test_figures_survive_the_file(path: Path) -> None:
    odd = figure("optimizers", math.inf, interval=(math.nan, math.inf), memory=math.nan)
    store.change(path, MACHINE, lambda choices: choices.with_choice(Choice(odd, kept=True)))
    (choice,) = store.read(path, MACHINE).kept
    assert repr(choice.figure) == repr(odd)
    assert store.read(path, "another one") == Choices() or math.isnan(
        store.read(path, "another one").rate
    )


# What a figure can be answered with.
CHOICES = ["Keep it", "Do not keep it", "Measure again (a minute at most)"]


def pressable(shown: list[Any]) -> list[str]:
    """The buttons that a displayed board has now."""
    return [each.description for each in shown[1].children if isinstance(each, W.Button)]


def press(shown: list[Any], text: str) -> None:
    """Press the button that begins so."""
    buttons = [each for each in shown[1].children if isinstance(each, W.Button)]
    (found,) = [each for each in buttons if each.description.startswith(text)]
    found.click()


def said(shown: list[Any]) -> str:
    """The words behind the buttons."""
    return str(shown[1].children[-1].value)


def test_the_cell_shows_head_buttons_and_picture(
    path: Path, figures: list[Any], displayed: list[Any]
) -> None:
    found = measured("data_loading")
    found._ipython_display_()
    head, _, body = displayed
    assert "loading by workers" in head["text/html"] and "keep it?" in head["text/plain"]
    assert "<svg" in body["text/html"] and "<svg" not in head["text/html"]
    assert pressable(displayed) == CHOICES
    press(displayed, "Keep it")
    assert found.choices.switches == ("data_loading",) and "Kept" in said(displayed)
    assert "if you keep it" not in displayed[-2]["text/html"]
    assert "✓ 2.9 s less" in displayed[-2]["text/html"]
    assert "</b> kept." in displayed[-2]["text/html"]
    # What was pressed goes, and can be taken back, or measured again.
    assert pressable(displayed)[:2] == ["Undo", "Measure again (a minute at most)"]
    assert pressable(displayed)[2].startswith("Run your script (about ")
    press(displayed, "Undo")
    assert Board().choices.switches == () and "Undone" in said(displayed)
    assert pressable(displayed) == CHOICES
    press(displayed, "Do not keep it")
    assert Board().choices.switches == () and "Not kept" in said(displayed)
    assert "data_loading" in Board().choices.made


# ------------------------------------------------------------------------- measured by a button


def test_a_cell_measures_nothing_by_itself(
    path: Path, figures: list[Any], displayed: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shown = board("data_loading")
    shown._ipython_display_()
    assert not figures and capsys.readouterr().out == ""
    assert SWITCHES["data_loading"].text in displayed[0]["text/html"]
    assert pressable(displayed) == ["Measure it (a minute at most)"]
    press(displayed, "Measure it")
    shown.wait(10)
    assert figures == [("data_loading", ())]
    assert pressable(displayed) == CHOICES
    assert not Board().choices.kept


def test_an_empty_board_has_no_button(path: Path, displayed: list[Any]) -> None:
    board()._ipython_display_()
    assert pressable(displayed) == []
    with pytest.raises(ValueError, match="name the switch"):
        board().start()


@pytest.fixture
def epochs(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A speedrun whose epochs take no time once this is set; each waits for it before."""
    free, measuring = threading.Event(), threading.Event()

    def train(switches: Any, task: Any, seed: int = 0) -> Any:
        while True:
            measuring.set()
            free.wait(10)
            yield 0.001, 0.0, 0.0

    monkeypatch.setattr(measure, "train", train)
    free.began = measuring  # type: ignore[attr-defined]
    return free


def test_a_cell_that_begins_ends_it(
    path: Path, displayed: list[Any], epochs: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    press(displayed, "Measure it")
    assert epochs.began.wait(10)
    assert pressable(displayed) == ["Stop"] and "<progress" in said(displayed)
    assert shown._buttons is not None
    threading.Timer(0.1, epochs.set).start()
    shown._buttons.runs.make_way()
    assert said(displayed).count("another cell began") == 1
    assert pressable(displayed) == ["Measure it (a minute at most)"]
    assert shown.latest is None


def test_stop_ends_it(path: Path, displayed: list[Any], epochs: Any) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    press(displayed, "Measure it")
    assert epochs.began.wait(10)
    # No second one beside it.
    with pytest.raises(RuntimeError, match="measuring already"):
        shown.start()
    press(displayed, "Stop")
    epochs.set()
    shown.wait(10)
    assert "stopped before there was a figure. Nothing has changed" in said(displayed)


def test_what_was_found_before_a_stop_stands(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = measured("data_loading")
    found = shown.latest

    def stopped(*_: Any, **__: Any) -> Figure:
        raise measure.NoFigure("it was stopped before there was a figure")

    monkeypatch.setattr(cell, "measure", stopped)
    shown.measure(1)
    assert shown.latest is found and shown.undecided
    assert "stopped before there was a figure" in shown.said
    shown.keep()
    shown.measure(1)
    assert shown.latest is found and shown.undoable and not shown.undecided


def test_an_error_is_told_and_raised(
    path: Path, displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> Figure:
        raise FloatingPointError("the step returned nan")

    monkeypatch.setattr(cell, "measure", fails)
    shown = board("as_tensor")
    shown._ipython_display_()
    press(displayed, "Measure it")
    with pytest.raises(FloatingPointError, match="returned nan"):
        shown.wait(10)
    assert "FloatingPointError: the step returned nan" in said(displayed)


def test_beside_a_measurement_it_is_refused(path: Path, displayed: list[Any]) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    other = threading.Thread()
    TURN.take(other)
    try:
        press(displayed, "Measure it")
    finally:
        TURN.give_back_to(0, other)
    assert "another measurement is running" in said(displayed)
    assert pressable(displayed) == ["Measure it (a minute at most)"]


# --------------------------------------------------------------------- where it is too slow


def too_slow(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A switch that needs six minutes; what it was allowed is listed, in seconds."""
    allowed: list[float] = []

    def fake(switch: str, *arguments: Any, **_: Any) -> Figure:
        allowed.append(arguments[-1])
        if arguments[-1] < 350:
            raise measure.TooSlow("no time", 9.0, 6)
        return figure(switch)

    monkeypatch.setattr(cell, "measure", fake)
    return allowed


def test_a_button_takes_the_time_that_a_switch_needs(
    path: Path, displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = too_slow(monkeypatch)
    shown = board("vectorization")
    shown._ipython_display_()
    press(displayed, "Measure it")
    shown.wait(10)
    patient = "Take the time it needs (about 6 min)"
    assert pressable(displayed) == [patient, "Measure it (a minute at most)"]
    assert [each.button_style for each in displayed[1].children[2:4]] == ["primary", ""]
    assert "it needs more than a minute here" in said(displayed)
    assert "minutes=" not in said(displayed)
    # The rate that was seen stays, also for later boards.
    assert shown.choices.rate == Board().choices.rate == 9.0
    assert "9.00 images/s" in str(shown) and "?" not in str(shown).splitlines()[0]
    press(displayed, "Take the time")
    shown.wait(10)
    assert allowed == [pytest.approx(60, abs=1), pytest.approx(360, abs=1)]
    assert pressable(displayed) == CHOICES and shown.needs == 0


def test_without_buttons_a_command_takes_the_time(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = too_slow(monkeypatch)
    assert main(["board", "vectorization"]) == 1
    told = capsys.readouterr().out
    command = "python -m course board vectorization --minutes 6"
    assert command in told and "board('vectorization', minutes=6)" in told
    assert "seconds=10" not in told
    found = Board("vectorization")
    found.measure()
    assert command in found._repr_html_()
    assert main(command.split()[3:]) == 0
    assert allowed[-1] == pytest.approx(360, abs=1)
    assert board("vectorization", minutes=6).latest is not None
    assert main(["board", "--minutes", "6"]) == 2


def test_what_is_done_is_told_with_seconds_that_count(
    path: Path, displayed: list[Any], epochs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buttons, "SELDOM", 0.05)
    shown = board("as_tensor")
    shown._ipython_display_()
    press(displayed, "Measure it")
    assert epochs.began.wait(10)
    end = time.monotonic() + 10
    # The first epoch does not end before it may, and all the same they count.
    while "58 s left at most: loading libraries" not in said(displayed):
        assert time.monotonic() < end, said(displayed)
        time.sleep(0.05)
    press(displayed, "Stop")
    epochs.set()
    shown.wait(10)
    time.sleep(0.2)
    assert "left at most" not in said(displayed)


def test_each_side_is_named_while_it_is_looked_at(script: Any) -> None:
    told: list[str] = []
    script(0.001, 0.002)
    measure.measure(SWITCH, [], most=60, tell=lambda live: told.append(live.doing))
    assert list(dict.fromkeys(told)) == [
        *("loading libraries", "an epoch without it", "an epoch with it", "both in turn"),
    ]
    told.clear()
    script(0.001, 0.002, epochs=3)
    measure.measure("optimizers", [], most=120, tell=lambda live: told.append(live.doing))
    told = [each for each in dict.fromkeys(told) if each]
    # They take turns in being the first.
    assert told[:3] == [
        *("training without it, seed 1", "training with it, seed 1", "training with it, seed 2"),
    ]


# ------------------------------------------------------------------------ beside other programs


def test_a_disturbed_rate_says_so_until_it_is_taken_anew(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine
) -> None:
    images = recorded.images_to_target()
    slow = Rate(images / 10_000, OTHERS)
    shown = board(rate=slow)
    assert shown.said == OTHERS
    # Also on the board of another notebook, beside what the recorded machine took.
    for text in (str(shown), shown._repr_html_(), str(Board()), html(Board("as_tensor").waterfall)):
        assert text.count("Other programs took the cores") == 1
        # Its seconds are rough, and those of the recorded machine stand beside them.
        assert "about 2.8 h" in text and "on a recorded machine 3.1 min → 19 s" in text
    assert json.loads(path.read_text())["machines"][shown.machine]["disturbed"] is True
    # The first one that is not takes its place, and gives way to no disturbed one.
    board(rate=Rate(images / 300))
    text = str(board(rate=slow))
    assert text.startswith("5.0 min until") and "Other programs took the cores" not in text
    assert "The recorded machine" not in text


def test_the_next_measurement_times_a_disturbed_script_anew(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = figure("as_tensor", rate=9.0, disturbed=True)
    rates: list[Rate] = [Rate(10.0, OTHERS), Rate(500.0)]
    monkeypatch.setattr(cell, "images_per_second", lambda *_, **__: rates.pop(0))
    store.change(path, Board().machine, lambda found: found.with_choice(Choice(noisy, kept=True)))
    assert Board().choices.disturbed and Board().choices.kept[0].figure.disturbed
    # Each measurement on top of others takes it, until one was alone.
    for rate_now, disturbed in ((10.0, True), (500.0, False), (500.0, False)):
        found = measured("compile")
        assert (found.choices.rate, found.choices.disturbed) == (rate_now, disturbed)
    assert not rates and Board().choices.rate == 500.0


def test_a_switch_on_the_slow_script_times_it(path: Path, figures: list[Any]) -> None:
    board(rate=Rate(9.0, OTHERS))
    found = measured("as_tensor")
    assert "a disturbed estimate" not in str(found) and found.waterfall.rate == 200.0
    found.leave()
    assert Board().choices.sure and Board().choices.rate == 200.0
    # A disturbed one does not take its place, seen or kept.
    noisy = figure("compile", rate=9.0, disturbed=True)
    choices = Board().choices
    assert waterfall(choices, noisy, images=20_000).rate == 200.0
    assert choices.with_choice(Choice(noisy, kept=True)).rate == 200.0
    # A race has batch norm below it, and cannot.
    path.unlink()
    assert measured("optimizers").choices.rate == 500.0


# ------------------------------------------------------------------------------------------ undo


def test_undo_gives_back_what_the_file_had(path: Path, figures: list[Any]) -> None:
    for switch in ("data_loading", "as_tensor", "mixed_precision"):
        measured(switch).keep()
    before = path.read_text()
    again = measured("as_tensor")
    again.leave()
    assert path.read_text() != before
    again.undo()
    assert path.read_text() == before
    with pytest.raises(ValueError, match="no choice to undo"):
        again.undo()


def test_undo_leaves_what_another_kernel_chose_meanwhile(path: Path, figures: list[Any]) -> None:
    first = measured("as_tensor")
    first.keep()
    measured("compile").keep()
    first.undo()
    assert Board().choices.switches == ("compile",)


def test_undo_leaves_the_rate_of_the_slow_script(path: Path, figures: list[Any]) -> None:
    """It was measured, not chosen."""
    shown = measured("as_tensor")
    shown.keep()
    shown.undo()
    assert Board().choices.rate == 200.0 and not Board().choices.kept


# --------------------------------------------------------------------------------------- memory


def test_memory_is_a_second_bar_where_it_was_measured() -> None:
    lean = figure("as_tensor", memory=0.5, peak=64.0 * 2**20)
    kept = Choices().with_choice(Choice(lean, kept=True))
    found = waterfall(kept, figure("mixed_precision"), images=20_000)
    page = html(found)
    assert (
        page.count('class="k-fill k-arm4"') == 1 and "32.0 MiB" in page and "32.0 MiB" in str(found)
    )


def test_memory_that_a_switch_adds_has_the_colour_of_what_is_added() -> None:
    page = {}
    for memory in (0.5, 2.0):
        more = figure("as_tensor", memory=memory, peak=64.0 * 2**20)
        found = waterfall(Choices().with_choice(Choice(more, kept=True)), None, images=20_000)
        page[memory] = html(found).count('class="k-fill k-slower"')
    assert page[2.0] == page[0.5] + 1


def test_what_is_compiled_is_not_in_a_figure_and_is_in_a_run() -> None:
    compiled, other = (advice(figure(name, 1.3)) for name in ("compile", "as_tensor"))
    assert "Your run compiles, too" in compiled and "compiles" not in other


def test_a_switch_for_memory_opens_on_memory_and_names_its_price(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lean = figure("activation_checkpointing", 0.8, verdict="slower", memory=0.5, peak=64.0 * 2**20)
    monkeypatch.setattr(cell, "measure", lambda *_, **__: lean)
    shown = measured("activation_checkpointing")
    assert shown.waterfall.saves == "memory" and measured("as_tensor").waterfall.saves == "time"
    page = shown._repr_html_()
    # Half of the thick bar is left, and the thin one has the seconds.
    assert bars(page)[-2:] == [("312", "fill k-arm4"), ("312", "floor")]
    assert "64.0 MiB → 32.0 MiB" in page and "less memory" in page
    # No factor of memory beside one of time.
    assert "50 % of the memory; its time: 1.25 times as long" in page
    assert "peak memory 50 %" in str(shown) and "0.50x" not in page
    words = "needs less memory and takes 1.25 times as long: keep it where memory is short"
    assert words in str(shown) and advised(lean) == ""
    assert "100 s → 2.1 min" in str(waterfall(Choices(), lean, images=20_000))
    # One that saves nothing is judged by its time.
    assert advised(replace(lean, memory=1.0)) == "leave"


def test_the_peak_is_measured_and_kept(path: Path) -> None:
    found = measure.measure("as_tensor", [])
    assert found.peak > 0
    store.change(path, MACHINE, lambda choices: choices.with_choice(Choice(found, kept=True)))
    assert store.read(path, MACHINE).kept[0].figure.peak == found.peak


@pytest.mark.parametrize(
    ("factor", "changes", "words"),
    [
        (0.95, {"verdict": "unclear", "interval": (0.9, 1.1)}, "unclear"),
        (1.0, {"verdict": "same", "interval": (0.99, 1.01)}, "the same"),
        (0.5, {"verdict": "slower"}, "2.00 times as long"),
        (0.5, {"verdict": "unclear", "agree": "slower", "pairs": 2}, "about 2.00 times as long"),
        (1.25, {"verdict": "faster"}, "1.25 times as fast"),
        (math.nan, {"verdict": "unclear", "interval": (math.nan, math.nan)}, "unclear"),
    ],
)
def test_memory_is_told_in_percent_and_time_in_its_own_words(
    factor: float, changes: dict[str, Any], words: str
) -> None:
    made = figure("activation_checkpointing", factor, memory=0.87, peak=2.0**26, **changes)
    short = f"87 % of the memory; its time: {words}"
    assert in_short(made) == short
    kept = Choices().with_choice(Choice(made, kept=True))
    shown = replace(waterfall(kept, None, 20_000), saves="memory", decided=Choice(made, kept=True))
    assert f"activation_checkpointing: {short}. Kept." in str(shown) and short in html(shown)
    assert "0.87" not in str(shown) + html(shown)


# ------------------------------------------------------------------------------- goal, and next


@pytest.fixture
def recorded_machine(monkeypatch: pytest.MonkeyPatch) -> recorded.Machine:
    """One that has trained the slow script, and another in a tenth of its time."""
    runs = [recorded.Training((), seed, 9, 188.0, 0.6, True) for seed in range(3)]
    fast = ("normalization", "compile")
    runs += [recorded.Training(fast, seed, 2, 18.8, 0.6, True) for seed in range(3)]
    runs += [recorded.Training(("compile",), seed, 2, 5.0, 0.1, False) for seed in range(3)]
    brought = {"debug_tools": 1.95, "mixed_precision": 1.3, "decode_once": 1.24, "as_tensor": 0.9}
    brought |= {"learning_rate_schedules": 2.15}
    effects = []
    for name, factor in brought.items():
        ends = 0.9 * factor, 1.1 * factor
        effects.append(recorded.Effect(name, recorded.FORWARD, "time", (), factor, ends, "faster"))
    name, day = "A(R) Chip Processor, 2 cores", "2026-01-01 to 2026-01-02"
    made = recorded.Machine(name, day, "2.15", TASK._asdict(), tuple(runs), tuple(effects))
    monkeypatch.setattr(recorded, "machines", lambda: (made,))
    return made


def able(monkeypatch: pytest.MonkeyPatch, **lacks: Any) -> None:
    """A machine that can do all but what it lacks."""
    has = {"bf16": True, "bf16_speedup": 2.0, "cores": 4, "gpu": False, "compiler": True} | lacks
    monkeypatch.setattr(outlook, "abilities", lambda: Abilities(**has))


def test_the_goal_names_whose_and_when(path: Path, recorded_machine: recorded.Machine) -> None:
    assert recorded_machine.best() == (18.8, ("normalization", "compile"))
    for shown in (str(board()), board()._repr_html_()):
        assert "best recorded" in shown and "19 s" in shown
        assert "A Chip, 2 cores, 2026-01-02; from 3.1 min" in shown
        assert "3.1 min → 19 s" in shown and "yours is not timed yet" in shown
    # Nothing timed yet: the ghosts are parts of the slow script.
    ghosts = [("624", "band k-baseline"), ("62.4", "band k-recorded")]
    assert bars(board()._repr_html_()) == ghosts
    # Which they are would spoil the bets.
    assert f"19 s, has 2 of the {len(SWITCHES)} switches on" in str(board())
    assert f"0 of {len(SWITCHES)} switches tried" in str(board())


def test_a_rate_of_the_slow_script_is_shown_until_a_switch_is_timed(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine
) -> None:
    images = recorded.images_to_target()
    assert str(board(rate=images / 1050)).startswith("17.5 min until")
    # Handed on to the board of another notebook, and measured again in the first one.
    assert str(board("compile")).startswith("17.5 min until")
    board(rate=images / 2100)
    assert str(Board()).startswith("35.0 min until")
    measured("as_tensor").leave()
    assert str(board(rate=images / 1050)).startswith(f"{duration(images / 200)} until")


def test_a_rate_that_cannot_be_noted_is_shown_all_the_same(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("{")
    shown = board(rate=200.0)
    assert shown.choices.rate == 200.0 and "is damaged" in shown.said
    assert path.read_text() == "{"
    path.unlink()
    path.mkdir()
    assert "cannot be read" in board(rate=200.0).said


@pytest.mark.parametrize(
    ("switch", "changes", "words"),
    [
        (
            "as_tensor",
            {"factor": 1.025, "interval": (0.98, 1.07), "verdict": "unclear"},
            "1.025x in this script, unclear: it spends little time there.",
        ),
        ("as_tensor", {"factor": 1.95}, "1.95x in this script, faster."),
        (
            "compile",
            {"factor": 0.95, "interval": (0.91, 0.998), "verdict": "unclear"},
            "0.950x in this script, slower.",
        ),
        (
            "optimizers",
            {"factor": 0.94, "interval": (0.8, 1.2), "verdict": "unclear", "mode": "whole race"},
            "0.940x in this script, unclear.",
        ),
        (
            "normalization",
            {"factor": math.inf, "interval": (math.nan, math.nan)},
            "the target was reached only with it.",
        ),
        (
            "activation_checkpointing",
            {"factor": 0.8, "interval": (0.75, 0.85), "verdict": "slower"},
            "1.25 times the time, for less memory.",
        ),
    ],
)
def test_what_a_switch_brought_elsewhere_is_said_once_it_is_measured_here(
    path: Path,
    displayed: list[Any],
    figures: list[Any],
    recorded_machine: recorded.Machine,
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
    changes: dict[str, Any],
    words: str,
) -> None:
    ends = {"how": recorded.ADDED, "mode": "time", "on_top_of": ()}
    default = {"interval": (1.9, 2.0), "verdict": "faster"}
    effect = recorded.Effect(switch, **ends | default | changes)
    # What it brings to all the others is another question.
    other = replace(effect, factor=3.0, interval=(2.9, 3.1), how=recorded.LEFT_OUT)
    made = replace(recorded_machine, effects=(other, effect))
    monkeypatch.setattr(recorded, "machines", lambda: (made,))
    # A reader bets first.
    assert "Where it was recorded" not in str(board(switch))
    found = measured(switch)
    found._ipython_display_()
    assert f"Where it was recorded: {words}" in displayed[0]["text/html"]
    assert f"Where it was recorded: {words}" in displayed[0]["text/plain"]
    on_top = replace(effect, on_top_of=("debug_tools",))
    monkeypatch.setattr(recorded, "machines", lambda: (replace(made, effects=(on_top,)),))
    below = "on top of all that help"
    assert recorded.in_short(switch).startswith(f"Where it was recorded, {below}")
    # Nothing where it was not recorded, nor once it is decided.
    assert "Where it was recorded" not in str(measured("debug_tools"))
    found.keep()
    assert "Where it was recorded" not in str(found)


def test_a_star_for_each_doubling(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine
) -> None:
    assert Stars(1.0, 1.0, math.nan).left == 3 and Stars(40.0, 1.0, 10.0).left == 0
    assert [doublings(each) for each in (0.5, 1.0, 1.99, 2.0, 9.0, math.inf, math.nan)] == [
        *(0, 0, 0, 1, 3, 0, 0),
    ]
    assert "☆☆☆ a star for each doubling" in str(board())
    # An estimate wins none.
    found = measured("data_loading")
    found.keep()
    assert "☆☆☆" in str(found) and found.waterfall.stars.won == 0
    assert "what you kept is estimated at 2.00 times: run your script" in str(found)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """No training: the script takes what is asked for, of the slow one; what it had is listed."""
    asked: list[Any] = [1.0]

    def fake(switches: tuple[str, ...], **_: Any) -> tuple[float, int]:
        asked.append(switches)
        return asked[0] * recorded.images_to_target() / 500.0, 7

    monkeypatch.setattr(cell, "run_script", fake)
    return asked


def test_stars_are_for_what_the_script_took(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine, runs: list[Any]
) -> None:
    with pytest.raises(ValueError, match="nothing is kept yet"):
        board().run()
    found = measured("data_loading")
    found.keep()
    # Where the slow script's rate is not sure, it is timed first.
    store.change(path, found.machine, lambda choices: replace(choices, rate=math.nan))
    runs[0] = 0.4
    found.run()
    assert runs[1:] == [("data_loading",)]
    assert "★☆☆ your best run: 2.50 times as fast as the slow script" in str(found)
    assert "as it ran; 1 of 22 switches tried" in str(found)
    page = found._repr_html_()
    assert '<span class="labkit-new">★</span>' in page and "prefers-reduced-motion" in page
    assert "Your script reached" in found.said and "and 7 passes over the" in found.said
    # Another kernel knows it; with another switch it is an estimate again, and no star is lost.
    other = measured("as_tensor")
    other.keep()
    assert (other.waterfall.stars.won, other.waterfall.stars.new) == (1, 0)
    assert other.waterfall.run is None and "estimated" in other.waterfall.caption()
    runs[0] = 0.1
    estimate = other.waterfall.of_your_script()
    other.run()
    assert estimate.startswith("about ") and f"The estimate was {estimate}." in other.said
    assert runs[-1] == ("data_loading", "as_tensor")
    assert (other.waterfall.stars.won, other.waterfall.stars.new) == (3, 2)
    # A slower run takes none away.
    runs[0] = math.inf
    other.run()
    assert "did not reach" in other.said and other.waterfall.headline().endswith("not reached")
    assert (other.waterfall.stars.won, other.waterfall.stars.new) == (3, 0)


@pytest.mark.parametrize(
    ("seconds", "rate", "disturbed", "why"),
    [
        (30.0, 200.0, False, ""),
        (30.0, 200.0, True, "slow script was timed beside other programs: run yours again when"),
        (30.0, math.nan, False, "the slow script was not timed yet: run yours again when nothing"),
        (math.inf, 200.0, False, "your script has not reached 10%: try other switches"),
        (80.0, 200.0, False, "your best run is 1.25 times as fast as the slow script: keep what"),
        (120.0, 200.0, False, "your best run is no faster than the slow script: keep what is"),
    ],
)
def test_a_run_without_a_star_says_why(
    seconds: float, rate: float, disturbed: bool, why: str
) -> None:
    run = store.Run(("as_tensor",), seconds)
    kept = Choices(rate, {"as_tensor": Choice(figure("as_tensor"), kept=True)}, disturbed, (run,))
    found = waterfall(kept, None, images=20_000)
    assert (found.stars.won == 0) == bool(why) == ("no star yet, as" in html(found))
    assert why in html(found) and "once yours has run" not in html(found)
    if seconds == 80:
        beside = waterfall(replace(kept, runs=(replace(run, disturbed=True),)), None, 20_000)
        assert "your best run, beside other programs, is 1.25 times" in str(beside)
        assert "run it again when nothing else runs" in str(beside)


def test_estimates_follow_the_latest_run(path: Path, figures: list[Any], runs: list[Any]) -> None:
    """Else what ran in 40 s is estimated at 50 again as soon as another switch is measured."""
    found = measured("data_loading")
    found.keep()
    # Of a script that trains on 500 images a second, where the slow one has 200.
    runs[0] = 1.0
    found.run()
    slow = found.waterfall.steps[0].after
    assert found.waterfall.of_your_script().endswith("s when it ran last")
    later = measured("as_tensor")
    later.keep()
    steps = later.waterfall.steps
    assert [step.name for step in steps] == ["slow script", "data_loading", RAN, "as_tensor"]
    assert [step.after / slow for step in steps] == pytest.approx([1, 0.5, 0.4, 0.2])
    page = later._repr_html_()
    assert RAN in page and RAN in str(later) and "when it ran" not in page
    assert "Together: 5.00x. Their factors alone make 4.00x" in later.waterfall.whole()
    # Nothing follows of a run beside other programs, nor of what is not kept any more.
    board("data_loading").take_out()
    assert RAN not in str(board("as_tensor"))
    disturbed = replace(found.choices.runs[0], disturbed=True)
    assert Choices(runs=(disturbed,)).run_of_first(["data_loading"]) is None
    assert Choices(runs=found.choices.runs).run_of_first(["data_loading", "compile"])


def test_a_script_that_does_not_arrive_says_what_may_help(
    path: Path, figures: list[Any], runs: list[Any]
) -> None:
    runs[0] = math.inf
    found = measured("data_loading")
    found.keep()
    found.run()
    assert "normalization makes it learn early: keep it, and run again." in found.said
    measured("normalization").keep()
    schedule = measured("learning_rate_schedules")
    schedule.keep()
    needs = "learning_rate_schedules needs optimizers, gradient_clipping: keep them as well"
    assert needs in schedule.said
    schedule.run()
    assert "did not reach" in schedule.said and needs in schedule.said
    for name in ("optimizers", "gradient_clipping"):
        measured(name).keep()
    out = board("gradient_clipping")
    out.take_out()
    assert "learning_rate_schedules needs gradient_clipping: keep it as well" in out.said
    schedule.take_out()
    schedule.run()
    assert "Take optimizers out, which was kept last, and run again." in schedule.said


def test_a_slow_script_that_has_another_rate_says_so(path: Path, figures: list[Any]) -> None:
    found = board("as_tensor", rate=Rate(500.0))
    found.measure(seconds=1)
    assert "timed again, beside the switch: 200 images/s, where it was 500 images/s" in found.said
    found.measure(seconds=1)
    assert "timed again" not in found.said


def test_what_was_not_kept_may_be_kept_after_all(
    path: Path, figures: list[Any], displayed: list[Any]
) -> None:
    measured("as_tensor").leave()
    shown = board("as_tensor")
    shown._ipython_display_()
    press(displayed, "Keep it after all")
    assert shown.choices.switches == ("as_tensor",) and shown.left is None
    assert "Keep it after all" not in pressable(displayed)
    press(displayed, "Undo")
    assert shown.choices.switches == ()
    with pytest.raises(ValueError, match="no switch was measured"):
        board("compile").keep_after_all()


def test_what_a_short_race_found_makes_no_estimate(
    path: Path, figures: list[Any], runs: list[Any]
) -> None:
    """A factor of 5 to an early accuracy was 1.8 to the target."""
    shown = board("normalization")
    shown.latest = figure("normalization", 5.0, mode="race")
    assert "→" not in shown.waterfall.headline()
    assert "What it brings until 10% is not known before your script runs" in str(shown)
    shown.keep()
    assert "5.00x faster, in a short race: not counted" in shown.said + str(shown)
    assert hatched(shown._repr_html_()) == ["unclear"]
    runs[0] = 0.5
    shown.run()
    assert shown.waterfall.steps[-1].name == RAN and "→" in shown.waterfall.headline()
    assert replace(shown.choices.made["normalization"].figure, mode="whole race").counts


def test_the_slow_script_keeps_the_rate_that_a_quiet_switch_gave_it(
    path: Path, figures: list[Any]
) -> None:
    measured("as_tensor").leave()
    other = figure("compile", rate=150.0)
    assert waterfall(Board().choices, other, images=20_000).rate == 200.0
    assert Board().choices.with_choice(Choice(other, kept=True)).rate == 200.0


def test_a_bet_on_the_board_finishes_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    score = guess.Score()
    monkeypatch.setattr(guess, "SCORE", score)
    wager = Wager("as_tensor")
    wager.choices.value = "faster"
    assert wager.decide(figure("as_tensor")).startswith("✓")
    assert score.decided and not score.measured
    other, unclear = Wager("as_tensor"), figure("as_tensor", interval=(0.5, 2.0), verdict="unclear")
    other.choices.value = "faster"
    assert other.decide(unclear).endswith("stays open.")
    assert not score.measured


def test_the_button_runs_the_script(
    path: Path, figures: list[Any], displayed: list[Any], runs: list[Any]
) -> None:
    shown = measured("data_loading")
    shown._ipython_display_()
    assert not any(each.startswith("Run your") for each in pressable(displayed))
    press(displayed, "Keep it")
    press(displayed, "Run your script")
    shown.wait(10)
    assert runs[1:] == [("data_loading",)] and "Your script reached" in said(displayed)
    assert any(each.startswith("Run your script") for each in pressable(displayed))


def test_a_script_that_is_stopped_has_no_run(
    path: Path, figures: list[Any], displayed: list[Any], epochs: Any
) -> None:
    shown = measured("data_loading")
    shown.keep()
    shown._ipython_display_()
    press(displayed, "Run your script")
    assert epochs.began.wait(10)
    press(displayed, "Stop")
    epochs.set()
    shown.wait(10)
    assert "did not run to its end: it was stopped" in shown.said
    assert shown.choices.runs == () and shown.choices.switches == ("data_loading",)


def test_a_switch_that_is_kept_is_measured_on_top_of_what_was_kept_before_it(
    path: Path, figures: list[Any]
) -> None:
    for name in ("data_loading", "as_tensor", "compile"):
        measured(name).keep()
    again = measured("as_tensor")
    assert figures[-1] == ("as_tensor", ("data_loading",))
    again.keep()
    assert again.choices.switches == ("data_loading", "as_tensor", "compile")
    # Of what is out, what was measured on top of it knows only roughly.
    assert not again.waterfall.is_rough
    out = board("data_loading")
    out.take_out()
    assert out.waterfall.is_rough


def test_a_board_that_is_old_undoes_nothing(path: Path, figures: list[Any]) -> None:
    old = measured("as_tensor")
    old.leave()
    measured("as_tensor").keep()
    measured("compile").keep()
    old.undo()
    assert Board().choices.switches == ("as_tensor", "compile")
    assert "Not undone: another notebook has chosen as_tensor anew since." in old.said


def test_a_page_has_the_names_that_notebooks_use_and_commands_those_to_be_typed(
    path: Path, figures: list[Any]
) -> None:
    assert label("mixed_precision") == "bf16" and label("decode_once") == "decode once"
    assert len({label(name) for name in SWITCHES}) == len(SWITCHES)
    typed = "board('data_loading', seconds=10), torch.compile"
    assert labelled(f"data_loading: {typed}") == f"loading by workers: {typed}"
    found = measured("mixed_precision")
    # But for the lines of the script.
    page = re.sub("<pre.*?</pre>", "", found._repr_html_(), flags=re.DOTALL)
    assert "bf16" in page and "mixed_precision" not in page.replace("06_mixed_precision", "")
    assert "mixed_precision" in str(found)


def test_what_is_likely_next_was_not_tried_and_works_here(
    path: Path,
    figures: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    recorded_machine: recorded.Machine,
) -> None:
    able(monkeypatch)
    needed = NEEDED["learning_rate_schedules"]
    names = [each.switch for each in outlook.likely((), needed)]
    # What a minute decides, though what changes learning may bring more.
    assert names == ["debug_tools", "mixed_precision", "decode_once"]
    assert "learning_rate_schedules" not in [each.switch for each in outlook.likely(())]
    able(monkeypatch, bf16=False, bf16_speedup=0.14)
    assert [each.switch for each in outlook.likely(())][-1] == "decode_once"
    measured("debug_tools").leave()
    page = board("learning_rate_schedules")._repr_html_()
    _, _, still = page.partition("Likely to win most of what is left here")
    still, _, _ = still.partition("<details")
    assert "anomaly" not in still and "decode once" in still
    # Never what lost, nor the one that the board is of; what comes next is the path's to say.
    assert "as_tensor" not in still and "1cycle" not in still and "Next on" not in page


def test_a_schedule_races_with_what_its_high_rate_needs_on_both_sides(
    path: Path, figures: list[Any]
) -> None:
    switch = "learning_rate_schedules"
    assert measure.on_top_of(switch, ("gradient_clipping",)) == (
        "gradient_clipping",
        "normalization",
        "optimizers",
    )
    assert measure.on_top_of(switch, (), whole=True) == ()
    assert measure.on_top_of("gradient_clipping", ()) == ("normalization",)
    machine = recorded.machines()[0]
    for needed in NEEDED[switch]:
        runs = machine.of(*(name for name in record.HELPFUL if name != needed))
        assert len(runs) == 5 and not any(run.reached for run in runs), needed
    armed = str(board(switch))
    assert "needs normalization, optimizers, gradient_clipping (notebooks 21, 8, 18)" in armed
    assert board(switch).doubt and not outlook.doubt(switch, NEEDED[switch])


def test_a_switch_that_was_kept_though_nothing_was_reached_with_it(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured("debug_tools").keep()
    raced = {"factor": 0.0, "interval": (math.nan, math.nan), "verdict": "slower", "mode": "race"}
    again = board("minibatch_sgd")
    again.latest = figure("minibatch_sgd", **raced, on_top_of=("debug_tools",), pairs=3)
    before = again.waterfall.headline()
    again.keep()
    page = again._repr_html_()
    assert before != again.waterfall.headline()
    assert again.waterfall.headline().endswith("→ not reached")
    assert again.waterfall.stars.won == 0 and "the target was not reached; " in str(again)
    assert "0x" not in again.waterfall.whole() and "nan" not in page and "inf" not in page
    later = measured("as_tensor")
    later.keep()
    assert later.waterfall.headline().endswith("→ not reached")
    again.undo()
    assert board("as_tensor").waterfall.headline() != later.waterfall.headline()


def test_what_a_race_had_on_both_sides_is_said_when_it_is_kept(
    path: Path, figures: list[Any]
) -> None:
    shown = board("gradient_clipping")
    shown.latest = figure("gradient_clipping", mode="race", on_top_of=("normalization",))
    shown.keep()
    assert "had normalization, which you have not kept yet" in shown.said
    measured("normalization").keep()
    shown.keep()
    assert "not kept yet" not in shown.said


def test_workers_have_nothing_to_decode_a_second_time(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    able(monkeypatch)
    assert board("data_loading").doubt == ""
    measured("decode_once").keep()
    assert "leaves it nothing to do" in str(board("data_loading"))
    (wanted,) = [each for each in record.wanted_effects() if each[0] == "data_loading"]
    assert set(record.HELPFUL) - set(wanted[2]) == {"decode_once"}
    effect = recorded.Effect(*wanted[:2], "time", wanted[2], 1.1, (1.0, 1.2), "unclear")
    assert recorded.on_top_of(effect) == "on top of all that help but decode_once"


def test_a_switch_leads_to_the_notebook_that_explains_it() -> None:
    assert outlook.notebook_of("data_loading") == "04_data_loading"
    # Where its board is, in the cell that a link opens.
    assert outlook.notebook_of("decode_once") == "23_find_the_bottleneck"
    for switch, known in SWITCHES.items():
        path = ROOT / "notebooks" / f"{outlook.notebook_of(switch)}.ipynb"
        assert path.name.startswith(f"{known.notebook:02}_")
        cells = {cell["id"]: cell["source"] for cell in read_notebook(path).cells}
        assert f'board("{switch}"' in cells[SPEEDRUN.removeprefix("#cell-id=")]


@pytest.mark.parametrize(
    ("switch", "lacks", "words"),
    [
        ("mixed_precision", {"bf16": False, "bf16_speedup": 0.14}, "7.14 times as long as in fp32"),
        ("data_loading", {"cores": 1}, "one core"),
        ("compile", {"compiler": False}, "C++ compiler"),
    ],
)
def test_the_board_advises_against_what_cannot_gain_here(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    displayed: list[Any],
    switch: str,
    lacks: dict[str, Any],
    words: str,
) -> None:
    able(monkeypatch)
    assert outlook.doubt(switch) == ""
    able(monkeypatch, **lacks)
    board(switch)._ipython_display_()
    assert words in displayed[0]["text/html"]
    assert displayed[1].children[1].button_style == ""
    assert outlook.doubt(switch) not in ("", outlook.doubt("as_tensor"))
    # And again, with what was measured.
    lost = few(0.5, verdict="slower", interval=(0.4, 0.6))
    assert words in advice(replace(lost, switch=switch))


def test_a_switch_that_does_nothing_alone_names_what_comes_first(
    path: Path, figures: list[Any], displayed: list[Any]
) -> None:
    alone = board("bias_before_batchnorm")
    alone._ipython_display_()
    words = "Without batch norm it changes nothing: keep that first (notebook 21)."
    assert words in displayed[0]["text/html"]
    measured("normalization").keep()
    assert board("bias_before_batchnorm").doubt == ""


# ----------------------------------------------------------------------------------- faults


def kept_once(path: Path) -> str:
    """A file with one choice, and its text."""
    keep(path, "data_loading")
    return path.read_text()


def keep(path: Path, switch: str) -> str:
    """Keep a switch; what the reader is told."""
    choice = Choice(figure(switch), kept=True)
    return store.change(path, MACHINE, lambda choices: choices.with_choice(choice))[1]


def test_interrupted_while_measuring(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept_once(path)

    def interrupted(*_: Any, **__: Any) -> Figure:
        raise KeyboardInterrupt

    monkeypatch.setattr(cell, "measure", interrupted)
    shown = measured("as_tensor")
    assert "as_tensor was interrupted" in str(shown) and shown.latest is None
    assert path.read_text() == before


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_no_room_or_no_right_to_write(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    before = kept_once(path)
    with monkeypatch.context() as patch:
        patch.setattr(store.os, "fsync", lambda _: (_ for _ in ()).throw(failing(number)))
        shown = measured("as_tensor")
        assert shown.undecided and f"{path} cannot be written" in shown.said
        shown.keep()
    assert f"not saved. {path} cannot be written: {os.strerror(number)}" in str(shown)
    assert path.read_text() == before
    assert not list(path.parent.glob(".*draft"))
    # The choice holds in this cell, and the next click saves it.
    assert shown.choices.switches == ("as_tensor",)
    shown.keep()
    assert "as_tensor" in path.read_text()


def failing(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(BoardError, match="cannot be written"):
        keep(tmp_path / "file" / "board.json", "as_tensor")


def test_a_file_that_cannot_be_read(path: Path, figures: list[Any]) -> None:
    path.mkdir(parents=True)
    shown = measured("as_tensor")
    assert "cannot be read" in shown.said
    shown.keep()
    assert "not saved" in shown.said and path.is_dir()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b'{"schema": 1, "machines": {',
        b"[]",
        b'{"schema": "1", "machines": {}}',
        b'{"schema": 1, "machines": []}',
        b'{"schema": 1, "machines": {"a processor, 2 cores": {"rate": 1}}}',
        b'{"schema": 1, "machines": {"a processor, 2 cores": 3}}',
        b'{"schema": 0, "machines": {}}',
    ],
)
def test_a_damaged_or_older_file_is_put_aside(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(BoardError, match=r"is damaged|older version"):
        store.read(path, MACHINE)
    assert path.read_bytes() == content
    said = keep(path, "as_tensor")
    assert "kept as board.aside-1.json" in said
    assert path.with_name("board.aside-1.json").read_bytes() == content
    assert store.read(path, MACHINE).switches == ("as_tensor",)
    # A second one does not replace the first.
    path.write_bytes(b"{")
    assert "board.aside-2.json" in keep(path, "as_tensor")
    assert path.with_name("board.aside-1.json").read_bytes() == content


def test_a_newer_file_is_left_alone(path: Path, figures: list[Any]) -> None:
    path.parent.mkdir(parents=True)
    newer = '{"schema": 2, "machines": {}, "more": 1}'
    path.write_text(newer)
    shown = measured("as_tensor")
    assert "newer version" in str(shown)
    shown.keep()
    assert "not saved" in str(shown) and "newer version" in str(shown)
    assert path.read_text() == newer and len(list(path.parent.glob("*.json"))) == 1


def test_a_switch_of_another_version_stays_in_the_file(path: Path, figures: list[Any]) -> None:
    keep(path, "warp")
    assert store.read(path, MACHINE).switches == ()
    keep(path, "as_tensor")
    assert '"warp"' in path.read_text()


def test_other_machines_stay(path: Path) -> None:
    kept_once(path)
    choice = Choice(figure("as_tensor"), kept=True)
    store.change(path, "another machine", lambda choices: choices.with_choice(choice))
    assert store.read(path, MACHINE).switches == ("data_loading",)
    assert store.read(path, "another machine").switches == ("as_tensor",)


CHILD = """
import os, signal, sys, time
from pathlib import Path
from course.board import store
from course.board.table import speedrun_table
from course.board.store import Choice, Figure
path, name, mode = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "killed":
    # Half of the draft is written.
    store.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
if mode == "slow":
    replace = os.replace
    def slow(*names):
        print("writing", flush=True)
        time.sleep(0.5)
        replace(*names)
    store.os.replace = slow
figure = Figure(name, "time", (), 2.0, (1.9, 2.1), "faster", 200.0)
store.change(path, sys.argv[4], lambda choices: choices.with_choice(Choice(figure, True)))
"""


def child(path: Path, name: str, mode: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD, str(path), name, mode, MACHINE]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL is of POSIX")
def test_killed_in_the_middle(path: Path) -> None:
    before = kept_once(path)
    with child(path, "as_tensor", "killed") as process:
        assert process.wait(timeout=60) == -signal.SIGKILL
    assert path.read_text() == before
    # Neither its lock nor its draft is in the way.
    keep(path, "compile")
    assert store.read(path, MACHINE).switches == ("data_loading", "compile")
    assert not list(path.parent.glob(".*draft"))


def test_two_kernels_lose_nothing_of_each_other(path: Path) -> None:
    kept_once(path)
    with child(path, "as_tensor", "slow") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        begin = time.monotonic()
        keep(path, "compile")
        assert time.monotonic() > begin
        assert process.wait(timeout=60) == 0
    assert set(store.read(path, MACHINE).switches) == {"data_loading", "as_tensor", "compile"}


def test_a_kernel_that_does_not_let_go(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept_once(path)
    monkeypatch.setattr(store, "PATIENCE", 0.1)
    with store._locked(path), pytest.raises(BoardError, match="another kernel"):
        keep(path, "as_tensor")
    assert path.read_text() == before


# --------------------------------------------------------------------------------- recorded


@pytest.fixture
def fake_work(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Recording without measuring: a second for each switch that is off."""
    done: list[str] = []

    def run_once(task: Any, name: str, switches: tuple[str, ...], seed: int) -> Any:
        done.append(f"{len(switches)} {seed}")
        seconds = 20.0 - len(switches) + 0.1 * seed
        return measure.RaceRun(name, seed, ((3, seconds, 0.6),), reached=True)

    def fake(switch: str, below: tuple[str, ...]) -> Figure:
        done.append(switch)
        return figure(switch, on_top_of=below)

    monkeypatch.setattr(record, "run_once", run_once)
    monkeypatch.setattr(record, "measure", fake)
    # Tidying up before each unit takes longer than all else here.
    monkeypatch.setattr(record, "prepared", nullcontext)
    monkeypatch.setattr(record.Others, "taken", lambda self: 0.0)
    return done


def test_a_recording_goes_on_where_it_was_cut_off(
    tmp_path: Path, fake_work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "speedrun.json"
    assert record.record(minutes=0, path=path) == 1
    assert fake_work == []
    with monkeypatch.context() as patch:
        patch.setattr(record, "_take_effect", interrupt)
        with pytest.raises(KeyboardInterrupt):
            record.record(path=path)
    trained = list(fake_work)
    fast = len(record.HELPFUL)
    assert trained[:4] == [f"{fast} 0", "0 0", f"{fast} 1", "0 1"]
    assert record.record(path=path) == 0
    # No training is done twice.
    trainings = [work for work in fake_work if " " in work]
    assert len(trainings) == 5 * len(record.wanted_trainings())


def test_an_interrupted_figure_is_not_recorded(
    tmp_path: Path, fake_work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "speedrun.json"
    stopped = figure("vectorization", stopped=True)
    monkeypatch.setattr(record, "measure", lambda *_: stopped)
    with pytest.raises(KeyboardInterrupt):
        record.record(path=path)
    (machine,) = recorded.read(path)
    assert machine.trainings and not machine.effects


def test_a_unit_beside_others_is_taken_again(
    tmp_path: Path, fake_work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "cores", lambda: 2)
    looks = iter([1.0, 0.12, *[0.02] * 500])
    monkeypatch.setattr(record.Others, "taken", lambda self: next(looks))
    assert record.record(path=tmp_path / "speedrun.json") == 0
    first = f"{len(record.HELPFUL)} 0"
    assert fake_work[:4] == [first, first, first, "0 0"]


def interrupt(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_a_recording_is_complete(tmp_path: Path, fake_work: list[str]) -> None:
    path = tmp_path / "speedrun.json"
    assert record.record(path=path) == 0
    once = path.read_text()
    count = len(fake_work)
    assert record.record(path=path) == 0
    assert len(fake_work) == count and path.read_text() == once
    (machine,) = recorded.read(path)
    assert machine.seconds() == pytest.approx(20.2)
    forward = [each.switch for each in machine.effects if each.how == recorded.FORWARD]
    assert forward == sorted(record.HELPFUL, key=lambda name: SWITCHES[name].learns)
    whole = [each for each in machine.effects if each.mode == "whole race"]
    assert all(SWITCHES[each.switch].learns for each in whole)
    assert len(machine.effects) == len(record.wanted_effects())
    assert {each.switch for each in machine.effects} == SWITCHES.keys()
    check_recorded(machine)


def check_recorded(machine: recorded.Machine) -> None:
    """What must hold of every record of the speedrun."""
    for switches in ((), record.HELPFUL):
        seeds = [run.seed for run in machine.of(*switches)]
        assert seeds and seeds == list(range(len(seeds)))
    for run in machine.trainings:
        assert run.reached == (run.accuracy >= machine.task["target"])
        assert run.seconds > 0 and run.epochs >= 1
    wanted = [(each.switch, each.how, each.on_top_of) for each in machine.effects]
    assert len(wanted) == len(set(wanted)) and set(wanted) <= set(record.wanted_effects())
    for effect in machine.effects:
        # What it was called before is another switch; and that one leaves it nothing to do.
        assert effect.switch != "data_loading" or "decode_once" not in effect.on_top_of
        low, high = effect.interval
        # Where a run never arrived there is no interval.
        assert math.isnan(low) or low <= effect.factor <= high
        if effect.mode == "whole race":
            again = record.whole_race(machine, effect.switch, effect.how, effect.on_top_of)
            # nan equals nothing, and its text does.
            assert repr(again) == repr(effect)


def test_the_records_of_the_checkout() -> None:
    """All are whole, and all that helps took less time than the slow script."""
    machines = recorded.machines()
    assert any(machine.name.endswith("2 cores") for machine in machines)
    for machine in machines:
        check_recorded(machine)
        assert machine.seconds() > machine.seconds(*record.HELPFUL)


def test_the_record_is_a_table(tmp_path: Path, fake_work: list[str]) -> None:
    """Faked trainings take 20 seconds, and one less with each switch."""
    path = tmp_path / "speedrun.json"
    record.record(path=path)
    (machine,) = recorded.read(path)
    text = speedrun_table([machine])
    fast = machine.seconds(*record.HELPFUL)
    assert f"Medians of 5 seeds: {format_factor(machine.seconds() / fast)}x" in text
    for effect in machine.effects:
        assert f"`{effect.switch}`" in text
        assert f"{format_factor(effect.factor)}x" in text
    assert "not recorded yet" not in text
    assert "not recorded yet" in speedrun_table([replace(machine, effects=())])
    assert speedrun_table([]) == ""


def test_a_machine_without_both_ends_is_left_out_of_the_table(
    tmp_path: Path, fake_work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "speedrun.json"
    texts = []

    def write_and_tell(path: Path, machine: recorded.Machine) -> None:
        write(path, machine)
        texts.append(speedrun_table(recorded.read(path)))
        if len(texts) == 2:
            raise KeyboardInterrupt

    write = record._write
    monkeypatch.setattr(record, "_write", write_and_tell)
    with pytest.raises(KeyboardInterrupt):
        record.record(path=path)
    assert texts[0] == "" and "Medians of 1 seeds" in texts[1]


@pytest.mark.parametrize("change", [{"torch": "1.0"}, {"task": {"target": 0.9}}])
def test_the_old_record_stays_until_the_new_one_is_whole(
    tmp_path: Path, fake_work: list[str], monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    path = tmp_path / "speedrun.json"
    assert record.record(path=path) == 0
    (whole,) = recorded.read(path)
    old, other = replace(whole, **change), replace(whole, name="another machine")
    entries = [recorded.entry_of(each) for each in (old, other)]
    path.write_text(json.dumps({"schema": recorded.SCHEMA, "machines": entries}))
    with monkeypatch.context() as patch:
        patch.setattr(record, "_take_effect", interrupt)
        with pytest.raises(KeyboardInterrupt):
            record.record(path=path)
    begun = recorded.read(path)
    assert len(begun) == 3 and begun[:2] == (old, other) and not begun[2].effects
    assert record.record(path=path) == 0
    assert recorded.read(path) == (other, whole)


def test_a_figure_of_the_map_says_what_is_unclear_and_what_is_memory() -> None:
    plain = figure("mixed_precision", 1.5, interval=(1.4, 1.6))
    unclear = replace(plain, factor=0.5, interval=(0.2, 1.4), verdict="unclear")
    memory = figure("activation_checkpointing", memory=0.65)
    assert [*map(briefly, (plain, unclear, memory))] == ["1.50x", "unclear", "65 % of the memory"]


def test_an_effect_in_words() -> None:
    effect = recorded.Effect("x", recorded.FORWARD, "whole race", (), 1.5, (1.4, 1.6), "faster")
    ends = (math.inf, math.inf)
    assert str(effect) == "1.50x [1.40, 1.60] faster"
    assert str(replace(effect, factor=math.inf, interval=ends)) == "target reached only with it"
    assert str(replace(effect, factor=0.0)) == "target reached only without it"
    assert str(replace(effect, interval=(math.nan, math.nan))) == (
        "1.50x [too few for an interval] faster"
    )
    assert str(replace(effect, factor=math.nan, verdict="unclear")) == "no factor, unclear"


def test_a_record_of_two_days_says_both(
    tmp_path: Path, fake_work: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "speedrun.json"
    record.record(path=path)
    (machine,) = recorded.read(path)
    today = machine.date
    path.write_text(path.read_text().replace(today, "2026-01-01"))
    recorded_then = record._present(path)
    assert recorded_then.date == f"2026-01-01 to {today}"
    record._write(path, recorded_then)
    assert record._present(path).date == f"2026-01-01 to {today}"


def test_a_record_stands_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    effect = recorded.Effect("as_tensor", recorded.FORWARD, "time", (), 1.5, (1.4, 1.6), "faster")
    runs = [recorded.Training((), seed, 3 + seed, 100.0, 0.6, True) for seed in range(3)]
    task = TASK._asdict()
    machine = recorded.Machine("a machine", "2026-01-01", "2.15", task, tuple(runs), (effect,))
    monkeypatch.setattr(recorded, "machines", lambda: (machine,))
    assert recorded.beside("as_tensor") == (
        "Recorded on a machine: 1.50x [1.40, 1.60] faster on top of the switches before it."
    )
    assert recorded.beside("compile") == ""
    assert recorded.images_to_target() == 4 * TASK.images


# --------------------------------------------------------------------------- command line


def test_the_command_prints_measures_and_keeps(
    path: Path, figures: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["board", "data_loading", "--keep"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("Training without and with data_loading") and "Kept, in" in told
    assert main(["board", "as_tensor", "--leave"]) == 0
    assert main(["board"]) == 0
    shown = capsys.readouterr().out
    assert "data_loading" in shown and "Tried and not kept: as_tensor" in shown
    assert main(["board", "amp"]) == 2
    assert "no such switch" in capsys.readouterr().err
    assert main(["board", "--keep"]) == 2
    assert "name the switch" in capsys.readouterr().err


def test_the_command_fails_where_nothing_was_measured_or_saved(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    path.mkdir(parents=True)
    assert main(["board", "as_tensor", "--keep"]) == 1
    assert main(["board", "as_tensor"]) == 1
    path.rmdir()
    assert main(["board", "as_tensor"]) == 0

    def ended(*_: Any, **__: Any) -> Figure:
        raise measure.NoFigure("out of memory")

    monkeypatch.setattr(cell, "measure", ended)
    assert main(["board", "as_tensor"]) == 1


def test_all_times_of_a_board_have_one_unit(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine
) -> None:
    raced = few(0.33, agree="slower", on_top_of=("normalization",), mode="race")
    found = replace(waterfall(Choices(), raced, images=20_000), best=recorded_machine)
    assert str(found).startswith("1× as fast as the slow script")
    for shown in (str(found), html(found)):
        # The best is faster, and says so in the same unit.
        assert "10.00×" in shown and "19 s in place of 3.1 min" in shown


def test_what_was_not_kept_says_what_was_measured(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine
) -> None:
    made = Board("as_tensor")
    raced = few(1.2, agree="", on_top_of=("normalization",), mode="race")
    made.latest = replace(raced, switch="as_tensor")
    made.leave()
    page = made._repr_html_()
    assert "1.20x unclear, not counted. Not kept." in str(made)
    assert f"{label('as_tensor')}</b>: 1.20x unclear, not counted. Not kept." in page
    # A row of its own, open as what does not count, and nobody says that it is not timed.
    assert "not kept</span>" in page and hatched(page) == ["unclear"]
    assert "yours is not timed" not in page
    assert "the slow script is not timed here yet" in page
    # On a later board it is in the notes.
    assert "Tried and not kept: as_tensor, 1.20x unclear, not counted." in str(Board())


def test_the_board_says_that_others_were_in_the_way(
    path: Path, figures: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate.Others, "notice", lambda *_: OTHERS)
    moments = iter([0.0, 0.5, 0.0, 5.0])
    monkeypatch.setattr(rate, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    found = measured("as_tensor")
    assert found.said == "" and found.latest and not found.latest.disturbed
    figures.clear()
    found = measured("as_tensor")
    # A clear factor, of both in turn, is clear: there is nothing to do again.
    assert found.said == "" and found.latest and found.latest.disturbed


def test_one_disturbed_pair_is_no_loss() -> None:
    alone = few(0.9, pairs=1, agree="slower", disturbed=True)
    assert alone.direction == "unclear" and not alone.counts
    assert replace(alone, disturbed=False).direction == "slower"
    assert replace(alone, pairs=6).direction == "slower"


def test_a_race_that_one_side_alone_ends_is_one_verdict() -> None:
    raced = {"factor": math.inf, "interval": (math.nan, math.nan), "verdict": "unclear"}
    found = figure("normalization", **raced, mode="race", pairs=1)
    assert advice(found).startswith("reached the target of a short race, and without it none did")
    assert in_short(found) == "target reached only with it, unclear"
    assert wants_a_whole_race(found)


def test_an_open_race_offers_a_whole_one(
    path: Path, figures: list[Any], displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def fake(switch: str, present: Any, seconds: Any, whole: bool, *_: Any, **__: Any) -> Figure:
        asked.append(whole)
        verdict = "faster" if whole else "unclear"
        return few(1.3, agree="", mode="race", verdict=verdict)

    monkeypatch.setattr(cell, "measure", fake)
    shown = board("optimizers")
    shown._ipython_display_()
    press(displayed, "Measure it")
    shown.wait(10)
    press(displayed, "A whole race")
    shown.wait(10)
    assert asked == [False, True]
    assert pressable(displayed) == [*CHOICES[:2], "Measure again (two minutes at most)"]


def test_a_bet_is_decided_by_the_figure(
    path: Path, figures: list[Any], displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    score = guess.Score()
    monkeypatch.setattr(guess, "SCORE", score)
    shown = board("data_loading")
    shown._ipython_display_()
    choices = displayed[1].children[1]
    assert choices.options == ("faster", "no difference", "slower") and choices.value is None
    choices.value = "faster"
    press(displayed, "Measure it")
    shown.wait(10)
    assert "✓ You bet on faster: right." in said(displayed)
    (decided,) = score.decided
    assert (decided.bet, decided.measured, decided.right) == ("faster", "faster", True)
    assert choices not in displayed[1].children


@pytest.mark.parametrize(
    ("changes", "bet", "words"),
    [
        ({"verdict": "same"}, "no difference", "✓ You bet on no difference: right."),
        ({"verdict": "slower"}, "faster", "✗ You bet on faster: it is slower."),
        ({"verdict": "unclear", "interval": (0.5, 2.0)}, "slower", "stays open"),
        ({"verdict": "unclear", "interval": (0.95, 1.03)}, "no difference", "difference: right."),
        ({"verdict": "faster"}, None, ""),
    ],
)
def test_what_becomes_of_a_bet(
    changes: dict[str, Any], bet: str | None, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guess, "SCORE", guess.Score())
    wager = Wager("data_loading")
    wager.choices.value = bet
    told = wager.decide(figure("data_loading", **changes))
    assert words in told and bool(told) == bool(words)
    # What is not decided waits for another figure.
    assert wager.open == wager.choices.disabled == (words == "stays open")


def test_a_run_without_a_figure_decides_no_bet(
    path: Path, figures: list[Any], displayed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    score = guess.Score()
    monkeypatch.setattr(guess, "SCORE", score)
    shown = measured("data_loading")
    shown._ipython_display_()
    choices = displayed[1].children[1]
    choices.value = "faster"

    def stopped(*_: Any, **__: Any) -> Figure:
        raise measure.NoFigure("it was stopped before there was a figure")

    monkeypatch.setattr(cell, "measure", stopped)
    shown.start()
    shown.wait(10)
    assert not score.decided and "You bet" not in said(displayed)
    assert choices in displayed[1].children


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (0.4, "✓ You bet on half or less: right."),
        (0.8, "✗ You bet on half or less: it is more than half."),
        (0.99, "✗ You bet on half or less: it is no less."),
        (math.nan, "stays open"),
    ],
)
def test_of_a_switch_for_memory_the_memory_is_bet_on(
    left: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guess, "SCORE", guess.Score())
    wager = Wager("sublinear_memory")
    assert wager.question == "memory planner, in your speedrun: how much of the memory is left?"
    wager.choices.value = "half or less"
    assert words in wager.decide(figure("sublinear_memory", memory=left))


def test_all_switches_are_listed_with_what_became_of_them(path: Path, figures: list[Any]) -> None:
    measured("data_loading").keep()
    measured("as_tensor").leave()
    page = str(html(board("debug_tools").waterfall))
    _, _, table = page.partition(f"All {len(SWITCHES)} switches")
    assert table.count(SPEEDRUN) == len(SWITCHES)
    assert table.count(">kept<") == 1 and table.count("tried, not kept") == 1
    for head in ("switch", "what it does", "yours", "measured here", "recorded"):
        assert f">{head}</th>" in table
    assert table.partition("How is this known")[0].count("2.00x faster") == 2
    # And the cell of one that was tried says so.
    assert "So far: data_loading" in str(board("data_loading"))


def test_what_was_recorded_is_listed_for_what_was_decided_and_else_on_request(
    path: Path, figures: list[Any], recorded_machine: recorded.Machine
) -> None:
    measured("debug_tools").leave()
    page = str(html(Board().waterfall))
    _, _, table = page.partition(f"All {len(SWITCHES)} switches")
    open_part, _, folded = table.partition(SPOILS)
    assert open_part.count("1.95x") == 1 and "1.30x" not in open_part and "1.30x" in folded


# ------------------------------------------------------------------------------ watched live


def test_two_runners_show_who_is_ahead() -> None:
    assert race(Live(), 0.5, 0.4) == "" and Live().words() == ""
    live = Live(rates=(100.0, 200.0))
    assert live.words() == "Ahead: with it, 2.00 times as fast at first sight."
    page = race(live, 0.5, 0.25)
    # Half of the track after half of the time, and a quarter; each from where it was.
    assert re.findall(r"--from:([\d.]+)px;--to:([\d.]+)px", page) == [
        ("162", "228"),
        ("228", "360"),
    ]
    assert "each pair" not in page
    live.ratios = (0.5, 1.0, 2.0, 2.0)
    page = race(live, 0.5, 0.25)
    dots = re.findall(r'd="([^"]+)" class="k-dots k-end k-(\w+)"', page)
    assert [(tone, d.count("h0")) for d, tone in dots] == [
        ("slower", 1),
        ("same", 1),
        ("faster", 2),
    ]
    assert live.words() == "Ahead: with it, 1.50 times as fast after 4 pairs."
    live.ratios = (0.99,)
    assert live.words() == "Neck and neck after 1 pair."


def test_bytes_are_bars_before_anything_is_timed() -> None:
    live = Live(peaks=(64.0 * 2**20,))
    assert live.words() == "Memory at the peak: 64.0 MiB without it."
    live.peaks = (64.0 * 2**20, 16.0 * 2**20)
    widths = re.findall(r'width="([\d.]+)" height="18"', race(live, 0.1, 0.0))
    assert widths == ["528", "132"]
    # Then the runners come, and the words keep the bytes.
    live.rates = (100.0, 50.0)
    assert "k-runner" in race(live, 0.1, 0.0) and "16.0 MiB with it" in live.words()


def test_a_race_is_drawn_as_it_learns() -> None:
    first = Lap(False, 0, ((4.0, 0.1), (8.0, 0.18)), over=True)
    live = Live(laps=[first], target=0.3)
    assert live.words() == "Seed 1, without it: 18 % right after 8 s."
    live.laps = [first, Lap(True, 0, begin=10.0)]
    live.steps = (3, 16)
    assert live.words() == "Seed 1, with it: first pass, batch 3 of 16."
    # Its first pass takes long: it moves along an axis that is longer than the time so far.
    assert "--to:513.1px" in race(live, 0.5, 0.4, now=25.8)
    live.laps = [first, Lap(True, 0, ((5.0, 0.24),), begin=10.0)]
    assert (
        live.words() == "Seed 1, with it: 24 % right after 5 s, ahead: without it had 10 % by then."
    )
    page = race(live, 0.5, 0.4, now=20.0)
    assert page.count('class="k-line k-baseline"') == page.count('class="k-line k-candidate"') == 2
    # It has run for ten seconds, longer than all before: it is at the right edge.
    assert "--to:624px" in page and "goal 30 %" in page


def test_what_is_timed_tells_its_pairs_and_what_is_raced_its_epochs(script: Any) -> None:
    told: list[Live] = []
    script(0.001, 0.002)
    measure.measure(SWITCH, [], most=60, tell=lambda live: told.append(replace(live)))
    rates = [each.rates for each in told if each.doing == "both in turn"]
    assert rates[0][0] == pytest.approx(2 * rates[0][1])
    assert len(told[-1].ratios) > 1 and told[-1].factor == pytest.approx(0.5)
    told.clear()
    script(0.001, 0.002, epochs=3)
    measure.measure("optimizers", [], most=120, tell=lambda live: told.append(replace(live)))
    sides = [(lap.seed, lap.switched) for lap in told[-1].laps]
    assert sides[:3] == [(0, False), (0, True), (1, True)]
    assert [len(lap.points) for lap in told[-1].laps] == [3] * len(sides)


def test_an_unclear_run_takes_the_time_that_was_promised(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = script(0.004, 0.004)
    asked: list[float] = []
    timed = measure.Lab.run

    def watched(self: Any, **settings: Any) -> Any:
        asked.append(settings["patience"] * settings["seconds"] + run.now)
        return timed(self, **settings)

    monkeypatch.setattr(measure.Lab, "run", watched)
    monkeypatch.setattr(measure, "PATIENCE", math.inf)
    measure.measure(SWITCH, [], most=60)
    # A recording takes what it took before.
    measure.measure(SWITCH, [])
    assert 45 < asked[0] < 60 and asked[1] < run.now + 31


def test_bytes_are_counted_first_and_decide_where_no_pair_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lean = "activation_checkpointing"
    monkeypatch.setattr(measure, "_in_turn", interrupt_in_time)
    found = measure.measure(lean, [])
    assert found.peak > 0 and 0 < found.memory < 2 and math.isnan(found.factor)
    assert found.direction == "unclear" and not found.counts
    assert Wager(lean)._found(found) is not None
    # One for time has nothing to show.
    with pytest.raises(measure.TooSlow):
        measure.measure("as_tensor", [], most=60)


def interrupt_in_time(*_: Any, **__: Any) -> Any:
    raise measure.OutOfTime


def test_a_stop_ends_an_epoch_at_its_next_step() -> None:
    """An epoch may take half a minute; of this one only the first step is done."""
    stop, steps = threading.Event(), []
    limit = measure.Limit(stop=stop)
    handle = measure.register_optimizer_step_post_hook(lambda *_: steps.append(stop.set()))
    try:
        with pytest.raises(measure.OutOfTime):
            next(limit.train((), TASK._replace(images=256)))
    finally:
        handle.remove()
    assert len(steps) == 1 and limit.over and not limit.ended
    assert limit.live.steps == (1, 4)


def test_stop_says_at_once_that_it_ends(path: Path, displayed: list[Any], epochs: Any) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    press(displayed, "Measure it")
    assert epochs.began.wait(10)
    press(displayed, "Stop")
    # The epoch still goes on.
    assert buttons.ENDS in said(displayed)
    epochs.set()
    shown.wait(10)
    assert buttons.ENDS not in said(displayed)


def test_a_bet_is_fixed_while_it_is_watched(path: Path, displayed: list[Any], epochs: Any) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    choices = displayed[1].children[1]
    assert "surely below 10 %" in choices.tooltips[0]
    choices.value = "slower"
    press(displayed, "Measure it")
    assert epochs.began.wait(10)
    assert choices.disabled and choices in displayed[1].children
    assert "You bet: slower" in said(displayed)
    press(displayed, "Stop")
    epochs.set()
    shown.wait(10)
    assert not choices.disabled


def test_what_was_recorded_is_told_once_no_bet_waits(
    path: Path,
    displayed: list[Any],
    recorded_machine: recorded.Machine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guess, "SCORE", guess.Score())
    odd = figure("debug_tools", 1.5, interval=(0.9, 2.4), verdict="unclear")
    monkeypatch.setattr(cell, "measure", lambda *_, **__: odd)
    shown = board("debug_tools")
    shown._ipython_display_()
    displayed[1].children[1].value = "slower"
    press(displayed, "Measure it")
    shown.wait(10)
    spoilers = "Where it was recorded", "Recorded on"
    assert "stays open" in said(displayed) and not any(map(str(shown).count, spoilers))
    assert "Measure longer (5 minutes at most)" in pressable(displayed)
    press(displayed, "Do not keep it")
    # Given up, and no secret any more.
    assert "was not decided. Where it was recorded: 1.95x" in said(displayed)


def arrived(**reached: list[bool]) -> RaceResult:
    """Races of two sides: 10 s without the switch, 4 s with it."""
    runs = []
    for arm, seeds in reached.items():
        seconds = {"off": 10.0, "on": 4.0}[arm]
        for seed, there in enumerate(seeds):
            runs.append(RaceRun(arm, seed, ((1, seconds, 0.3 if there else 0.1),), there))
    return RaceResult(tuple(runs), 0.3, "accuracy", True)


def test_who_alone_arrives_is_ahead_by_what_was_spent_at_least() -> None:
    ratios, bound = measure.one_alone(arrived(off=[False, False], on=[True, True]))
    assert measure.agreed(ratios) == "faster" and bound == 2.5
    ratios, bound = measure.one_alone(arrived(off=[True, True], on=[False, False]))
    assert measure.agreed(ratios) == "slower" and math.isnan(bound)
    both, none, half = [True] * 2, [False] * 2, [True, False]
    for off, on in ((half, both), (none, half), (none, none), (both, both)):
        assert measure.one_alone(arrived(off=off, on=on))[0] == ()
    # One seed may have been cut.
    for reached in (True, False):
        cut = measure.one_alone(arrived(off=[not reached], on=[reached]))
        assert cut[0] == () and math.isnan(cut[1])
    alone = few(math.inf, interval=(0.0, math.inf), agree="faster", mode="whole race")
    only = replace(alone, pairs=2, bound=2.5)
    assert only.direction == "faster" and only.counts
    assert in_short(only) == "target reached only with it, at least 2.50x"
    assert "at least 2.50 times as fast: worth keeping" in advice(only)
    kept = Choices().with_choice(Choice(only, kept=True))
    assert str(waterfall(kept, None, images=20_000)).startswith("100 s → about 40 s")
    # A single race may be chance, a bound below 1 says nothing, an early end not much.
    assert replace(only, pairs=1).direction == "unclear"
    assert not replace(only, bound=math.nan).counts
    assert not replace(only, mode="race").counts


def test_a_promise_holds_for_a_first_epoch_too() -> None:
    limit = Limit(0.0)
    with limit._looking(limit._end), pytest.raises(measure.OutOfTime):
        one_step()
    assert limit.over


def one_step() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], 0.1).step()


def test_another_switch_may_be_chosen_on_every_board(
    path: Path, figures: list[Any], displayed: list[Any]
) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    picker = displayed[1].children[0]
    assert picker.value == "as_tensor" and len(picker.options) == len(SWITCHES)
    press(displayed, "Measure it")
    shown.wait(10)
    picker.value = "compile"
    assert shown.switch == "compile" and shown.latest is None
    assert label("compile") in displayed[-2]["text/html"]
    # What was measured before is known, and the bet is a new one.
    assert Board().choices.made["as_tensor"].kept is False
    assert displayed[1].children[1].value is None
    press(displayed, "Measure it")
    shown.wait(10)
    assert [name for name, _ in figures] == ["as_tensor", "compile"]
    shown.keep()
    assert Board().choices.switches == ("compile",)


def test_a_bet_that_waits_is_given_up_in_words_when_another_switch_is_chosen(
    path: Path, displayed: list[Any]
) -> None:
    shown = board("as_tensor")
    shown._ipython_display_()
    picker, bet = displayed[1].children[:2]
    bet.value = "faster"
    picker.value = "compile"
    assert "Your bet on as_tensor, faster, was not decided." in displayed[1].children[-1].value
    assert str(guess.SCORE) == ""


def test_what_is_kept_may_be_taken_out_later(
    path: Path, figures: list[Any], displayed: list[Any]
) -> None:
    measured("as_tensor").keep()
    later = board("as_tensor")
    later._ipython_display_()
    assert pressable(displayed)[:2] == ["Measure it (a minute at most)", "Take it out"]
    press(displayed, "Take it out")
    assert Board().choices.switches == () and "as_tensor" in Board().choices.made
    press(displayed, "Undo")
    assert Board().choices.switches == ("as_tensor",)
    with pytest.raises(ValueError, match="compile is not kept"):
        board("compile").take_out()


def test_memory_is_told_from_what_was_below_its_switch() -> None:
    """Not from the peak of an earlier one, which another switch has raised since."""
    first = figure("debug_tools", memory=1.0, peak=46e6)
    normed = figure("normalization", on_top_of=("debug_tools",))
    saves = figure("activation_checkpointing", memory=0.83, peak=71e6)
    choices = Choices()
    for each in (first, normed):
        choices = choices.with_choice(Choice(each, kept=True))
    found = replace(waterfall(choices, saves, images=20_000), saves="memory")
    assert found.headline() == "67.7 MiB → 56.2 MiB"


def test_an_empty_board_lets_a_switch_be_chosen(path: Path, displayed: list[Any]) -> None:
    board()._ipython_display_()
    picker = displayed[1].children[0]
    assert picker.label == "choose one" and pressable(displayed) == []
    picker.value = "as_tensor"
    assert pressable(displayed) == ["Measure it (a minute at most)"]


def test_the_board_shows_the_lines_of_its_switch(path: Path) -> None:
    for name in SWITCHES:
        assert f'"{name}"' in code_of(name)
    # What sets a variable is followed to where that acts.
    assert "x + checkpoint(super().forward" in code_of("activation_checkpointing")
    assert "decode(file) for file in files" in code_of("decode_once")
    assert "forward" not in code_of("as_tensor")
    clipping = code_of("gradient_clipping")
    assert clipping.splitlines()[0] == 'if "gradient_clipping" in on:'
    assert "clip_grad_norm_" in clipping
    assert "clip_grad_norm_" in board("gradient_clipping")._repr_html_()


def test_what_was_watched_stays_behind_its_result(
    path: Path, displayed: list[Any], epochs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buttons, "picture", lambda *_: Markup("<svg>two runners</svg>"))
    shown = board("as_tensor")
    shown._ipython_display_()
    assert "The last measurement" not in displayed[-1]["text/html"]
    press(displayed, "Measure it")
    assert epochs.began.wait(10)
    press(displayed, "Stop")
    epochs.set()
    shown.wait(10)
    assert "The last measurement" in displayed[-1]["text/html"]
    assert "two runners" in displayed[-1]["text/html"]


def test_what_is_not_counted_sets_no_scale() -> None:
    wide = few(0.1, agree="")
    found = waterfall(Choices(), wide, images=20_000)
    (row,) = rows(found)
    assert row.after == pytest.approx(1.5 * row.before) and row.tone == "candidate"
    assert row.note == "0.10x unclear, not counted, longer than drawn"


def test_a_small_difference_that_is_not_clear_is_not_counted() -> None:
    near = few(0.97, interval=(0.93, 1.02), agree="")
    kept = Choices().with_choice(Choice(near, kept=True))
    found = waterfall(kept, None, images=20_000)
    assert found.steps[-1].after == 100.0
    assert in_short(near) == "0.970x, no difference that shows, not counted"
    assert replace(near, verdict="same").counts


def test_a_figure_without_a_rate_leaves_the_rate() -> None:
    untimed = few(math.nan, rate=math.nan)
    assert Choices(rate=200.0).with_choice(Choice(untimed, kept=True)).rate == 200.0


def test_the_board_says_how_to_read_its_bars_and_what_the_slow_script_is(
    path: Path, figures: list[Any]
) -> None:
    page = str(html(board().waterfall))
    assert "shorter is faster" in page and "orange" not in page
    measured("data_loading").keep()
    page, text = str(html(Board().waterfall)), str(Board())
    assert "orange what it added" in page and "hatched" not in page.partition("All 22")[0][-400:]
    lean = figure("sublinear_memory", memory=0.5, peak=64.0 * 2**20)
    found = replace(waterfall(Choices(), lean, 20_000), saves="memory")
    assert "thick bars of switches are memory" in html(found)
    assert f"{TASK.images:,} CIFAR-10 photographs" in text and "small ResNet" in text
    assert "9 passes until" in text and "images/s, so" in text
