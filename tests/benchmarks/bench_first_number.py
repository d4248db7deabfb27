"""How long a newcomer waits: from the README's first command to the first number on the screen.

A fresh clone, an empty home, and packages that were downloaded before (uv's cache); a browser that
is open already. Once the notebook is there, all cells are run, and Run is clicked on its first
panel as soon as it can be seen: two clicks. By hand, one to five minutes:
``uv run python tests/benchmarks/bench_first_number.py [06_mixed_precision]``.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.browser.harness import CHROMIUM_FLAGS, NotebookPage, find_chromium  # noqa: E402

# the longest wait for any one of the steps
PATIENCE = 900.0
# of this process, and nothing that a newcomer has
DROPPED = ("VIRTUAL_ENV", "PYTHON", "LABKIT_SIZE", "LABKIT_BOARD", "JUPYTER", "IPYTHON", "XDG_")


def first_command(readme: str) -> str:
    """The README's line that opens the course."""
    (found,) = re.findall(r"^python3 -m venv .* jupyter lab .*$", readme, flags=re.MULTILINE)
    return str(found)


def environment(home: Path) -> dict[str, str]:
    """An empty home, with uv's cache where it is now."""
    uv = [sys.executable, "-m", "uv", "cache", "dir"]
    cache = subprocess.run(uv, check=True, capture_output=True, text=True).stdout.strip()
    kept = {name: text for name, text in os.environ.items() if not name.startswith(DROPPED)}
    return {"UV_CACHE_DIR": cache} | kept | {"HOME": str(home)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def started(command: str, folder: Path, home: Path) -> Iterator[Any]:
    """The command, run in a shell in ``folder``; ends with the block, and all it started too."""
    server = SimpleNamespace(token=secrets.token_hex(16), port=free_port())
    server.url = f"http://127.0.0.1:{server.port}"
    options = ["--no-browser", "--allow-root", "--LabApp.expose_app_in_browser=True"]
    options += [f"--ServerApp.port={server.port}", f"--IdentityProvider.token={server.token}"]
    python = getattr(sys, "_base_executable", sys.executable)
    line = " ".join([command.replace("python3", python, 1), *options])
    with (folder.parent / "log.txt").open("wb") as log:
        server.process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=folder,
            env=environment(home),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield server
    finally:
        # a clean end shuts the kernels down, too
        os.killpg(server.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(server.process.pid, signal.SIGKILL)


def wait_for_server(server: Any, log: Path) -> None:
    """RuntimeError with the end of the log where it does not start."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and server.process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, TimeoutError, ConnectionError):
            urllib.request.urlopen(f"{server.url}/api/status?token={server.token}").close()
            return
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text(errors='replace')[-3000:]}")


def main(name: str = "00_start_here") -> None:
    notebook = f"notebooks/{name}.ipynb"
    executable = find_chromium()
    if executable is None:
        raise SystemExit("no chromium, chromium-browser or google-chrome on PATH")
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        (place / "home").mkdir()
        clone = ["git", "clone", "--quiet", str(ROOT), str(place / "clone")]
        subprocess.run(clone, check=True)
        command = first_command((place / "clone" / "README.md").read_text(encoding="utf-8"))
        chromium = stack.enter_context(sync_playwright()).chromium
        browser = chromium.launch(executable_path=executable, args=CHROMIUM_FLAGS)
        stack.callback(browser.close)

        begin = time.monotonic()

        def tell(what: str) -> None:
            print(f"{time.monotonic() - begin:6.1f} s  {what}", flush=True)

        server = stack.enter_context(started(command, place / "clone", place / "home"))
        wait_for_server(server, place / "log.txt")
        tell("JupyterLab answers")
        page = NotebookPage(server, browser)
        stack.callback(page.context.close)
        page.page.set_default_timeout(1000 * PATIENCE)
        page.page.goto(f"{server.url}/lab/tree/{notebook}?token={server.token}")
        page._start_app()
        page.path = notebook
        page._wait_ready()
        tell("the notebook is open, its kernel ready")
        page._js("app.commands.execute('notebook:run-all-cells');")
        page.page.locator(".labkit-panel .labkit-live").first.wait_for()
        panel = page.panel()
        tell("its first panel is on the screen")
        panel.run()
        panel.wait_number(PATIENCE)
        tell(f"the first number: {panel.speedup()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
