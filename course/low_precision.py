"""The formats of notebook 07, and its pictures: CIFAR-10 at 8 x 8 pixels."""

from __future__ import annotations

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
