"""The cell that shows a panel: its outputs, and what its next run closes.

The result of each run becomes an ordinary output of the cell, so that a saved notebook has it, and
shows it where there is no kernel. A page that was reloaded has lost the names of its outputs: what
is sent to them arrives nowhere.
"""

from __future__ import annotations

import uuid
from typing import Any
from weakref import WeakSet

from IPython import get_ipython
from IPython.display import display, update_display


class Outputs:
    """A result below the panel, replaced by each run; `lost` says that it arrives nowhere."""

    def __init__(self) -> None:
        self.shown = False
        self.lost = False
        self._page: str | None = None
        self._id = uuid.uuid4().hex

    def show(self, panel: dict[str, object]) -> None:
        """Display the panel, by its bundle, and room for the result below it."""
        self.shown, self.lost, self._page = True, False, None
        display(panel, raw=True)
        display({"text/plain": ""}, raw=True, display_id=self._id)

    def page_opened(self, page: str) -> bool:
        """A page shows the panel; whether it is another one than the one that has our outputs."""
        if self._page is None:
            self._page = page
        self.lost = self.lost or page != self._page
        return page != self._page

    def publish(self, html: str, text: str) -> None:
        """Replace the result."""
        if self.shown:
            result = {"text/html": html, "text/plain": text}
            update_display(result, raw=True, display_id=self._id)


class ShownIn:
    """Which panels each cell shows: when it is run again, its former ones close.

    Their place on the page is gone. Kept open they would pile up in the kernel, and a page that is
    reloaded asks for the state of every open widget: with too many of them it gives up.
    """

    def __init__(self) -> None:
        # For each cell its latest run, and what that has shown.
        self._shown: dict[str, tuple[str, WeakSet[Any]]] = {}

    def show(self, panel: Any, cell: str, run: str) -> None:
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


# That of this process.
SHOWN_IN = ShownIn()


def current_cell() -> tuple[str, str] | None:
    """The cell that runs now and a name of this run; None where the front end does not tell."""
    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return None
    request = kernel.get_parent()
    cell = request.get("metadata", {}).get("cellId")
    return (cell, request["header"]["msg_id"]) if cell else None
