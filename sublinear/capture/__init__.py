"""A model as torch's compiler captures it: graphs with guards, cut into blocks.

The arrows: ``modes <- watching <- cutting <- pieces <- graphs <- inside``.
"""

from sublinear.capture.graphs import Graph, Graphs
from sublinear.capture.inside import InsideBlocks, captured_blocks

__all__ = ["Graph", "Graphs", "InsideBlocks", "captured_blocks"]
