"""JupyterLab in headless Chromium: a server, a page that holds one notebook, and the panels on it.

Everything is driven through ``window.jupyterapp`` (commands, models), not through menus: those
render late. The notebooks are copied to a temporary folder, so that the ones in the repository
never change.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from playwright.sync_api import Browser, BrowserContext, Locator, Page
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

ROOT = Path(__file__).resolve().parents[2]
# Seconds between two looks at what a page, its cells and its kernel say.
LOOK = 5
SCREENSHOTS = ROOT / "tests" / "screenshots"
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
VIEWPORT = {"width": 1300, "height": 1000}
# No windowing: cells scrolled out of sight would lose their DOM nodes, and with them their widgets.
OVERRIDES = {
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
}


def find_chromium() -> str | None:
    """Path of an installed Chromium or Chrome, else None."""
    return next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )


class JupyterServer:
    """JupyterLab on a free port, all its folders under ``folder``.

    Notebooks are served from ``folder/notebooks``; the server and its kernels get ``variables``.
    """

    def __init__(self, folder: Path, variables: Mapping[str, str] | None = None) -> None:
        self.root = folder / "notebooks"
        self.root.mkdir(parents=True)
        self._log = folder / "jupyterlab.log"
        names = (
            "HOME",
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "IPYTHONDIR",
        )
        self._env = dict(os.environ) | dict(variables or {})
        self._env |= {name: str(folder / name.lower()) for name in names}
        for name in names:
            Path(self._env[name]).mkdir(exist_ok=True)
        settings = Path(
            self._env["JUPYTER_CONFIG_DIR"], "labconfig", "default_setting_overrides.json"
        )
        settings.parent.mkdir()
        settings.write_text(json.dumps(OVERRIDES))
        self._env |= {
            "PYTHONPATH": os.pathsep.join(
                filter(None, [os.environ.get("PYTHONPATH", ""), str(ROOT)])
            ),
            "LABKIT_SIZE": os.environ.get("LABKIT_SIZE", "test"),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        }
        if "LABKIT_DATA" in os.environ:  # the server's folder is another one than ours
            self._env["LABKIT_DATA"] = str(Path(os.environ["LABKIT_DATA"]).resolve())
        self.token = secrets.token_hex(16)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, timeout: float = 120) -> None:
        """Start the server and wait until it answers.

        Raises RuntimeError with the end of its log.
        """
        options = [
            "--no-browser",
            "--ip=127.0.0.1",
            f"--port={self.port}",
            "--ServerApp.port_retries=0",
            "--allow-root",
        ]
        options += [
            "--LabApp.expose_app_in_browser=True",
            f"--IdentityProvider.token={self.token}",
            f"--ServerApp.root_dir={self.root}",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "jupyterlab", *options],
                env=self._env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                urllib.request.urlopen(
                    f"{self.url}/api/status?token={self.token}", timeout=5
                ).close()
                return
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                time.sleep(0.2)
        self.stop()
        raise RuntimeError(
            f"JupyterLab did not start:\n{self._log.read_text(errors='replace')[-3000:]}"
        )

    def state_of(self, kernel: str) -> str:
        """What the server says of a kernel: "idle", "busy" ...; "gone" where it has no such one."""
        address = f"{self.url}/api/sessions?token={self.token}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            sessions = json.load(answer)
        states = {each["kernel"]["id"]: each["kernel"]["execution_state"] for each in sessions}
        return str(states.get(kernel, "gone"))

    def stop(self) -> None:
        """End the server and the kernels it started."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)  # a clean end also shuts the kernels down
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()

    def add(self, source: Path | list[str], name: str | None = None) -> str:
        """Copy a notebook, or make one of code cells, in the served folder; its name there."""
        target = self.root / (name or (source.name if isinstance(source, Path) else "test.ipynb"))
        if isinstance(source, Path):
            shutil.copyfile(source, target)
            # what its text shows
            pictures = source.parent / "pictures"
            if pictures.is_dir():
                shutil.copytree(pictures, self.root / "pictures", dirs_exist_ok=True)
        else:
            kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
            notebook = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
            notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in source]
            nbformat.write(notebook, target)
        return target.name


