"""A chain: what each block of a model costs, in bytes and seconds, for every way of running it.

One step of training runs the blocks forward in order and backward in reverse. Planning needs no
more than this table, so that plans can be made for a machine that is not at hand, and tested
without torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

# What crosses a cut: (number of the storage, bytes), each storage once.
Crossing = tuple[tuple[int, int], ...]

# In place of the block that saves something, where none does.
NOBODY = -1


@dataclass(frozen=True)
class Option:
    """One way to run a block so that its backward can follow: save everything, or some operators.

    ``saved_bytes``: alive after the forward because of this block, its output included, its input
    not. ``forward``, ``backward``: seconds; what a selective option computes again counts as
    backward. ``forward_peak``: bytes above what was alive before the forward (the input was). At
    least ``saved_bytes``. ``backward_peak``: bytes above what was alive before the backward (saved,
    and the gradient of the output, were), without the gradients of the block's own parameters,
    which do not grow with the batch; negative where what was saved is gone before those are made.
    """

    name: str
    saved_bytes: int
    forward: float
    backward: float
    forward_peak: int
    backward_peak: int


class Rerun(NamedTuple):
    """Peaks of a block that runs again as the last of a checkpoint, and of its backward.

    In bytes above what was alive before and the gradient of the output, without what waits for the
    block, and without the gradients of parameters. In (0 1 2), torch stops within 2 as soon as all
    that is saved is there: before its product, if 2 is linear, which saves only what it reads.
    """

    forward: int
    backward: int


@dataclass(frozen=True)
class Block:
    """A block and its options, the first of which saves everything.

    ``output_bytes``: all tensors that cross to the next block; ``crossing``: the same one by one,
    where some cross more than one cut, as skips do: a checkpoint holds only what nothing before it
    holds. ``output_gradient_bytes``: their gradients, when the block's backward begins; None: as
    much. A skip's may be a view that holds more, and what nobody asks for has none.
    ``gradient_bytes``: of parameters, once its backward has run. ``bare_peak``: bytes above what
    was alive before a forward that saves nothing, its output included. ``forward``: its seconds.

    ``released``: what of ``crossing`` the next block is the last to read, and does not save, each
    with the last block that does, or `NOBODY`. If block 1 adds a constant to what 0 returns, that
    is released behind 0, with `NOBODY`, and *waits* for 1 alone: it is gone once 1 has run, or,
    where a checkpoint begins with 1, once that has run again. If 0 ends in a tanh, which saves what
    it returns, that is released behind 0, with 0: in the plan (0) 1 2 it is gone once 1 has run,
    while a kept 0 holds it.
    ``rerun``: as the last of a checkpoint; None: as if the block ran whole.
    """

    name: str
    output_bytes: int
    options: tuple[Option, ...]
    gradient_bytes: int
    bare_peak: int
    forward: float
    crossing: Crossing = ()
    output_gradient_bytes: int | None = None
    released: tuple[tuple[int, int], ...] = ()
    rerun: Rerun | None = None

    @property
    def cotangent_bytes(self) -> int:
        """Gradients of what crosses to the next block, when the block's backward begins."""
        if self.output_gradient_bytes is None:
            return self.output_bytes
        return self.output_gradient_bytes


@dataclass(frozen=True)
class Around:
    """What runs once around the blocks, whatever the plan: bytes above what was alive before.

    ``peak_bytes``: without the gradients of its own parameters, ``gradient_bytes``, which do not
    grow with the batch.
    """

    peak_bytes: int = 0
    gradient_bytes: int = 0


