"""The form of a front notebook: play first. One function for each limit.

A front notebook shows one idea on few screens: a moving picture, a panel, what was seen, how to
break it, something to build. What does not fit stands in `notebooks/deeper`. Each function takes
the notebook and yields what is wrong with it, in words; `check_front` asks them all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from nbformat import NotebookNode

from course.notebook_files import code_cells, tags

MOST_CELLS = 16
MOST_WORDS = 700
MOST_LINES = 110
LONGEST_CELL = 25
COLUMNS = 100
# The panel is one of so many first cells.
PANEL_AMONG = 6
RECIPE_LINES = 10
# Words under the panel that say what was seen.
SEEN_WORDS = 150
# Seconds that the calls of a notebook measure in its full size, together; Run All has a minute.
MOST_SECONDS = 40
# What the board measures for where its call does not say; building and checking come on top.
BOARD_SECONDS = 10

# Tag, kind of cell, what it holds; in the order in which the tags first appear.
PARTS = [
    ("card", "markdown", "title, one sentence, level, minutes, what it runs on, the recipe"),
    ("explorable", "code", "one import and the moving picture"),
    ("workload", "code", "make_workload in plain PyTorch, changed lines marked"),
    ("panel", "code", "Lab(...) and LabPanel(lab)"),
    ("saw", "markdown", "what you saw, and why"),
    ("breaks", "code", "where it does nothing or hurts"),
    ("exercise", "code", "stub and check in one cell"),
    ("solution", "code", "the solution, folded"),
    ("board", "code", "its switch in the reader's speedrun"),
    ("more", None, "the deeper notebook, the sources, what recorded machines found"),
]
# A notebook with one of these tags has this form.
OWN = {"explorable", "saw", "breaks", "board", "more"}
# The first one only runs the script.
EXEMPT = {"00_start_here": {"board"}}

# What the course does not say, and what it says instead.
WORDS = {
    r"\barms?\b": "baseline, candidate, side",
    r"\bdearer\b": "more expensive",
    r"\bfor want of\b": "for lack of",
    r"\brestless\b": "noisy",
    r"\btrainings\b": "training runs",
    r"\bgift of the\b": "say what it costs",
    r"\bpays? in another coin\b": "say what it costs",
    r"\bwho is late\b": "say which side waits",
    r"\b(samples|images|steps|tokens|rows|operations|times|numbers) an? second\b": "per second",
    r"\b(bytes|bits) an? (weight|number|parameter)\b": "per weight",
    r"\bms an? (step|batch|call)\b": "ms per step",
}

Problems = Iterator[str]
Parts = Sequence[tuple[str, str | None, str]]


def is_front(notebook: NotebookNode) -> bool:
    """Whether a notebook has the form of the front ones."""
    return any(OWN & set(tags(cell)) for cell in notebook.cells)


def check_front(notebook: NotebookNode, name: str) -> list[str]:
    """What is wrong with the form of a front notebook, one sentence each."""
    problems = list(parts(notebook, EXEMPT.get(name, set())))
    for limit in LIMITS:
        problems += limit(notebook)
    return problems


def parts(notebook: NotebookNode, exempt: set[str]) -> Problems:
    """Every part is there, of the right kind, in the right order."""
    yield from in_order(notebook, PARTS, exempt)


def in_order(notebook: NotebookNode, wanted: Parts, exempt: Collection[str]) -> Problems:
    """What is wrong with the parts of a notebook that is to have those that are wanted."""
    order = []
    for tag, kind, meaning in wanted:
        cells = [cell for cell in notebook.cells if tag in tags(cell)]
        if not cells:
            if tag not in exempt:
                yield f"has no cell tagged {tag!r} ({meaning})"
            continue
        order.append((tag, notebook.cells.index(cells[0])))
        for cell in cells:
            if kind and cell.cell_type != kind:
                yield f"has a cell tagged {tag!r} that is no {kind} cell ({cell.get('id')})"
    for (before, first), (after, second) in pairwise(order):
        if first > second:
            yield f"has {after!r} before {before!r}"
    if order and order[0] != ("card", 0):
        yield "does not begin with its card"


def cells(notebook: NotebookNode) -> Problems:
    """At most 16 cells."""
    if len(notebook.cells) > MOST_CELLS:
        yield f"has {len(notebook.cells)} cells; at most {MOST_CELLS}"


def words(notebook: NotebookNode) -> Problems:
    """At most 700 words of text, 150 of them on what was seen. Code in the text does not count."""
    found = sum(count_words(cell.source) for cell in texts(notebook))
    if found > MOST_WORDS:
        yield f"has {found} words of text; at most {MOST_WORDS}"
    for cell in texts(notebook):
        found = count_words(cell.source)
        if "saw" in tags(cell) and found > SEEN_WORDS:
            yield f"says in {found} words what was seen; at most {SEEN_WORDS}"


def lines(notebook: NotebookNode) -> Problems:
    """At most 110 lines of code, blank ones not counted, none of over 100 columns."""
    found = sum(count_lines(cell.source) for cell in code_cells(notebook))
    if found > MOST_LINES:
        yield f"has {found} lines of code; at most {MOST_LINES}"
    for cell in code_cells(notebook):
        for line in cell.source.splitlines():
            if len(line) > COLUMNS:
                yield f"has a line of {len(line)} columns; at most {COLUMNS}: {line.strip()[:40]}"


def longest_cell(notebook: NotebookNode) -> Problems:
    """No code cell of over 25 lines."""
    for cell in code_cells(notebook):
        found = count_lines(cell.source)
        if found > LONGEST_CELL:
            yield f"has a cell of {found} lines ({cell.get('id')}); at most {LONGEST_CELL}"


def panel_place(notebook: NotebookNode) -> Problems:
    """The panel stands among the first 6 cells, and is one."""
    for cell in code_cells(notebook, "panel")[:1]:
        place = notebook.cells.index(cell)
        if place >= PANEL_AMONG:
            yield f"has its panel in cell {place}; it stands among the first {PANEL_AMONG}"
        if "LabPanel(" not in cell.source:
            yield "has a cell tagged 'panel' that shows no LabPanel"


def recipe_length(notebook: NotebookNode) -> Problems:
    """The card holds two blocks of Python, before and after, of at most 10 lines together."""
    blocks = recipe(notebook)
    if len(blocks) != 2:
        yield f"has {len(blocks)} blocks of Python on its card; two are the recipe: before, after"
    found = sum(map(count_lines, blocks))
    if found > RECIPE_LINES:
        yield f"has a recipe of {found} lines; at most {RECIPE_LINES}"


def language(notebook: NotebookNode) -> Problems:
    """None of the words that the course does not use, in its text and comments."""
    said = [cell.source for cell in texts(notebook)]
    for cell in code_cells(notebook):
        said += re.findall(r"#.*", cell.source)
    for text in said:
        for pattern, instead in WORDS.items():
            if found := re.search(pattern, text, flags=re.IGNORECASE):
                yield f"says {found[0]!r}; the course says: {instead}"


def budget(notebook: NotebookNode) -> Problems:
    """Whatever is timed says for how long, in all no more than Run All may take."""
    spent = 0.0
    for cell in code_cells(notebook):
        for call in timed(cell.source):
            seconds = {word.arg: word.value for word in call.keywords}.get("seconds")
            if seconds is None and ast.unparse(call.func) == "board":
                spent += BOARD_SECONDS
            elif seconds is None:
                yield f"times without a budget: {ast.unparse(call)}; say seconds=..."
            else:
                spent += full_size(seconds)
    if spent > MOST_SECONDS:
        yield f"times for {spent:g} s; at most {MOST_SECONDS}"


LIMITS: list[Callable[[NotebookNode], Problems]] = [
    cells,
    words,
    lines,
    longest_cell,
    panel_place,
    recipe_length,
    budget,
]


# ------------------------------------------------------------------------------- what they count


def recipe(notebook: NotebookNode) -> list[str]:
    """The blocks of Python on the card: before and after."""
    card = "\n".join(cell.source for cell in texts(notebook) if "card" in tags(cell))
    return re.findall(r"^```python\n(.*?)^```", card, flags=re.MULTILINE | re.DOTALL)


def texts(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells of text."""
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


def count_words(text: str) -> int:
    """Words that are read: not those of code blocks, of formulas, of tags or of links' targets."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<[^>]*>|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return len(re.findall(r"\w[\w.,'’/-]*", text))


def count_lines(source: str) -> int:
    """Lines that hold something: blank ones are free."""
    return sum(bool(line.strip()) for line in source.splitlines())


# Functions that measure, beside the methods of labs.
TIMERS = (
    *("compare", "measure", "labkit.compare", "whyslow.diagnose"),
    *("images_per_second", "board"),
)


def timed(source: str) -> Iterator[ast.Call]:
    """The calls of a cell that measure for a given time."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in TIMERS or re.search(r"\blab\w*\.(run|sweep)$", name):
                yield node


def full_size(seconds: ast.expr) -> float:
    """The seconds of a budget on a CPU: a number, or the ``cpu`` of a ``pick``."""
    if isinstance(seconds, ast.Call) and ast.unparse(seconds.func) == "pick":
        sizes = {word.arg: word.value for word in seconds.keywords}
        seconds = sizes["cpu"]
    return float(ast.literal_eval(seconds))
