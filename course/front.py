"""The form of a front notebook: play first. One function for each limit.

A front notebook shows one idea on few screens: a moving picture, a panel, what was seen, how to
break it, something to build, the end. What does not fit is in `notebooks/deeper`. Its card has a
still of the picture, so that there is something to see before the first click. The same order in
every notebook is dull: ``metadata.labkit.plot`` names another one (`PLOTS`), ``short`` a shorter
form. Each function takes the notebook and yields what is wrong with it, in words; `check_front`
asks them all.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from nbformat import NotebookNode

from course.notebook_files import ROOT, code_cells, tags

EXPLORABLES = ROOT / "course" / "explorables"

# Cells, words of text, lines of code; of a short topic's notebook, too.
MOST, SHORT = (17, 700, 110), (17, 400, 75)
LONGEST_CELL = 25
WORKLOAD_LINES = 15
COLUMNS = 100
# The panel is one of so many first cells.
PANEL_AMONG = 6
RECIPE_LINES = 10
# Words under the panel that say what was seen.
SEEN_WORDS = 150
# Seconds that the calls of a notebook measure in its full size, together; Run All has a minute.
MOST_SECONDS = 40

# Tag, kind of cell, what it holds; in the order in which the tags first appear.
CARD = ("card", "markdown", "title, one sentence, minutes, a still, and the bet as a question")
EXPLORABLE = ("explorable", "code", "one import and the moving picture")
RECIPE = ("recipe", "markdown", "the technique in plain PyTorch, before and after")
WORKLOAD = ("workload", "code", "make_workload in plain PyTorch, changed lines marked")
PANEL = ("panel", "code", "Lab(...) and LabPanel(lab), folded")
SAW = ("saw", "markdown", "what you saw, and why; then how to break it")
BREAKS = ("breaks", "code", "panel.offer(...): a new bet, where it does nothing or hurts")
EXERCISE = ("exercise", "code", "stub and check in one cell")
SOLUTION = ("solution", "code", "the solution, folded")
RACED = ("raced", "code", "if solved: panel.offer(...): what was built, as a candidate")
BOARD = ("board", "code", "its switch in the reader's speedrun")
MORE = ("more", None, "the end: what you can do now, what is next, the sources")
PARTS = [
    *(CARD, EXPLORABLE, RECIPE, WORKLOAD, PANEL, SAW),
    *(BREAKS, EXERCISE, SOLUTION, RACED, BOARD, MORE),
]
# The orders of the plots. A duel opens in a race, and says then what the winner does; a detective
# begins with a program, and comes to the remedy last. `PLOT_LIMITS` has what else they ask for.
PLOTS = {
    "duel": [
        *(CARD, EXPLORABLE, WORKLOAD, PANEL, RECIPE, SAW),
        *(BREAKS, EXERCISE, SOLUTION, RACED, BOARD, MORE),
    ],
    "detective": [
        *(CARD, EXPLORABLE, WORKLOAD, PANEL, SAW),
        *(BREAKS, EXERCISE, SOLUTION, RACED, RECIPE, BOARD, MORE),
    ],
    "puzzle": PARTS,
    "myth": PARTS,
    "build-up": PARTS,
}
# Scenarios of a build-up's panel, each of which keeps what the one before has.
STEPS = 3
# A notebook with one of these tags has this form.
OWN = {"explorable", "saw", "breaks", "board", "more"}
# The first one has no technique that what was built could be raced as. The speedrun is one process
# without attention.
EXEMPT = {
    "00_start_here": {"raced"},
    "14_distributed_data_parallel": {"board"},
    "24_attention": {"board"},
}
# Cells that are closed until the reader opens them.
FOLDED = ("setup", "panel", "solution")

# Words of a sentence that no two front notebooks share, and the sentences that they all have.
LONG_SENTENCE = 6
FORM = "|".join(
    [
        r"^\d+ minutes with the exercise, ",
        r"^The next cell, folded, is a solution\.",
        r"^Run it, and it takes the place of yours, unless ",
    ]
)

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
    r"\b(images|rows|samples|numbers) an? (GPU|process|step|row|epoch|tensor)\b": "per step",
    r"\bexcepts\b": "does not cover",
    r"\bfor ever\b": "forever",
    r"\bwithout a word\b": "without a warning",
    r"\bone learns\b": "say who or what learns",
    r"\bminds? (no|none|a|it)\b": "takes no budget",
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
    return [*problems, *ending(notebook, name)]


def said(notebook: NotebookNode, key: str) -> object:
    """What the notebook's ``metadata.labkit`` says under ``key``, or None."""
    return notebook.metadata.get("labkit", {}).get(key)


