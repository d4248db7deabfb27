"""The board as a page: its head, its picture, and what there is still to win."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from course.board import recorded
from course.board.advice import advice, in_short, saves_memory
from course.board.code import code_of
from course.board.outlook import notebook_of
from course.board.picture import Goal, Row, picture, styles
from course.board.stars import EMPTY, FULL, Stars
from course.board.store import Choice, Figure
from course.board.waterfall import (
    BEST,
    RAN,
    SLOW,
    STILL,
    TODAY,
    Step,
    Waterfall,
    decided_in_words,
    duration,
    is_rough,
    peak_in_words,
)
from course.switches import SWITCHES, label, labelled
from labkit import show
from labkit.show import Markup
from labkit.text import format_factor

# Of a notebook: the cell with its board. JupyterLab finds a heading only where it is rendered.
SPEEDRUN = "#cell-id=board"


# What is not counted is drawn so many times as long as before at most.
UNSURE = 1.5
SPOILS = "What was recorded of all of them: it spoils your bets"


def html(found: Waterfall) -> str:
    """The whole of a board without its buttons."""
    said = f"{labelled(found.said)} {found.command()}".strip()
    return show.result(head(found), body(found), show.note(said) if said else "")


def head(found: Waterfall) -> Markup:
    """The big times, the stars, and what is to be decided or measured."""
    big = show.element("b", found.headline(), kind="factor")
    blocks: list[str] = [show.sentence(big, " ", show.element("small", found.caption()))]
    blocks += [styles(), _stars(found.stars)]
    if figure := found.latest:
        blocks.append(_judged(figure, f"{advice(figure)} {found.elsewhere}".strip()))
    elif found.decided:
        blocks.append(_decided(found, found.decided))
    elif found.armed:
        text = labelled(found.about().removeprefix(found.armed))
        blocks.append(show.sentence(show.element("b", label(found.armed)), text))
    if name := found.latest.switch if found.latest else found.armed:
        code = show.element("pre", code_of(name), style="margin:4px 0;overflow-x:auto")
        blocks.append(show.details(code, summary="Its lines in the slow script"))
    if caution := found.caution():
        blocks.append(show.note(caution))
    return show.join(blocks)


def _decided(found: Waterfall, choice: Choice) -> Markup:
    """What the latest choice was, and what it won."""
    last = found.steps[-1]
    won = choice.kept and last.figure is choice.figure and last.after < last.before
    if not won:
        words = decided_in_words(choice).removeprefix(choice.figure.switch)
        return _judged(choice.figure, words)
    words = f"{format_factor(last.before / last.after)} times as fast"
    if found.timed:
        words = f"{duration(last.before - last.after)} less"
    about = "about " if choice.figure.verdict == "unclear" else ""
    badge = show.element("span", show.badge("faster", f"✓ {about}{words}"), kind="new")
    return show.sentence(badge, show.element("b", label(choice.figure.switch)), " kept.")


def _stars(stars: Stars) -> Markup:
    """Those that were won, the latest of them moving, and those that are left."""
    old, new = FULL * (stars.won - stars.new), FULL * stars.new
    row = show.element(
        "span",
        old,
        show.element("span", new, kind="new"),
        show.element("span", EMPTY * stars.left, kind="left"),
        kind="stars",
    )
    return show.element("p", row, " ", show.element("small", stars.words), kind="sentence")


def body(found: Waterfall, watched: str = "") -> Markup:
    """The picture, what there is still to win, and how it is known.

    ``watched`` is the picture of the last measurement, as it was when it ended.
    """
    words = f"{found.headline()} {found.caption()}"
    listed = rows(found)
    parts: list[str] = [picture(words, goals(found), listed), show.note(_scale(found, listed))]
    if found.ahead:
        links: list[str] = []
        for each in found.ahead:
            link: str = label(each.switch)
            if each.path:
                link = show.element("a", link, href=f"{each.path}.ipynb{SPEEDRUN}")
            links.append(link)
        # A hint to who asks for one: it tells something of a bet.
        parts.append(show.details(show.join(links, " · "), summary=STILL))
    if watched:
        parts.insert(1, show.details(watched, summary="The last measurement"))
    notes = map(labelled, found.notes())
    switches = show.details(_switches(found), summary=f"All {len(SWITCHES)} switches")
    return show.join([*parts, switches, show.details(*notes, summary="How is this known?")])


def _scale(found: Waterfall, listed: Sequence[Row]) -> str:
    """How to read the bars: of those that are there."""
    texts = ["Bars are times: shorter is faster."]
    if found.saves == "memory" and listed:
        texts.append("The thick bars of switches are memory: shorter is less.")
    elif any(math.isfinite(row.thin) for row in listed):
        texts.append("The thin ones are memory at its peak: shorter is less.")
    if listed:
        texts.append("Grey is what a switch took away, orange what it added.")
    if any(row.hatched for row in listed):
        texts.append("What is hatched is not sure.")
    return " ".join(texts)


def _switches(found: Waterfall) -> Markup:
    """Each switch, what became of it, and the way to its board."""
    kept = {step.name for step in found.steps if not step.undecided}
    here = {step.name: step.figure for step in found.steps if step.figure and not step.undecided}
    here |= {figure.switch: figure for figure in found.not_kept}
    rows = [["switch", "what it does", "yours", "measured here", "recorded"]]
    secrets = [["switch", "recorded, times as fast"]]
    for name, switch in SWITCHES.items():
        link: str = label(name)
        if path := notebook_of(name):
            link = show.element("a", link, href=f"{path}.ipynb{SPEEDRUN}")
        left = "tried, not kept" if name in found.left else "not tried"
        figure = here.get(name)
        # Of the others it is still to be bet on.
        known = [in_short(figure), recorded.factor(name)] if figure else ["", ""]
        rows.append([link, switch.text, "kept" if name in kept else left, *known])
        secrets.append([label(name), recorded.factor(name)])
    all_of_them = show.details(show.table(secrets), summary=SPOILS)
    return show.join([show.table(rows), all_of_them if found.best else ""])


def goals(found: Waterfall) -> list[Goal]:
    """The slow script, today's reader, and the best that was recorded."""
    slow = found.steps[0].after
    listed = [Goal(SLOW, slow, found.time(slow), "baseline")]
    if len(found.steps) > 1:
        words = found.today_in_words(), "candidate", found.provisional.words
        listed.append(Goal(TODAY, found.today, *words, hatched=found.unsure))
    if found.best:
        seconds, _ = found.best.best()
        value = seconds if found.timed else seconds / found.best.seconds()
        text, note = found.best_in_words(found.best)
        listed.append(Goal(BEST, value, text, "recorded", note))
    return listed


