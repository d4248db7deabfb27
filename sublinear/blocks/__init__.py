"""A model as an ordered list of blocks: what all kinds have in common, and two of them.

The children of an ``nn.Sequential``, and a run of modules each of which is fed by the one before.
A third kind, of graphs that torch's compiler captures, is in `sublinear.capture`.
"""

from sublinear.blocks.blocks import Blocks, State
from sublinear.blocks.sequential import SequentialBlocks, is_plain_sequential
from sublinear.blocks.wrapped import WrappedBlocks

__all__ = ["Blocks", "SequentialBlocks", "State", "WrappedBlocks", "is_plain_sequential"]
