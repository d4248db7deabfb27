"""A panel draws recorded runs of other machines beside the reader's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from test_records import comparison, entry

from course.records import reference, store
from course.written import write_whole
from labkit.lab import Lab
from labkit.panel import LabPanel
from labkit.panel.widgets import tree
from labkit.results import Workload


def make_workload(double: bool, size: int, kind: str) -> Workload:
    inputs = torch.ones(size, size)
    return Workload(lambda: inputs @ inputs, size)


def make_lab() -> Lab:
    return Lab(
        make_workload,
        double=[False, True],
        size=[8, 16, 32],
        kind=["mean", "sum", "fast"],
        memory=False,
    )


@pytest.fixture
def shell() -> Iterator[InteractiveShell]:
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()


@pytest.fixture
def beside(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[LabPanel]:
    """A panel whose lab was recorded on two machines."""
    for machine, ratio in (("a-cpu", 0.5), ("h200", 0.8)):
        recorded = comparison(ratio, double=True, kind="mean", size=16)
        before = recorded.baseline.settings | {"kind": "mean"}
        recorded = replace(recorded, baseline=replace(recorded.baseline, settings=before))
        store.write(tmp_path / machine, entry(recorded, notebook="06_x"))
    write_whole(tmp_path / "bad" / "06_x.json", "{")
    monkeypatch.setattr(store, "reference_folder", lambda: tmp_path)
    panel = LabPanel(make_lab(), seconds=0.3, recorded=reference("06_x"))
    yield panel
    panel.close()


@pytest.mark.usefixtures("shell")
def test_recorded_runs_are_drawn_beside_the_reader_s(beside: LabPanel) -> None:
    assert [name for name, _ in beside.view.machines[0].options] == [
        "no other machine",
        "a-cpu",
        "h200",
        "all of them",
    ]
    with capture_output() as captured:
        beside._ipython_display_()
        beside.run(wait=True)
    picture = beside.view.live.state["picture"]
    assert "a-cpu, 2026-11-20, at size=16" in picture and "0.50×" in picture
    table = captured.outputs[-1].data["text/plain"]
    assert "you" in table and "0.50x" in table and "h200" not in table

    beside.view.machines[0].value = ("a-cpu", "h200")
    beside.run(wait=True)
    picture = beside.view.live.state["picture"]
    assert "a-cpu" in picture and "h200" in picture
    beside.view.machines[0].value = ()
    beside.run(wait=True)
    assert "a-cpu" not in beside.view.live.state["picture"]


def test_a_question_that_nobody_recorded_shows_no_line(beside: LabPanel) -> None:
    beside.controls["kind"].candidate.value = "sum"
    beside.run(wait=True)
    assert "a-cpu" not in beside.view.live.state["picture"]


def test_a_sweep_stands_beside_recorded_ones(beside: LabPanel) -> None:
    beside.buttons.swept.value = "size"
    beside.sweep(wait=True)
    assert "a-cpu" in beside.view.live.state["picture"]


def test_a_notebook_without_records_says_so() -> None:
    panel = LabPanel(make_lab(), recorded=reference("99_none"))
    labels = [widget.value for widget in tree(panel.widget) if type(widget).__name__ == "Label"]
    assert "not recorded yet" in labels
    panel.close()
