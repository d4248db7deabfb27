"""What shows that a source errs, as far as it can be run: a correction's ``holds`` names it.

Each returns True as long as the correction is right with the installed packages.
"""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from course import data
from labkit import MemoryMeter, count


def set_to_none_is_the_default() -> bool:
    signature = inspect.signature(torch.optim.Optimizer.zero_grad)
    return signature.parameters["set_to_none"].default is True


def gradient_descent_diverges() -> bool:
    """Whether the largest curvature times the rate of 1 is above 2.

    True without a copy of the data.
    """
    if not any(complete for _, complete, _ in data.copies("airfoil")):
        return True
    inputs = data.airfoil()[0][:1500].double()
    rows = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
    curvature = torch.linalg.eigvalsh(rows.T @ rows / len(rows))[-1]
    return bool(1.0 * curvature > 2)


def printed_times_of_the_book() -> bool:
    batches_of_100, all_rows = 0.025, 0.020
    return batches_of_100 > all_rows


def mse_is_twice_as_steep() -> bool:
    x = torch.ones(4, requires_grad=True)
    [concise] = torch.autograd.grad(nn.functional.mse_loss(x, torch.zeros(4)), x)
    [scratch] = torch.autograd.grad((x.square() / 2).mean(), x)
    return torch.equal(concise, 2 * scratch)


def cpu_can_autocast() -> bool:
    return torch.amp.is_autocast_available("cpu")


def rounds_up() -> bool:
    above, half = torch.tensor(0.75 * 2.0**-24), torch.tensor(2.0**-25)
    return above.half().item() == 2.0**-24 and half.half().item() == 0


def inf_comes_before_nan() -> bool:
    large = torch.tensor(60000.0).half()
    return bool((large + large).isinf() and ((large + large) - (large + large)).isnan())


def fused_is_in_torch() -> bool:
    return "fused" in inspect.signature(torch.optim.AdamW.__init__).parameters


def budget_is_an_option_of_functorch() -> bool:
    import torch._dynamo
    import torch._functorch.config

    name = "activation_memory_budget"
    return hasattr(torch._functorch.config, name) and not hasattr(torch._dynamo.config, name)


def same_arithmetic_more_launches() -> bool:
    net, x = nn.Linear(8, 8), torch.randn(16, 8)

    def in_parts(parts: int) -> None:
        for part in x.chunk(parts):
            net(part).sum().backward()

    one, four = count(lambda: in_parts(1)), count(lambda: in_parts(4))
    return one.flops == four.flops and one.launches < four.launches


def gradients_live_in_the_forward_pass() -> bool:
    peaks = []
    for parts in (1, 2):
        net, rows = nn.Linear(512, 512), torch.randn(8 * parts, 512)
        with MemoryMeter("cpu") as memory:
            for part in rows.split(8):
                net(part).sum().backward()
        peaks.append(memory.peak)
    return peaks[1] > peaks[0]


def modulo_leaves_a_last_group() -> bool:
    """Of 7 micro-batches in groups of 3, with the loop of the source."""
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    updates = 0
    for i, part in enumerate(torch.randn(7, 2, 4)):
        (net(part).mean() / 3).backward()
        if (i + 1) % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
            updates += 1
    return updates == 2 and net.weight.grad is not None


def zero_grad_sets_none() -> bool:
    parameter = nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter]).zero_grad()
    return parameter.grad is None


def nobody_writes_zeros() -> bool:
    names = []

    class Names(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    layer = nn.Linear(64, 64, bias=False)
    loss = layer(torch.ones(1, 64)).sum()
    with Names():
        loss.backward(torch.ones(()))
    written = layer.weight.grad is not None and bool(names)
    return written and not any("zero" in name for name in names)


def takes_uint16() -> bool:
    return torch.from_numpy(np.zeros(1, np.uint16)).dtype == torch.uint16


def names_are_others() -> bool:
    return hasattr(torch.autograd, "gradcheck") and not hasattr(torch.autograd, "grad_check")


def norm_is_rescaled() -> bool:
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([-3.0, 4.0])
    torch.nn.utils.clip_grad_norm_(parameter, 1.0)
    minimum = torch.tensor([-3.0, 4.0]).clamp(max=1.0)
    rescaled = torch.tensor([-0.6, 0.8])
    clipped = parameter.grad
    return torch.allclose(clipped, rescaled) and not torch.allclose(clipped, minimum)


def vgg_has_them() -> bool:
    import torchvision

    with torch.device("meta"):
        layers = torchvision.models.vgg11_bn().features
    biases = [layer.bias for layer, norm in pairwise(layers) if isinstance(norm, nn.BatchNorm2d)]
    return any(bias is not None for bias in biases)


def training_frees_the_tensors() -> bool:
    """Whether fewer than 100 bytes stay of a batch, whose activations are 256 KiB."""
    net, x = nn.Linear(256, 256), torch.randn(256, 256)
    total: torch.Tensor | float = 0.0
    alive = []
    with MemoryMeter("cpu", saved=False) as memory:
        for _ in range(8):
            loss = net(x).relu().sum()
            loss.backward()
            total = total + loss
            alive.append(memory.current)
    return alive[-1] - alive[1] < 100


def generators_do_not_add() -> bool:
    first, second = nn.Linear(1, 1).parameters(), nn.Linear(1, 1).parameters()
    try:
        first + second  # type: ignore[operator]
    except TypeError:
        return True
    return False
