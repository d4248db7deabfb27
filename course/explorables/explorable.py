"""A moving picture that runs in the browser alone: no kernel, no GPU, no waiting.

`NAME.js` holds the model, as functions without a page, and the drawing; a long model has a file of
its own, `models/NAME.js`. `drawing.js` holds what all of them share. An anywidget's module cannot
import its neighbours, so that they are joined.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import anywidget

HERE = Path(__file__).parent
STYLE = HERE / "explorable.css"

# What a page without a kernel gives `render` for a model: an explorable asks nothing of it.
STAND_IN = "{ get() {}, set() {}, on() {}, off() {}, save_changes() {}, send() {} }"

_places = itertools.count()


def sources(name: str) -> list[Path]:
    """The scripts of an explorable in their order: the shared one, its model if apart, its own."""
    model = HERE / "models" / f"{name}.js"
    return [HERE / "drawing.js", *([model] if model.exists() else []), HERE / f"{name}.js"]


def module(name: str) -> str:
    """The scripts of an explorable as one ES module."""
    return "\n".join(part.read_text(encoding="utf-8") for part in sources(name))


class Explorable(anywidget.AnyWidget):
    """One explorable. A class of its own names its notebook, and its module in ``_esm``."""

    # Of the notebook, such as "06".
    number: str
    # The name of its file without ".js".
    script: str
    _css = STYLE.read_text(encoding="utf-8")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(): a moving picture; it needs JupyterLab or a browser"


def alive(explorable: type[Explorable]) -> str:
    """HTML in which the explorable runs without a kernel, as on the static site."""
    place = f"explorable-{explorable.__name__}-{next(_places)}"
    call = f'render({{ model: {STAND_IN}, el: document.getElementById("{place}") }});'
    return (
        f'<div id="{place}"></div>\n<style>{explorable._css}</style>\n'
        f'<script type="module">\n{explorable._esm}\n{call}\n</script>'
    )