def parts(notebook: NotebookNode, exempt: Collection[str] = ()) -> Problems:
    """Every part is there, of the right kind, in the order of the notebook's plot."""
    plot = said(notebook, "plot")
    if plot is not None and plot not in PLOTS:
        yield f"has the plot {plot!r}; use {', '.join(PLOTS)}, or none"
        return
    yield from in_order(notebook, PLOTS.get(str(plot), PARTS), exempt)


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


def limits(notebook: NotebookNode) -> tuple[int, int, int]:
    """The most cells, words and lines."""
    return SHORT if said(notebook, "short") else MOST


def cells(notebook: NotebookNode) -> Problems:
    """At most 17 cells."""
    most = limits(notebook)[0]
    if len(notebook.cells) > most:
        yield f"has {len(notebook.cells)} cells; at most {most}"


def words(notebook: NotebookNode) -> Problems:
    """At most 700 words of text, 150 of them on what was seen. Code in the text does not count."""
    found, most = sum(count_words(cell.source) for cell in texts(notebook)), limits(notebook)[1]
    if found > most:
        yield f"has {found} words of text; at most {most}"
    for cell in texts(notebook):
        if "saw" not in tags(cell):
            continue
        found = count_words(cell.source.partition("\n## Break")[0])
        if found > SEEN_WORDS:
            yield f"says in {found} words what was seen; at most {SEEN_WORDS}"


def lines(notebook: NotebookNode) -> Problems:
    """At most 110 lines of code, blank ones not counted, none of over 100 columns."""
    found = sum(count_lines(cell.source) for cell in code_cells(notebook))
    most = limits(notebook)[2]
    if found > most:
        yield f"has {found} lines of code; at most {most}"
    for cell in code_cells(notebook):
        for line in cell.source.splitlines():
            if len(line) > COLUMNS:
                yield f"has a line of {len(line)} columns; at most {COLUMNS}: {line.strip()[:40]}"


def workload_length(notebook: NotebookNode) -> Problems:
    """``make_workload`` has at most 15 lines: plumbing is in the setup, or in the packages."""
    for cell in code_cells(notebook, "workload"):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("make_"):
                found = count_lines(ast.get_source_segment(cell.source, node) or "")
                if found > WORKLOAD_LINES:
                    yield f"has a {node.name} of {found} lines; at most {WORKLOAD_LINES}"


def folded(notebook: NotebookNode) -> Problems:
    """Setup, panel and solution are closed until the reader opens them."""
    for tag in FOLDED:
        for cell in code_cells(notebook, tag):
            if not cell.metadata.get("jupyter", {}).get("source_hidden"):
                yield f"has a cell tagged {tag!r} that is not folded ({cell.get('id')})"


def still(notebook: NotebookNode) -> Problems:
    """The card has a picture, and one question, in italics, for the moving one."""
    card = "\n".join(cell.source for cell in texts(notebook) if "card" in tags(cell))
    if len(re.findall(r"!\[[^\]]+\]\(\S*pictures/still-\d+\.svg\)", card)) != 1:
        yield "has no still on its card, ![what it shows](pictures/still-06.svg)"
    if len(questions(notebook)) != 1:
        yield f"asks {len(questions(notebook))} questions in italics on its card; one"


def questions(notebook: NotebookNode) -> list[str]:
    """The questions in italics on the card."""
    card = "\n".join(cell.source for cell in texts(notebook) if "card" in tags(cell))
    found = re.findall(r"(?<!\*)\*([^*]+\?)\*(?!\*)", card)
    return [" ".join(question.split()) for question in found]


def offers(notebook: NotebookNode) -> Problems:
    """What breaks the technique is a new bet in the panel; so is what the reader built."""
    for tag in ("breaks", "raced"):
        for cell in code_cells(notebook, tag):
            if "panel.offer(" not in cell.source:
                yield f"has a cell tagged {tag!r} without panel.offer(...) ({cell.get('id')})"


def heading(notebook: NotebookNode) -> Problems:
    """The board has a heading above it."""
    for board in code_cells(notebook, "board")[:1]:
        above = notebook.cells[notebook.cells.index(board) - 1]
        if above.cell_type != "markdown" or not re.search(r"^## ", above.source, re.M):
            yield "has no heading above its board"


