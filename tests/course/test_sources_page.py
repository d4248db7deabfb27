"""From each statement of the sources to a cell and a figure."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter

import pytest

from course.claims import ledgers
from course.claims.sources_page import NOWHERE, SOURCES_PAGE, by_statement, sources_text
from course.claims.statements import COLUMNS, Places, statements

ROWS = statements()
BOOKS = ledgers()
# Of the 243, those that no cell teaches yet. Fewer is better; never more.
WAITING = 4


def test_the_page_is_up_to_date():
    assert SOURCES_PAGE.read_text(encoding="utf-8") == sources_text(BOOKS), (
        "run `python -m course results`"
    )


def test_every_statement_of_every_source_has_a_row():
    numbers = [row.number for row in ROWS]
    last = {"000": 89, "001": 52, "002": 18, "003": 45, "004": 39}
    assert numbers == [f"{source}.{i}" for source, n in last.items() for i in range(1, n + 1)]
    assert all(row.text for row in ROWS)


def test_few_statements_are_taught_nowhere():
    text = SOURCES_PAGE.read_text(encoding="utf-8")
    waiting = [row.number for row in ROWS if not row.cells and not row.note]
    assert text.count(f"| {NOWHERE} |") == len(waiting) <= WAITING


def test_cells_are_named_by_the_heading_above_them():
    places = Places()
    cell = places.find("04f:recipe")
    assert cell.notebook.parent.name == "notebooks" and cell.label.startswith("04, ")
    deeper = places.find("04:c12")
    assert deeper.notebook.parent.name == "deeper" and deeper.label == "04, The technique"
    with pytest.raises(KeyError, match="04:c999"):
        places.find("04:c999")


def test_figures_come_from_the_claims_that_name_a_statement():
    found = by_statement(BOOKS)
    named = Counter(
        number
        for book in BOOKS
        for one in (*book.claims, *book.corrections)
        for number in one.statements
    )
    assert named and named.keys() == found.keys()
    assert "corrected" in found["000.15"] and re.search(r"\d\.\d", found["000.20"])
    assert not found["000.2"]


def test_a_statement_that_there_is_not_is_told():
    [book] = [book for book in BOOKS if book.notebook.startswith("04")]
    claim = dataclasses.replace(book.claims[0], statements=("000.999",))
    with pytest.raises(ValueError, match=r"000\.999"):
        sources_text([type(book)(book.notebook, [claim])])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("9.1,text,,", "9.1"),
        ("004.1,text,chapter 2,", "chapter"),
        ("004.1,text,04:c12 04c13,", "04c13"),
    ],
)
def test_a_row_that_is_wrong_is_told(tmp_path, row, told):
    file = tmp_path / "statements.csv"
    file.write_text(",".join(COLUMNS) + f"\n{row}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=told):
        statements(file)
    file.write_text("number,text\n", encoding="utf-8")
    with pytest.raises(ValueError, match="columns"):
        statements(file)
