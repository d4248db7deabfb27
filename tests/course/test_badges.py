"""Badges lead to the fork that the checkout is of, and nowhere else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course import badges as module
from course.badges import NoRemote, badges, with_badges
from course.cli import main
from course.notebook_files import ROOT


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
    assert "github/ann/speed.lab/blob/main/notebooks/00_start_here.ipynb)" in colab
    assert codespaces.endswith("(https://codespaces.new/ann/speed.lab/tree/main)")
    assert (ROOT / module.FIRST).exists()


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
