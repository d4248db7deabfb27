"""A chain: what each block of a model costs, in bytes and seconds, for every way of running it.

One step of training runs the blocks forward in order and backward in reverse. Planning needs no more than this table,
so that plans can be made for a machine that is not at hand, and tested without torch.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Option:
    """One way to run a block so that its backward can follow: save everything, or save chosen operators only.

    ``saved_bytes``: alive after the forward because of this block, its output included, its input not.
    ``forward``, ``backward``: seconds; what a selective option computes again counts as backward.
    ``forward_peak``: bytes above what was alive before the forward (the input was). At least ``saved_bytes``.
    ``backward_peak``: bytes above what was alive before the backward (saved, and the gradient of the output, were),
    without the gradients of the block's own parameters, which do not grow with the batch.
    """

    name: str
    saved_bytes: int
    forward: float
    backward: float
    forward_peak: int
    backward_peak: int

    def __post_init__(self) -> None:
        _check(
            self, "saved_bytes", "forward_peak", "backward_peak", seconds=("forward", "backward")
        )
        if self.forward_peak < self.saved_bytes:
            raise ValueError(
                f"Option {self.name!r}: forward_peak={self.forward_peak} is below saved_bytes={self.saved_bytes}, "
                "which are alive when the forward ends"
            )


@dataclass(frozen=True)
class Block:
    """A block and its options, the first of which saves everything.

    ``output_bytes``: all tensors that cross to the next block; their gradients need as much.
    ``crossing``: the same one by one, (number of the storage, bytes), where some cross more than one cut, as the skips
    of a U-Net do: a checkpoint holds only what nothing before it holds. Empty: all of the output is new.
    ``gradient_bytes``: gradients of parameters that exist once its backward has run (0 where they stay allocated).
    ``bare_peak``: bytes above what was alive before a forward that saves nothing, its output included.
    """

    name: str
    output_bytes: int
    options: tuple[Option, ...]
    gradient_bytes: int
    bare_peak: int
    forward: float  # seconds of a forward that saves nothing
    crossing: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple(self.options))
        _check(self, "output_bytes", "gradient_bytes", "bare_peak", seconds=("forward",))
        if not self.options:
            raise ValueError(f"Block {self.name!r}: no options; the first one saves everything")
        object.__setattr__(self, "crossing", _crossing(self.crossing))
        if self.crossing and (total := sum(dict(self.crossing).values())) != self.output_bytes:
            raise ValueError(
                f"Block {self.name!r}: output_bytes={self.output_bytes}, but its crossing storages have {total}"
            )


@dataclass(frozen=True)
class Around:
    """What runs once around the blocks, whatever the plan: bytes above what is alive when it begins.

    ``peak_bytes``: without the gradients of its own parameters, ``gradient_bytes``, which do not grow with the batch.
    """

    peak_bytes: int = 0
    gradient_bytes: int = 0

    def __post_init__(self) -> None:
        _check(self, "peak_bytes", "gradient_bytes")


@dataclass(frozen=True)
class Chain:
    """The blocks of one model at one batch size on one device.

    ``input_bytes``: what the first block reads and what runs before it saves, alive through the whole step;
    ``input_crossing``: what it reads one by one.
    ``fixed_bytes``: what else is: parameters, buffers, optimizer state, targets.
    ``after``: the loss, and a wrapped model's own code behind its blocks, forward and backward; the gradient of the
    last block's output is part of its peak. ``before``: the backward of such code before the blocks.
    ``extra_seconds``: of a plain step beyond the sum of its blocks (optimizer, loss), from an end-to-end run. Negative
    where blocks take longer alone than in their step.
    ``source``: "measured" or "estimated"; an estimate says from which roofline in ``device``.
    """

    blocks: tuple[Block, ...]
    input_bytes: int
    fixed_bytes: int
    batch_size: int
    device: str
    source: str
    extra_seconds: float = 0.0
    input_crossing: tuple[tuple[int, int], ...] = ()
    before: Around = field(default_factory=Around)
    after: Around = field(default_factory=Around)

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        object.__setattr__(self, "input_crossing", _crossing(self.input_crossing))
        _check(self, "input_bytes", "fixed_bytes", "batch_size")
        if not self.blocks:
            raise ValueError("Chain: no blocks; a chain has at least one")
        if self.batch_size < 1:
            raise ValueError(f"Chain: batch_size={self.batch_size}; it is at least 1")
        if not math.isfinite(self.extra_seconds):
            raise ValueError(
                f"Chain: extra_seconds={self.extra_seconds!r}; it is a finite number of seconds"
            )
        if self.source not in ("measured", "estimated"):
            raise ValueError(f"Chain: source={self.source!r}; it is 'measured' or 'estimated'")

    def __len__(self) -> int:
        return len(self.blocks)

    def held(self, first: int, last: int) -> int:
        """Bytes that a checkpoint of blocks ``first`` to ``last`` holds: what crosses behind it and not before it."""
        before = self._crossings[first]
        return sum(
            size for storage, size in self._crossings[last + 1].items() if storage not in before
        )

    @cached_property
    def _crossings(self) -> list[dict[Any, int]]:
        """Storages and bytes at each cut: before block 0, behind block 0, behind block 1, ..."""
        cuts: list[dict[Any, int]] = [dict(self.input_crossing)]
        cuts += (
            dict(b.crossing) or {("output", number): b.output_bytes}
            for number, b in enumerate(self.blocks)
        )
        return cuts

    def at_batch(self, batch_size: int) -> Chain:
        """The same chain at another batch size: activation bytes and seconds of blocks scale with it (bytes are
        rounded up), ``fixed_bytes``, gradients of parameters and ``extra_seconds`` do not."""
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ValueError(f"batch_size={batch_size!r}: use a whole number, 1 or more")
        if batch_size == self.batch_size:
            return self
        ratio = batch_size / self.batch_size

        def scaled(size: int) -> int:
            return -(-size * batch_size // self.batch_size)

        def crossing_at(crossing: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
            return tuple((storage, scaled(size)) for storage, size in crossing)

        def option_at(option: Option) -> Option:
            return Option(
                option.name,
                scaled(option.saved_bytes),
                option.forward * ratio,
                option.backward * ratio,
                scaled(option.forward_peak),
                scaled(option.backward_peak),
            )

        def block_at(block: Block) -> Block:
            crossing = crossing_at(block.crossing)
            return replace(
                block,
                output_bytes=sum(size for _, size in crossing)
                if crossing
                else scaled(block.output_bytes),
                crossing=crossing,
                options=tuple(map(option_at, block.options)),
                bare_peak=scaled(block.bare_peak),
                forward=block.forward * ratio,
            )

        blocks = tuple(map(block_at, self.blocks))
        return replace(
            self,
            blocks=blocks,
            batch_size=batch_size,
            input_bytes=scaled(self.input_bytes),
            input_crossing=crossing_at(self.input_crossing),
            before=replace(self.before, peak_bytes=scaled(self.before.peak_bytes)),
            after=replace(self.after, peak_bytes=scaled(self.after.peak_bytes)),
        )

    def to_json(self, path: str | Path | None = None) -> dict[str, Any]:
        """A plain dictionary, also written to ``path`` if there is one."""
        return store(asdict(self), path)

    @classmethod
    def from_json(cls, source: dict[str, Any] | str | Path) -> Chain:
        """The chain in a dictionary or file that `to_json` made. Raises ValueError for anything else."""
        data = load(source)
        try:
            blocks = (
                Block(
                    **{**block, "options": tuple(Option(**option) for option in block["options"])}
                )
                for block in data["blocks"]
            )
            around: dict[str, Any] = {
                end: Around(**data[end]) for end in ("before", "after") if end in data
            }
            return cls(**{**data, **around, "blocks": tuple(blocks)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a chain as to_json writes it: {error}") from None


def _crossing(pairs: Any) -> tuple[tuple[int, int], ...]:
    """Pairs as tuples, as JSON gives lists. Raises ValueError for anything but whole numbers and bytes, each once."""
    pairs = tuple(map(tuple, pairs))
    right = all(
        len(pair) == 2 and all(isinstance(value, int) for value in pair) and pair[1] >= 0
        for pair in pairs
    )
    if not right or len({storage for storage, _ in pairs}) < len(pairs):
        raise ValueError(
            f"crossing={pairs!r}: use pairs of a storage's number and its bytes, each storage once"
        )
    return pairs


def _check(item: Any, *sizes: str, seconds: tuple[str, ...] = ()) -> None:
    """Raise unless these fields hold whole, non-negative numbers of bytes, and those finite, non-negative seconds."""
    owner = f"{type(item).__name__} {getattr(item, 'name', '')!r}".removesuffix(" ''")
    for name in sizes:
        value = getattr(item, name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{owner}: {name}={value!r}; it is a whole number")
        if value < 0:
            raise ValueError(f"{owner}: {name}={value}; it is 0 or more")
    for name in seconds:
        value = getattr(item, name)
        if not (isinstance(value, (int, float)) and math.isfinite(value) and value >= 0):
            raise ValueError(f"{owner}: {name}={value!r}; it is a number of seconds, 0 or more")


def store(data: dict[str, Any], path: str | Path | None) -> dict[str, Any]:
    """Write ``data`` as JSON to ``path``, unless that is None, and return it."""
    if path is not None:
        Path(path).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return data


def load(source: dict[str, Any] | str | Path) -> dict[str, Any]:
    """The dictionary itself, or the one in the JSON file at this path. Raises ValueError where there is none."""
    if isinstance(source, dict):
        return source
    try:
        data = json.loads(Path(source).read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: not a JSON file ({error})") from None
    if not isinstance(data, dict):
        raise ValueError(f"{source}: holds a {type(data).__name__}, where an object is expected")
    return data
