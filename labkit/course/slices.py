"""Which code of a submission an exercise needs: found in its text, so that a check takes seconds."""

from __future__ import annotations

import ast
import builtins
import symtable
from dataclasses import dataclass
from typing import Any

from .files import Exercise, check_name, code_cells, python


@dataclass(frozen=True)
class Answer:
    """The code to run, in order, as (label, source); ``attempted`` is False where the stub is as it was."""

    cells: list[tuple[str, str]]
    attempted: bool


def names(source: str) -> tuple[set[str], set[str]]:
    """Global names that a cell uses, in all its functions, and those that it binds."""
    top = symtable.symtable(source, "cell", "exec")
    bound = {each.get_name() for each in top.get_symbols() if each.is_assigned() or each.is_imported()}
    used = {each.get_name() for each in top.get_symbols() if each.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {each.get_name() for each in table.get_symbols() if each.is_global() and each.is_referenced()}
    return used, bound


def definitions(source: str, wanted: set[str]) -> dict[str, str]:
    """How a cell binds the wanted names: name -> the statements that do it, without comments and layout."""
    found = dict.fromkeys(wanted, "")
    for statement in ast.parse(source).body:
        for name in wanted & names(ast.unparse(statement))[1]:
            found[name] += ast.dump(statement)
    return found


class _WithoutChecks(ast.NodeTransformer):
    """Puts True for each call of a check: the course's own call is made afterwards."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        return ast.copy_location(ast.Constant(True), node) if check_name(node) else node


def answer(exercise: Exercise, submission: dict[str, Any], course: dict[str, Any]) -> Answer:
    """What to run of a submission for one exercise. SyntaxError if the cell that answers it is no Python."""
    cells = [cell for cell in code_cells(submission) if "solution" not in cell["metadata"].get("tags", ())]
    own = _exercise_cell(exercise, cells)
    asked = names(exercise.call)[0] & names(python(exercise.cell))[1] - {"exercises"}
    known = {cell["source"].strip() for cell in code_cells(course)}
    start = len(cells) if own is None else cells.index(own)
    chosen = [] if own is None else [start]
    for position, cell in enumerate(cells[start + 1 :], start + 1):  # answered in a new cell below
        if cell["source"].strip() not in known and asked & _bound(cell):
            chosen.append(position)
    if own is None:
        chosen = [at for at, cell in enumerate(cells) if cell["source"].strip() not in known and asked & _bound(cell)]
        start = chosen[-1] if chosen else 0
    sources = {at: python(cells[at]["source"]) for at in chosen}
    stub = definitions(python(exercise.cell), asked)
    given = {name: "".join(definitions(source, asked)[name] for source in sources.values()) for name in asked}

    setup = [cell for cell in cells if "setup" in cell["metadata"].get("tags", ())] or code_cells(course, "setup")
    prelude = [statement for cell in setup for statement in ast.parse(python(cell["source"])).body]
    made = {name for statement in prelude for name in names(ast.unparse(statement))[1]}
    missing = names(exercise.call)[0].union(*(names(source)[0] for source in sources.values()))
    done = {name for source in sources.values() for name in names(source)[1]} | made | set(dir(builtins))
    while missing := missing - done:  # cells that define what those cells use, and so on
        for name in sorted(missing):
            order = [*range(start - 1, -1, -1), *range(start + 1, len(cells))]
            done.add(name)
            if (at := next((at for at in order if at not in sources and name in _bound(cells[at])), None)) is not None:
                sources[at] = python(cells[at]["source"])
                done |= _bound(cells[at])
                missing = missing | names(sources[at])[0]
    needed = names(exercise.call)[0].union(*(names(source)[0] for source in sources.values()))
    program = [("setup", ast.unparse(statement)) for statement in _needed(prelude, needed)]
    for at in sorted(sources):
        tree = _WithoutChecks().visit(ast.parse(sources[at]))
        program.append((f"cell {at + 1}", ast.unparse(tree)))
    return Answer(program, attempted=any(given[name] and given[name] != stub[name] for name in asked))


def _exercise_cell(exercise: Exercise, cells: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The submission's cell for an exercise: by its id, or else by its place among those tagged as one."""
    tagged = [cell for cell in cells if "exercise" in cell["metadata"].get("tags", ())]
    same = [cell for cell in cells if exercise.identity and cell.get("id") == exercise.identity]
    return next(iter(same or tagged[exercise.number : exercise.number + 1]), None)


def _bound(cell: dict[str, Any]) -> set[str]:
    """Names that a cell binds; none if it is no Python, which is no matter where no exercise needs it."""
    try:
        return names(python(cell["source"]))[1]
    except (SyntaxError, ValueError):
        return set()


def _needed(statements: list[ast.stmt], needed: set[str]) -> list[ast.stmt]:
    """Statements of the set-up without assignments that nobody needs: some of them load data."""
    plain = (ast.Assign, ast.AnnAssign, ast.AugAssign)
    tables = [names(ast.unparse(statement)) for statement in statements]
    free = [not (isinstance(each, plain) and bound) for each, (_, bound) in zip(statements, tables, strict=True)]
    size = -1
    kept: list[ast.stmt] = []
    while len(kept) > size:
        size, kept = len(kept), []
        for statement, (used, bound), always in zip(statements, tables, free, strict=True):
            if always or bound & needed:
                kept.append(statement)
                needed = needed | used
    return kept
