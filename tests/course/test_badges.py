"""Badges lead to the fork that the checkout is of, and nowhere else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course import badges as module
from course.badges import NoRemote, badges, with_badges
from course.cli import main
from course.colab import WHERE, copies, with_first_cell
from course.notebook_files import ROOT, course_notebooks, read_notebook, tags


@pytest.mark.parametrize(
    "remote",
    [
        "https://github.com/ann/speed.lab",
        "https://github.com/ann/speed.lab.git",
        "git@github.com:ann/speed.lab.git",
        "ssh://git@github.com/ann/speed.lab/",
    ],
)
def test_a_fork_is_opened_where_it_is(remote: str) -> None:
    colab, codespaces = badges(remote, "main").splitlines()
    assert "github/ann/speed.lab/blob/main/colab/00_start_here.ipynb)" in colab
    assert codespaces.endswith("(https://codespaces.new/ann/speed.lab/tree/main)")
    assert module.FIRST in copies("ann/speed.lab", "main")


@pytest.mark.parametrize("remote", ["", "/srv/lab", "https://gitlab.com/ann/lab.git"])
def test_another_place_has_no_badges(remote: str) -> None:
    with pytest.raises(NoRemote, match="is no repository on GitHub"):
        badges(remote, "main")


def test_badges_stand_below_the_title_once() -> None:
    readme = "# Title\n\nText.\n"
    once = with_badges(readme, "[![a](b)](c)\n")
    assert once == "# Title\n\n[![a](b)](c)\n\nText.\n"
    assert with_badges(once, "[![d](e)](f)\n") == "# Title\n\n[![d](e)](f)\n\nText.\n"


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("# Title\n\nText.\n", encoding="utf-8")
    said = {"remote": "git@github.com:ann/lab.git", "rev-parse": "main"}
    monkeypatch.setattr(module, "_git", lambda command, *_: said[command])
    assert main(["badges", "--write"]) == 0
    assert "codespaces.new/ann/lab" in capsys.readouterr().out
    assert "codespaces.new/ann/lab" in (tmp_path / "README.md").read_text(encoding="utf-8")
    text = (tmp_path / module.FIRST).read_text(encoding="utf-8")
    assert "https://github.com/ann/lab.git" in text
    said["remote"] = ""
    assert main(["badges"]) == 1
    assert "no remote named origin" in capsys.readouterr().err


def test_the_container_installs_by_the_readme_s_way() -> None:
    """Its commands are those of the README, which the whole of the tests runs."""
    about = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    install, sync = about["onCreateCommand"].rsplit(" && ", 1)
    assert f"{install} && .venv/bin/uv run pytest" in readme
    assert sync == ".venv/bin/uv sync -q" and about["hostRequirements"] == {"cpus": 2}


# --------------------------------------------------------------------------- notebooks for Colab

IN_COLAB = """
import sys
from types import ModuleType
from IPython.core.interactiveshell import InteractiveShell

if len(sys.argv) > 2:
    google, colab, output = map(ModuleType, ("google", "google.colab", "google.colab.output"))
    output.enable_custom_widget_manager = lambda: print("widgets")
    google.colab, colab.output = colab, output
    sys.modules |= {"google": google, "google.colab": colab}
InteractiveShell().run_cell(open(sys.argv[1]).read()).raise_error()
import course
print(course.__file__)
"""


@pytest.mark.parametrize("in_colab", [True, False])
def test_the_first_cell_fetches_the_course_in_colab_alone(tmp_path: Path, in_colab: bool) -> None:
    remote, clone = tmp_path / "remote", tmp_path / "clone"
    (remote / "course").mkdir(parents=True)
    (remote / "course" / "__init__.py").touch()
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.example"]
    for command in (["init", "-q", "-b", "trunk"], ["add", "."], ["commit", "-q", "-m", "x"]):
        subprocess.run([*git, *command], cwd=remote, check=True)
    notebook = read_notebook(ROOT / "notebooks" / "00_start_here.ipynb")
    cell = with_first_cell(notebook, f"file://{remote}", "trunk").cells[1]
    assert tags(cell) == ["colab"]
    # An environment of uv's has no pip.
    source = cell.source.replace(WHERE, str(clone)).replace("%pip install", "!echo")
    assert str(clone) in source and "!echo -q anywidget" in source
    (tmp_path / "cell.py").write_text(source, encoding="utf-8")
    arguments = [sys.executable, "-c", IN_COLAB, "cell.py", *(["colab"] if in_colab else [])]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    *_, file = done.stdout.splitlines()
    assert (clone in Path(file).parents) == in_colab
    assert ("widgets" in done.stdout) == in_colab


def test_copies_for_colab_show_pictures_and_lead_to_one_another() -> None:
    files = copies("ann/lab", "main")
    assert len(files) == len(course_notebooks())
    front = files["colab/06_mixed_precision.ipynb"]
    assert "https://raw.githubusercontent.com/ann/lab/main/notebooks/pictures/still-06.svg" in front
    for name, text in files.items():
        assert not re.search(r"\]\((?:\.\./)?pictures/", text), name
        for target in re.findall(r"\]\(([\w./]+\.ipynb)\)", text):
            assert os.path.normpath(f"{name}/../{target}") in files, (name, target)
