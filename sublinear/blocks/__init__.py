"""A model as an ordered list of blocks, each a function from what crosses in to what crosses out.

Three ways, the first that fits: the children of a flattened ``nn.Sequential``; a ``torch.fx`` trace
cut where few values cross; or, where tracing fails, a run of modules each of which is fed by the
one before.
"""

from __future__ import annotations

from torch import nn

from sublinear.blocks.blocks import Blocks, Keywords, State
from sublinear.blocks.sequential import SequentialBlocks, is_plain_sequential
from sublinear.blocks.traced import CannotTrace, TracedBlocks
from sublinear.blocks.wrapped import WrappedBlocks
from sublinear.repeatable import refuse

__all__ = ["Blocks", "SequentialBlocks", "State", "TracedBlocks", "WrappedBlocks", "split"]


def split(
    model: nn.Module,
    args: object = None,
    kwargs: Keywords | None = None,
    *,
    modules: list[str] | None = None,
    width: int | None = None,
) -> Blocks:
    """Read ``model`` as blocks.

    ``args`` (a tensor or tuple) are example inputs, which only wrapped models need. ``modules``
    chooses by name the modules to wrap. ``width``: how many values may cross a cut of a trace, as
    skips do; any number by default. Raises ValueError, by name, for what would not train as
    before: hooks, other wrappers, attributes set in forward, in-place changes of the input.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r} is not an nn.Module")
    whole = isinstance(width, int) and not isinstance(width, bool)
    if width is not None and not (whole and width > 0):
        raise ValueError(f"width={width!r}: a whole number of values from 1 is accepted, or None")
    refuse(model)
    inputs: State | None = None
    if isinstance(args, tuple):
        inputs = args
    elif args is not None:
        inputs = (args,)
    kwargs = kwargs or {}
    if modules is not None:
        reason = "the modules were chosen by name"
        return WrappedBlocks.read(model, inputs, kwargs, modules, reason)
    if is_plain_sequential(model):
        return SequentialBlocks.read(model)
    try:
        return TracedBlocks.read(model, inputs, kwargs, width)
    except CannotTrace as error:
        return WrappedBlocks.read(model, inputs, kwargs, None, str(error))
