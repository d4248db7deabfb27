"""Run a notebook's cells headless, at full size, in a kernel that keeps what its labs measure.

What was found out on the way:

- Cells are executed one by one. `NotebookClient.execute` takes Ctrl-C for itself, and then fails
  with an AssertionError.
- Ctrl-C as an exception can come up in a callback that drops it, and the notebook then runs on. It
  ends the kernel instead, and is raised when the notebook is over.
- A kernel that is asked to end in the middle of a cell prints tracebacks; it is ended at once.
- A kernel runs in the notebook's folder: paths in the environment are made absolute for it.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from course.headless import without_widgets
from course.notebook_files import ROOT, code_cells, read_notebook
from labkit.progress import progress

if TYPE_CHECKING:
    from nbclient import NotebookClient

OVER = "the time budget was over"
DIED = "its kernel died"


def execute(path: Path, first_line: str, end: float) -> str | None:
    """Run all cells, after ``first_line``, until ``time.monotonic()`` is ``end``.

    Returns why it ended early, or None.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    def seconds_left(cell: object) -> int | None:
        if math.isinf(end):
            return None
        return max(1, int(end - time.monotonic()))

    notebook = read_notebook(path)
    with progress(total=len(code_cells(notebook)), desc="  cells", unit="cell") as bar:
        client = NotebookClient(
            notebook,
            timeout_func=seconds_left,
            startup_timeout=300,
            shutdown_kernel="immediate",
            resources={"metadata": {"path": path.parent}},
            extra_arguments=[
                # Not a warning for each start.
                "--IPKernelApp.log_level=ERROR",
                f"--IPKernelApp.exec_lines={first_line}",
            ],
            on_cell_executed=lambda **_: bar.update(),
        )
        with _ended_by_ctrl_c(client):
            try:
                with without_widgets(client).setup_kernel(env=environment()):
                    for index, cell in enumerate(notebook.cells):
                        client.execute_cell(cell, index)
            except CellTimeoutError:
                return OVER
            except CellExecutionError as error:
                return _first_line(f"{error.ename}: {error.evalue}")
            except DeadKernelError:
                return DIED
            except Exception as error:
                # Whatever ends one notebook must not end the others.
                return _first_line(f"{type(error).__name__}: {error}")
    return None


@contextmanager
def _ended_by_ctrl_c(client: NotebookClient) -> Iterator[None]:
    """Ctrl-C ends the kernel that there is, and is raised at the end."""
    asked = False

    def end_kernel(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        # What asyncio says of the tasks that are left behind.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        kernel = getattr(client.km, "provisioner", None)
        group = getattr(kernel, "pgid", None)
        if group is None:
            raise KeyboardInterrupt
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)

    before = signal.signal(signal.SIGINT, end_kernel)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:500]


def environment() -> dict[str, str]:
    """The environment of a kernel: the course can be imported, at its full size,
    with absolute paths.
    """
    # labkit may not be installed.
    paths = [str(ROOT)]
    for path in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        if path:
            paths.append(os.path.abspath(path))
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "LABKIT_SIZE": "full"}
    data = os.environ.get("LABKIT_DATA")
    if data:
        variables["LABKIT_DATA"] = os.path.abspath(data)
    return variables
