"""Which notebooks a machine can show in full."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from course import coverage as coverage_of
from course.coverage import notebook_coverage
from course.notebook_files import about, course_notebooks


def write_notebook(folder: Path, name: str, metadata: Any) -> None:
    (folder / f"{name}.ipynb").write_text(json.dumps({"cells": [], "metadata": metadata}))


def test_notebook_coverage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, needs in (
        ("01_all", {}),
        ("02_gpu", {"cuda": "fp16", "bf16": "bf16"}),
        ("03_cores", {"cores2": "workers", "compiler": "the compiled arm"}),
        ("04_new", {"quantum": "everything"}),
        ("_template", {}),
    ):
        write_notebook(tmp_path, name, {"labkit": {"needs": needs}})
    write_notebook(tmp_path, "05_silent", {})
    write_notebook(tmp_path, "07_half", {"labkit": {"title": "no needs"}})
    (tmp_path / "06_damaged.ipynb").write_text('{"cells": [')
    monkeypatch.setattr(coverage_of, "machine_card", lambda: {"cpu": {"cores": 1}})
    monkeypatch.setattr(coverage_of, "fast_dtypes", lambda: {"bfloat16": None})
    monkeypatch.setattr(
        shutil, "which", lambda program: "/usr/bin/g++" if program == "g++" else None
    )
    coverage = notebook_coverage(tmp_path)
    silent = "cannot tell: it says nothing of itself: it has no metadata.labkit"
    assert coverage.pop("05_silent") == silent
    assert coverage.pop("06_damaged").startswith("cannot tell: it is no notebook that can be read")
    half = "cannot tell: its metadata.labkit does not say what it needs"
    assert coverage.pop("07_half") == half
    assert coverage == {
        "01_all": "in full",
        "02_gpu": "without: fp16 (needs CUDA); bf16 (needs fast bfloat16, unknown here)",
        "03_cores": "without: workers (needs 2+ cores)",
        "04_new": "without: everything (needs quantum, unknown here)",
    }


def test_notebooks_of_this_repository_state_known_needs() -> None:
    for path in course_notebooks():
        assert set(about(path).needs) <= set(coverage_of.NEEDS), path.name
    assert not any("cannot tell" in text for text in notebook_coverage().values())
