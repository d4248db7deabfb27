"""The stills of the explorables, as they lie in `notebooks/pictures`. No browser is asked."""

import re
import xml.etree.ElementTree as ET

import pytest

from course.explorables import MemorySaw, explorable
from course.site import stills


@pytest.mark.parametrize("explorable", stills.every(), ids=lambda each: each.__name__)
def test_a_still_is_up_to_date_and_small_and_fits_both_themes(explorable):
    assert stills.stale(explorable) is None
    text = stills.path(explorable).read_text(encoding="utf-8")
    assert len(text.encode()) < stills.LARGEST
    assert len(re.findall(r"@media \(prefers-color-scheme: dark\)", text)) == 1
    root = ET.fromstring(text)
    assert 900 <= float(root.get("width")) <= 1100
    title = root.find("{http://www.w3.org/2000/svg}title")
    assert title is not None and len(title.text or "") > 20
    # Nothing is asked for from elsewhere, and no element has a variable without a colour.
    assert not re.search(r"href|url\(|<script|<image", text)
    said = set(re.findall(r"var\((--xp-\w+)", text))
    assert said <= set(re.findall(r"(--xp-\w+): #[0-9a-f]{6};", text))


def test_each_notebook_has_one_still():
    numbers = [each.number for each in stills.every()]
    assert len(set(numbers)) == len(numbers)
    files = {stills.path(each).name for each in stills.every()}
    assert {file.name for file in stills.PICTURES.glob("still-*.svg")} == files


def test_a_changed_source_is_told_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(stills, "PICTURES", tmp_path)
    assert "still-11.svg is missing" in stills.stale(MemorySaw)
    stills.path(MemorySaw).write_text("<!-- sources 0123456789abcdef -->")
    said = stills.stale(MemorySaw)
    assert "other sources" in said
    assert said.endswith("run: uv run python -m course.site.stills MemorySaw")
    stills.path(MemorySaw).write_text(f"<!-- sources {stills.hash_of(MemorySaw)} -->")
    assert stills.stale(MemorySaw) is None


def test_the_hash_is_that_of_all_sources(tmp_path, monkeypatch):
    names = ("memory_saw.js", "models/memory_saw.js", "drawing.js", "explorable.css")
    (tmp_path / "models").mkdir()
    for name in names:
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(explorable, "HERE", tmp_path)
    monkeypatch.setattr(stills, "STYLE", tmp_path / "explorable.css")
    found = {stills.hash_of(MemorySaw)}
    for name in names:
        (tmp_path / name).write_text("two")
        found.add(stills.hash_of(MemorySaw))
    assert len(found) == 5


def test_labels_keep_their_digits():
    drawn = '<text xmlns="http://www.w3.org/2000/svg" x="1.2345">0.125×</text>'
    assert stills._plain(drawn) == '<text x="1.2">0.125×</text>'


def test_another_name_is_refused(capsys):
    assert stills.main(["Sawtooth"]) == 2
    assert "no explorable: Sawtooth; there are NoisyTiming" in capsys.readouterr().err
