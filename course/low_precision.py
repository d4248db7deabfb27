"""The formats of notebook 07, its pictures (CIFAR-10 at 8 x 8 pixels), and who recognises them."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from course import data

FORMATS = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "e5m2": torch.float8_e5m2,
    "e4m3": torch.float8_e4m3fn,
}


def small_pictures(train: bool, size: int) -> tuple[Tensor, Tensor]:
    """Pixels (N, 192), about -2 to 2, and labels (N,).

    >>> pixels, labels = small_pictures(train=True, size=32)
    >>> pixels.shape, labels.shape
    (torch.Size([32, 192]), torch.Size([32]))
    """
    pictures, labels = data.cifar10(train=train, size=size)
    pixels = F.avg_pool2d(pictures.float(), 4).flatten(1)
    return (pixels - 120) / 60, labels


def fixed_scaler(loss_scale: str, device: torch.device) -> torch.amp.GradScaler:
    """A scaler that begins at this scale, and lets a race of 2000 steps pass before it doubles it.

    "1" leaves the loss as it is.
    """
    scale = float(loss_scale)
    return torch.amp.GradScaler(device.type, init_scale=scale, enabled=scale != 1)


@torch.no_grad()
def accuracy(net: Callable[[Tensor], Tensor], pixels: Tensor, labels: Tensor) -> float:
    """The share of pictures that are recognised."""
    return (net(pixels).argmax(1) == labels).float().mean().item()
