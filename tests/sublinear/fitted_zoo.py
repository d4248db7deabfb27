"""What `fit` does with foreign models: how it reads them, what it saves, whether it is the same.

    python -m tests.sublinear.fitted_zoo             # a line for each, some minutes on two cores
    python -m tests.sublinear.fitted_zoo gpt2 vgg11  # of some

Each model is fitted twice, for the lowest peak and with the default of 30 % more time. Peaks are
those of labkit's meter in a step of SGD with momentum; what is equal is compared over three steps
on other batches, bit by bit. ``fit takes``: in plain steps; the capture is counted apart.
"""

from __future__ import annotations

import copy
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

import sublinear
from sublinear.equal import differences
from tests.sublinear.captured_zoo import dynamo_seconds, seed_all, trained
from tests.sublinear.foreign_models import FOREIGN, Batch, loss_of

STEPS = 3


def of_torchvision(name: str, size: int = 64) -> tuple[nn.Module, Callable[[], Batch]]:
    from torchvision import models

    model = models.get_model(name, weights=None, num_classes=10)
    return model, lambda: {"x": torch.randn(8, 3, size, size)}


TORCHVISION = (
    "resnet18",
    "resnet50",
    "mobilenet_v3_small",
    "efficientnet_b0",
    "shufflenet_v2_x1_0",
    "regnet_y_400mf",
    "densenet121",
    "convnext_tiny",
    "swin_t",
    "vgg11_bn",
)
MODELS = {**FOREIGN, **{name: partial(of_torchvision, name) for name in TORCHVISION}}


def row(name: str, **limit: float) -> str:
    """Fit one model, and train it beside a plain one."""
    seed_all(0)
    model, make = MODELS[name]()
    model.train()
    plain, again = copy.deepcopy(model), copy.deepcopy(model)
    batch = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    torch._dynamo.reset()
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = sublinear.fit(model, batch, loss=loss_of, optimizer=optimizer, repeats=1, **limit)
    took, captured = time.perf_counter() - begin, dynamo_seconds()
    peaks = [fitted.peak_of(each) or 0 for each in (fitted.original, fitted.model)]
    seed_all(1)
    data = [make() for _ in range(STEPS)]
    wanted = trained(plain, plain, data)
    begin = time.perf_counter()
    repeated = trained(again, again, data)
    step = (time.perf_counter() - begin) / STEPS
    equal = "bit by bit"
    if differ := differences(wanted, trained(fitted.model, model, data)):
        # On two threads some operators add in any order.
        equal = "as plain is to itself" if differences(wanted, repeated) else f"no: {differ[0]}"
    error = fitted.predicted.peak_bytes / peaks[1] - 1
    times = fitted.predicted.seconds / fitted.plain.seconds
    return (
        f"| {name} | {fitted.kind}, {len(fitted.chain)} | {peaks[0] / 2**20:.1f} | "
        f"{peaks[1] / 2**20:.1f} | {peaks[1] / peaks[0]:.2f} | {times:.2f} | {error:+.1%} | "
        f"{fitted.covered:.0%} | {(took - captured) / step:.0f} + {captured:.1f} s | "
        f"{equal} |"
    )


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; MiB")
    print("| model | read as, blocks | plain | planned | ratio | time | error | covered |", end="")
    print(" fit takes | equal |\n|---|---|---|---|---|---|---|---|---|---|")
    for name in sys.argv[1:] or MODELS:
        for limit in ({"max_overhead": 100.0}, {}):
            try:
                print(row(name, **limit), flush=True)
            except (ValueError, RuntimeError) as error:
                print(f"| {name} | {type(error).__name__}: {str(error)[:300]} |", flush=True)


if __name__ == "__main__":
    main()