class Panel:
    """The i-th LabPanel of a page, operated as a reader does."""

    def __init__(self, page: NotebookPage, index: int) -> None:
        self.page = page
        self.root = page.page.locator(".labkit-panel").nth(index)
        self._before = 0

    def control(self, name: str, arm: str = "candidate") -> Locator:
        """The widget of one control: ``arm`` is "baseline" or "candidate"."""
        return self.root.locator(f".labkit-{name}-{arm}")

    def names(self, kind: str) -> list[str]:
        """Names of the candidate controls that are seen and enabled.

        Of a kind: "toggle", "slider" or "dropdown".
        """
        found = []
        for node in self.root.locator(
            f".labkit-candidate.labkit-{kind}:not(.labkit-disabled)"
        ).all():
            if not node.is_visible():
                continue
            match = re.search(r"labkit-(\w+)-candidate", node.get_attribute("class") or "")
            assert match
            found.append(match[1])
        return found

    def set_toggle(self, name: str, value: bool, arm: str = "candidate") -> None:
        self.control(name, arm).locator("input").set_checked(value)

    def set_slider(self, name: str, steps: int, arm: str = "candidate") -> str:
        """Move a slider by so many positions with the arrow keys; the text it shows then."""
        self.control(name, arm).locator(".noUi-handle").focus()
        for _ in range(abs(steps)):
            self.page.page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")
        return self.readout(name, arm)

    def readout(self, name: str, arm: str = "candidate") -> str:
        return self.control(name, arm).locator(".widget-readout").inner_text()

    def set_dropdown(self, name: str, label: str, arm: str = "candidate") -> None:
        self.control(name, arm).locator("select").select_option(label=label)

    def set_budget(self, seconds: float) -> None:
        """Move the time budget to the listed value nearest to ``seconds`` from below."""
        hidden = not self.button("sweep").is_visible()
        self.open_more()
        self._move_budget(seconds)
        if hidden:
            self.button("more").click()

    def _move_budget(self, seconds: float) -> None:
        self.root.locator(".labkit-budget .noUi-handle").focus()
        self.page.page.keyboard.press("Home")
        shown = -1.0
        while True:
            now = float(self.root.locator(".labkit-budget .widget-readout").inner_text().split()[0])
            if now >= seconds or now == shown:
                return
            shown = now
            self.page.page.keyboard.press("ArrowRight")
            self.page.page.wait_for_timeout(100)

    def button(self, name: str) -> Locator:
        """A button by its class: "run", "stop", "more", "sweep", "same", "code"."""
        return self.root.locator(f"button.labkit-{name}")

    def open_more(self) -> None:
        """Show what stands behind "More"."""
        if not self.button("sweep").is_visible():
            self.button("more").click()
            self.button("sweep").wait_for()

    def set_run_on_change(self, on: bool) -> None:
        self.open_more()
        self.root.locator(".labkit-quick input").set_checked(on)

    def mode(self, name: str) -> None:
        """Switch to "Time", "Memory" or "Race"."""
        self.root.locator(".labkit-modes button", has_text=name).click()
        self.root.locator(f".labkit-live[data-mode='{name}']").wait_for()

    def scenario(self, name: str) -> None:
        """Click the button of a scenario; what it starts can be waited for."""
        self._before = self._started()
        self.root.get_by_role("button", name=name, exact=True).click()

    def guess(self, steps: int) -> str:
        """Move the guess by so many positions with the arrow keys; its words then."""
        self.root.locator(".labkit-guess:visible .noUi-handle").focus()
        words = self.root.locator(".labkit-guessed")
        for _ in range(abs(steps)):
            before = words.inner_text()
            self.page.page.keyboard.press("ArrowRight" if steps > 0 else "ArrowLeft")
            self.page.page.wait_for_function(
                "([node, before]) => node.innerText !== before",
                arg=[words.element_handle(), before],
            )
        return words.inner_text()

    def _press(self, name: str) -> None:
        self._before = self._started()
        self.button(name).click()

    def _started(self) -> int:
        """How many runs this panel has started."""
        return int(self.root.locator(".labkit-live").get_attribute("data-run") or 0)

    def run(self) -> None:
        self._press("run")

    def sweep(self) -> None:
        self.open_more()
        self._press("sweep")

    def stop(self) -> None:
        """Click Stop; a run may have ended, and Stop be out of sight, by then."""
        self.button("stop").dispatch_event("click")

    def wait_status(self, text: str, timeout: float = 20) -> None:
        """Wait until the status line holds ``text``."""
        self.root.locator(".labkit-status", has_text=text).wait_for(timeout=timeout * 1000)

    def status(self) -> str:
        return self.root.locator(".labkit-status").inner_text()

    def running(self) -> bool:
        return self.root.locator(".labkit-running").count() > 0

    def speedup(self) -> str:
        """The big number; empty before the first one."""
        return self.root.locator(".labkit-speedup").inner_text()

    def verdict(self) -> str:
        return self.root.locator(".labkit-head .labkit-badge").inner_text()

    def history(self) -> list[str]:
        """Texts of the rows of the history, the newest first."""
        return self.root.locator(".labkit-past tr").all_text_contents()[1:]

    def wait_number(self, timeout: float = 60) -> float:
        """Wait for the first speed-up of the run that was last started from here; seconds waited.

        The run may have ended by then: on a quiet machine the intervals are narrow in a fraction of
        a second.
        """
        start, run = time.monotonic(), self._before + 1
        number = self.root.locator(
            f".labkit-live[data-run='{run}'] .labkit-speedup", has_text=re.compile(r"\d")
        ).first
        number.wait_for(timeout=timeout * 1000)
        return time.monotonic() - start

    def wait_result(self, timeout: float = 60) -> None:
        """Wait until that run has something to keep: more than its first, rough number."""
        run = self._before + 1
        live = self.root.locator(f".labkit-live[data-run='{run}']")
        live.wait_for(timeout=timeout * 1000)
        self.page.page.wait_for_function(
            "live => live.dataset.mode === 'Time'"
            " ? [...live.querySelectorAll('.labkit-picture .k-dots')]"
            ".some(dots => dots.getAttribute('d').split('M').length > 4)"
            " : live.querySelector('.labkit-picture svg')",
            arg=live.element_handle(),
            timeout=timeout * 1000,
        )

    def wait_finished(self, timeout: float = 120) -> str:
        """Wait until the run that was last started from here has begun and ended."""
        run = self._before + 1
        self.root.locator(f".labkit-live[data-run='{run}']:not(.labkit-running)").wait_for(
            timeout=timeout * 1000
        )
        return self.status()


