"""Networks whose memory is looked at: chains of blocks for images, (N, 3, side, side) -> (N, 10).

``activation`` makes the module behind each convolution or product, such as `torch.nn.ReLU`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from course.models import mlp, transformer_block

CLASSES = 10
Activation = Callable[[], nn.Module]


class Residual(nn.Sequential):
    """Adds what its layers compute to their input."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class Tokens(nn.Module):
    """Patches of images as tokens: (N, 3, side, side) -> (N, (side / patch)^2, width)."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.inside = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.inside(x).flatten(2).transpose(1, 2)


class Rows(nn.Module):
    """The rows of pixels as tokens: (N, 3, side, side) -> (N, side, 3 side)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)


class MeanOfTokens(nn.Module):
    """(N, tokens, width) -> (N, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=1)


def resnet(per_stage: Sequence[int], width: int, activation: Activation = nn.ReLU) -> nn.Sequential:
    """A residual network, a stage for each number of blocks; from the second on, a stage has half
    the resolution and twice the channels.
    """
    layers = [_conv_bn(3, width, activation)]
    for stage, blocks in enumerate(per_stage):
        if stage:
            layers.append(_conv_bn(width, 2 * width, activation, stride=2))
            width *= 2
        layers += [_residual(width, activation) for _ in range(blocks)]
    return nn.Sequential(*layers, *_head(width))


def imagenet(depth: int, activation: Activation = nn.ReLU) -> nn.Module:
    """torchvision's ResNet of 18 or 50 layers, for images of 224 pixels. Needs torchvision."""
    from torchvision.models import get_model

    model: nn.Module = get_model(f"resnet{depth}", weights=None, num_classes=CLASSES)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, nn.ReLU):
                setattr(parent, name, activation())
    return model


def transformer(
    depth: int, width: int, heads: int, patch: int, activation: Activation = nn.GELU
) -> nn.Sequential:
    """A vision transformer without dropout: its blocks are those of BERT, before whose parts the
    layer norm is.
    """
    blocks = []
    for _ in range(depth):
        block = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, activation(), batch_first=True, norm_first=True
        )
        blocks.append(block)
    return nn.Sequential(Tokens(width, patch), *blocks, MeanOfTokens(), nn.Linear(width, CLASSES))


def convolutions(depth: int, width: int, activation: Activation = nn.ReLU) -> nn.Sequential:
    """Convolutions of one width, without batch norm."""
    layers: list[nn.Module] = []
    for inputs in [3, *[width] * (depth - 1)]:
        layers += [nn.Conv2d(inputs, width, 3, padding=1), activation()]
    return nn.Sequential(*layers, *_head(width))


def one_wide(width: int, wide: int, activation: Activation = nn.ReLU) -> nn.Sequential:
    """Thin convolutions, and in their middle a block through ``wide`` channels."""
    inside = [_conv_bn(width, wide, activation), _conv_bn(wide, width, activation)]
    thin = [_conv_bn(width, width, activation) for _ in range(4)]
    layers = [_conv_bn(3, width, activation), *thin[:2], nn.Sequential(*inside), *thin[2:]]
    return nn.Sequential(*layers, *_head(width))


def deep(depth: int, width: int, activation: Activation = nn.ReLU) -> nn.Sequential:
    """Convolutions of one width with batch norm; dropout before the last layer."""
    layers = [_conv_bn(3, width, activation, stride=2)]
    layers += [_conv_bn(width, width, activation) for _ in range(depth)]
    pooled, flat, last = _head(width)
    return nn.Sequential(*layers, pooled, flat, nn.Dropout(0.2), last)


def encoder(depth: int, side: int = 32) -> nn.Sequential:
    """PyTorch's encoder layers on the rows of images, without dropout."""
    blocks = [transformer_block(3 * side, heads=4) for _ in range(depth)]
    return nn.Sequential(Rows(), *blocks, MeanOfTokens(), nn.Linear(3 * side, CLASSES))


def group_normed(width: int, activation: Activation = nn.GELU) -> nn.Sequential:
    """Three convolutions, each twice as wide as the one before. Group norm sees one image alone."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2)):
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        layers += [convolution, nn.GroupNorm(8, outputs), activation()]
        inputs = outputs
    return nn.Sequential(*layers, *_head(inputs))


def four(
    stages: Sequence[int], width: int, depth: int, dim: int, patch: int
) -> dict[str, Callable[[Activation], nn.Sequential]]:
    """Those of notebook 12 by their names, each to be built with an activation."""
    return {
        "ResNet": lambda activation: resnet(stages, width, activation),
        "transformer": lambda activation: transformer(depth, dim, 4, patch, activation),
        "eight convolutions": lambda activation: convolutions(8, width, activation),
        "one wide block": lambda activation: one_wide(width // 2, 4 * width, activation),
    }


def to_validate(width: int, hidden: int) -> dict[str, Callable[[], nn.Sequential]]:
    """Those of notebook 20 by their names: nearly all activations, or nearly all weights."""
    return {
        "deep convnet": lambda: deep(16, width),
        "encoder layers": lambda: encoder(4),
        "wide layers": lambda: nn.Sequential(nn.Flatten(), mlp([3 * 32 * 32, hidden, CLASSES])),
    }


@torch.no_grad()
def for_inference(
    net: nn.Sequential,
    images: Tensor,
    bias: str,
    fold: Callable[[nn.Conv2d, nn.BatchNorm2d], object],
) -> nn.Sequential:
    """A network of notebook 19 as after a training on these images, its norms frozen by eval().

    ``bias``: "kept", "left out" of each convolution before a norm, or "folded": by ``fold``, and
    the norm goes. ValueError for another word.
    """
    if bias not in ("kept", "left out", "folded"):
        raise ValueError(f"bias={bias!r}: use 'kept', 'left out' or 'folded'")
    for layer in net:
        if isinstance(layer, nn.BatchNorm2d):
            # The mean of all passes, of which there is one.
            layer.momentum = None
    net(images)
    net.eval()
    for place, (conv, norm) in enumerate(pairwise(net)):
        if not isinstance(conv, nn.Conv2d) or not isinstance(norm, nn.BatchNorm2d):
            continue
        if bias == "left out":
            conv.bias = None
        elif bias == "folded":
            fold(conv, norm)
            net[place + 1] = nn.Identity()
    return net.eval()


def _conv_bn(inputs: int, outputs: int, activation: Activation, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), activation())


def _residual(width: int, activation: Activation) -> Residual:
    return Residual(*(_conv_bn(width, width, activation) for _ in range(2)))


def _head(width: int) -> list[nn.Module]:
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES)]


def following(
    schedule: str, optimizer: torch.optim.Optimizer, lr: float, steps: int
) -> Callable[[], None]:
    """What to call after each step: the next rate of a 1cycle, or nothing for a constant one."""
    if schedule == "constant":
        return lambda: None
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, lr, total_steps=steps, cycle_momentum=False
    )
    return lambda: cycle.step() if cycle.last_epoch + 1 < steps else None
