"""Keep the notebooks in one shape: execute, store what is checked, strip the rest, hold the
anatomy.

    uv run python -m course.notebooks refresh [NAME ...]
        execute in the test size, store checked outputs, clean up
    uv run python -m course.notebooks check [NAME ...]
        say what is wrong with the file; nothing is executed
    uv run python -m course.notebooks twice [NAME ...]
        execute the student's copy, then all cells, in one kernel; both print what is stored
    uv run python -m course.notebooks index
        bring the README's table of notebooks up to date

NAME is a notebook's file name in notebooks/, with or without `.ipynb`, such as
deeper/06_mixed_precision; none means all of them.
`course/authoring/AUTHORING.md` explains the tags.

Facts about nbval, which compares stored outputs, explain the rules:

- A checked cell without a stored output is skipped silently: each must have one.
- A cell without an execution count counts as never run, and with an output it is an error: all code
  cells keep their counts.
- A live display updates at will and cannot be compared: checked cells print plain text to stdout.
"""

from __future__ import annotations

import argparse
import ast
import getpass
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbclient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode

from course.classroom.build import student_copy
from course.classroom.slices import names
from course.coverage import NEEDS
from course.front import PARTS, check_front, count_lines, in_order, is_front, language
from course.headless import errors_of, without_widgets
from course.minutes import REFERENCE, check_minutes
from course.notebook_files import (
    NOTEBOOKS,
    ROOT,
    about,
    code_cells,
    course_notebooks,
    long_path,
    notebook_path,
    place,
    read_notebook,
    tags,
    write_notebook,
)
from course.overview import techniques

CHECKED = "nbval-check-output"
MARK = "# <- technique"
# The notebook that authors copy; records and claims of a copy go by the copy's own name.
TEMPLATE = "_template"
TEMPLATE_FILE = ROOT / "course" / "authoring" / f"{TEMPLATE}.ipynb"

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
# `jupyter` holds source_hidden: the folded cells
CELL_METADATA = ("tags", "jupyter")
# Seconds that a cell may take, and that may pass from its reply to its end on the display channel.
CELL_TIMEOUT = 120
DISPLAY_TIMEOUT = 20


# ------------------------------------------------------------------------------ reading and writing


def notebooks(names: list[str] | None = None) -> list[Path]:
    """The notebooks called `names`, or all of them.

    Raises FileNotFoundError for a name that is none.
    """
    if not names:
        return [*course_notebooks(), TEMPLATE_FILE]
    asked = [name.removesuffix(".ipynb") for name in names]
    paths = [TEMPLATE_FILE if name == TEMPLATE else notebook_path(name) for name in asked]
    for path in paths:
        if not path.is_file():
            known = ", ".join(map(place, notebooks()))
            raise FileNotFoundError(f"no notebook {place(path)!r}; there are: {known}")
    return paths


def is_checked(cell: NotebookNode) -> bool:
    return cell.cell_type == "code" and CHECKED in tags(cell)


# ---------------------------------------------------------------------------------------- executing


