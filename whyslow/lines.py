"""The heaviest lines of a training, or of one step, and what the time goes to."""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from labkit.device import accelerator_in_use
from whyslow import stacks
from whyslow.shares import Interval
from whyslow.stacks import BACKWARD, LOADING, START, UPDATE, VALIDATION, Place, Stack, own

# The first and the last line.
Range = tuple[int, int]
_QUIET = {"no_grad", "inference_mode"}
# What waits until the device is done.
_WAITS = re.compile(r"\.(item|cpu|tolist|numpy|synchronize|to|cuda)\(")


@dataclass(frozen=True)
class Line:
    """A line of the reader's, with its ``share`` of the time and the 95 % ``interval``.

    ``cause`` is what most of it goes to, ``others`` what a quarter of it or more does.
    """

    file: str
    number: int
    function: str
    cause: str
    share: float
    interval: Interval
    others: tuple[str, ...] = ()

    @property
    def causes(self) -> str:
        """All of its causes, in words."""
        return ", ".join((self.cause, *self.others))

    @property
    def source(self) -> str:
        """Its text; empty where the file is gone, or never was."""
        return linecache.getline(self.file, self.number).strip()

    @property
    def place(self) -> str:
        """``train.py:12``, or ``cell:3`` in a notebook."""
        in_cell = "ipykernel" in self.file or self.file.startswith("<ipython-input")
        return f"{'cell' if in_cell else Path(self.file).name}:{self.number}"


@functools.lru_cache(maxsize=4096)
def cause_of(stack: Stack) -> str:
    """What the time of a stack goes to, wherever in the program it is."""
    cause, quiet = "", False
    for place in stack:
        if isinstance(place, Place):
            quiet = quiet or bool(_around(place, "without"))
            cause = UPDATE if _around(place, "update") else cause
        elif place in (LOADING, START):
            cause = place
            break
        elif place == VALIDATION:
            quiet = True
        # Checkpointing computes forward passes again within the backward pass.
        elif cause != stacks.COMPILING and (cause, place) != (BACKWARD, stacks.FORWARD):
            cause = place
    # A training step that validates, too, also has a backward pass and an update.
    if quiet and cause not in (START, BACKWARD, UPDATE):
        return VALIDATION
    last = "".join(linecache.getline(each.file, each.line) for each in own(stack[-1:]))
    if not cause and accelerator_in_use() and _WAITS.search(last):
        return stacks.HOST
    of_loss = any(_around(each, "loss") for each in own(stack))
    return cause or (stacks.FORWARD if of_loss else stacks.OWN)


def _around(place: Place, kind: str) -> list[Range]:
    """The ranges of this kind that its line is in."""
    return [each for each in source_of(place.file)[kind] if each[0] <= place.line <= each[1]]


def _loops(stack: Stack) -> set[tuple[str, Range]]:
    return {(place.file, loop) for place in own(stack) for loop in _around(place, "loops")}


def in_the_loop(seen: Set[Stack]) -> tuple[tuple[str, Range] | None, Set[Stack]]:
    """The smallest loop around every backward pass and every update that was seen, or None where
    there is none; and the stacks that run in it, or else all.
    """
    around = []
    for cause in (BACKWARD, UPDATE):
        loops = [_loops(stack) for stack in seen if cause_of(stack) == cause]
        around += [set.union(*loops)] if loops else []
    common = set.intersection(*around) if around else set()
    loop = min(common, key=lambda loop: loop[1][1] - loop[1][0], default=None)
    return loop, {stack for stack in seen if loop is None or loop in _loops(stack)}


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
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if losses & set(map(_name, targets)):
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
