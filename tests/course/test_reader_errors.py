"""An error of the reader's own, in the exercise of each front notebook: which lines it shows."""

from __future__ import annotations

import ast
import traceback
from functools import cache
from typing import Any

import pytest

from course.front import is_front
from course.notebook_files import code_cells, course_notebooks, notebook_path, place, read_notebook

FRONT = [place(path) for path in course_notebooks() if is_front(read_notebook(path))]
# What stands in the place of the stub, and what it raises.
WRONG: dict[str, tuple[str, type[Exception]]] = {
    "name": ("no_such_name", NameError),
    "type": ("len(3)", TypeError),
    # A layer, whose own lines in torch are not the reader's.
    "shape": ("__import__('torch').nn.Linear(3, 4)(__import__('torch').ones(2, 7))", RuntimeError),
    "chained": ("try:\n    {}['a']\nexcept KeyError:\n    no_such_name", NameError),
}


@cache
def setup(name: str) -> dict[str, Any]:
    """What the notebook's cell of imports defines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec("from course import exercises", names)
    for cell in code_cells(read_notebook(notebook_path(name)), "setup"):
        exec(compile(cell.source, "<setup>", "exec"), names)
    return names


class Answer(ast.NodeTransformer):
    """Puts a statement in the place of each ``raise NotImplementedError``."""

    def __init__(self, source: str) -> None:
        self.source = source

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        [statement] = ast.parse(self.source).body
        for each in ast.walk(statement):
            ast.copy_location(each, node)
        return statement


@pytest.mark.parametrize("fault", WRONG)
@pytest.mark.parametrize("name", FRONT)
def test_an_error_shows_the_reader_s_lines_alone(name: str, fault: str) -> None:
    source, kind = WRONG[fault]
    [cell] = code_cells(read_notebook(notebook_path(name)), "exercise")
    tree = Answer(source).visit(ast.parse(cell.source))
    with pytest.raises(kind) as caught:
        exec(compile(tree, "<cell>", "exec"), dict(setup(name)))
    # The first line is the one above, of this test; then the call of the check, and the answer.
    _, *shown = lines(caught.value)
    assert len(shown) >= 2 and set(shown) == {"<cell>"}
    earlier = caught.value.__context__
    assert (earlier is None) == (fault != "chained")
    assert earlier is None or lines(earlier) == ["<cell>"]


def lines(error: BaseException) -> list[str]:
    """The file of each line that a traceback shows."""
    return [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
