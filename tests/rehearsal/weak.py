"""A machine without fast bf16, with one core and without a compiler: a notebook on it, and what
that shows its reader.

It is pretended (`course.probe`), and real where that is cheap: oneDNN and ATen keep to AVX2, the
kernel has one core, and the compiler that torch calls is not there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbclient
from nbformat import NotebookNode, v4

from course.headless import errors_of, without_widgets
from course.notebook_files import NOTEBOOKS, ROOT, read_notebook, tags
from course.notebooks import private_jupyter
from course.probe import PRETEND

LACKS = {
    PRETEND: "no-bf16,one-core,no-compiler",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "CXX": "no-such-compiler",
    "OMP_NUM_THREADS": "1",
    # A GPU would be fast in bf16.
    "LABKIT_DEVICE": "cpu",
}
CELL_TIMEOUT = 300
# The panel as its reader finds it: what is offered, and what is asked.
ASKED = """
import dataclasses, json, os
from course.probe import _found, abilities
from labkit import pick_device
_asked = {}
for _name, _settings in panel.lab.scenarios.items():
    panel.choose(_name)
    _asked[_name] = [panel.bet.bet.question, {k: str(v) for k, v in _settings.items()}]
print(json.dumps({
    "has": dataclasses.asdict(abilities()),
    "really": dataclasses.asdict(_found(pick_device())),
    "scenarios": _asked,
    "modes": list(panel.modes.options),
}))
"""


@dataclass
class Weak:
    """What a notebook showed there: ``errors``, ``printed`` by each cell up to the panel, and what
    the panel asked (see `ASKED`).
    """

    errors: list[str] = field(default_factory=list)
    printed: str = ""
    asked: dict[str, Any] = field(default_factory=dict)
    answers: list[str] = field(default_factory=list)


def on_a_weak_machine(path: Path, *questions: str) -> Weak:
    """Run all of a notebook there; ``questions`` are sources that print, run at its end."""
    found, notebook = Weak(), read_notebook(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        allow_errors=True,
        kernel_name="python3",
        shutdown_kernel="immediate",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    with (
        private_jupyter() as environment,
        one_core(),
        without_widgets(client).setup_kernel(env=environment | LACKS | {"PYTHONPATH": str(ROOT)}),
    ):
        for cell in list(notebook.cells):
            _run(client, cell, found)
            if not found.asked:
                found.printed += text_of(cell)
            if "panel" in tags(cell):
                # Nothing where it failed, which `errors` says.
                found.asked = json.loads(_ask(client, ASKED, found) or "{}")
        found.answers = [_ask(client, question, found) for question in questions]
    return found


def _run(client: nbclient.NotebookClient, cell: NotebookNode, found: Weak) -> None:
    client.execute_cell(cell, client.nb.cells.index(cell))
    found.errors += [f"{cell.get('id')}: {error}"[:600] for error in errors_of(cell)]


def _ask(client: nbclient.NotebookClient, source: str, found: Weak) -> str:
    """What a cell prints that the notebook does not have."""
    cell = v4.new_code_cell(source)
    client.nb.cells.append(cell)
    _run(client, cell, found)
    return text_of(cell)


def text_of(cell: NotebookNode) -> str:
    """What a cell has printed."""
    outputs = [each for each in cell.get("outputs", ()) if each.output_type == "stream"]
    return "".join(each.text for each in outputs if each.name == "stdout")


@contextmanager
def one_core() -> Iterator[None]:
    """What this process starts meanwhile has one core, where the system can say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    _on({min(cores)})
    try:
        yield
    finally:
        _on(cores)


def _on(cores: set[int]) -> None:
    """All threads: a kernel may be started by another one than this."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)
