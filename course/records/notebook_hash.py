"""The hash by which a record knows the code that it was measured with.

It is taken of the syntax tree of the cells that measure, so that layout, comments, the order of
imports and where a cell ends do not make a record old. Imports are left out, too: a module that
moves measures the same; and the sizes of tests, which no record has. Docstrings are kept.

The tree is written out here and not by ``ast.dump``, whose text differs from one version of
Python to the next: a borrowed machine may have another one. Python 3.12.1 puts empty texts into
some f-strings, which others do not.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

from course.notebook_files import code_cells, read_notebook, tags

# Cells whose results no record has: to edit these does not make a record old. An *aside* draws or
# computes something of its own, which no later cell needs.
APART = {"aside", "claims", "exercise", "panel", "predict", "reference", "solution", "yours"}


def notebook_hash(path: Path) -> str:
    """16 hex digits of the code that measures."""
    return hash_of(
        cell.source for cell in code_cells(read_notebook(path)) if not APART & set(tags(cell))
    )


def hash_of(sources: Iterable[str]) -> str:
    """16 hex digits of these cells."""
    text = "".join(map(_tree, sources))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _tree(source: str) -> str:
    """A cell's syntax tree as text; of IPython's own lines, which are no Python, the text itself.

    Of a file that a cell writes, the same below the line that says so. A cell that goes on with it,
    by ``--append``, adds what is below that line: the file might have been written by one cell.
    """
    line, _, program = source.partition("\n")
    if line.startswith("%%writefile --append"):
        return _tree(program)
    if line.startswith("%%writefile"):
        return f"{line};{_tree(program)}"
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return f"{source.strip()};"
    return _written(body)


def _written(value: object) -> str:
    """Nodes with their fields, without positions; what is empty is left out."""
    if isinstance(value, list):
        return "".join(f"{_written(each)};" for each in value if not _is_import(each))
    if not isinstance(value, ast.AST):
        return repr(value)
    if isinstance(value, ast.Call) and getattr(value.func, "id", None) == "pick":
        return _written_without_test(value)
    fields = []
    for name, child in ast.iter_fields(value):
        if isinstance(value, ast.JoinedStr):
            child = [each for each in child if getattr(each, "value", None) != ""]
        if child is not None and child != []:
            fields.append(f"{name}={_written(child)}")
    return f"{type(value).__name__}({','.join(fields)})"


def _written_without_test(call: ast.Call) -> str:
    """`labkit.pick` with the sizes that are not for tests; of a single one, that alone."""
    sizes = {each.arg: each.value for each in call.keywords if each.arg != "test"}
    if sizes.keys() == {"cpu"}:
        return _written(sizes["cpu"])
    written = ",".join(f"{name}={_written(size)}" for name, size in sizes.items())
    return f"pick({written})"


def _is_import(node: object) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)
