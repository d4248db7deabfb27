"""Elements of SVG, and the frame of every picture."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from labkit import show
from labkit.show import Markup

WIDTH, EDGE, LINE = 640.0, 8.0, 26.0
# About as many letters have room in a line of a narrow picture.
LETTERS = 56
# How wide a letter is there.
LETTER = WIDTH / LETTERS


def picture(height: float, words: str, parts: Iterable[str]) -> Markup:
    """The frame of a picture; ``words`` say what it shows."""
    style = Markup(f"<style>{styles()}</style>")
    return show.element(
        "svg",
        style,
        *parts,
        kind="svg",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        role="img",
        aria_label=words,
    )


@cache
def styles() -> str:
    """Those of all that is drawn."""
    lines = Path(__file__).with_name("chart.css").read_text(encoding="utf-8").splitlines()
    return " ".join(line.strip() for line in lines)


def element(tag: str, *children: str, kind: str = "", **attributes: str) -> Markup:
    """As `labkit.show.element`, with classes of the pictures: those of a page mean others."""
    if kind:
        attributes["class"] = " ".join(f"k-{name}" for name in kind.split())
    return show.element(tag, *children, **attributes)


def text(
    x: float, y: float, words: str, kind: str = "", anchor: str = "start", room: int = LETTERS
) -> Markup:
    """Words; of more letters than there is ``room`` for, the rest is what a pointer shows."""
    shown = cut(words, room)
    full = [] if shown == words else [element("title", words)]
    return element("text", shown, *full, kind=kind, x=number(x), y=number(y), text_anchor=anchor)


def named(y: float, label: str, words: str, note: str = "", left: float = EDGE) -> list[Markup]:
    """A line: a label with its note, cut where they would meet the words at the right."""
    room = int(LETTERS * (1 - left / WIDTH)) - len(words) - 2
    name = cut(label, room)
    rest = cut(note, room - len(name) - 1)
    parts = [element("tspan", name, kind="bold")]
    if rest:
        parts.append(element("tspan", f" {rest}", kind="small"))
    if (name, rest) != (label, note):
        parts.append(element("title", f"{label} {note}"))
    line = element("text", *parts, x=number(left), y=number(y))
    return [line, text(WIDTH - EDGE, y, words, "", "end")]


def below(x: float, y: float, words: str) -> Markup:
    """The name of a place along a plot: in its middle, or where that would leave the picture."""
    half = LETTER * len(words) / 2
    if x + half > WIDTH:
        return text(WIDTH - 2, y, words, "small", "end")
    if x - half < 0:
        return text(2, y, words, "small")
    return text(x, y, words, "small", "middle")


def rect(x: float, y: float, width: float, height: float, kind: str) -> Markup:
    size = {"width": number(max(0.0, width)), "height": number(max(0.0, height))}
    return element("rect", x=number(x), y=number(y), **size, kind=kind)


def path(points: Iterable[tuple[float, float]], kind: str, dashes: str = "") -> Markup:
    """A line through the points."""
    d = "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)
    return element("path", d=d, kind=kind, **({"stroke_dasharray": dashes} if dashes else {}))


def dots(points: Iterable[tuple[float, float]], kind: str) -> Markup:
    """Round dots: lines without a length."""
    d = "".join(f"M{number(x)} {number(y)}h0" for x, y in points)
    return element("path", d=d, kind=f"dots {kind}")


def cut(words: str, room: int) -> str:
    if len(words) <= room:
        return words
    return f"{words[: room - 1]}…" if room > 2 else ""


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
