"""What tests of several files of this folder need."""

import pytest

from course import notebook_files
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
