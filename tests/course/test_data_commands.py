"""``python -m course data``, run in this process with its own folders."""

from pathlib import Path

import pytest
from data_files import Server, publish, sha1

from course import data_sources as sources
from course.cli import main

TEXT = b"The Time Machine"
BAD = b"the Time Machine"


@pytest.fixture(autouse=True)
def text(cache: Path) -> Path:
    """Where the one small file of a set would lie in the cache, which exists and is empty."""
    publish("time_machine", {"timemachine.txt": TEXT})
    cache.mkdir()
    return cache / "timemachine.txt"


def row(capsys: pytest.CaptureFixture[str], name: str) -> str:
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(name)]
    return line


def test_list_shows_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "state", "MiB", "source"]
    assert [line.split()[0] for line in rows] == list(sources.SETS)
    for line, name in zip(rows, sources.SETS, strict=True):
        if name == "digits":
            assert "ready" in line and "scikit-learn" in line
        else:
            assert "not here" in line and sources.SETS[name]["forms"][0][0]["url"] in line
    assert "162.6" in rows[0] and "29.4" in rows[1]


def test_list_follows_the_sources(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text.write_bytes(TEXT)
    assert main(["data", "list", "time_machine"]) == 0
    line = row(capsys, "time_machine")
    assert f"cache: {text}" in line and "ready" in line

    (tmp_path / "timemachine.txt").write_bytes(TEXT)
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    assert main(["data", "list", "time_machine"]) == 0
    assert f"LABKIT_DATA: {tmp_path / 'timemachine.txt'}" in row(capsys, "time_machine")

    monkeypatch.delenv("LABKIT_DATA")
    text.write_bytes(BAD)
    assert main(["data", "list", "time_machine"]) == 0
    assert "damaged" in row(capsys, "time_machine")


def test_verify(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify"]) == 0
    assert "time_machine: 0 files, 0 damaged" in capsys.readouterr().out

    text.write_bytes(TEXT)
    pack = text.with_name(f"cifar10-train-jpeg.{sha1(b'pack')}.npz")
    pack.write_bytes(b"pack")
    assert main(["data", "verify"]) == 0
    printed = capsys.readouterr()
    assert "time_machine: 1 files, 0 damaged" in printed.out
    assert "cifar10: 1 files, 0 damaged" in printed.out
    assert printed.err == ""


def test_verify_names_what_is_damaged(text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text.write_bytes(BAD)
    pack = text.with_name(f"cifar10-train-jpeg.{sha1(b'pack')}.npz")
    pack.write_bytes(b"Pack")
    assert main(["data", "verify"]) == 1
    printed = capsys.readouterr()
    assert "time_machine: 1 files, 1 damaged" in printed.out
    problems = printed.err.splitlines()
    assert len(problems) == 2
    for path, good, bad in ((pack, b"pack", b"Pack"), (text, TEXT, BAD)):
        (problem,) = [line for line in problems if str(path) in line]
        assert sha1(good) in problem and sha1(bad) in problem
    # Only what is named counts.
    assert main(["data", "verify", "airfoil"]) == 0


def test_fetch(server: Server, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "fetch", "time_machine", "digits"]) == 1
    printed = capsys.readouterr()
    assert "time_machine: http://127.0.0.1:9/timemachine.txt cannot be reached" in printed.err
    assert "LABKIT_DATA" in printed.err
    # One failure does not end the others.
    assert "digits: ready" in printed.out
    assert list(text.parent.iterdir()) == []

    server.serve("time_machine", {"timemachine.txt": TEXT})
    assert main(["data", "fetch", "time_machine"]) == 0
    assert f"time_machine: ready, cache: {text}" in capsys.readouterr().out
    assert text.read_bytes() == TEXT


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["data", "list", "mnist"], "unknown data set mnist; there are: cifar10, fashion_mnist"),
        (["data", "erase"], "invalid choice: 'erase'"),
        (["data"], "required: ACTION"),
        ([], "required: COMMAND"),
    ],
)
def test_wrong_command_line(
    command: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command)
    assert ended.value.code == 2 and message in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "verify"])
def test_own_folder_must_exist(
    action: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(SystemExit) as ended:
        main(["data", action])
    assert ended.value.code == 2 and "nowhere' is not a folder" in capsys.readouterr().err
