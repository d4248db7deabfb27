"""The `labkit` command, run in this process with its own folders."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from labkit import data
from labkit.cli import main

TEXT = b"The Time Machine"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no LABKIT_DATA, and one small set whose address does not answer."""
    monkeypatch.delenv("LABKIT_DATA", raising=False)
    monkeypatch.setattr(data, "cache_dir", lambda: tmp_path / "cache")
    checksum = f"sha1:{hashlib.sha1(TEXT).hexdigest()}"
    entry = {
        "name": "timemachine.txt",
        "url": "http://127.0.0.1:9/t",
        "checksum": checksum,
        "bytes": len(TEXT),
    }
    spec = data.SETS["time_machine"] | {"forms": [[entry]]}
    monkeypatch.setattr(data, "SETS", data.SETS | {"time_machine": spec})
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


def row(capsys: pytest.CaptureFixture[str], name: str) -> str:
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith(name)]
    return line


def test_list_shows_every_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "state", "MiB", "source"]
    assert [line.split()[0] for line in rows] == list(data.SETS)
    for line, url in ((rows[0], "https://www.cs.toronto.edu"), (rows[1], "http://fashion-mnist")):
        assert "not here" in line and url in line
    assert "162.6" in rows[0] and "29.4" in rows[1]
    assert "ready" in rows[-1] and "scikit-learn" in rows[-1]


def test_list_follows_the_sources(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / "timemachine.txt").write_bytes(TEXT)
    assert main(["data", "list", "time_machine"]) == 0
    assert (
        f"cache: {cache / 'timemachine.txt'}" in (line := row(capsys, "time_machine"))
        and "ready" in line
    )
    (tmp_path / "timemachine.txt").write_bytes(TEXT)
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path))
    assert main(["data", "list", "time_machine"]) == 0
    assert f"LABKIT_DATA: {tmp_path / 'timemachine.txt'}" in row(capsys, "time_machine")
    monkeypatch.delenv("LABKIT_DATA")
    (cache / "timemachine.txt").write_bytes(b"the Time Machine")
    assert main(["data", "list", "time_machine"]) == 0
    assert "damaged" in row(capsys, "time_machine")


def test_verify(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify"]) == 0
    assert "time_machine: 0 files, 0 damaged" in capsys.readouterr().out
    (cache / "timemachine.txt").write_bytes(TEXT)
    pack = cache / f"cifar10-train-jpeg.{hashlib.sha1(b'pack').hexdigest()}.npz"
    pack.write_bytes(b"pack")
    assert main(["data", "verify"]) == 0
    printed = capsys.readouterr()
    assert (
        "time_machine: 1 files, 0 damaged" in printed.out
        and "cifar10: 1 files, 0 damaged" in printed.out
    )
    assert printed.err == ""

    pack.write_bytes(b"Pack")
    (cache / "timemachine.txt").write_bytes(b"the Time Machine")
    assert main(["data", "verify"]) == 1
    message = capsys.readouterr().err
    for path, good, bad in (
        (cache / "timemachine.txt", TEXT, b"the Time Machine"),
        (pack, b"pack", b"Pack"),
    ):
        assert all(
            part in message
            for part in (str(path), *(hashlib.sha1(x).hexdigest() for x in (good, bad)))
        )
    assert main(["data", "verify", "airfoil"]) == 0  # only what is named


def test_fetch(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "fetch", "time_machine", "digits"]) == 1  # no network
    printed = capsys.readouterr()
    assert (
        "time_machine: http://127.0.0.1:9/t cannot be reached" in printed.err
        and "LABKIT_DATA" in printed.err
    )
    assert "digits: ready" in printed.out  # one failure does not end the others
    assert list(cache.iterdir()) == []

    (tmp_path / "t").write_bytes(TEXT)
    data.SETS["time_machine"]["forms"][0][0]["url"] = (tmp_path / "t").as_uri()
    assert main(["data", "fetch", "time_machine"]) == 0
    assert f"time_machine: ready, cache: {cache / 'timemachine.txt'}" in capsys.readouterr().out
    assert (cache / "timemachine.txt").read_bytes() == TEXT


def test_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    machine = ModuleType("labkit.machine")
    machine.doctor = lambda args: calls.append(args.command) or 0
    monkeypatch.setitem(sys.modules, "labkit.machine", machine)
    assert main(["doctor"]) == 0
    assert calls == ["doctor"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["data", "list", "mnist"],
            "unknown data set mnist; there are: cifar10, fashion_mnist, airfoil",
        ),
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
