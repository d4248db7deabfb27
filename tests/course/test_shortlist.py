"""The map of 00: the path, then more, with what the reader finished, bet and measured."""

import math
import re
from pathlib import Path

import pytest
import torch

from course import shortlist as module
from course.board import store
from course.board.measure import machine_name
from course.front import is_front
from course.notebook_files import NOTEBOOKS, read_notebook
from course.overview import BOTTLENECKS
from course.progress import PATH, note
from course.shortlist import DONE, shortlist
from course.way import STAR
from labkit.panel.guess import Decided


def figure(switch: str, factor: float) -> store.Figure:
    return store.Figure(switch, "time", (), factor, (factor, factor), "faster", 100.0)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A board on which mixed precision was measured, and not kept."""
    path = tmp_path / "board.json"
    monkeypatch.setenv("LABKIT_BOARD", str(path))
    choice = store.Choice(figure("mixed_precision", 1.83), kept=False)
    store.change(path, machine_name(), lambda choices: choices.with_choice(choice))
    return path


def test_the_path_comes_first_and_each_row_leads_to_its_notebook() -> None:
    entries = shortlist(yours=False).entries
    names = [Path(entry.path).name for entry in entries]
    assert names == [*PATH[1:]]
    for entry in entries:
        path = NOTEBOOKS / f"{entry.path}.ipynb"
        assert is_front(read_notebook(path))
        assert entry.relieves in BOTTLENECKS
        assert entry.recorded is not None
        # Debugging tools cost time.
        assert (entry.recorded.value > 1) == ("Debugging tools" not in entry.title)
        assert entry.yours == "–" and not entry.finished


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_recorded_is_what_a_machine_like_the_reader_s_has_brought(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(module, "pick_device", lambda: torch.device(kind))
    entries = {entry.title[:2]: entry.recorded for entry in shortlist(yours=False).entries}
    alike = entries["06"]
    assert alike is not None and alike.machine.endswith("-cores") == (kind == "cpu")
    # What was recorded on the other kind alone says where.
    only_cpu = entries["23"]
    assert only_cpu is not None and only_cpu.machine.endswith("-cores")
    assert only_cpu.headline.endswith(f"(on {only_cpu.machine})") == (kind == "cuda")


def test_what_is_finished_has_a_tick_and_its_bets(own: Path) -> None:
    right, wrong = (Decided(f"{truth}?", "1.0×", "2.0×", truth) for truth in (True, False))
    note("04_data_loading", [right, wrong])
    note("11_activation_checkpointing", solved=True)
    ticks = {row[0][:2]: row for row in (entry.texts() for entry in shortlist().entries)}
    assert ticks["04"][0].endswith(DONE) and ticks["04"][2] == "1 of 2"
    assert ticks["11"][0].endswith(DONE + STAR) and ticks["11"][2] == "–"
    assert DONE not in ticks["06"][0] and ticks["06"][2] == "–"
    assert DONE not in str(shortlist(yours=False))


def test_the_reader_s_own_figures_stand_beside_the_recorded_ones(own: Path) -> None:
    found = shortlist()
    by_title = {entry.title[:2]: entry for entry in found.entries}
    assert by_title.pop("06").yours == "1.83x"
    assert all(entry.yours == "–" for entry in by_title.values())
    html = found._repr_html_()
    assert "<td>1.83x</td>" in html and 'href="06_mixed_precision.ipynb"' in html
    assert len(re.findall("<tr>", html)) == len(PATH)
    assert "1.83x" in str(found)
    assert "1.83x" not in str(shortlist(yours=False))


def test_the_map_is_folded_where_it_is_asked_for(own: Path) -> None:
    table, folded = (shortlist(folded=each)._repr_html_() for each in (False, True))
    assert "<details>" not in table
    inside = folded[folded.index("</summary>") : folded.index("</details>")]
    assert len(re.findall("<tr>", inside)) == len(PATH) and "on the board" in inside
    assert f"all {len(PATH) - 1} notebooks" in folded


def test_a_damaged_board_is_told_and_the_map_still_shows(own: Path) -> None:
    own.write_text("{")
    found = shortlist()
    assert "damaged" in found._repr_html_()
    assert len(found.entries) == len(PATH) - 1
    assert module.NOTHING in str(found)


def test_a_switch_of_another_version_is_passed_over(own: Path) -> None:
    choice = store.Choice(figure("warp", 3.0), kept=True)
    store.change(own, machine_name(), lambda choices: choices.with_choice(choice))
    found = str(shortlist())
    assert "1.83x" in found and "3.00x" not in found


@pytest.mark.parametrize(("factor", "text"), [(math.inf, "only with it"), (0.0, "only without it")])
def test_a_target_out_of_reach_is_said_in_words(own: Path, factor: float, text: str) -> None:
    choice = store.Choice(figure("learning_rate_schedules", factor), kept=True)
    store.change(own, machine_name(), lambda choices: choices.with_choice(choice))
    (row,) = [line for line in str(shortlist()).splitlines() if line.startswith("03")]
    assert text in row and "infx" not in row
