"""A chain: what each block of a model costs, in bytes and seconds, for every way of running it.

One step of training runs the blocks forward in order and backward in reverse. Planning needs no more than this table,
so that plans can be made for a machine that is not at hand, and tested without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One way to run a block so that its backward can follow: save everything, or save chosen operators only.

    ``saved_bytes``: alive after the forward because of this block, its output included, its input not.
    ``forward``, ``backward``: seconds; what a selective option computes again counts as backward.
    ``forward_peak``: bytes above what was alive before the forward (the input was). At least ``saved_bytes``.
    ``backward_peak``: bytes above what was alive before the backward (saved, and the gradient of the output, were).
    """

    name: str
    saved_bytes: int
    forward: float
    backward: float
    forward_peak: int
    backward_peak: int


@dataclass(frozen=True)
class Block:
    """A block and its options, the first of which saves everything.

    ``output_bytes``: all tensors that cross to the next block, as a checkpoint after this block must hold them.
    ``gradient_bytes``: gradients of parameters that exist once its backward has run (0 where they stay allocated).
    ``bare_peak``: bytes above what was alive before a forward that saves nothing, its output included.
    """

    name: str
    output_bytes: int
    options: tuple[Option, ...]
    gradient_bytes: int
    bare_peak: int
    forward: float  # seconds of a forward that saves nothing


@dataclass(frozen=True)
class Chain:
    """The blocks of one model at one batch size on one device.

    ``fixed_bytes``: alive through the whole step: parameters, buffers, optimizer state, the batch.
    ``extra_seconds``: of a plain step beyond the sum of its blocks (optimizer, loss), from an end-to-end run.
    ``source``: "measured" or "estimated"; an estimate says from which roofline in ``device``.
    """

    blocks: tuple[Block, ...]
    input_bytes: int
    fixed_bytes: int
    batch_size: int
    device: str
    source: str
    extra_seconds: float = 0.0