def ending(notebook: NotebookNode, name: str) -> Problems:
    """The last cells say what the reader can do now, and lead on."""
    text = "\n".join(cell.source for cell in texts(notebook) if "more" in tags(cell))
    for wanted in ("You can now", "Next"):
        if wanted not in text:
            yield f"does not say {wanted!r} at its end"
    code = code_cells(notebook)
    if not code or f'ending("{name}")' not in code[-1].source:
        yield f'does not end in ending("{name}")'


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
    """The recipe is two blocks of Python, before and after, of at most 10 lines together."""
    blocks = recipe(notebook)
    if len(blocks) != 2:
        yield f"has {len(blocks)} blocks of Python in its recipe; two: before, after"
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
            # The board measures when its button is pressed.
            if seconds is None and ast.unparse(call.func) == "board":
                continue
            if seconds is None:
                yield f"times without a budget: {ast.unparse(call)}; say seconds=..."
            else:
                spent += full_size(seconds)
    if spent > MOST_SECONDS:
        yield f"times for {spent:g} s; at most {MOST_SECONDS}"


# ---------------------------------------------------------------------------- what a plot asks for


def plot(notebook: NotebookNode) -> Problems:
    """What the notebook's plot asks for is there, beside its order."""
    if wanted := PLOT_LIMITS.get(str(said(notebook, "plot"))):
        yield from wanted(notebook)


def race(notebook: NotebookNode) -> Problems:
    """A duel's panel opens in a race."""
    values = [ast.unparse(value) for value in keywords(notebook, "LabPanel", "opens")]
    if values != ["'race'"]:
        yield f"is a duel that opens in {values[0] if values else 'Time'}; LabPanel(opens='race')"


def score(notebook: NotebookNode) -> Problems:
    """A puzzle's picture has a score to beat."""
    name = f"{script(notebook)}.js"
    # A long model has a file of its own.
    sources = [path.read_text(encoding="utf-8") for path in EXPLORABLES.rglob(name)]
    if not re.search(r"\bbeat\b", "\n".join(sources)):
        yield f"is a puzzle without a score: {name} says nowhere what is to beat"


def stamped(notebook: NotebookNode) -> Problems:
    """A myth's end has a stamp on its claim, from the reader's own runs."""
    for cell in code_cells(notebook, "more"):
        if any(calls(cell.source, "stamp")):
            return
    yield "is a myth without a stamp at its end: stamp(claim, panel.history, ...) of course.stamp"


def steps(notebook: NotebookNode) -> Problems:
    """A build-up's panel begins with three scenarios, its steps."""
    found = 0
    for value in keywords(notebook, "Lab", "scenarios"):
        found += len(value.keys) if isinstance(value, ast.Dict) else 0
    if found < STEPS:
        yield f"is a build-up of {found} scenarios in Lab(scenarios={{...}}); {STEPS} steps"


PLOT_LIMITS: dict[str, Callable[[NotebookNode], Problems]] = {
    "duel": race,
    "puzzle": score,
    "myth": stamped,
    "build-up": steps,
}

LIMITS: list[Callable[[NotebookNode], Problems]] = [
    plot,
    cells,
    words,
    lines,
    longest_cell,
    workload_length,
    panel_place,
    recipe_length,
    folded,
    still,
    offers,
    heading,
    budget,
]


# ------------------------------------------------------------------------------- what they count


def recipe(notebook: NotebookNode) -> list[str]:
    """Its two blocks of Python: before and after."""
    text = "\n".join(cell.source for cell in texts(notebook) if "recipe" in tags(cell))
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def script(notebook: NotebookNode) -> str:
    """The name of the picture's file, without ``.js``: that of its class, ``loss_cliff``."""
    source = "\n".join(cell.source for cell in code_cells(notebook, "explorable"))
    found = re.search(r"^from course\.explorables import (\w+)$", source, re.M)
    return re.sub(r"(?<!^)(?=[A-Z])", "_", found[1] if found else "").lower()


def keywords(notebook: NotebookNode, function: str, keyword: str) -> list[ast.expr]:
    """What the calls of a function in the panel's cells hand over under a keyword."""
    found = []
    for cell in code_cells(notebook, "panel"):
        for call in calls(cell.source, function):
            found += [each.value for each in call.keywords if each.arg == keyword]
    return found


def calls(source: str, function: str) -> Iterator[ast.Call]:
    """The calls of a function in a cell."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == function:
            yield node


def sentences(notebook: NotebookNode) -> Iterator[str]:
    """The whole sentences of the text, without code, formulas, pictures, and those of `FORM`."""
    for cell in texts(notebook):
        no_prose = r"```.*?```|\$\$.*?\$\$|<[^>]*>|!\[[^\]]*\]\([^)]*\)"
        text = re.sub(no_prose, "\n\n", cell.source, flags=re.DOTALL)
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "")
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*[-#])", text):
            for sentence in re.split(r"(?<=[.?!:])\s+", " ".join(paragraph.split())):
                if count_words(sentence) > LONG_SENTENCE and not re.search(FORM, sentence):
                    yield sentence


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
