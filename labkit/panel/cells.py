"""Which cell shows a panel, and which one begins while a panel measures.

A cell that is run again closes the panels that its earlier run showed. Their place on the page is
gone. Kept open they would pile up in the kernel, and a page that is reloaded asks for the state of
every open widget: with too many of them it gives up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakSet

from IPython import get_ipython


class Closable(Protocol):
    def close(self) -> None: ...


class Cells:
    """Which panels each cell shows."""

    def __init__(self) -> None:
        # For each cell its latest run, and what that has shown.
        self._shown: dict[str, tuple[str, WeakSet[Closable]]] = {}

    def show(self, panel: Closable, cell: str, run: str) -> None:
        """This run of this cell shows the panel: close what only earlier runs of it showed."""
        latest, former = self._shown.get(cell, (run, WeakSet()))
        if latest == run:
            former.add(panel)
            self._shown[cell] = run, former
            return
        self._shown[cell] = run, WeakSet([panel])
        for each in former:
            if not any(each in panels for _, panels in self._shown.values()):
                each.close()


CELLS = Cells()


def current() -> tuple[str, str] | None:
    """The cell that runs now and a name of this run; None where the front end does not tell."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return None
    request = kernel.get_parent()
    cell = request.get("metadata", {}).get("cellId")
    return (cell, request["header"]["msg_id"]) if cell else None


@contextmanager
def watched(begins: Callable[[], None]) -> Iterator[None]:
    """Call ``begins`` when a cell begins; outside of IPython there are none."""

    def before_cell(info: Any) -> None:
        # Variable inspectors and the like ask the kernel without a number of their own.
        if info.store_history and not info.silent:
            begins()

    shell = get_ipython()
    if shell is None:
        yield
        return
    shell.events.register("pre_run_cell", before_cell)
    try:
        yield
    finally:
        shell.events.unregister("pre_run_cell", before_cell)
