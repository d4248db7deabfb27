"""Fixtures for tests of data sets: a cache of their own, and a web server on this machine."""

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
from data_files import CLOSED, Server, entries

from labkit import data, sources


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
