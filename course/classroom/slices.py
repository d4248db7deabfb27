"""Which code of a submission an exercise needs: found in its text, so that a check takes seconds.

What a name is bound to by `exec` or an import of `*` is not in the text; such code runs when it
stands in the exercise's own cell.
"""

from __future__ import annotations

import ast
import builtins
import symtable

from nbformat import NotebookNode

from course.classroom.files import Exercise, check_name
from course.notebook_files import code_cells, python, tags

# They do nothing but bind names: imports may have effects.
BINDING = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.FunctionDef, ast.ClassDef)


def names(source: str) -> tuple[set[str], set[str]]:
    """Global names that a cell uses, in all its functions, and those that it binds."""
    tables = [symtable.symtable(source, "cell", "exec")]
    symbols = tables[0].get_symbols()
    used = {each.get_name() for each in symbols if each.is_referenced()}
    bound = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    while tables := [child for table in tables for child in table.get_children()]:
        inner = [each for table in tables for each in table.get_symbols()]
        used |= {each.get_name() for each in inner if each.is_global() and each.is_referenced()}
    return used, bound


def answer(exercise: Exercise, submission: NotebookNode, course: NotebookNode) -> list[str] | None:
    """The code to run, in order; None where the stub is as it was.

    SyntaxError if what answers it is no Python.

    The exercise's cell, also new cells that define its function again; before it the cells that
    define what those use, and so on; and the set-up, but for assignments that nobody needs: some
    of them load data.
    """
    # Of an instructor's copy: they are nobody's answer.
    cells = [each for each in code_cells(submission) if "solution" not in tags(each)]
    own = [each for each in cells if exercise.id and each.get("id") == exercise.id]
    own = (own or code_cells(submission, "exercise")[exercise.number :])[:1]
    start = cells.index(own[0]) if own else 0
    asked = names(exercise.call)[0] & names(exercise.stub)[1] - {"exercises"}
    known = {each["source"].strip() for each in course["cells"]}
    chosen = {}
    for place, cell in enumerate(cells):
        new = place >= start and cell["source"].strip() not in known and asked & _bound(cell)
        if cell in own or new:
            chosen[place] = python(cell["source"])
    given = "".join(_definitions(source, asked) for source in chosen.values())
    if given == _definitions(exercise.stub, asked) or not (given or _changed(own, exercise.stub)):
        return None

    setup = code_cells(submission, "setup") or code_cells(course, "setup")
    prelude = [statement for each in setup for statement in ast.parse(python(each["source"])).body]
    there = {"exercises", *dir(builtins)}.union(
        *(names(ast.unparse(statement))[1] for statement in prelude)
    )
    wanted = names(exercise.call)[0]
    needed = _add_what_is_used(chosen, cells, start, wanted, there)
    code = [_WithoutChecks().visit(ast.parse(chosen[at], "the exercise")) for at in sorted(chosen)]
    return [ast.unparse(each) for each in (*_needed(prelude, needed), *code)]


def _add_what_is_used(
    chosen: dict[int, str],
    cells: list[NotebookNode],
    start: int,
    wanted: set[str],
    there: set[str],
) -> set[str]:
    """Add to ``chosen`` the cells that bind what it uses, or ``wanted``, and what those use.

    Of several cells that bind a name it is the last one before ``start``, or else the next.
    ``there``: names that need no cell. Returns all names that are used.
    """
    rest = iter([*reversed(range(start)), *range(start, len(cells))])
    places: dict[str, int] = {}
    used, done = set(wanted), set(there)
    for source in chosen.values():
        used |= names(source)[0]
        done |= names(source)[1]
    missing = list(used - done)
    while missing:
        name = missing.pop()
        # each cell is read once, whatever is looked for
        while name not in places and (at := next(rest, None)) is not None:
            for bound in _bound(cells[at]):
                places.setdefault(bound, at)
        if name in places:
            source = chosen[places[name]] = python(cells[places[name]]["source"])
            new = names(source)[0] - used
            used |= new
            missing += new - done
    return used


def _changed(own: list[NotebookNode], stub: str) -> bool:
    """Whether the exercise's cell does something else now, by `exec` for example."""
    for cell in own:
        found = ast.parse(python(cell["source"]), "the exercise")
        if found.body and ast.dump(found) != ast.dump(ast.parse(stub)):
            return True
    return False


def _bound(cell: NotebookNode) -> set[str]:
    """Names that a cell binds: none if it is no Python, which no exercise then needs."""
    try:
        return names(python(cell["source"]))[1]
    except (SyntaxError, ValueError):
        return set()


def _definitions(source: str, wanted: set[str]) -> str:
    """The statements of a cell that bind one of the wanted names, without comments and layout."""
    return "".join(
        ast.dump(each)
        for each in ast.parse(source, "the exercise").body
        if wanted & names(ast.unparse(each))[1]
    )


def _needed(statements: list[ast.stmt], needed: set[str]) -> list[ast.stmt]:
    """All statements but those that only bind names that nobody needs. Imports stay."""
    tables = [names(ast.unparse(each)) for each in statements]
    binders: dict[str, list[int]] = {}
    kept = set()
    for at, (statement, (_, bound)) in enumerate(zip(statements, tables, strict=True)):
        for name in bound:
            binders.setdefault(name, []).append(at)
        if not bound or not isinstance(statement, BINDING):
            kept.add(at)
    missing = list(needed.union(*(tables[at][0] for at in kept)))
    while missing:
        new = set(binders.pop(missing.pop(), ())) - kept
        kept |= new
        missing += [name for at in new for name in tables[at][0] if name in binders]
    return [each for at, each in enumerate(statements) if at in kept]


class _WithoutChecks(ast.NodeTransformer):
    """Puts True for each call of a check: the course's own call is made afterwards."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.Constant(True) if check_name(node) else node