def rows(found: Waterfall) -> list[Row]:
    """A bar for each switch that is kept or to be decided, and for what was just not kept."""
    rows = []
    for step in found.steps:
        # Among bars of memory there is no place for who has none.
        if step.figure is not None and (found.saves == "time" or math.isfinite(step.peak)):
            rows.append(_row_of(found, step, step.figure))
        elif step.name == RAN and found.saves == "time":
            rows.append(Row(RAN, "", found.time(step.after), step.before, step.after))
    choice = found.decided
    if choice and not choice.kept:
        before = found.steps[-1].after
        step = Step(choice.figure.switch, before, before, choice.figure)
        row = _row_of(found, step, choice.figure)
        rows.append(replace(row, text="not kept", tone="baseline", hatched=True))
    return rows


def _row_of(found: Waterfall, step: Step, figure: Figure) -> Row:
    """The bar of a switch: its time, or its memory where that is what it saves."""
    row = _row(found, step, figure)
    return _by_memory(row, figure) if found.saves == "memory" else row


def _row(found: Waterfall, step: Step, figure: Figure) -> Row:
    after, note = step.measured, in_short(figure)
    if not figure.counts and after > step.before * UNSURE:
        # A bar that is not sure sets no scale.
        after, note = step.before * UNSURE, f"{note}, longer than drawn"
    lost = figure.prevents
    return Row(
        label=label(figure.switch),
        note=note,
        text=found.time(step.after),
        before=step.before,
        after=2 * step.before if lost else after if math.isfinite(after) else step.before,
        tone=figure.direction if step.undecided and figure.counts else "candidate",
        hatched=not figure.counts or is_rough(figure),
        thin=step.peak,
        thin_was=figure.peak,
        thin_text=f"peak {peak_in_words(step)}" if math.isfinite(step.peak) else "",
    )


def _by_memory(row: Row, figure: Figure) -> Row:
    """The row with its peak as the thick bar, and its time as the thin one."""
    after = figure.peak * figure.memory
    text = row.thin_text.removeprefix("peak ") or "memory not measured"
    return replace(
        row,
        note=in_short(figure) if row.thin_text else "",
        text=text,
        before=figure.peak,
        after=after,
        tone="arm4",
        hatched=False,
        thin=row.after,
        thin_was=row.before,
        thin_text=row.text,
        thin_tone=row.tone,
    )


def _judged(figure: Figure, text: str) -> Markup:
    """A switch with what was found of it as a coloured word."""
    badge = show.badge(figure.direction)
    if saves_memory(figure):
        badge = show.badge("faster", "less memory")
    name = show.element("b", label(figure.switch))
    space = "" if text.startswith(":") else " "
    return show.sentence(badge, name, f"{space}{labelled(text)}")