def user_name() -> str:
    """The user's name as torch has it: the number where it has none, as in some containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid_{os.getuid()}"


@contextmanager
def private_jupyter() -> Iterator[dict[str, str]]:
    """An environment for kernels in the test size that neither reads nor writes the user's own
    Jupyter settings. What they leave behind in temporary files goes with it.
    """
    compiled = os.path.join(tempfile.gettempdir(), f"torchinductor_{user_name()}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("JUPYTER")
        }
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            environment[name] = str(Path(folder) / name.lower())
        environment["TMPDIR"] = folder
        # torch's own choice, with what was compiled before
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", compiled)
        yield environment | {"LABKIT_SIZE": "test"}


def execute(*rounds: NotebookNode) -> list[list[str]]:
    """Run all cells of each notebook in order, in place, in one kernel.

    Return what the checked cells of each printed.

    Raises CellExecutionError, CellTimeoutError or DeadKernelError; ValueError for what the function
    of a widget raised.
    """
    client = nbclient.NotebookClient(
        rounds[0],
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOKS)}},
        # one output however slowly it came
        coalesce_streams=True,
        # taking torch apart takes seconds, and shows nothing
        shutdown_kernel="immediate",
        iopub_timeout=DISPLAY_TIMEOUT,
        raise_on_iopub_timeout=True,
    )
    printed = []
    with without_widgets(client).setup_kernel():
        for notebook in rounds:
            client.nb = notebook
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
                if errors := errors_of(cell):
                    raise ValueError(f"{label(notebook, cell)}, in a widget: {errors[0]}")
            printed.append(checked(notebook))
    return printed


def checked(notebook: NotebookNode) -> list[str]:
    """What the checked cells of `notebook` have as their outputs, as text."""
    return [text(cell) for cell in notebook.cells if is_checked(cell)]


def text(cell: NotebookNode) -> str:
    """What `cell` printed and returned, as text."""
    return "".join(
        output.get("text", "") or output.get("data", {}).get("text/plain", "")
        for output in cell.outputs
    )


def run_twice(path: Path) -> float:
    """Execute the notebook at `path` twice without a restart; return the seconds.

    ValueError where a round prints something else than what is stored.

    The first round is the student's copy, without solutions: no other cell may need them.
    """
    begin = time.monotonic()
    notebook = read_notebook(path)
    stored = checked(notebook)
    rounds = execute(student_copy(notebook), notebook)
    for which, printed in zip(("first", "second"), rounds, strict=True):
        if printed != stored:
            raise ValueError(
                f"a checked cell prints something else in the {which} round: "
                + "; ".join(differences(stored, printed))
            )
    return time.monotonic() - begin


def doubled(path: Path) -> NotebookNode:
    """The student's copy and then the whole as one notebook, with all that is stored.

    What runs it, as nbval does, runs both without a restart.
    """
    whole = read_notebook(path)
    twice = student_copy(whole)
    stored = {cell.id: cell for cell in code_cells(whole)}
    for cell in code_cells(twice):
        cell.outputs = stored[cell.id].outputs
        cell.execution_count = stored[cell.id].execution_count
    for cell in whole.cells:
        cell.id += "-again"
    twice.cells += whole.cells
    return twice


def differences(stored: list[str], printed: list[str]) -> list[str]:
    """What checked cells print instead of what is stored; all of it where their number differs."""
    if len(stored) != len(printed):
        return [f"{printed}, stored is {stored}"]
    pairs = zip(stored, printed, strict=True)
    return [f"{new!r}, stored is {old!r}" for old, new in pairs if old != new]


# ----------------------------------------------------------------------------------------- cleaning


def clean(notebook: NotebookNode) -> None:
    """Leave in `notebook` what belongs into git: sources, tags, execution counts, and the
    outputs that are checked.

    Counts stay because nbval takes a cell without one for a cell that never ran, and compares
    nothing.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    count = 0
    taken: set[str] = set()
    for position, cell in enumerate(notebook.cells):
        cell.metadata = NotebookNode(
            {key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata}
        )
        cell.pop("attachments", None)
        if cell.cell_type == "code":
            count += 1
            cell.execution_count = count
            cell.outputs = (
                [plain(output, count) for output in cell.outputs] if is_checked(cell) else []
            )
            if {"solution", "claims"} & set(tags(cell)):
                cell.metadata.jupyter = {"source_hidden": True}
        part = next((tag for tag in NAMES if tag in tags(cell)), None)
        cell.id = unused(part or cell.get("id") or f"cell-{position:02d}", taken)
    notebook.metadata = NotebookNode(
        {
            "kernelspec": {
                "display_name": "Python 3 (ipykernel)",
                "language": "python",
                "name": "python3",
            },
            "labkit": notebook.metadata.get("labkit", {}),
            "language_info": {"name": "python"},
        }
    )


