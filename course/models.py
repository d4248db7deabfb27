"""Small models of the labs: torchvision's and torch's own where they have them.

All run on a CPU.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import pairwise

import torch
from torch import Tensor, nn


def resnet(depth: int = 18, num_classes: int = 10) -> nn.Module:
    """torchvision's ResNet with the stem for small images: (N, 3, 32, 32) -> (N, num_classes).

    The stem is one 3x3 convolution of stride 1 without max-pooling, as in section 4.2 of He et al.,
    Deep Residual Learning for Image Recognition (2015): ImageNet's 7x7 stem would shrink 32x32
    pixels to 8x8 before the first block.
    """
    if depth not in (18, 34, 50, 101, 152):
        raise ValueError(f"depth={depth!r}: torchvision has 18, 34, 50, 101 and 152")
    if find_spec("torchvision") is None:
        raise ImportError("models.resnet takes torchvision's ResNet: pip install torchvision")
    import torchvision

    model = torchvision.models.get_model(f"resnet{depth}", weights=None, num_classes=num_classes)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    # As torchvision initialises it.
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    return model


def convnet(width: int = 32, num_classes: int = 10, in_channels: int = 3) -> nn.Sequential:
    """Three stages of convolution, batch norm, ReLU and 2x2 max-pooling, `width` channels doubling
    from stage to stage.

    (N, in_channels, H, W) with H, W >= 8 -> (N, num_classes). Small enough for a CPU.
    """
    _check_positive(width=width, num_classes=num_classes, in_channels=in_channels)
    layers: list[nn.Module] = []
    for channels in (width, 2 * width, 4 * width):
        layers += [
            nn.Conv2d(in_channels, channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        ]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
        in_channels = channels
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(in_channels, num_classes)
    )


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them: (..., sizes[0]) -> (..., sizes[-1])."""
    if len(sizes) < 2:
        raise ValueError(
            f"sizes={sizes!r}: at least two are needed, of the input and of the output"
        )
    _check_positive(**{f"sizes[{i}]": size for i, size in enumerate(sizes)})
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def with_linear(
    model: nn.Module, function: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> nn.Module:
    """`model`, whose linear layers compute ``function(x, weight, bias)`` from now on.

    Their weights stay where they are. A layer without a bias passes None.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.forward = partial(_own_forward, layer, function)  # type: ignore[method-assign]
    return model


def _own_forward(layer: nn.Linear, function: Callable[..., Tensor], x: Tensor) -> Tensor:
    return function(x, layer.weight, layer.bias)


def transformer_block(dim: int, heads: int) -> nn.TransformerEncoderLayer:
    """torch's pre-norm block, attention and then a GELU MLP four times as wide, no dropout: (N, T,
    dim) -> (N, T, dim).

    Its attention is torch's fused function. A causal call: `block(x, src_mask=mask,
    is_causal=True)`.
    """
    _check_positive(dim=dim, heads=heads)
    if dim % heads:
        raise ValueError(f"dim={dim} is not a multiple of heads={heads}")
    return nn.TransformerEncoderLayer(
        dim, heads, 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True
    )


class Transformer(nn.Module):
    """Causal language model: token numbers int64 (N, T), T <= length -> logits (N, T,
    vocabulary).
    """

    def __init__(
        self, vocabulary: int, dim: int = 128, heads: int = 4, depth: int = 2, length: int = 128
    ) -> None:
        super().__init__()
        _check_positive(vocabulary=vocabulary, depth=depth, length=length)
        self.tokens, self.positions = nn.Embedding(vocabulary, dim), nn.Embedding(length, dim)
        self.blocks = nn.ModuleList(transformer_block(dim, heads) for _ in range(depth))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, vocabulary))

    def forward(self, tokens: Tensor) -> Tensor:
        steps = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(
            steps, device=tokens.device, dtype=self.positions.weight.dtype
        )
        x = self.tokens(tokens) + self.positions(torch.arange(steps, device=tokens.device))
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return self.head(x)


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"{name}={size!r}: a whole number from 1 is accepted")
