"""A model as an ordered list of blocks, each a function from what crosses in to what crosses out.

Three ways: the children of a flattened ``nn.Sequential``; the pieces of the largest graph that
torch's compiler captures; or, where that fails or by name, a run of modules each of which is fed by
the one before.
"""

from __future__ import annotations

from torch import nn

from sublinear.blocks import Blocks, Keywords, SequentialBlocks, State, is_plain_sequential
from sublinear.capture.graphs import captured_blocks
from sublinear.repeatable import refuse
from sublinear.wrapped import WrappedBlocks


def split(
    model: nn.Module,
    args: object = None,
    kwargs: Keywords | None = None,
    *,
    modules: list[str] | None = None,
) -> Blocks:
    """Read ``model`` as blocks.

    ``args`` (a tensor or tuple) are example inputs, which all but a Sequential need. ``modules``
    chooses by name the modules to wrap. Raises ValueError, by name, for what would not train as
    before: hooks, other wrappers, in-place changes of the input.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r} is not an nn.Module")
    refuse(model)
    kwargs = kwargs or {}
    if modules is None and is_plain_sequential(model):
        return SequentialBlocks.read(model)
    if args is None:
        raise ValueError(
            "the model is no nn.Sequential: its blocks show in a run, which needs example inputs"
        )
    inputs: State = args if isinstance(args, tuple) else (args,)
    if modules is not None:
        reason = "the modules were chosen by name"
        return WrappedBlocks.read(model, inputs, kwargs, modules, reason)
    try:
        return captured_blocks(model, inputs, kwargs)
    except ValueError as error:
        return WrappedBlocks.read(model, inputs, kwargs, None, str(error))
