"""What is wrong with a notebook's file, in words: what it stores, its form, code and exercises."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from nbformat import NotebookNode

from course.classroom.build import student_copy
from course.classroom.slices import names
from course.coverage import NEEDS
from course.front import PARTS, check_front, count_lines, in_order, is_front, language
from course.minutes import check_minutes
from course.new import TEMPLATE, TEMPLATE_FILE, unchanged
from course.notebook_files import (
    code_cells,
    is_stub,
    long_path,
    place,
    python,
    read_notebook,
    tags,
)

CHECKED = "nbval-check-output"
MARK = "# <- technique"

# The anatomy of a long notebook: tag, kind of cell, what it holds; in the order in which the tags
# must first appear.
ANATOMY = [
    ("card", "markdown", "title, one-sentence claim, and the card"),
    ("setup", "code", "imports and device, ten lines at most"),
    ("bottleneck", None, "which resource is the bottleneck, with the formula"),
    ("baseline", "code", "the baseline loop in plain PyTorch, fifteen lines at most"),
    ("predict", "code", "predict before you run"),
    ("workload", "code", "make_workload, changed lines marked"),
    ("equivalence", "code", "losses and gradients against the baseline"),
    ("panel", "code", "LabPanel(lab); a headless lab.run(...) follows"),
    ("counters", "code", "exact counters, output checked"),
    ("worse", "code", "a cell that makes it worse"),
    ("exercise", "code", "stub and check in one cell"),
    ("solution", "code", "the solution, folded"),
    ("reference", None, "the recorded run beside the reader's own"),
    ("claims", "code", "what the sources say, and what the recorded runs found; folded"),
    ("yours", None, "the lines to copy for your own model"),
]
TAGS = [tag for tag, _, _ in ANATOMY]
# A cell is named after the first of these that it has.
NAMES = dict.fromkeys([*TAGS, *(tag for tag, _, _ in PARTS)])
# Introductions that toggle no technique need not have the cells that speak of one.
EXEMPT = {"00_start_here": {"bottleneck", "baseline", "workload", "equivalence", "worse"}}

LEVELS = ("beginner", "intermediate", "advanced")
# An exercise: text, stub and check, hint, solution; the text begins with a heading and says what
# to expect.
EXERCISE = re.compile(
    r"## Exercise: \S.*\n\n\*Difficulty: (easy|medium|hard)\. About [1-9]\d* minutes\.\*\n\n\S"
)
HINT = re.compile(r"<details><summary>Hint</summary>\n\n.*\S\n\n</details>", flags=re.DOTALL)


def is_checked(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and CHECKED in tags(cell)


def check(notebook: NotebookNode, name: str) -> list[str]:
    """What is wrong with `notebook`, one sentence each; empty when it is in good shape.

    A front notebook has the form of `course.front`, a long one the `ANATOMY` here.
    """
    form = check_front if is_front(notebook) else check_anatomy
    return [
        *check_storage(notebook),
        *check_metadata(notebook),
        *check_minutes(notebook, name),
        *check_copied(notebook, name),
        *form(notebook, name),
        *check_code(notebook, name),
        *check_exercises(notebook),
        *language(notebook),
        *check_order(notebook),
    ]


def label(notebook: NotebookNode, cell: NotebookNode) -> str:
    position = next(index for index, other in enumerate(notebook.cells) if other is cell)
    return f"cell {position} ({cell.get('id', 'no id')})"


def check_storage(notebook: NotebookNode) -> list[str]:
    """Only checked outputs are stored, all of them are, and all are text that any machine would
    print.
    """
    problems = []
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        problems.append(
            f"has format {notebook.nbformat}.{notebook.nbformat_minor}; refresh makes it 4.5"
        )
    if "widgets" in notebook.metadata:
        problems.append("stores widget state (metadata.widgets)")
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        problems.append("names another kernel than python3")
    ids = Counter(cell.get("id") for cell in notebook.cells)
    problems += [
        f"has {number} cells with the id {id!r}"
        for id, number in ids.items()
        if id is None or number > 1
    ]

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not any(is_checked(cell) for cell in code):
        problems.append(f"has no cell tagged {CHECKED}")
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        problems.append("was not executed from top to bottom (execution counts): refresh it")
    for cell in code:
        where = label(notebook, cell)
        problems += [f"{where} {problem}" for problem in check_outputs(cell)]
    return problems


def check_outputs(cell: NotebookNode) -> Iterator[str]:
    """What is wrong with what one code cell stores."""
    if not is_checked(cell):
        if cell.outputs:
            yield f"stores outputs but is not tagged {CHECKED}"
        return
    if not cell.outputs:
        yield "is checked but has no stored output: nbval would skip it silently"
    for output in cell.outputs:
        stream, data = output.get("name"), set(output.get("data", {"text/plain"}))
        plain = data <= {"text/plain", "text/markdown"}
        if output.output_type == "error" or stream == "stderr" or not plain:
            yield f"has a stored output that is no plain result: {stream or sorted(data)}"


def check_metadata(notebook: NotebookNode) -> list[str]:
    """`metadata.labkit` says title, needs, minutes and level, for the README's table and `course
    doctor`.
    """
    said = notebook.metadata.get("labkit", {})
    wanted = {"title": str, "needs": dict, "minutes": int, "level": str}
    problems = [
        f"metadata.labkit.{key} is {said.get(key)!r}, not of type {kind.__name__}"
        for key, kind in wanted.items()
        if not isinstance(said.get(key), kind)
    ]
    if problems:
        return problems
    if said["level"] not in LEVELS:
        problems.append(f"metadata.labkit.level is {said['level']!r}, none of {', '.join(LEVELS)}")
    for need, left_out in said["needs"].items():
        if need not in NEEDS or not isinstance(left_out, str):
            problems.append(
                f"metadata.labkit.needs has {need!r}: {left_out!r}; use {', '.join(NEEDS)}, "
                "and say what is left out"
            )
    first = notebook.cells[0].source.splitlines()[0] if notebook.cells else ""
    if first != f"# {said['title']}":
        problems.append(f"begins with {first!r}, while metadata.labkit.title is {said['title']!r}")
    return problems


def check_copied(notebook: NotebookNode, name: str) -> list[str]:
    """What a copy of the template still has of the template's own: its name, title and card."""
    if name == TEMPLATE:
        return []
    template = read_notebook(TEMPLATE_FILE)
    problems = []
    if notebook.metadata.get("labkit", {}).get("title") == template.metadata.labkit.title:
        problems.append(
            f"has the template's title, {template.metadata.labkit.title!r}: "
            "write its own, in metadata.labkit.title and on the card"
        )
    for cell in notebook.cells:
        where = label(notebook, cell)
        if re.search(rf"\b{TEMPLATE}\b", cell.source):
            problems.append(f"{where} names the template: write {name!r} for {TEMPLATE!r}")
        if "card" in tags(cell) and "Copy this notebook" in cell.source:
            problems.append(f"{where} still tells to copy the notebook: it is the template's card")
    return [*problems, *unchanged(notebook, name)]


def check_anatomy(notebook: NotebookNode, name: str) -> list[str]:
    """Every part is there, of the right kind, in the right order."""
    exempt = set(EXEMPT.get(name, ()))
    if place(long_path(name)) != name:
        # The front notebook has one.
        exempt |= {"exercise", "solution"}
    problems = list(in_order(notebook, ANATOMY, exempt))
    if any("counters" in tags(cell) and not is_checked(cell) for cell in notebook.cells):
        problems.append(f"has a counters cell that is not tagged {CHECKED}")
    return problems


def check_code(notebook: NotebookNode, name: str) -> list[str]:
    """The cells that a reader must grasp at one glance are short, the technique is marked, and
    widgets are optional.
    """
    problems = []
    headless = False
    long = not is_front(notebook)
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        where = label(notebook, cell)
        problems += [f"{where}{problem}" for problem in check_cell(cell, name)]
        if long:
            problems += [f"{where}{problem}" for problem in check_length(cell)]
        headless = headless or bool(re.search(r"\.(run|sweep|race)\(|\bcompare\(", cell.source))
    # A front notebook's scenarios are run by tests, and by who presses Run.
    if long and not headless:
        problems.append(
            "calls neither lab.run, lab.sweep, lab.race nor compare: "
            "it shows nothing without widgets"
        )
    return problems


def check_cell(cell: NotebookNode, name: str) -> Iterator[str]:
    """What is wrong with one code cell of the notebook ``name``."""
    source = python(cell.source, written=True)
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        lines = count_lines(ast.get_source_segment(source, function) or "")
        if function.name == "step" and lines > 15:
            yield f" has a step() of {lines} lines; at most 15"
    if "workload" in tags(cell):
        if not any("workload" in function.name for function in functions):
            yield ", tagged 'workload', defines no make_workload"
        if MARK not in cell.source and name not in EXEMPT:
            yield f" marks no line with {MARK!r}"
    if "panel" in tags(cell) and "LabPanel(" not in cell.source:
        yield ", tagged 'panel', shows no LabPanel"


def check_length(cell: NotebookNode) -> Iterator[str]:
    """A long notebook's set-up and baseline are short; `course.front` has limits of its own."""
    for tag, most in (("setup", 10), ("baseline", 15)):
        lines = count_lines(cell.source)
        if tag in tags(cell) and lines > most:
            yield f", tagged {tag!r}, has {lines} lines; at most {most}"


def check_exercises(notebook: NotebookNode) -> list[str]:
    """Each exercise has its heading, difficulty and minutes, a stub, its check at the end, a
    hint, and a solution.
    """
    problems = []
    for index, cell in enumerate(notebook.cells):
        if cell.cell_type != "code" or "exercise" not in tags(cell):
            continue
        where = label(notebook, cell)
        if index == 0 or not EXERCISE.match(notebook.cells[index - 1].source):
            problems.append(
                f"{where} does not follow a text that begins with '## Exercise: WHAT', "
                "an empty line, '*Difficulty: easy. About 10 minutes.*' (easy, medium or hard), "
                "an empty line, and the task"
            )
        hint, solution = (*notebook.cells[index + 1 : index + 3], None, None)[:2]
        if not (hint and hint.cell_type == "markdown" and HINT.fullmatch(hint.source.strip())):
            problems.append(
                f"{where} is not followed by a hint in "
                "<details><summary>Hint</summary> ... </details>"
            )
        if not (solution and "solution" in tags(solution)):
            problems.append(f"{where} has no cell tagged 'solution' behind its hint")
        body = ast.parse(python(cell.source)).body
        if not is_stub(python(cell.source)):
            problems.append(f"{where} has no stub that raises NotImplementedError")
        if not (body and re.search(r"\bexercises\.check_\w+\(", ast.unparse(body[-1]))):
            problems.append(f"{where} does not end in a call of exercises.check_...")
    return problems


def check_order(notebook: NotebookNode) -> list[str]:
    """Cells that students do not get use no name that only a later cell binds.

    All others run in the student's copy, in their order, before anything else has run.
    """
    problems = []
    students = {cell.get("id") for cell in student_copy(notebook).cells}
    code = code_cells(notebook)
    found = [names(python(cell.source)) for cell in code]
    for index, (cell, (used, _)) in enumerate(zip(code, found, strict=True)):
        if cell.get("id") in students:
            continue
        above = set().union(*(bound for _, bound in found[: index + 1]))
        below = set().union(*(bound for _, bound in found[index + 1 :]))
        where = label(notebook, cell)
        problems += [
            f"{where} uses {name!r}, which a later cell binds"
            for name in sorted((used & below) - above)
        ]
    return problems


def walk(body: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for statement in body for node in ast.walk(statement))
