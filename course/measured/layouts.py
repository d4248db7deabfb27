"""How the results of a network's layers lie in memory, and what a window fetches of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from course.kernels import Asked
from course.measured.filed import Filed
from labkit.results import Workload

# Bytes that a processor fetches at once; pixels of a window's side.
LINE_BYTES, WINDOW = 64, 3
FIRST, LAST = "channels first", "channels last"
A_WINDOW, A_MEAN = f"a {WINDOW} × {WINDOW} window", "the mean of one channel"
KINDS = {nn.Conv2d: "c", nn.ReLU: "r", nn.InstanceNorm2d: "n"}


@dataclass(frozen=True)
class Laid:
    """The results of a step's layers: ``layers`` are pairs of a letter and a layout.

    ``reads`` is what they do often: a window, or the mean of a channel. ``lines``: numbers of the
    memory lines that it fetches of the first result's first image; ``count``: lines of that image;
    ``used``: the share of the fetched bytes that is read. ``kept``: the kernel that a search of the
    reader's kept for each convolution; ``searched``: the seconds of these searches.
    """

    layers: tuple[tuple[str, str], ...]
    lines: tuple[int, ...]
    count: int
    used: float
    reads: str = A_WINDOW
    kept: tuple[str, ...] = ()
    searched: float = 0.0

    @property
    def changes(self) -> int:
        """How often a layer's result lies otherwise than the one before."""
        return sum(before != after for (_, before), (_, after) in pairwise(self.layers))

    @property
    def share(self) -> float:
        """The share of results that are channels last."""
        return sum(layout == LAST for _, layout in self.layers) / len(self.layers)


class Layouts(Filed):
    """The first step of each setting that was run, also in other processes."""

    def noted(self, make: Callable[..., Workload]) -> Callable[..., Workload]:
        """The same ``make_workload``; the layers of its first step are noted."""
        return self.watching(make, self._watch)

    def _watch(self, step: Callable[[], Any], settings: dict[str, Any]) -> Callable[[], Any]:
        first = True

        def watched() -> Any:
            nonlocal first
            if not first:
                return step()
            first = False
            result, laid = watch(step)
            if laid is not None:
                self.keep(settings, asdict(laid))
            return result

        return watched

    def of(self, settings: dict[str, Any]) -> Laid | None:
        """What was noted with these settings; None where nothing ran."""
        found = self.kept(settings)
        if found is None:
            return None
        layers = tuple((letter, layout) for letter, layout in found["layers"])
        lines, kept = tuple(found["lines"]), tuple(found["kept"])
        return Laid(**found | {"layers": layers, "lines": lines, "kept": kept})


def watch(step: Callable[[], Any]) -> tuple[Any, Laid | None]:
    """What a step returns, and how its layers' results lie; None where none is an image."""
    found: list[tuple[str, Tensor]] = []
    asked: list[tuple[str, float]] = []

    def note(module: nn.Module, _inputs: Any, result: Any) -> None:
        letter = KINDS.get(type(module))
        if isinstance(module.forward, Asked):
            asked.append((module.forward.kept, module.forward.seconds))
        if letter and isinstance(result, Tensor) and result.dim() == 4:
            found.append(
                (letter, torch.empty_strided(result.shape, result.stride(), device="meta"))
            )

    hook = register_module_forward_hook(note)
    try:
        returned = step()
    finally:
        hook.remove()
    if not found:
        return returned, None
    layers = tuple((letter, layout(tensor)) for letter, tensor in found)
    reads = A_MEAN if any(letter == "n" for letter, _ in layers) else A_WINDOW
    kept, searched = tuple(name for name, _ in asked), sum(seconds for _, seconds in asked)
    return returned, Laid(layers, *fetched(found[0][1], reads), reads, kept, searched)


def layout(tensor: Tensor) -> str:
    """How a tensor (images, channels, rows, columns) lies: FIRST, LAST, or "otherwise"."""
    if tensor.is_contiguous():
        return FIRST
    return LAST if tensor.is_contiguous(memory_format=torch.channels_last) else "otherwise"


def fetched(tensor: Tensor, reads: str = A_WINDOW) -> tuple[tuple[int, ...], int, float]:
    """What is fetched of the first image: by a window, a quarter of the image's sides from its
    corner, or by the mean of the first channel.

    Numbers of the lines, lines of the whole image, and the share of their bytes that it uses.
    """
    _, channels, height, width = tensor.shape
    size, strides = tensor.element_size(), tensor.stride()[1:]
    places = [(0, row, column) for row in range(height) for column in range(width)]
    if reads == A_WINDOW:
        # Inside lines, where sides are powers of two: as in the moving picture.
        down, across = (range(side // 4, side // 4 + WINDOW) for side in (height, width))
        places = [(channel, i, j) for channel in range(channels) for i in down for j in across]
    lines = {
        sum(at * stride for at, stride in zip(place, strides, strict=True)) * size // LINE_BYTES
        for place in places
    }
    used = len(places) * size / (LINE_BYTES * len(lines))
    return tuple(sorted(lines)), channels * height * width * size // LINE_BYTES, used
