"""Another process that measures on this machine is noticed, and gone when it is."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from labkit import neighbours
from labkit.turn import Turn

OTHER = """
import sys, threading
from labkit.turn import TURN
TURN.take(threading.current_thread())
print("measures", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of our own: other tests measure at the same time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(neighbours.tempfile, "tempdir", None)
    yield tmp_path / "labkit-measuring"
    neighbours.tempfile.tempdir = None


@pytest.mark.skipif(neighbours.fcntl is None, reason="no advisory locks here")
@pytest.mark.parametrize("ending", ["orderly", "killed"])
def test_another_process_is_noticed_while_it_measures(own_folder: Path, ending: str) -> None:
    assert neighbours.told() == ""
    command = [sys.executable, "-c", OTHER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as other:  # type: ignore[call-overload]
        assert other.stdout.readline() == "measures\n"
        assert neighbours.neighbours() == [other.pid]
        assert neighbours.told().startswith(f"Another process ({other.pid}) measures on this")
        if ending == "killed":
            other.kill()
        else:
            other.communicate("end\n")
    assert neighbours.neighbours() == []


@pytest.mark.skipif(neighbours.fcntl is None, reason="no advisory locks here")
def test_the_turn_is_told_once_and_taken_back(own_folder: Path) -> None:
    turn, thread = Turn(), threading.current_thread()
    turn.take(thread)
    turn.take(thread)
    assert len(list(own_folder.iterdir())) == 1
    # One's own measurement is no neighbour.
    assert neighbours.neighbours() == []
    turn.give_back_to(1, thread)
    assert len(list(own_folder.iterdir())) == 1
    turn.give_back_to(0, thread)
    assert list(own_folder.iterdir()) == []


def test_a_machine_without_a_place_or_without_locks_measures_all_the_same(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_folder.write_text("a file where the folder should be")
    turn, thread = Turn(), threading.current_thread()
    turn.take(thread)
    turn.give_back_to(0, thread)
    assert neighbours.told() == ""
    monkeypatch.setattr(neighbours, "fcntl", None)
    turn.take(thread)
    turn.give_back_to(0, thread)
    assert neighbours.neighbours() is None
    assert neighbours.told() == ""
