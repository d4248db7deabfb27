"""Which values of a trace may lie in the same memory.

What torch says of its operators decides: the schema of each names the arguments that its result may
be a view of. Of a function that torch does not know, any argument may come back, as
``stochastic_depth`` of torchvision returns its input when nothing is dropped.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import fx, nn

# They return their input itself where there is nothing to do, though their schemas do not say so.
_MAY_RETURN_INPUT = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
_LAYERS_THAT_MAY = (
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.modules.dropout._DropoutNd,
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
)


def may_share(model: nn.Module, node: fx.Node) -> list[fx.Node]:
    """The inputs whose memory the result of ``node`` may have."""
    inputs = [value for value in node.all_input_nodes if value.op != "get_attr"]
    if node.op == "call_module":
        layer = model.get_submodule(str(node.target))
        ours = type(layer).__module__.startswith("torch.nn.")
        return [] if ours and not isinstance(layer, _LAYERS_THAT_MAY) else inputs
    if node.op in ("placeholder", "get_attr"):
        return []
    shares = _shares(name_of(node))
    if shares is None:
        return inputs
    return inputs[:1] if shares else []


def certain(node: fx.Node) -> list[fx.Node]:
    """The input of which ``node`` is a view for certain, as torch's schemas have it."""
    if node.op not in ("call_function", "call_method") or not node.all_input_nodes:
        return []
    name = name_of(node)
    if name == "getitem" or _shares(name):
        return node.all_input_nodes[:1]
    return []


def name_of(node: fx.Node) -> str:
    """The name of the function, method or module that a node calls."""
    if isinstance(node.target, str):
        return node.target
    name: str = getattr(node.target, "__name__", "")
    return name


@cache
def _shares(name: str) -> bool | None:
    """Whether an operator may return a view; None where torch has no operator of that name."""
    if name in _MAY_RETURN_INPUT:
        return True
    if not name or not hasattr(torch.ops.aten, name):
        return None
    packet = getattr(torch.ops.aten, name)
    for overload in packet.overloads():
        schema = getattr(packet, overload)._schema
        for result in schema.returns:
            alias = result.alias_info
            if alias is not None and not alias.is_write:
                return True
    return False
