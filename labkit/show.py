"""Blocks of HTML for results: a sentence, a table that scrolls, and what pictures are given.

A result is read in JupyterLab, light and dark, in VS Code, in a narrow window, and on a static
page. So there are no scripts, sizes are parts of the room there is, and ink and paper are those of
the page. What a notebook shows that was not run by its reader has lost its styles: labels and
numbers are text, and still make sense there.

Every block escapes what it is given, unless it is `Markup` already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

from labkit.text import aligned

STYLES = Path(__file__).with_name("result.css")

# Letters of the longest bar in a text.
TEXT_BAR = 24


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return str(self)


@dataclass(frozen=True)
class Bar:
    """One bar: its length is ``value``, ``text`` stands behind it.

    ``interval`` is drawn over its end, ``was`` in grey behind it. ``tone`` colours it: "baseline",
    "candidate", a verdict, or "recorded" for another machine's. ``note`` says more of the label,
    such as its settings.
    """

    label: str
    value: float
    text: str
    interval: tuple[float, float] | None = None
    tone: str = "candidate"
    note: str = ""
    was: float = math.nan


@dataclass(frozen=True)
class Ratio:
    """One ratio with its interval, on a logarithmic scale on which 1 is marked.

    ``tone`` and ``note`` as for `Bar`; ``others`` are those of other machines, nan for none.
    """

    label: str
    value: float
    interval: tuple[float, float]
    text: str
    tone: str = "candidate"
    note: str = ""
    others: tuple[float, ...] = ()


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """``<tag attributes>children</tag>``; ``kind="x"`` becomes the class ``labkit-x``."""
    kind = attributes.pop("kind", "")
    if kind:
        names = " ".join(f"labkit-{name}" for name in kind.split())
        attributes = {"class": names} | attributes
    opening = tag
    for name, value in attributes.items():
        opening += f' {name.replace("_", "-")}="{escape(value)}"'
    return Markup(f"<{opening}>{join(children)}</{tag}>")


def join(parts: Sequence[str], between: str = "") -> Markup:
    """The parts one after the other, each escaped unless it is Markup."""
    safe = []
    for part in parts:
        safe.append(part if isinstance(part, Markup) else escape(part))
    return Markup(escape(between).join(safe))


def result(*parts: str) -> str:
    """The whole of a result: its blocks, and the styles that they need.

    Empty parts are left out. A plain text: marimo, for one, shows no other kind.
    """
    blocks = [part for part in parts if part]
    style = Markup(f"<style>{_styles()}</style>")
    return str(element("div", style, *blocks, kind="result"))


def badge(verdict: str, text: str = "") -> Markup:
    """A verdict as a small coloured word, or as another text in its colour."""
    return element("span", text or verdict, kind="badge", data_verdict=verdict)


def sentence(*parts: str) -> Markup:
    """The result in words."""
    return element("p", *parts, kind="sentence")


def note(text: str) -> Markup:
    """What stands below in small print."""
    return element("p", text, kind="note")


def details(*parts: str, summary: str = "How sure?") -> Markup:
    """What stands behind a result, folded: a line for each text, and blocks as they are."""
    blocks = []
    for part in filter(None, parts):
        blocks.append(part if isinstance(part, Markup) else note(part))
    return element("details", element("summary", summary), *blocks)


def text_bars(bars: Sequence[Bar], more: Sequence[Bar] = ()) -> str:
    """Bars as lines of text, each with its words, and those of a bar of ``more`` behind it."""
    most = max((bar.value for bar in bars if math.isfinite(bar.value)), default=0.0)
    rows = []
    for number, bar in enumerate(bars):
        length = 0.0
        if most and math.isfinite(bar.value):
            length = TEXT_BAR * bar.value / most
        row = [bar.label, bar.note, "█" * round(length), bar.text]
        rows.append(row + [other.text for other in more[number : number + 1]])
    return aligned(rows)


def table(rows: Sequence[Sequence[str]]) -> Markup:
    """Rows of texts, the first the head, the first cell of each its name. A wide one scrolls."""
    if not rows:
        return Markup()
    head, *body = rows
    kinds = [_kind_of(column) for column in zip(*body, strict=True)] or [""] * len(head)
    titles = []
    for text, kind in zip(head, kinds, strict=True):
        titles.append(element("th", text, scope="col", kind=kind))
    lines = []
    for name, *cells in body:
        line = [element("th", name, scope="row")]
        for cell, kind in zip(cells, kinds[1:], strict=True):
            line.append(element("td", cell, kind=kind))
        lines.append(element("tr", *line))
    inner = [element("thead", element("tr", *titles)), element("tbody", *lines)]
    return element("div", element("table", *inner), kind="scroll")


def _kind_of(column: Sequence[str]) -> str:
    """Words begin at the left; numbers end at the right."""
    return "words" if any(cell[:1].isalpha() for cell in column) else ""


def progress(part: float, text: str) -> Markup:
    """A bar that is ``part`` full, from 0 to 1, and a text behind it.

    It needs no styles of ours.
    """
    bar = element("progress", value=f"{part:.3f}", max="1", style="width:min(240px,50%)")
    return element("div", bar, " ", element("small", text))


@cache
def _styles() -> str:
    return STYLES.read_text(encoding="utf-8")
