"""Where to cut a trace: what crosses where, what is changed in place, and what does real work."""

from __future__ import annotations

import inspect
import operator
from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import fx, nn

from sublinear.blocks.aliases import certain, may_share, name_of
from sublinear.blocks.blocks import changes_input, has_weights

_WEIGHTED = {F.linear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose2d, F.embedding, F.bilinear}

_IN_PLACE = {
    operator.iadd,
    operator.iand,
    operator.iconcat,
    operator.ifloordiv,
    operator.ilshift,
    operator.imatmul,
    operator.imod,
    operator.imul,
    operator.ior,
    operator.ipow,
    operator.irshift,
    operator.isub,
    operator.itruediv,
    operator.ixor,
}


# With fewer cuts than one for so many nodes with weights, cuts beside branches are better.
_RATHER = 4

# Operators whose backward needs their result, and those whose backward needs what they are given.
_SAVE_RESULTS = {"tanh", "sigmoid", "relu", "softmax", "exp", "sqrt", "log_softmax"}
_SAVE_INPUTS = {
    "mul",
    "matmul",
    "bmm",
    "baddbmm",
    "div",
    "truediv",
    "pow",
    "square",
    "gelu",
    "silu",
    "scaled_dot_product_attention",
}


def cuts(
    model: nn.Module, nodes: list[fx.Node], placeholders: list[fx.Node], width: int | None
) -> list[int]:
    """Where to cut: between two nodes with weights, where the fewest values cross, if they are few.

    As late as possible, and sooner than right before the second node only for fewer values than
    cross there. ``width``: how many are few; None: any number, since what crosses is counted byte
    by byte.
    """
    across = _numbers_across(nodes)
    unchanged = _unchanged_across(model, nodes)
    few = len(nodes) if width is None else width
    heavy = [i for i, node in enumerate(nodes) if is_heavy(model, node)]

    def between(allowed: list[bool], before: int, after: int) -> int | None:
        fewer = max(1, across[after] - 1)
        best: int | None = None
        for end in range(before + 1, after + 1):
            limit = few if end == after else min(few, fewer)
            if not (allowed[end] and unchanged[end]) or across[end] > limit:
                continue
            if best is None or across[end] <= across[best]:
                best = end
        return best

    # Beside a branch only where all that waits would be there anyway.
    rules = [_in_row(nodes), _held_anyway(model, nodes), [True] * len(nodes)]
    found: dict[int, int] = {}
    for number, allowed in enumerate(rules):
        if number == 2 and len(found) * _RATHER > len(heavy):
            # That something waits is worse than a few large blocks, and better than one.
            break
        for before, after in pairwise(heavy):
            if before not in found and (end := between(allowed, before, after)) is not None:
                found[before] = end
    return sorted(found.values())


def _numbers_across(nodes: list[fx.Node]) -> list[int]:
    """How many values cross right before each node. The model's inputs are there anyway."""
    place = {node: i for i, node in enumerate(nodes)}
    change = [0] * (len(nodes) + 1)
    for i, node in enumerate(nodes):
        # The graph's output uses what it uses behind all nodes.
        last = max((place.get(user, len(nodes)) for user in node.users), default=i)
        change[i + 1] += 1
        if last < len(nodes):
            change[last + 1] -= 1
    across, now = [], 0
    for end in range(len(nodes)):
        now += change[end]
        across.append(now)
    return across


def _in_row(nodes: list[fx.Node]) -> list[bool]:
    """Whether each node uses the result of the one before.

    Between parallel branches a value would wait that nobody saves for backward, and so would the
    input of a node that does not save it.
    """
    found = [False]
    for before, after in pairwise(nodes):
        found.append(before in after.all_input_nodes)
    return found


def _held_anyway(model: nn.Module, nodes: list[fx.Node]) -> list[bool]:
    """Whether autograd saves all that crosses right before each node, so that it can wait."""
    place = {node: i for i, node in enumerate(nodes)}
    waiting = [0] * (len(nodes) + 1)
    for i, node in enumerate(nodes):
        if name_of(node) in _SAVE_RESULTS:
            continue
        if any(is_heavy(model, user) or name_of(user) in _SAVE_INPUTS for user in node.users):
            continue
        last = max((place.get(user, len(nodes)) for user in node.users), default=i)
        waiting[i + 1] += 1
        if last < len(nodes):
            waiting[last + 1] -= 1
    found, now = [], 0
    for change in waiting[:-1]:
        now += change
        found.append(now == 0)
    return found


def _unchanged_across(model: nn.Module, nodes: list[fx.Node]) -> list[bool]:
    """Whether neither side of a cut before each node changes in place what crosses it."""
    place = {node: i for i, node in enumerate(nodes)}
    allowed = [True] * len(nodes)
    for i, node in enumerate(nodes):
        for changed in overwritten(model, node):
            shared = [place[other] for other in _sharing(model, changed) if other in place]
            made = min(shared, default=-1)
            allowed[made + 1 : i + 1] = [False] * (i - made)
    return allowed


def _sharing(model: nn.Module, node: fx.Node) -> set[fx.Node]:
    """The node, and all values whose memory it may have."""
    found: set[fx.Node] = set()
    waiting = [node]
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            # What changes a value in place returns it.
            waiting += overwritten(model, value) or may_share(model, value)
    return found


def crossing(nodes: list[fx.Node], placeholders: list[fx.Node], end: int) -> list[fx.Node]:
    """The values made before node ``end`` that it or a later one uses, in the order of making."""
    later = {*nodes[end:]}
    found = []
    for node in [*placeholders, *nodes[:end]]:
        if any(user in later or user.op == "output" for user in node.users):
            found.append(node)
    return found


def is_heavy(model: nn.Module, node: fx.Node) -> bool:
    """Whether a node does real work: a module or function with weights."""
    if node.op == "call_module":
        return has_weights(model.get_submodule(str(node.target)))
    return node.target in _WEIGHTED


def overwritten(model: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The inputs that a node changes in place."""
    found = []
    if node.all_input_nodes and _is_in_place(model, node):
        found.append(node.all_input_nodes[0])
    out = node.kwargs.get("out")
    if isinstance(out, fx.Node):
        found.append(out)
    return found


def _is_in_place(model: nn.Module, node: fx.Node) -> bool:
    if node.op == "call_module":
        return changes_input(model.get_submodule(str(node.target)))
    if node.target in _IN_PLACE or _argument(node, "inplace") is True:
        return True
    name = name_of(node)
    if name.startswith("__") and name.endswith("__"):
        return name.startswith("__i") and name not in ("__index__", "__invert__")
    return name == "setitem" or (name.endswith("_") and not name.endswith("__"))


def source(model: nn.Module, node: fx.Node) -> fx.Node:
    """The value whose memory a node has for certain: through views and in-place operators."""
    while True:
        before = overwritten(model, node) or certain(node)
        if not before:
            return node
        node = before[0]


def _argument(node: fx.Node, name: str) -> Any:
    """What a call of a function of torch's in Python passes as ``name``."""
    if name in node.kwargs or node.op != "call_function" or not inspect.isfunction(node.target):
        return node.kwargs.get(name)
    bound = inspect.signature(node.target).bind_partial(*node.args, **node.kwargs)
    return bound.arguments.get(name)
