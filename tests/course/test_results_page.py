"""The course's own ledger: complete, not contradicted by a record, and RESULTS.md up to date."""

import math
import re

import pytest

from course.claims import Claim, Ledger, gains, heat_map, ledgers, results_page, summary
from course.claims.claim import METRICS
from course.claims.findings import MISSING, OTHER, PREDICTED, WORDS, Finding
from course.claims.heat import cell, drawn
from course.cli import main
from course.notebook_files import ROOT, code_cells, long_notebooks, read_notebook
from course.records import reference

LEDGERS = {book.notebook: book for book in ledgers()}
PATHS = long_notebooks()
NAMES = [path.stem for path in PATHS]


def claim(**changes):
    about = {"text": "t", "source": "s", "said": "s", "why": "w", "figure": (0, 1)}
    about |= {"expect": (0, 1), "setting": "s", "same_setting": True, "change": {"amp": True}}
    return Claim(**(about | changes))


def test_every_notebook_has_a_ledger_and_a_cell_of_one_line_shows_it():
    assert list(LEDGERS) == NAMES
    assert all(book.claims for book in LEDGERS.values())
    for path in PATHS:
        [shown] = code_cells(read_notebook(path), "claims")
        assert shown.source == f'from course.claims import ledger\n\nledger("{path.stem}")'


