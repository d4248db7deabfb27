"""The map of the course: every technique has a place, and what it shows comes from the records."""

from dataclasses import replace
from pathlib import Path

import pytest

from course import overview
from course.claims import Claim, Finding, ledgers
from course.notebook_files import ROOT, about, first_notebooks
from labkit.text import format_factor

PATHS = first_notebooks()


@pytest.fixture(scope="module")
def books():
    return {book.notebook: book for book in ledgers()}


@pytest.mark.parametrize(
    "path", [path for path in PATHS if path.stem != "00_start_here"], ids=lambda path: path.stem
)
def test_every_technique_has_a_place_and_a_headline(path: Path, books) -> None:
    place = about(path).map
    assert set(place) == {"relieves", "result", "cost", "risk"}
    assert place.relieves and set(place.relieves) <= set(overview.BOTTLENECKS)
    assert place.result in ("same", "rounding", "other")
    assert place.cost and place.risk
    assert any(claim.headline for claim in books[path.stem].claims)


def test_every_bottleneck_is_relieved_and_picks_its_own(
    books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        overview, "ledgers", lambda: list(books.values())
    )  # reading all records takes a while
    everything = overview.techniques()
    assert [each.notebook for each in everything.techniques] == [path.stem for path in PATHS[1:]]
    assert "](06_mixed_precision.ipynb)" in everything._repr_markdown_()
    for bottleneck in overview.BOTTLENECKS:
        picked = overview.techniques(bottleneck).techniques
        assert picked and picked == tuple(
            each for each in everything.techniques if bottleneck in each.relieves
        )
    with pytest.raises(ValueError, match="bottleneck='disk': use one of compute"):
        overview.techniques("disk")


def test_effects_are_those_of_the_records(books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "ledgers", lambda: list(books.values()))
    records = {path.parent.name for path in (ROOT / "data" / "reference").glob("*/*.json")}
    monkeypatch.setattr(overview, "machine_name", lambda card: "a-machine-without-records")
    [row] = (
        row for row in overview.techniques("launches").rows() if row["technique"].startswith("01")
    )
    assert row["here (a-machine-without-records)"] == overview.NOT_HERE
    assert {"amd-epyc-2-cores", "intel-xeon-2-cores"} <= set(row) & records
    book = books["01_timing_and_vectorization"]
    claim, found = next((claim, found) for claim, found in book.rows() if claim.headline)
    for finding in found:
        text = row[finding.machine.partition(",")[0]]
        value, low, high = map(format_factor, (finding.value, finding.low, finding.high))
        assert text.startswith(f"{claim.headline}: {value}x [{low}, {high}]")


def test_less_is_a_gain_where_it_counts() -> None:
    claim = Claim(
        text="t",
        source="s",
        said="s",
        figure=(0, 1),
        expect=(0, 1),
        why="w",
        setting="s",
        same_setting=True,
        change={"amp": True},
        metric="memory",
        headline="peak memory",
    )
    finding = Finding("m, 2026-01-01", 0.25, 0.2, 0.5, "reproduced")
    assert overview.effects_of([(claim, [finding])]) == {
        "m": "peak memory: 4.00x smaller [2.00, 5.00]"
    }
    unsure = replace(finding, clear=False)
    [text] = overview.effects_of([(claim, [unsure])]).values()
    assert text.endswith("(unclear)")
    planned = replace(finding, word="predicted")
    [text] = overview.effects_of([(claim, [planned])]).values()
    assert text.endswith("(predicted)")
    old = replace(unsure, machine="m, 2026-01-01 (of an older version of the notebook)")
    [text] = overview.effects_of([(claim, [old])]).values()
    assert text.endswith("(unclear) (in doubt)")
    assert overview.effects_of([(replace(claim, headline=""), [finding])]) == {}


def test_a_notebook_without_a_place_is_not_on_the_map(
    books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "ledgers", lambda: list(books.values()))
    assert "00_start_here" not in {each.notebook for each in overview.techniques().techniques}
