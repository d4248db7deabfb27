"""What the text of a reader's file says of its lines: loops, and passes without gradients."""

from __future__ import annotations

import ast
import functools
import linecache
from collections import defaultdict

# The first and the last line.
Range = tuple[int, int]
_QUIET = {"no_grad", "inference_mode"}


@functools.lru_cache(maxsize=256)
def source_of(file: str) -> dict[str, list[Range]]:
    """The ``loops`` of a file, ranges ``without`` gradients or that ``update`` by hand, and lines
    that compute the ``loss``.

    Nothing is known of a file that cannot be read, or that is no Python.
    """
    ranges: dict[str, list[Range]] = defaultdict(list)
    try:
        nodes = list(ast.walk(ast.parse("".join(linecache.getlines(file)))))
    except (SyntaxError, ValueError):
        return ranges
    calls = [each for each in nodes if isinstance(each, ast.Call)]
    backward = [each for each in calls if _name(each) == "backward"]
    # As in loss.backward() and accelerator.backward(loss).
    given = [each for call in backward for each in (getattr(call.func, "value", None), *call.args)]
    losses = {each.id for each in given if isinstance(each, ast.Name)}
    for node in nodes:
        if isinstance(node, (ast.For, ast.While)):
            ranges["loops"].append(_range(node))
        elif isinstance(node, (ast.With, ast.FunctionDef)) and _is_quiet(node):
            ranges["update" if _writes(node) else "without"].append(_range(node))
        elif isinstance(node, (ast.Assign, ast.AugAssign)) and losses & _assigned(node):
            ranges["loss"].append(_range(node))
    ranges["loss"] += map(_range, backward)
    return ranges


def _range(node: ast.stmt | ast.expr) -> Range:
    return node.lineno, node.end_lineno or node.lineno


def _name(node: ast.AST) -> str:
    """``torch.no_grad()`` and ``no_grad`` -> ``no_grad``."""
    if isinstance(node, ast.Call):
        return _name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _assigned(node: ast.Assign | ast.AugAssign) -> set[str]:
    return set(map(_name, node.targets if isinstance(node, ast.Assign) else [node.target]))


def _is_quiet(node: ast.With | ast.FunctionDef) -> bool:
    """A block or a function without gradients, or a function that calls ``eval()`` and no
    ``backward()``.
    """
    if isinstance(node, ast.With):
        return any(_name(item.context_expr) in _QUIET for item in node.items)
    called = _methods(node)
    decorated = any(_name(each) in _QUIET for each in node.decorator_list)
    return decorated or ("eval" in called and "backward" not in called)


def _methods(node: ast.AST) -> set[str]:
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    return {each.func.attr for each in calls if isinstance(each.func, ast.Attribute)}


def _writes(node: ast.AST) -> bool:
    """Weights are written there: an update by hand, or an average of weights."""
    if any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in ast.walk(node)):
        return True
    return any(name.endswith("_") and not name.startswith("_") for name in _methods(node))