def test_results_md_is_up_to_date():
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert text == results_page.results_text(list(LEDGERS.values())), (
        "run `python -m course results`"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_source_s_figure_holds_no_wish_of_ours(name):
    """What we hope for stands in `expect`, and judges nobody."""
    for one in LEDGERS[name].claims:
        for words in (one.source, one.said):
            assert not re.search(r"\b(we|our|us|goal|hoped?)\b", words), words


@pytest.mark.parametrize("name", NAMES)
def test_no_record_contradicts_a_claim(name):
    for one, findings in LEDGERS[name].rows():
        assert not [str(finding) for finding in findings if finding.contradicts], one.text


def test_sixteen_cores_may_bring_more_than_two():
    """Four workers: at most 3x was said of two cores; with sixteen, 3.5x to 4x are likely."""
    [workers] = [
        each for each in LEDGERS["04_data_loading"].claims if each.text.startswith("Four workers")
    ]
    assert not workers.expects((3.5, 4), cores=2)
    assert workers.expects((3.5, 4), cores=16) and workers.expects((3.5, 4), cores=None)


@pytest.mark.parametrize("name", NAMES)
def test_corrections_still_hold(name):
    for correction in LEDGERS[name].corrections:
        assert correction.holds is None or correction.holds(), correction.says


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_that_a_cpu_can_answer_finds_its_record(name):
    for one, findings in LEDGERS[name].rows():
        if one.device != "cuda":
            assert all(finding.word != MISSING for finding in findings), one.text


@pytest.mark.parametrize("name", NAMES)
def test_words_judge_only_the_source_s_setting(name):
    devices = {record.machine: record.device for record in LEDGERS[name].references.records}
    for one, findings in LEDGERS[name].rows():
        for finding in findings:
            if finding.word in (MISSING, PREDICTED):
                continue
            # A machine with a GPU has figures of its CPU as well, and says so.
            device = devices.get(finding.name, "cpu")
            judged = one.same_setting and one.machine in ("any", device)
            assert (finding.word == OTHER) != judged, one.text


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_that_is_judged_has_room_for_an_interval(name):
    for one in LEDGERS[name].claims:
        if one.same_setting and not METRICS[one.metric].exact:
            low, high = one.figure
            assert low < high, one.text


def test_the_known_errors_of_the_sources_are_shown():
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    for known in ("ResNet-56", "four workers", "set_to_none", "23 %", "32 %", "133"):
        assert known in text, known


def test_the_first_page_counts_what_stands_below():
    text = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    first, below = text.split("\n## [", 1)
    rows = [line.split(" | ") for line in below.splitlines() if line.startswith("| ")]
    figures = [row[3] for row in rows if len(row) == 5 and row[0] not in ("| claim", "| ---")]
    found = [figure for cells in figures for figure in cells.split("<br>")]
    for word in WORDS:
        count = sum(figure.removesuffix(", one build").endswith(word) for figure in found)
        assert f"| **{word}** | {count} |" in first
    for machine in {
        record.machine for book in LEDGERS.values() for record in book.references.records
    }:
        assert f"| {machine} |" in first
    _, waits = first.split("What waits for a GPU:")
    of_cuda = [row for row in rows if len(row) == 5 and "cuda only" in row[0]]
    assert of_cuda
    for row in of_cuda:
        text = row[0].removeprefix("| ").partition(" (")[0]
        assert (text in waits) == (row[3] == "not recorded yet"), text


def test_check_tells_a_stale_file(tmp_path, monkeypatch, capsys):
    text = results_page.results_text(list(LEDGERS.values()))
    monkeypatch.setattr(results_page, "ledgers", lambda: list(LEDGERS.values()))
    (tmp_path / "RESULTS.md").write_text(text + " ", encoding="utf-8")
    monkeypatch.setattr(results_page, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(results_page, "SOURCES_PAGE", tmp_path / "sources.md")
    monkeypatch.setattr(results_page, "SYMPTOMS_PAGE", tmp_path / "symptoms.md")
    assert main(["results", "--check"]) == 1 and "out of date" in capsys.readouterr().out
    assert main(["results"]) == 0 and "144 claims" in capsys.readouterr().out
    assert main(["results", "--check"]) == 0
    assert (tmp_path / "RESULTS.md").read_text(encoding="utf-8") == text


def test_the_heat_map_has_a_row_a_recorded_claim_and_a_column_a_machine(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(results_page, "ledgers", lambda: list(LEDGERS.values()))
    books = list(LEDGERS.values())
    machines = sorted({record.machine for book in books for record in book.references.records})
    [axis] = heat_map(books).axes
    # Below and above.
    assert [label.get_text() for label in axis.get_xticklabels()] == 2 * machines
    found = [found for book in books for _, found in book.rows()]
    recorded = [rows for rows in found if any(finding.machine for finding in rows)]
    assert len(axis.get_yticklabels()) == len(recorded) > 0
    axis.figure.draw_without_rendering()
    # The names leave room for the cells.
    assert axis.get_position().width > 0.3
    picture = tmp_path / "map.png"
    assert main(["results", "--check", "--figure", str(picture), "--machines", machines[0]]) == 0
    assert picture.stat().st_size > 10_000
    assert main(["results", "--figure", str(picture), "--machines", "cray-1"]) == 1
    assert "no record of cray-1" in capsys.readouterr().err
    assert main(["results", "--check", "--machines", machines[0]]) == 1
    assert "--figure FILE.png" in capsys.readouterr().err


def test_the_heat_map_keeps_the_strongest_rows():
    books = list(LEDGERS.values())

    def rows(most):
        [axis] = heat_map(books, most=most).axes
        return [label.get_text() for label in axis.get_yticklabels()]

    ten, every = rows(10), rows(None)
    assert len(ten) == 10
    assert ten == [name for name in every if name in ten]
    # The largest gain of all, and a large loss.
    assert any(name.startswith("16 ") for name in ten)
    assert any(name.startswith("10 ") for name in ten)
    with pytest.raises(ValueError, match="most=0"):
        heat_map(books, most=0)


def test_the_heat_map_colours_what_is_clear():
    unsure = Finding("m", 1.0, 0.9, 1.1, "unclear", clear=False)
    value, text = cell(claim(), unsure)
    assert math.isnan(value) and text == "unclear"
    assert math.isnan(cell(claim(), Finding(""))[0])
    less = Finding("m", 0.25, 0.25, 0.25, "better")
    assert cell(claim(metric="memory"), less) == (4, "4.00x smaller")
    old = Finding("m, 2026-11-20 (ended early)", 2.0, 2.0, 2.0, "predicted")
    assert cell(claim(metric="batch"), old) == (2.0, "2.00x larger*\n(predicted)")
    assert drawn({"a": [(0.0, "never"), (math.inf, "x")]}, ["m", "n"], title="").axes


def test_the_page_begins_with_squares():
    """Green from twice on two, from four times on three; white where nothing is clear."""
    found = [
        Finding("a, day", 2.5, 2.4, 2.6, "reproduced"),
        Finding("b, day", 0.2, 0.19, 0.21, "worse"),
        Finding("c, day", 1.01, 0.99, 1.03, "unclear", clear=False),
    ]
    row = ("06_mixed_precision", claim(headline="bf16"), found)
    *_, cells = summary._heat([row]).splitlines()
    assert cells == (
        "| 06 mixed precision | bf16 | 🟩🟩 2.50x | 🟥🟥🟥 0.20x | ⬜ 1.010x [0.990, 1.030] |"
    )


def test_a_refused_record_is_named_in_the_ledger(tmp_path):
    path = tmp_path / "m" / "06_x.json"
    path.parent.mkdir()
    path.write_text("{")
    book = Ledger("06_x", [claim()])
    book.references = reference("06_x", folder=tmp_path)
    assert "Not shown: m/06_x.json is damaged" in str(book)
    assert "Not shown: m/06_x.json" in book.markdown()


def test_gains_are_the_headlines_of_each_machine():
    found = gains("11_activation_checkpointing")
    machines = {
        record.machine for record in LEDGERS["11_activation_checkpointing"].references.records
    }
    assert {row.label.split(", ")[0] for row in found.rows()} == machines
    # Less memory is a gain: above 1.
    assert all(row.value > 1 for row in found.rows() if row.note.startswith("peak memory"))
    assert "smaller" in str(found) and "peak memory of a deep network" in found._repr_html_()
    assert "no machine is recorded yet" in gains("00_start_here")._repr_html_()
    with pytest.raises(ValueError, match="06_none"):
        gains("06_none")