def plain(output: NotebookNode, count: int) -> NotebookNode:
    """`output` with the cell's execution count and without metadata."""
    if "execution_count" in output:
        output.execution_count = count
    if "metadata" in output:
        output.metadata = NotebookNode()
    return output


def unused(name: str, taken: set[str]) -> str:
    """`name`, numbered when an earlier cell has it, and noted in `taken`."""
    candidate, number = name, 2
    while candidate in taken:
        candidate, number = f"{name}-{number}", number + 1
    taken.add(candidate)
    return candidate


def refresh(path: Path) -> float:
    """Execute and clean the notebook at `path`; return the seconds it ran.

    The file changes only when all went well.
    """
    notebook = read_notebook(path)
    begin = time.monotonic()
    execute(notebook)
    seconds = time.monotonic() - begin
    clean(notebook)
    if problems := [
        problem for problem in check(notebook, path.stem) if "stored output" in problem
    ]:
        raise ValueError(f"{path.name} is left as it was: " + "; ".join(problems))
    write_notebook(notebook, path)
    return seconds


# ----------------------------------------------------------------------------------------- checking


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
    return problems


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
    if not headless:
        problems.append(
            "calls neither lab.run, lab.sweep, lab.race nor compare: "
            "it shows nothing without widgets"
        )
    return problems


def check_cell(cell: NotebookNode, name: str) -> Iterator[str]:
    """What is wrong with one code cell of the notebook ``name``."""
    source = without_magics(cell.source)
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
        body = ast.parse(without_magics(cell.source)).body
        if not any(
            isinstance(node, ast.Raise) and "NotImplementedError" in ast.unparse(node)
            for node in walk(body)
        ):
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
    found = [names(without_magics(cell.source)) for cell in code]
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


def without_magics(source: str) -> str:
    """`source` with IPython's `%magic` and `!command` lines blanked, so that it parses as
    Python.
    """
    return re.sub(r"^[ \t]*[%!].*$", "", source, flags=re.MULTILINE)


# ------------------------------------------------------------------------------- the README's table


def index(readme: str) -> str:
    """`readme` with its table of notebooks up to date.

    What a notebook shows is written there by hand, and kept.
    """
    effects = {each.notebook: each.effects.get(REFERENCE, "–") for each in techniques().techniques}
    lines = []
    for line in readme.splitlines():
        if found := re.match(r"\| \[\d+\]\(notebooks/(?:\w+/)?(\w+)\.ipynb\) (.*?) \|", line):
            name, shows = found.groups()
            path = notebook_path(name)
            # RESULTS.md has all
            effect = "; ".join(effects.get(name, "–").split("; ")[:2])
            line = f"| [{name[:2]}](notebooks/{place(path)}.ipynb) {shows} "
            line += f"| {about(path).minutes} | {effect} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def write_index() -> int:
    path = ROOT / "README.md"
    path.write_text(index(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=["refresh", "check", "twice", "index"])
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args(arguments)
    if options.action == "index":
        return write_index()
    act = {"refresh": refresh, "twice": run_twice}.get(options.action)
    failed = False
    with private_jupyter() as environment:
        os.environ.clear()
        # nbclient finds kernels by these, and the kernel inherits them
        os.environ.update(environment)
        try:
            paths = notebooks(options.names)
        except FileNotFoundError as error:
            print(error, file=sys.stderr)
            return 2
        for path in paths:
            try:
                if act:
                    print(f"{place(path)}: {act(path):.1f} s", flush=True)
                problems = (
                    check(read_notebook(path), path.stem) if options.action != "twice" else []
                )
            except (
                CellExecutionError,
                DeadKernelError,
                TimeoutError,
                SyntaxError,
                ValueError,
            ) as error:
                # tracebacks come in colour
                problems = [re.sub(r"\x1b\[[\d;]*m", "", str(error))]
            for problem in problems:
                print(f"{place(path)}: {problem}", file=sys.stderr)
            failed = failed or bool(problems)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