@dataclass(frozen=True)
class Seen:
    """What page, cells and server say of what runs.

    ``run`` is the state of the latest command, ``status`` the kernel's on the page, ``server`` that
    of the server, ``count`` the newest execution count, ``waiting`` the code cells with a star that
    come after that cell: a kernel answers in order, so a star above it is a message that was lost.
    """

    run: str
    status: str
    connection: str
    kernel: str
    waiting: list[int]
    count: int
    dialogs: list[str]
    server: str

    @property
    def over(self) -> bool:
        """Whether the kernel has answered every cell, and nothing asks the reader."""
        return self.server == "idle" and not self.waiting and not self.dialogs


class NotebookPage:
    """One browser page with one notebook open in JupyterLab.

    Pages of one ``context`` load JupyterLab once, and then have it from its cache.
    """

    def __init__(
        self,
        server: JupyterServer,
        browser: Browser,
        width: int = VIEWPORT["width"],
        height: int = VIEWPORT["height"],
        scale: float = 1,
        context: BrowserContext | None = None,
    ) -> None:
        self.server = server
        self._own = context is None
        self.context = context or browser.new_context(device_scale_factor=scale)
        self.page: Page = self.context.new_page()
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.on(
            "dialog", lambda dialog: dialog.accept()
        )  # "leave this page?" when a changed notebook is reloaded
        self.console: list[str] = []
        self.page.on(
            "console",
            lambda message: self.console.append(message.text) if message.type == "error" else None,
        )
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.path: str | None = None
        self._started = False

    def _js(self, body: str, argument: Any = None) -> Any:
        """Run ``body`` with ``app``, the notebook's ``widget`` (when one is open) and ``argument``
        in scope.
        """
        return self.page.evaluate(
            "async ([path, argument]) => { const app = window.jupyterapp;"
            " const widget = path && [...app.shell.widgets('main')].find(w => w.context && "
            "w.context.path === path); " + body + " }",
            [self.path, argument],
        )

    def _start_app(self) -> None:
        self.page.wait_for_function("window.jupyterapp !== undefined", timeout=60_000)
        self.page.evaluate("async () => { await window.jupyterapp.restored; }")

    def open(self, source: Path | list[str], name: str | None = None) -> None:
        """Open a copy of a notebook (or one of these code cells) and wait for its kernel."""
        path = self.server.add(source, name)
        if not self._started:
            # A workspace of its own: else JupyterLab opens what the former test had open.
            workspace = f"{self.server.url}/lab/workspaces/{secrets.token_hex(4)}"
            self.page.goto(f"{workspace}?token={self.server.token}")
            self._start_app()
            self._js("app.shell.collapseLeft();")
            self._started = True
        self.path = path
        self._js(
            "await app.commands.execute('docmanager:open', {path: argument, factory: 'Notebook'});",
            path,
        )
        self._wait_ready()

    def leave(self) -> None:
        """Close the notebook and end its kernel; another one can be opened."""
        if self.path is None:
            return
        # `dispose`, as `close` would ask whether to save what was changed.
        self._js("await widget.sessionContext.shutdown(); widget.dispose();")
        self.path = None

    def _wait_ready(self) -> None:
        self.page.wait_for_function(
            "path => [...window.jupyterapp.shell.widgets('main')].some(w => w.context && "
            "w.context.path === path)",
            arg=self.path,
            timeout=30_000,
        )
        self._js(
            "await widget.context.ready; await widget.revealed; await widget.sessionContext.ready;"
            # Connected, and it has answered once.
            "await widget.sessionContext.session.kernel.info;"
            "app.shell.activateById(widget.id);"
        )
        self.page.wait_for_timeout(300)

    def _run(self, command: str, timeout: float) -> None:
        """Execute a command that runs cells and wait for its end.

        Where the page was not told of the end, messages were lost, and maybe outputs with them: it
        is executed once more, as a reader would.
        """
        if not self._told(command, timeout):
            self._told(command, timeout)

    def _told(self, command: str, timeout: float) -> bool:
        """Execute a command and wait for its end; whether the page was told of it.

        JupyterLab's promise may stay open: where the message that a kernel is idle is lost, or a
        dialog waits for an answer. So the server is asked, too. RuntimeError or TimeoutError with
        what page, kernel and cells said.
        """
        self._js(
            "window.labkitRun = 'busy'; app.commands.execute(argument).then("
            "() => { window.labkitRun = 'idle'; }, "
            "error => { window.labkitRun = `failed: ${error}`; });",
            command,
        )
        begun, alike = self._seen(), 0
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            with suppress(PlaywrightTimeoutError):
                self.page.wait_for_function("window.labkitRun !== 'busy'", timeout=LOOK * 1000)
            seen = self._seen()
            if seen.run == "idle":
                return True
            if seen.run.startswith("failed"):
                raise RuntimeError(f"{command}: {seen}")
            alike = alike + 1 if seen.over and seen.count > begun.count else 0
            # The kernel has answered every cell, and nobody will tell the page.
            if alike == 3:
                print(f"{command} has ended, and the page was not told: {seen}")
                return False
        raise TimeoutError(f"{command} was not over after {timeout:g} s: {self._seen()}")

    def _seen(self) -> Seen:
        """What page, cells and server say of what runs."""
        found = self._js(
            "const cells = [...widget.content.widgets].filter(c => c.model.type === 'code');"
            " const kernel = widget.sessionContext.session?.kernel;"
            " const counts = cells.map(c => c.model.executionCount ?? 0);"
            " const count = Math.max(0, ...counts);"
            " return {run: window.labkitRun, status: kernel?.status ?? 'none',"
            " connection: kernel?.connectionStatus ?? 'none', kernel: kernel?.id ?? '',"
            " waiting: cells.flatMap((c, i) => c.promptNode.innerText.includes('*')"
            " && i > counts.indexOf(count) ? [i] : []),"
            " count,"
            " dialogs: [...document.querySelectorAll('.jp-Dialog')].map(d => d.innerText)};"
        )
        return Seen(**found, server=self.server.state_of(found["kernel"]))

    def run_all(self, timeout: float = 240) -> list[str]:
        """Run all cells and wait until the kernel has finished; the errors of the cells."""
        self._run("notebook:run-all-cells", timeout)
        return self._errors()

    def run_to(self, tag: str, timeout: float = 240) -> list[str]:
        """The same for the cells down to the first one with this tag."""
        index = self._js(
            "const cells = widget.content.model.toJSON().cells;"
            " return cells.findIndex(cell => (cell.metadata.tags || []).includes(argument));",
            tag,
        )
        assert index >= 0, f"no cell has the tag {tag!r}"
        self._js("widget.content.deselectAll(); widget.content.activeCellIndex = argument;", index)
        self._run("notebook:run-all-above", timeout)
        self.run_cell(index)
        return self._errors()

    def _errors(self) -> list[str]:
        self.page.wait_for_timeout(300)
        return [
            f"{output['ename']}: {output['evalue']}"
            for output in self.outputs()
            if output["output_type"] == "error"
        ]

    def run_cell(self, index: int, timeout: float = 120) -> None:
        """Run one cell."""
        self._js("widget.content.deselectAll(); widget.content.activeCellIndex = argument;", index)
        self._run("notebook:run-cell", timeout)

    def start_cell(self, index: int) -> None:
        """Run one cell, and do not wait for its end."""
        self._js("widget.content.deselectAll(); widget.content.activeCellIndex = argument;", index)
        self._js("app.commands.execute('notebook:run-cell');")

    def interrupt(self) -> None:
        """Interrupt the kernel."""
        self._js("await widget.sessionContext.session.kernel.interrupt();")

    def execute(self, code: str) -> str:
        """Run code in the kernel beside the notebook; what it printed.

        Raises RuntimeError when it failed.
        """
        reply = self._js(
            "const kernel = widget.sessionContext.session.kernel;"
            " const future = kernel.requestExecute({code: argument, store_history: false});"
            " let text = ''; future.onIOPub = m => { if (m.header.msg_type === 'stream') text += "
            "m.content.text; };"
            " const reply = await future.done; return [reply.content.status, text, "
            "reply.content.evalue || ''];",
            code,
        )
        if reply[0] != "ok":
            raise RuntimeError(reply[2])
        return reply[1]

    def cells(self) -> int:
        return self._js("return widget.content.model.cells.length;")

    def outputs(self) -> list[dict[str, Any]]:
        """Outputs of all cells, in order."""
        return self._js(
            "return widget.content.model.toJSON().cells.flatMap(cell => cell.outputs || []);",
        )

    def panel(self, index: int = 0) -> Panel:
        panel = Panel(self, index)
        panel.root.locator(".labkit-live").wait_for(timeout=30_000)
        return panel

    def screenshot(self, name: str, of: Locator | None = None) -> None:
        """PNG of the page, or of one element, under the git-ignored ``tests/screenshots``.

        None where CI runs: nobody would see it.
        """
        if of is not None:
            of.scroll_into_view_if_needed()
        if not os.environ.get("CI"):
            SCREENSHOTS.mkdir(exist_ok=True)
            (of or self.page).screenshot(path=SCREENSHOTS / f"{name}.png")

    def save(self) -> nbformat.NotebookNode:
        """Save; the notebook as it now is on disk."""
        self._js("await widget.context.save();")
        assert self.path
        return nbformat.read(self.server.root / self.path, as_version=4)

    def reload(self) -> None:
        """Reload the page as a reader does; the kernel goes on."""
        self.page.reload()
        self._start_app()
        self._wait_ready()

    def set_theme(self, theme: str) -> None:
        """ "dark" or "light"."""
        self._js(
            "await app.commands.execute('apputils:change-theme', {theme: argument});",
            {"dark": "JupyterLab Dark", "light": "JupyterLab Light"}[theme],
        )
        self.page.wait_for_function(
            "light => document.body.dataset.jpThemeLight === light",
            arg=str(theme == "light").lower(),
            timeout=20_000,
        )
        self.page.wait_for_timeout(500)

    def close(self) -> None:
        """Shut the kernel down and close the page."""
        try:
            if self.path is not None:
                self._js("await widget.sessionContext.shutdown();")
        finally:
            self.page.close()
            if self._own:
                self.context.close()


@contextmanager
def running_server(
    folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator[JupyterServer]:
    server = JupyterServer(folder, variables)
    server.start()
    try:
        yield server
    finally:
        server.stop()
