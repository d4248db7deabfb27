"""The results of a panel's runs as ordinary outputs of the cell that showed it.

So saved notebooks hold them.
"""

from __future__ import annotations

import io
import uuid
from typing import TYPE_CHECKING

from IPython.display import display, update_display

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALT = "The run as a figure; the table below has its numbers."


class Outputs:
    """A figure and a result below the panel, replaced by each run.

    A page that was reloaded has lost the names of its outputs: what is sent to them arrives
    nowhere. Then `lost` is true, and the panel shows the results itself.
    """

    def __init__(self) -> None:
        self.shown = False
        self.lost = False
        self._page: str | None = None
        self._id = uuid.uuid4().hex

    def show(self, panel: dict[str, object]) -> None:
        """Display the panel, by its bundle, and room for the results below it."""
        self.shown, self.lost, self._page = True, False, None
        display(panel, raw=True)
        for part in ("figure", "result"):
            display({"text/plain": ""}, raw=True, display_id=f"{self._id}-{part}")

    def page_opened(self, page: str) -> bool:
        """A page shows the panel; whether it is another one than the one that holds our outputs."""
        if self._page is None:
            self._page = page
        self.lost = self.lost or page != self._page
        return page != self._page

    def publish(self, picture: bytes, html: str, text: str) -> None:
        """Replace figure and result."""
        figure = {"image/png": picture, "text/plain": ALT}
        update_display(figure, raw=True, display_id=f"{self._id}-figure")
        result = {"text/html": html, "text/plain": text}
        update_display(result, raw=True, display_id=f"{self._id}-result")


def png(figure: Figure) -> bytes:
    """A figure as the bytes of a picture."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()
