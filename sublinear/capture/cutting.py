"""Where to cut the graph of a compiler: between two nodes that do real work, where least crosses.

Not where something would be computed twice otherwise than once: no cut lies between the making of a
tensor and a change of it in place, between two uses of an input that is changed, or where a mode
such as autocast or ``no_grad`` is switched on.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import fx

from sublinear.capture.watching import Seen, name_of

# A profile takes time for each piece.
MOST = 96

_CELLS = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
RECURRENT = _CELLS | {f"{name}_cell" for name in _CELLS}
_CONVOLUTIONS = {f"conv{kind}{size}d" for kind in ("", "_transpose") for size in (1, 2, 3)}
_PRODUCTS = {"linear", "bilinear", "matmul", "bmm", "mm", "addmm", "baddbmm", "einsum"}
_ATTENTION = {"scaled_dot_product_attention", "multi_head_attention_forward"}
_EXPERTS = {"_grouped_mm", "grouped_mm"}
_HEAVY = RECURRENT | _CONVOLUTIONS | _PRODUCTS | _ATTENTION | _EXPERTS | {"embedding"}
# They look like a switch, and are none.
_HARMLESS = {"_log_api_usage_once"}
_CROSS = (torch.Tensor, int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


def cuts(nodes: list[fx.Node], across: list[list[fx.Node]], seen: Seen) -> list[int]:
    """The places in ``nodes``, what a graph computes, before which a piece begins.

    ``across``: what crosses there, as `crossing` says.
    """
    allowed = [True] * len(nodes)
    for first, last in [*_changes(nodes, seen), *_modes(nodes, seen)]:
        allowed[first + 1 : last + 1] = [False] * (last - first)
    sizes, outside = [], seen.outside
    for end, crosses in enumerate(across):
        if not all(isinstance(seen.values[node], _CROSS) for node in crosses):
            allowed[end] = False
        # Those of the graph's inputs are there anyway.
        storages = set[int]().union(*(seen.storages[node] for node in crosses)) - outside
        sizes.append(sum(seen.sizes[storage] for storage in storages))
    found: list[int] = []
    heavy = [i for i, node in enumerate(nodes) if is_heavy(node)]
    for before, after in pairwise(heavy):
        ends = [end for end in range(after, before, -1) if allowed[end]]
        if ends:
            found.append(min(ends, key=sizes.__getitem__))
    # Where most crosses, a cut helps least.
    found.sort(key=sizes.__getitem__)
    return sorted(found[: MOST - 1])


def counters_first(nodes: list[fx.Node], seen: Seen) -> list[fx.Node]:
    """The nodes, those that only count the calls of a layer before all others.

    No cut lies between two changes of a counter, and a layer may be called often.
    """
    counting = []
    for node in nodes:
        [source, *others] = node.all_input_nodes or [node]
        value = seen.values[source]
        counts = torch.is_tensor(value) and not (value.is_floating_point() or value.is_complex())
        alone = all(name_of(user) == name_of(node) for user in source.users)
        changes = bool(seen.changed[node] & seen.storages[source])
        unread = alone and not others and not node.users
        if changes and counts and unread and source.op == "placeholder":
            counting.append(node)
    return [*counting, *(node for node in nodes if node not in counting)]


def is_heavy(node: fx.Node) -> bool:
    """Whether a node does real work, which saves its input anyway."""
    return name_of(node) in _HEAVY


def crossing(nodes: list[fx.Node], inputs: Sequence[fx.Node]) -> list[list[fx.Node]]:
    """Before each node, what earlier ones have made that it or a later one uses, in that order.

    ``inputs``: those of the graph that cross as well.
    """
    places = {node: i for i, node in enumerate(nodes)}
    used = {}
    for node in [*inputs, *nodes]:
        used[node] = max((places.get(user, len(nodes)) for user in node.users), default=-1)
    across = []
    alive = list(inputs)
    for end, node in enumerate(nodes):
        alive = [each for each in alive if used[each] >= end]
        across.append(alive)
        alive = [*alive, node]
    return across


def _changes(nodes: list[fx.Node], seen: Seen) -> list[tuple[int, int]]:
    """From where a storage is made to where it is changed; all uses of an input that is."""
    outside = seen.outside
    made: dict[int, int] = {}
    uses: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        for storage in seen.storages[node]:
            made.setdefault(storage, i)
        for other in node.all_input_nodes:
            for storage in seen.storages[other] & outside:
                uses.setdefault(storage, []).append(i)
    statistics = set[int]().union(*(seen.storages[node] for node in seen.statistics))
    found = []
    for i, node in enumerate(nodes):
        for storage in seen.changed[node] - statistics:
            if storage in outside:
                found.append((min(uses[storage]), max(uses[storage])))
            else:
                found.append((made[storage], i))
    return found


def _modes(nodes: list[fx.Node], seen: Seen) -> list[tuple[int, int]]:
    """From where a mode is switched on to where it is switched off again."""
    found: list[tuple[int, int]] = []
    open_since: list[int] = []
    others: list[int] = []
    no_grad: int | None = None
    for i, node in enumerate(nodes):
        name = name_of(node)
        if name == "_set_grad_enabled":
            if no_grad is not None:
                found.append((no_grad, i))
            no_grad = None if node.args[0] else i
        elif "enter" in name:
            open_since.append(i)
        elif "exit" in name and open_since:
            found.append((open_since.pop(), i))
        elif _is_other_switch(node, seen):
            others.append(i)
    if no_grad is not None:
        open_since.append(no_grad)
    for first in open_since:
        found.append((first, len(nodes) - 1))
    if others:
        found.append((others[0], others[-1]))
    return found


def _is_other_switch(node: fx.Node, seen: Seen) -> bool:
    """Whether a node may switch something that is not known here, as those of torch.func do.

    It may be given a number, such as that of rows.
    """
    name = name_of(node)
    if name in _HARMLESS or not name.startswith(("_", "push", "pop")):
        return False
    return not any(torch.is_tensor(seen.values[given]) for given in node.all_input_nodes)
