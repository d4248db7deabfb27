"""Three ways to compute a convolution, and networks whose layers let a search choose among them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.device import synchronize

Kernel = Callable[[Tensor, Tensor, Tensor], Tensor]
Clock = Callable[[], float]
# A search: called with tensors, it returns what the best candidate makes of them.
Search = Callable[..., Tensor]
Autotune = Callable[[Sequence[Kernel], Clock], Search]


def kernels(layer: nn.Conv2d) -> list[Kernel]:
    """Functions of input, weight and bias, shapes (N, C, H, W), (C', C/g, K, K) and (C',).

    Each returns what the layer does, (N, C', H, W), in one of three ways: channels first, channels
    last, or unfolded, as a product of matrices. The last one raises ValueError for groups.
    TypeError where the layer's padding is a word.
    """
    padding = layer.padding
    if isinstance(padding, str):
        raise TypeError(f"padding={padding!r}: give it as numbers")

    def convolved(x: Tensor, weight: Tensor, bias: Tensor, layout: torch.memory_format) -> Tensor:
        x, weight = (each.contiguous(memory_format=layout) for each in (x, weight))
        return F.conv2d(x, weight, bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    def channels_first(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return convolved(x, weight, bias, torch.contiguous_format)

    def channels_last(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return convolved(x, weight, bias, torch.channels_last)

    def unfolded(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if layer.groups > 1:
            raise ValueError(f"a convolution in {layer.groups} groups is no single product")
        size = (weight.shape[2], weight.shape[3])
        # (N, C K K, H' W')
        columns = F.unfold(x, size, layer.dilation, padding, layer.stride)
        product = weight.flatten(1) @ columns + bias[:, None]
        reach = layer.dilation[0] * (layer.kernel_size[0] - 1) + 1
        height = 1 + (x.shape[2] + 2 * padding[0] - reach) // layer.stride[0]
        return product.view(x.shape[0], weight.shape[0], height, -1)

    return [channels_first, channels_last, unfolded]


def clock() -> float:
    """Seconds, once the device has done all that was queued."""
    synchronize()
    return time.perf_counter()


def tuned(network: nn.Module, autotune: Autotune) -> nn.Module:
    """The same network; each of its convolutions asks a search of its own (`Asked`), which is
    returned by ``autotune(kernels, clock)``. ValueError for a convolution without a bias.
    """
    for name, layer in network.named_modules():
        if isinstance(layer, nn.Conv2d):
            if layer.bias is None:
                raise ValueError(f"{name} has no bias; give it one")
            # Instead of the class's own.
            layer.forward = Asked(layer, autotune)  # type: ignore[assignment,method-assign]
    return network


class Asked:
    """The forward of a layer that asks a search. It knows the kernel that was ``kept`` at the last
    call, by its name, and the ``seconds`` of that call if it searched, else 0.
    """

    def __init__(self, layer: nn.Conv2d, autotune: Autotune) -> None:
        self.kept, self.seconds = "", 0.0
        self._layer, self._calls = layer, 0
        self._search = autotune([self._named(kernel) for kernel in kernels(layer)], clock)

    def _named(self, kernel: Kernel) -> Kernel:
        @wraps(kernel)
        def noted(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            self._calls += 1
            # Of a search the last call is that of the kept one.
            self.kept = kernel.__name__.replace("_", " ")
            return kernel(x, weight, bias)

        return noted

    def __call__(self, x: Tensor) -> Tensor:
        self._calls, begin = 0, time.perf_counter()
        result = self._search(x, self._layer.weight, self._layer.bias)
        self.seconds = time.perf_counter() - begin if self._calls > 1 else 0.0
        return result
