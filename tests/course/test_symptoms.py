"""The page of symptoms: every entry leads to a cell that is there and to a figure of a record."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from course.claims import ledgers, symptoms
from course.claims.statements import Places
from course.notebook_files import ROOT

BOOKS = ledgers()
ENTRIES = symptoms.symptoms()
PAGE = symptoms.SYMPTOMS_PAGE.read_text(encoding="utf-8")


def test_the_page_is_up_to_date():
    assert symptoms.symptoms_text(BOOKS) == PAGE, "run `python -m course results`"


def test_there_are_twenty_and_no_two_are_alike():
    assert len(ENTRIES) >= 20
    assert len({each.says for each in ENTRIES}) == len({each.why for each in ENTRIES})
    assert len({each.says for each in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.says)
def test_an_entry_leads_to_a_cell_that_is_there(entry):
    assert Places().find(entry.cell).notebook.is_file()
    assert entry.cure.strip().endswith(".")


def test_every_link_of_the_page_has_a_target():
    headings = {symptoms._anchor(title) for title in re.findall(r"^## (.+)$", PAGE, re.MULTILINE)}
    targets = re.findall(r"\]\(([^)]+)\)", PAGE)
    assert len(targets) > 3 * len(ENTRIES) - 10
    for target in targets:
        path, _, anchor = target.partition("#")
        if not path:
            assert anchor in headings
        else:
            assert (symptoms.SYMPTOMS_PAGE.parent / path).is_file(), target


def test_most_figures_are_those_of_a_record():
    recorded = re.findall(r"^- \*\*Recorded:\*\* .+ on [\w-]+", PAGE, re.MULTILINE)
    assert len(recorded) >= 15


def test_the_readme_leads_to_the_page():
    assert "(course/symptoms.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_claim_that_there_is_not_is_told(monkeypatch):
    wrong = replace(ENTRIES[0], claim="no such claim")
    monkeypatch.setattr(symptoms, "symptoms", lambda: [wrong])
    with pytest.raises(ValueError, match="no such claim"):
        symptoms.symptoms_text(BOOKS)


@pytest.mark.parametrize("lines", ['cure = "c"', 'cure = "c"\ncell = "c"\nnotebook = "n"'])
def test_an_entry_that_lacks_something_is_told(tmp_path, lines):
    file = tmp_path / "symptoms.toml"
    file.write_text(f'[[symptom]]\nsays = "it is slow"\nwhy = "w"\n{lines}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="it is slow"):
        symptoms.symptoms(file)
