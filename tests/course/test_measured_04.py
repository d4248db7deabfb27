"""The lanes of one real epoch: what is noted of each batch, and the picture of it."""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from course import probe
from course.measured import epochs as noting
from course.measured import lanes
from course.measured.epochs import TRAINING, Batch, Epoch, Epochs, Loader, Stamped
from course.notebook_files import code_cells, notebook_path, read_notebook
from labkit.restore import preserve_flags
from labkit.results import Comparison, Measurement, RaceResult


class Numbers(Dataset[Any]):
    """8 samples; the clock goes on by 1 with each of them."""

    def __init__(self, clock: Any = None) -> None:
        self.clock = clock

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[int, int]:
        if self.clock:
            self.clock.now += 1
        return index, index % 2


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def kinds(epoch: Epoch) -> list[str]:
    return [batch.loader.kind for batch in epoch.batches]


def test_in_one_process_loading_and_training_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, epochs = Clock(), Epochs()
    monkeypatch.setattr(noting, "clock", clock)
    loader = DataLoader(Stamped(Numbers(clock)), batch_size=4)
    for numbers, classes in epochs.watch(loader, workers=0):
        assert classes.tolist() == [0, 1, 0, 1] and len(numbers) == 4
        clock.now += 3
    epoch = epochs.of({"workers": 0})
    assert epoch == Epoch((Batch(TRAINING, 0, 4, 0, 4, 7), Batch(TRAINING, 7, 11, 7, 11, 14)), 14)
    assert (epoch.load, epoch.train, epoch.waits, epoch.loaders) == (4, 3, 8, [])


def test_workers_and_threads_are_told_apart() -> None:
    epochs = Epochs()
    for workers in (0, 2):
        loader = DataLoader(Stamped(Numbers()), batch_size=2, num_workers=workers)
        for _ in epochs.watch(loader, workers=workers):
            pass
    assert kinds(epochs.of({"workers": 0})) == 4 * ["training"]
    found = epochs.of({"workers": 2})
    assert kinds(found) == 4 * ["worker"]
    assert len(found.loaders) == 2 and os.getpid() not in {each.number for each in found.loaders}
    # In turn, and on one clock with the training.
    assert [found.loaders.index(each.loader) for each in found.batches] in (
        [0, 1, 0, 1],
        [1, 0, 1, 0],
    )
    for batch in found.batches:
        assert 0 < batch.begin <= batch.end <= batch.take <= batch.done <= found.seconds

    ahead: list[Any] = []
    thread = threading.Thread(target=lambda: ahead.extend(DataLoader(Stamped(Numbers()))))
    thread.start()
    thread.join()
    list(epochs.watch(ahead, workers="thread"))
    assert set(kinds(epochs.of({"workers": "thread"}))) == {"thread"}


def test_the_newest_epoch_of_the_asked_settings() -> None:
    epochs = Epochs()
    for size, early in ((2, False), (4, False), (1, True)):
        for _ in epochs.watch(DataLoader(Stamped(Numbers()), size), workers=0, kept=True):
            if early:
                break
    assert len(epochs.of({"workers": 0, "kept": True, "side": 32}).batches) == 2
    assert epochs.of({"workers": 0, "kept": False}) is None
    assert list(epochs.watch([], workers=0, kept=True)) == []
    assert len(epochs.of({"workers": 0, "kept": True}).batches) == 2, "an empty one is not noted"


def test_the_epoch_that_took_most_nearly_the_asked_time(monkeypatch: pytest.MonkeyPatch) -> None:
    epochs = Epochs()
    for size in (1, 2, 4, 8):
        list(epochs.watch(DataLoader(Stamped(Numbers()), size), workers=0))
    for epoch in epochs._noted[("workers", 0),]:
        assert epochs.of({"workers": 0}, epoch.seconds) is epoch
    assert epochs.of({"workers": 0}, 1e9).seconds == max(
        epoch.seconds for epoch in epochs._noted[("workers", 0),]
    )
    monkeypatch.setattr("course.measured.epochs.FEW", 3)
    list(epochs.watch(DataLoader(Stamped(Numbers()), 8), workers=0))
    assert len(epochs._noted[("workers", 0),]) == 3


def test_the_stamp_is_the_last_of_a_sample() -> None:
    number, label, stamp = Stamped(Numbers())[3]
    assert (number, label) == (3, 1)
    assert stamp.dtype == torch.float64 and stamp[0] == os.getpid() and stamp[2] <= stamp[3]


# ------------------------------------------------------------------------------------ the picture

WORKER = Loader("worker", 4711)
ALONE = Epoch(
    (Batch(TRAINING, 0, 0.04, 0, 0.04, 0.06), Batch(TRAINING, 0.06, 0.1, 0.06, 0.1, 0.12)), 0.12
)
BESIDE = Epoch(
    (Batch(WORKER, 0, 0.03, 0, 0.03, 0.05), Batch(WORKER, 0.03, 0.045, 0.05, 0.05, 0.07)), 0.08
)


