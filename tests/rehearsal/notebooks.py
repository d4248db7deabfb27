"""Notebooks on a rehearsed card, in the test size. As a command it prints a table:

    python -m tests.rehearsal.notebooks [--cards 80 16 8] [NAME ...]

NAME is a notebook's name, none means all. All cells run, also those after a cell that failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nbclient
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import v4

from course.front import is_front
from course.headless import errors_of, without_widgets
from course.notebook_files import NOTEBOOKS, ROOT, course_notebooks, place, read_notebook
from course.notebooks import notebooks, private_jupyter

CELL_TIMEOUT = 300
# Errors of the rehearsal that a notebook provokes on purpose: on a real card such a cell reads too
# early, and shows what it gets.
ON_PURPOSE = {"deeper/10_host_device_transfers": "OrderError: mean uses a tensor"}
# The peak of the whole run: labkit resets torch's statistics for its own measuring.
# A front notebook measures when its reader presses Run. Processes of their own have no card.
SCENARIOS = """
for name, settings in lab.scenarios.items() if lab.runs_in == "kernel" else ():
    if panel.modes.value == "Race":
        side = dict(settings)
        lab.race(side, baseline=side.pop("baseline", {}))
    else:
        lab.run(name, seconds=0.05)
"""
HIGHEST = "from tests.rehearsal import places; print(max(card.highest for card in places.cards))"


@dataclass
class Rehearsal:
    """What a notebook did: ``errors`` as "cell: message", ``seconds``, and ``peak`` in bytes."""

    errors: list[str] = field(default_factory=list)
    seconds: float = 0.0
    peak: int = 0

    def __str__(self) -> str:
        if self.errors:
            return f"{len(self.errors)} failed"
        return f"{self.peak / 1e6:,.0f} MB, {self.seconds:.0f} s"


def rehearse_notebook(path: Path, card: str) -> Rehearsal:
    """Run a notebook on a card of so many gigabytes (``"80"``, or ``"16x2"`` for two cards)."""
    done, begin = Rehearsal(), time.monotonic()
    client = nbclient.NotebookClient(
        read_notebook(path),
        timeout=CELL_TIMEOUT,
        allow_errors=True,
        kernel_name="python3",
        shutdown_kernel="immediate",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    try:
        with (
            _environment(card) as environment,
            without_widgets(client).setup_kernel(env=environment),
        ):
            _execute(client, done)
    except (CellTimeoutError, DeadKernelError) as error:
        done.errors.append(f"{type(error).__name__}: {error}"[:600])
    _expect(ON_PURPOSE.get(place(path)), done)
    done.seconds = time.monotonic() - begin
    return done


def _execute(client: nbclient.NotebookClient, done: Rehearsal) -> None:
    if is_front(client.nb):
        client.nb.cells.append(v4.new_code_cell(SCENARIOS))
    for index, cell in enumerate(client.nb.cells):
        client.execute_cell(cell, index)
        done.errors += [f"cell {index}: {error}"[:600] for error in errors_of(cell)]
    asked = v4.new_code_cell(HIGHEST)
    client.nb.cells.append(asked)
    client.execute_cell(asked, len(client.nb.cells) - 1)
    for output in asked.outputs:
        if output.output_type == "stream" and output.name == "stdout":
            done.peak = int(output.text)


@contextmanager
def _environment(card: str) -> Iterator[dict[str, str]]:
    paths = [str(ROOT / "tests" / "rehearsal" / "site"), str(ROOT)]
    with private_jupyter() as environment:
        environment |= {"LABKIT_REHEARSE": card, "PYTHONPATH": os.pathsep.join(paths)}
        yield environment | {"OMP_NUM_THREADS": "1"}


def _expect(error: str | None, done: Rehearsal) -> None:
    """Take out the one error that this notebook provokes on purpose; its absence is an error."""
    if error is None:
        return
    for found in done.errors:
        if error in found:
            done.errors.remove(found)
            return
    done.errors.append(f"no cell raised {error!r}, which this notebook does on purpose")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--cards", nargs="+", default=["80", "16", "8"])
    options = parser.parse_args()
    paths = course_notebooks()
    if options.names:
        paths = notebooks(options.names)
    failed = 0
    for path in paths:
        for card in options.cards:
            done = rehearse_notebook(path, card)
            print(f"{place(path):34} {card:>5} GB  {done}", flush=True)
            for error in done.errors:
                print(f"    {error}", flush=True)
            failed += bool(done.errors)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
