"""A moving picture that runs in the browser alone: no kernel, no GPU, no waiting.

`NAME.js` holds the model, as functions without a page, and the drawing; a long model has a file of
its own, `models/NAME.js`. `drawing.js` holds what all of them share. An anywidget's module cannot
import its neighbours, so that they are joined.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from types import new_class
from typing import Any

import anywidget
import traitlets

from labkit.panel import guess

HERE = Path(__file__).parent
STYLE = HERE / "explorable.css"

# What a page without a kernel gives `render` for a model: an explorable asks nothing of it.
STAND_IN = "{ get() {}, set() {}, on() {}, off() {}, save_changes() {}, send() {} }"

# What each script exports; with a kernel it tells of bets, by a function of `drawing.js`.
PLAIN, TELLING = "export default { render };", "export default { render: reporting(render) };"

_places = itertools.count()


def sources(name: str) -> list[Path]:
    """The scripts of an explorable in their order: the shared one, its model if apart, its own."""
    model = HERE / "models" / f"{name}.js"
    return [HERE / "drawing.js", *([model] if model.exists() else []), HERE / f"{name}.js"]


def module(name: str) -> str:
    """The scripts of an explorable as one ES module."""
    joined = "\n".join(part.read_text(encoding="utf-8") for part in sources(name))
    return joined.replace(PLAIN, TELLING)


class Explorable(anywidget.AnyWidget):
    """One explorable; `every` makes a class of each file.

    ``bet`` is what became of the reader's latest bet: the question, the bet, the answer, and
    whether it is right. The first one counts in the score of the session.
    """

    # Of the notebook, such as "06".
    number: str
    # The name of its file without ".js".
    script: str
    _css = STYLE.read_text(encoding="utf-8")
    bet = traitlets.Dict().tag(sync=True)

    @traitlets.observe("bet")
    def _judged(self, change: dict[str, Any]) -> None:
        bet = change["new"]
        found = f"{bet['answer']} (simulated)"
        decided = guess.Decided(bet["question"], bet["bet"], found, bet["right"])
        guess.SCORE.count(("picture", self.script), decided, measured=False)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(): a moving picture; it needs JupyterLab or a browser"


def every() -> list[type[Explorable]]:
    """A class for each file of an explorable, in the order of their notebooks.

    ValueError for a file that does not begin with ``// NN: what it shows.``
    """
    files = [path for path in HERE.glob("*.js") if path.name != "drawing.js"]
    return sorted(map(_made, files), key=lambda each: (each.number, each.script))


def _made(path: Path) -> type[Explorable]:
    with path.open(encoding="utf-8") as file:
        first = file.readline().strip()
    head = re.fullmatch(r"// (\d\d): (.+)", first)
    if head is None:
        raise ValueError(f"{path.name} begins with {first!r}, not with '// 06: what it shows.'")
    name = class_name(path.stem)
    content = {
        "__module__": "course.explorables",
        "__doc__": head[2][0].upper() + head[2][1:],
        "number": head[1],
        "script": path.stem,
        "_esm": module(path.stem),
    }
    return new_class(name, (Explorable,), exec_body=lambda names: names.update(content))


def class_name(script: str) -> str:
    """The class of a file: ``LossCliff`` for ``loss_cliff``."""
    return "".join(word.capitalize() for word in script.split("_"))


def alive(explorable: type[Explorable]) -> str:
    """HTML in which the explorable runs without a kernel, as on the static site."""
    place = f"explorable-{explorable.__name__}-{next(_places)}"
    call = f'render({{ model: {STAND_IN}, el: document.getElementById("{place}") }});'
    return (
        f'<div id="{place}"></div>\n<style>{explorable._css}</style>\n'
        f'<script type="module">\n{explorable._esm}\n{call}\n</script>'
    )