def texts(picture: str) -> list[str]:
    return re.findall(r">([^<>]+)</(?:text|tspan)>", picture)


def rects(picture: str, kind: str) -> list[float]:
    """The widths of the bars of a kind, the shortest first; its box in the legend left out."""
    found = re.findall(rf'<rect [^>]*width="([\d.]+)" height="22" class="[^"]*{kind}"', picture)
    return sorted(map(float, found))


def test_lanes_have_the_measured_times() -> None:
    picture = lanes.draw([("baseline", ALONE), ("candidate", BESIDE)])
    said = texts(picture)
    assert "L = 40.0 ms, T = 20.0 ms" in " ".join(said)
    assert "120 ms per epoch" in said and "80.0 ms per epoch" in said
    assert said.count("training") == 2 and "worker 1" in said
    assert "without training" in picture
    assert picture.count("<svg") == 1


def test_bars_are_as_long_as_what_they_show() -> None:
    picture = lanes.draw([("candidate", BESIDE)])
    # A bar is a pixel shorter than its time, so that neighbours are seen apart.
    wide = (lanes.WIDTH - lanes.EDGE - lanes.LEFT) / 0.08
    for kind, seconds in (
        ("k-candidate", [0.015, 0.03]),
        ("k-faster", [0.02, 0.02]),
        # After the last batch, and before the first one; the second one was there in time.
        ("k-slower", [0.01, 0.03]),
    ):
        bars = [width for width in rects(picture, kind) if width > 1]
        assert bars == pytest.approx([each * wide - 1 for each in seconds], abs=0.1)


def side(label: str, **settings: Any) -> Measurement:
    return Measurement(label, settings, (0.1,))


def test_a_panel_s_picture_has_both_sides_of_a_comparison() -> None:
    epochs = Epochs()
    picture = lanes.of(epochs)
    result = Comparison(side("baseline", workers=0, width=8), side("x", workers=2, width=8))
    assert picture(result) == "", "nothing was noted"
    for workers in (0, 2):
        loader = DataLoader(Stamped(Numbers()), batch_size=2, num_workers=workers)
        list(epochs.watch(loader, workers=workers))
    drawn = texts(picture(result))
    assert "baseline" in drawn and "candidate" in drawn
    assert "worker 2" in drawn and "worker 3" not in drawn
    assert picture(RaceResult((), 0.5, "accuracy", True)) == ""


class Records:
    def matching(self, own: Comparison) -> list[tuple[str, Comparison]]:
        faster = Comparison(side("baseline"), Measurement("x", {}, (0.05,)))
        return [
            ("old-cpu, 2026-11-21", Comparison(side("a"), side("b"))),
            ("new-cpu, 2026", faster),
        ]


def test_the_machine_that_gained_most_is_written_below() -> None:
    epochs = Epochs()
    list(epochs.watch(DataLoader(Stamped(Numbers()), batch_size=2), workers=0))
    result = Comparison(side("baseline", workers=0), side("x", workers=0))
    drawn = texts(lanes.of(epochs, Records())(result))
    assert "On another machine: 2.00 times as fast." in drawn and not any(
        "old" in each for each in drawn
    )
    assert not any("Recorded" in each for each in texts(lanes.of(epochs)(result)))


# ----------------------------------------------------------------------------------- the notebook


def names_of(tags: tuple[str, ...]) -> dict[str, Any]:
    """What the notebook's cells with these tags define."""
    names: dict[str, Any] = {}
    notebook = read_notebook(notebook_path("04_data_loading"))
    with preserve_flags():
        for tag in tags:
            for cell in code_cells(notebook, tag):
                exec(compile(cell.source, tag, "exec"), names)
    return names


@pytest.mark.parametrize(("cores", "kind"), [("one-core", "order"), ("", "factor")])
def test_with_one_core_the_panel_asks_another_question_before_run(
    cores: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(probe.PRETEND, cores)
    if not cores and probe.abilities().cores == 1:
        pytest.skip("this machine has one core")
    panel = names_of(("setup", "workload", "panel"))["panel"]
    assert panel.scenario == "large pictures" and panel.bet.bet.kind == kind
    assert ("one core" in panel.bet.bet.question.lower()) == bool(cores)


def test_the_reader_s_own_loader_is_raced_and_drawn() -> None:
    names = names_of(("setup", "workload", "panel", "solution", "raced"))
    panel, epochs = names["panel"], names["epochs"]
    assert panel.scenario == "your prefetch"
    panel.run(wait=True)
    settings = {"num_workers": 0, "loader": "your prefetch"}
    assert set(kinds(epochs.of(settings))) == {"thread"}
    assert set(kinds(epochs.of(settings | {"loader": "DataLoader"}))) == {"training"}
    assert "thread 1" in texts(panel.view.live.state["picture"])


def test_without_an_answer_nothing_is_raced() -> None:
    names = names_of(("setup", "workload", "panel", "exercise", "raced"))
    assert "your prefetch" not in names["lab"].scenarios
