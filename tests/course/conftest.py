"""What tests of several files of this folder need."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from data_files import CLOSED, Server, entries

from course import data, notebook_files
from course import data_sources as sources
from course.records import record as recording
from course.records import store, travel


@pytest.fixture
def notebooks_of_its_own(tmp_path, monkeypatch):
    """Notebooks are read from tmp_path, and their records go to tmp_path/out.

    To be called with the card of the machine that they are recorded on.
    """

    def begin(card):
        monkeypatch.setattr(recording, "measured_card", lambda: card)
        monkeypatch.setattr(notebook_files, "NOTEBOOKS", tmp_path)
        for module in (store, recording, travel):
            monkeypatch.setattr(module, "reference_folder", lambda: tmp_path / "out")

    return begin


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no LABKIT_DATA, and a copy of the manifest whose addresses do not answer."""
    folder = tmp_path / "cache"
    monkeypatch.delenv("LABKIT_DATA", raising=False)
    for module in (sources, data):
        monkeypatch.setattr(module, "cache_dir", lambda: folder)
    monkeypatch.setattr(sources, "SETS", copy.deepcopy(sources.SETS))
    for entry in entries():
        if "url" in entry:
            entry["url"] = CLOSED + entry["name"]
    return folder


@pytest.fixture
def server(cache: Path) -> Iterator[Server]:
    """A web server without files yet; the cache is empty."""
    running = Server()
    yield running
    running.close()
