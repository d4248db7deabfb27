"""Notebooks that a program runs: their widgets are nobody's.

nbclient plays the front end of Output widgets, such as those of ``interact``: it sends what they
show back to the kernel, on the very socket on which it waits for the cell's reply. A reply that
arrives at that moment is not noticed, since asyncio is told of a socket only once; the cell then
lasts until its time is over, and without a limit for good (seen with nbclient 0.11 and pyzmq 27).
What the functions of such widgets raise would be hidden in the widget, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbclient import NotebookClient
    from nbformat import NotebookNode


def without_widgets(client: NotebookClient) -> NotebookClient:
    """``client``, which now leaves what Output widgets show among the outputs of their cells."""
    client.widget_registry = {}
    return client


def errors_of(cell: NotebookNode) -> list[str]:
    """What went wrong in a cell that was run, also in the functions of its widgets."""
    return [
        f"{output.ename}: {output.evalue}"
        for output in cell.get("outputs", ())
        if output.output_type == "error"
    ]
