"""The results of a panel's runs as ordinary outputs of the cell that showed it.

So saved notebooks hold them.
"""

from __future__ import annotations

import uuid

from IPython.display import display, update_display


class Outputs:
    """A result below the panel, replaced by each run.

    A page that was reloaded has lost the names of its outputs: what is sent to them arrives
    nowhere. Then `lost` is true, and the panel shows the results itself.
    """

    def __init__(self) -> None:
        self.shown = False
        self.lost = False
        self._page: str | None = None
        self._id = uuid.uuid4().hex

    def show(self, panel: dict[str, object]) -> None:
        """Display the panel, by its bundle, and room for the result below it."""
        self.shown, self.lost, self._page = True, False, None
        display(panel, raw=True)
        display({"text/plain": ""}, raw=True, display_id=f"{self._id}-result")

    def page_opened(self, page: str) -> bool:
        """A page shows the panel; whether it is another one than the one that holds our outputs."""
        if self._page is None:
            self._page = page
        self.lost = self.lost or page != self._page
        return page != self._page

    def publish(self, html: str, text: str) -> None:
        """Replace the result."""
        result = {"text/html": html, "text/plain": text}
        update_display(result, raw=True, display_id=f"{self._id}-result")
