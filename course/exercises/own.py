"""What the reader has solved, and that the folded solution does not take its place.

JupyterLab sends a cell's tags with it, so a check knows whose cell calls it: the reader's, tagged
"exercise", or the solution's. Where the reader's own has passed, it is put back behind the
solution. A front end that sends no tags runs both as any cell.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

SOLVED_HERE = "Solved by yourself."
STAYS = "This solution passes, too. Yours has passed before, and stays in use."
NOT_YOURS = "This is the folded solution. Write your own in the cell above to earn the star."

# For each check the functions and classes of the reader's cell that passed it last.
_own: dict[str, dict[str, Any]] = {}
# The checks that have passed: a star that was won stays, whatever is tried later.
_won: set[str] = set()


def solved(number: str) -> bool:
    """Whether a check of this notebook has ever passed in the reader's own cell, in this kernel."""
    return any(name.startswith(f"check_{number}_") for name in _won)


def note(check: str, right: bool) -> None:
    """A check has run: keep what the reader wrote, or put it back; say so, and celebrate."""
    shell = _shell()
    if shell is None:
        return
    cell = shell.kernel.get_parent()
    tags = cell.get("metadata", {}).get("tags", ())
    defined = [name for name in _defined(cell) if name in shell.user_ns]
    if "exercise" in tags:
        _own.pop(check, None)
        if right:
            _own[check] = {name: shell.user_ns[name] for name in defined}
            _won.add(check)
            _celebrate()
    elif "solution" in tags and right:
        shell.user_ns.update(_own.get(check, {}))
        if check in _own:
            print(STAYS)
        elif check not in _won:
            print(NOT_YOURS)


def _shell() -> Any:
    """The shell of a kernel; None elsewhere, as where what was handed in is judged."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell if hasattr(shell, "kernel") else None


def _defined(cell: dict[str, Any]) -> list[str]:
    """The functions and classes that a cell defines."""
    try:
        tree = ast.parse(cell.get("content", {}).get("code", ""))
    # A line of IPython's own.
    except SyntaxError:
        return []
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds)]


def _celebrate() -> None:
    from IPython.display import display

    from labkit import show
    from labkit.panel import guess

    star = show.element("span", "★", kind="new star")
    page = show.result(show.sentence(star, " ", show.element("b", SOLVED_HERE)))
    display({"text/html": page, "text/plain": f"★ {SOLVED_HERE}"}, raw=True)
    # The end of the notebook counts the star.
    guess.SCORE.changed()
