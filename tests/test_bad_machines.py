"""Machines that the course cannot run on: each ends in one clear sentence, and nothing is lost."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from course import opener
from course.cli import main

ROOT = Path(__file__).resolve().parent.parent
LOGIN = b"<html>please log in</html>"
ANSWERS = {
    "nonsense": b"NONSENSE\r\n\r\n",
    "a login page": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(LOGIN), LOGIN),
    "nothing": b"",
}


@contextmanager
def proxy(answer: bytes) -> Iterator[str]:
    """A server that answers everything alike; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            # closed at the end
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def run(
    code: str, limit: Callable[[], None] | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, with these variables and none of the caller's proxies."""
    dropped = ("XDG", "JUPYTER", "LABKIT", "NO_PROXY", "no_proxy")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=kept | {"PYTHONPATH": str(ROOT)} | variables,
        capture_output=True,
        text=True,
        timeout=300,
        preexec_fn=limit,
    )


FETCH = """
import pathlib, sys
from course import data_sources as sources
sources.cache_dir = lambda: pathlib.Path({cache!r})
from course.cli import main
sys.exit(main(["data", "fetch", "time_machine"]))
"""


@pytest.mark.usefixtures("forked_python")
@pytest.mark.parametrize("answer", ANSWERS)
def test_a_proxy_that_answers_nonsense(answer: str, tmp_path: Path) -> None:
    with proxy(ANSWERS[answer]) as address:
        names = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
        done = run(FETCH.format(cache=str(tmp_path)), **dict.fromkeys(names, address))
    assert done.returncode == 1
    (said,) = done.stderr.strip().splitlines()
    assert said.startswith("course: time") and "LABKIT_DATA" in said
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.usefixtures("forked_python")
def test_no_internet(tmp_path: Path) -> None:
    # the discard port: nothing listens there
    done = run(FETCH.format(cache=str(tmp_path)), http_proxy="http://127.0.0.1:9")
    assert done.returncode == 1
    (said,) = done.stderr.strip().splitlines()
    assert "cannot be reached" in said and "set the variable LABKIT_DATA" in said


# root may write everywhere: a home below a file cannot be made by anybody
NO_HOME = os.devnull + "/home"


def test_a_home_that_cannot_be_written() -> None:
    done = run("from course.cli import main; main(['data', 'list'])", HOME=NO_HOME)
    assert (done.returncode, done.stderr) == (0, "")


def test_jupyter_is_not_started_in_a_home_that_cannot_be_written() -> None:
    """Jupyter itself would answer with a traceback."""
    code = "import sys; from course.cli import main; sys.exit(main(['open']))"
    done = run(code, HOME=NO_HOME)
    assert (done.returncode, done.stdout) == (1, "")
    (said,) = done.stderr.strip().splitlines()
    assert said.startswith(f"course: Jupyter cannot write to {NO_HOME}/") and "export HOME" in said


def test_a_notebook_is_opened_in_the_course_s_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []

    def start(*arguments: list[str]) -> None:
        started.append(arguments[-1])
        raise SystemExit

    monkeypatch.setattr(opener.os, "execv", start)
    monkeypatch.setattr(opener.subprocess, "call", start)
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / name))
    with pytest.raises(SystemExit):
        main(["open", "06_mixed_precision"])
    (command,) = started
    assert f"--ServerApp.root_dir={ROOT}" in command
    assert str(ROOT / "notebooks" / "06_mixed_precision.ipynb") in command
    assert main(["open", "nowhere"]) == 1 and len(started) == 1
    assert "there is no notebook 'nowhere'" in capsys.readouterr().err


def test_a_home_that_cannot_be_written_does_not_keep_the_board() -> None:
    code = "from course.cli import main; main(['board'])"
    done = run(code, HOME=NO_HOME)
    assert done.returncode == 0 and done.stderr == ""
    assert "board.json cannot be read" in done.stdout and "LABKIT_BOARD" in done.stdout


# what root cannot write to either
READ_ONLY = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]


def read_only_works() -> bool:
    try:
        return subprocess.run([*READ_ONLY, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not read_only_works(), reason="bubblewrap is missing or not allowed")
def test_the_readme_s_command_in_a_home_that_cannot_be_written() -> None:
    """uv is the first to write; `jupyter lab` alone would answer with a traceback."""
    dropped = ("UV_CACHE_DIR", "XDG")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    done = subprocess.run(
        [*READ_ONLY, sys.executable, "-m", "uv", "run", "jupyter", "lab"],
        cwd=ROOT,
        env=kept | {"HOME": "/usr/nobody"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 3, done.stderr
    assert "Failed to initialize cache" in done.stderr and "/usr/nobody" in done.stderr


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere the limit has no effect"
)
def test_four_gigabytes_of_memory_end_one_side_and_not_the_kernel() -> None:
    def limit() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (4 * 2**30, 4 * 2**30))

    code = """
import torch, labkit
def make(mib):
    kept = torch.ones(mib * 2**18)
    return labkit.Workload(lambda: kept[:64].sum(), samples=1)
print(labkit.Lab(make, mib=[1, 8192]).run(mib=8192, seconds=0.3))
print("the kernel lives")
"""
    done = run(code, limit)
    assert done.returncode == 0, done.stderr
    assert "out of memory" in done.stdout and "the kernel lives" in done.stdout


def test_no_browser(tmp_path: Path) -> None:
    """The browser tests are skipped in one sentence."""
    said = "no chromium, chromium-browser or google-chrome on PATH"
    arguments = ["-n0", "-q", "-pno:cacheprovider", "tests/browser/test_panel.py", "-ksweep"]
    done = run(f"import pytest; pytest.main({arguments})", PATH=str(tmp_path), CI="")
    assert "1 skipped" in done.stdout and said in done.stdout
