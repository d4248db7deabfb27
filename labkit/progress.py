"""A progress bar that is gone when the work is done, in a terminal and in a notebook.

What tqdm writes on stderr stays in a notebook, on red ground. There the bars of a cell share one
display, which is emptied at last: outputs cannot be taken back one by one. Nothing is shown where
nobody watches: in a notebook that a program runs, which tells the kernel that nobody can answer a
question, and where stderr is not a terminal.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from tqdm import tqdm

from labkit import show

# The cell that the last bar belonged to, by its message, and the display that its bars share.
_latest: dict[str, str] = {}


def progress(**options: Any) -> tqdm[Any]:
    """A bar with tqdm's ``options``, shown after a second, which leaves no thread and no line."""
    options = {"leave": False, "delay": 1.0} | options
    cell = _watched_cell()
    if cell is None:
        # Without a word on it tqdm shows nothing where stderr is not a terminal.
        options.setdefault("disable", None)
        return _Bar(**{"file": sys.stderr} | options)
    return _NotebookBar(cell=cell, file=io.StringIO(), **options)


def _watched_cell() -> str | None:
    """The notebook's cell that runs, by its message's name; None where nobody watches."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    kernel = getattr(get_ipython(), "kernel", None)
    if kernel is None:
        return None
    request = kernel.get_parent("shell")
    if not request.get("content", {}).get("allow_stdin", False):
        return None
    return str(request["header"]["msg_id"])


class _Bar(tqdm):  # type: ignore[type-arg]
    """A bar without tqdm's monitor, whose thread would outlive it; the reader's own keep theirs."""

    monitor_interval = 0


def _counted(number: float) -> str:
    return f"{number:,.0f}" if number == round(number) else f"{number:.3g}"


class _NotebookBar(_Bar):
    """A bar in a display of the cell's output area."""

    def __init__(self, *, cell: str, **options: Any) -> None:
        self._cell = cell
        self._shown = False
        super().__init__(**options)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        """Draw the bar as it is.

        An empty ``msg``, by which tqdm wipes a bar out, empties the display.
        """
        if msg == "":
            if self._shown:
                self._show({})
            return True
        # Without a total there is no part: the bar is empty, and the count goes on.
        part, of = 0.0, ""
        if self.total:
            part, of = self.n / self.total, f" / {_counted(self.total)}"
        text = f"{self.desc} {_counted(self.n)}{of} {self.unit.strip()}".strip()
        bar = show.progress(part, text)
        self._show({"text/html": bar, "text/plain": text})
        self._shown = True
        return True

    def _show(self, bundle: dict[str, str]) -> None:
        from IPython.display import publish_display_data

        known = _latest.get("cell") == self._cell
        if not known:
            _latest.update(cell=self._cell, display=f"labkit-progress-{self._cell}")
        publish_display_data(bundle, transient={"display_id": _latest["display"]}, update=known)