@dataclass(frozen=True)
class Chain:
    """The blocks of one model at one batch size on one device.

    ``input_bytes``: what the first block reads and what runs before it saves, alive through the
    whole step; ``input_crossing``: what it reads one by one. ``fixed_bytes``: what else is:
    parameters, buffers, optimizer state, targets. ``after``: the loss, and a wrapped model's own
    code behind its blocks, forward and backward; the gradient of the last block's output is part of
    its peak. ``before``: the backward of such code before the blocks. ``step_bytes``: what the
    optimizer's step needs for a moment, beside the gradients. ``extra_seconds``: of a plain
    step beyond the sum of its blocks (optimizer, loss), from an end-to-end run. Negative where
    blocks take longer alone than in their step.
    ``spare_bytes``: there if anything runs again, for running statistics that must not be updated
    twice. ``source``: "measured" or "estimated"; an estimate says from which roofline in
    ``device``.
    """

    blocks: tuple[Block, ...]
    input_bytes: int
    fixed_bytes: int
    batch_size: int
    device: str
    source: str
    extra_seconds: float = 0.0
    input_crossing: Crossing = ()
    before: Around = field(default_factory=Around)
    after: Around = field(default_factory=Around)
    step_bytes: int = 0
    spare_bytes: int = 0

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def saved_bytes(self) -> int:
        """What the blocks keep for the backward pass without a plan."""
        return sum(block.options[0].saved_bytes for block in self.blocks)

    def held(self, first: int, last: int) -> int:
        """Bytes that blocks ``first`` to ``last`` leave behind if they save nothing.

        That is what crosses behind them and not before them.
        """
        before, behind = self.cuts[first], self.cuts[last + 1]
        return sum(size for storage, size in behind.items() if storage not in before)

    def released(self, block: int, first: int, last: int, over: bool = False) -> dict[int, int]:
        """Bytes that are gone once ``block`` has run, by the block that has made them.

        Of what ``first`` to ``last`` have made, a checkpoint, and kept blocks behind it. ``over``:
        a run again ends with ``block``, so that what goes on behind it is gone, too.
        """
        found: dict[int, int] = {}
        for number, size in self.cuts[block].items():
            if number not in self.savers or (number in self.cuts[block + 1] and not over):
                continue
            maker, saver = self.makers[number], self.savers[number]
            if (first <= maker <= last and saver <= last) or (maker > last and saver == NOBODY):
                found[maker] = found.get(maker, 0) + size
        return found

    def left(self, first: int, last: int) -> int:
        """`held`, without what waits for the next block only."""
        return self.held(first, last) - self.gone(first, last)

    def gone(self, first: int, last: int) -> int:
        """What of `held` waits for the next block only."""
        before, behind = self.cuts[first], self.cuts[last + 1]
        return sum(behind[number] for number in self.waits[last] if number not in before)

    @cached_property
    def cuts(self) -> list[dict[object, int]]:
        """Storages and bytes at each cut: before block 0, behind block 0, behind block 1, ..."""
        cuts: list[dict[object, int]] = [{**dict(self.input_crossing)}]
        for number, block in enumerate(self.blocks):
            # Without crossings all of an output is new.
            cuts.append({**dict(block.crossing)} or {("output", number): block.output_bytes})
        return cuts

    @cached_property
    def waits(self) -> list[set[int]]:
        """What each block has made that waits for the next alone, see `Block.released`."""
        found = []
        for before, block in zip(self.cuts, self.blocks, strict=False):
            gone = {number for number, saver in block.released if saver == NOBODY}
            found.append(gone - before.keys())
        return found

    @cached_property
    def waiting(self) -> list[int]:
        """Bytes that wait for each block alone."""
        return [0, *(self.gone(block, block) for block in range(len(self)))]

    @cached_property
    def savers(self) -> dict[object, int]:
        """The last block that saves each storage that is released, and does not wait."""
        found: dict[object, int] = {}
        for block, waits in zip(self.blocks, self.waits, strict=True):
            found |= {number: saver for number, saver in block.released if number not in waits}
        return found

    @cached_property
    def makers(self) -> dict[object, int]:
        """The block that made each storage; -1 for what enters the chain."""
        makers: dict[object, int] = {}
        for number, cut in enumerate(self.cuts):
            for storage in cut:
                makers.setdefault(storage, number - 1)
        return makers

    def at_batch(self, batch_size: int) -> Chain:
        """The same chain at another batch size.

        Activation bytes (rounded up) and seconds of blocks scale with it; ``fixed_bytes``,
        gradients of parameters and ``extra_seconds`` do not.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}: use a whole number, 1 or more")
        if batch_size == self.batch_size:
            return self
        share = batch_size / self.batch_size

        def grown(size: int) -> int:
            return -(-size * batch_size // self.batch_size)

        def crossing(pairs: Crossing) -> Crossing:
            return tuple((storage, grown(size)) for storage, size in pairs)

        def around(stage: Around) -> Around:
            return replace(stage, peak_bytes=grown(stage.peak_bytes))

        def option(each: Option) -> Option:
            return replace(
                each,
                saved_bytes=grown(each.saved_bytes),
                forward=each.forward * share,
                backward=each.backward * share,
                forward_peak=grown(each.forward_peak),
                backward_peak=max(each.backward_peak, grown(each.backward_peak)),
            )

        def block(each: Block) -> Block:
            crosses, cotangent = crossing(each.crossing), each.output_gradient_bytes
            # Rounded one by one, the sizes may sum up to more.
            output = sum(size for _, size in crosses) if crosses else grown(each.output_bytes)
            return replace(
                each,
                output_bytes=output,
                output_gradient_bytes=None if cotangent is None else grown(cotangent),
                # How much of it are gradients of parameters is not known.
                rerun=None,
                crossing=crosses,
                options=tuple(map(option, each.options)),
                bare_peak=grown(each.bare_peak),
                forward=each.forward * share,
            )

        return replace(
            self,
            blocks=tuple(map(block, self.blocks)),
            batch_size=batch_size,
            input_bytes=grown(self.input_bytes),
            input_crossing=crossing(self.input_crossing),
            before=around(self.before),
            after=around(self.after),
        )
