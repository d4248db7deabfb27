"""Networks whose steps exchange much or little for what they compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from torch import nn

from course import models

# Numbers in an image of 3 x 32 x 32.
IMAGE = 3 * 32 * 32


def networks(width: int, hidden: int, tiny: int) -> dict[str, Callable[[], nn.Module]]:
    """By name: few weights and much arithmetic, many weights, many small operators.

    ``width``: channels of the first convolution; ``hidden``: of the wide layers; ``tiny``: how many
    small layers.
    """
    sizes = [IMAGE, *[hidden] * 4, 10]
    return {
        "convnet": partial(convnet, width),
        "mlp": partial(flat, sizes),
        "tiny layers": partial(flat, [IMAGE, *[16] * tiny, 10]),
    }


def flat(sizes: Sequence[int]) -> nn.Module:
    """Images -> (N, 10) by linear layers of these sizes, ReLU between them."""
    return nn.Sequential(nn.Flatten(), models.mlp(sizes))


def convnet(width: int) -> nn.Module:
    """Images (N, 3, 32, 32) -> (N, 10): three convolutions, the later ones wider."""
    layers: list[nn.Module] = []
    for before, after in pairwise([3, width, 2 * width, 4 * width]):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    # 32 pixels, halved three times.
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * width * 4 * 4, 10))
