"""How long `sublinear.fit` takes, in plain steps, the compiler's capture told apart.

    uv run python tests/benchmarks/bench_fit.py              # torchvision's, some minutes
    uv run python tests/benchmarks/bench_fit.py gpt2 bert    # foreign models, where they are there

Processor seconds on one thread, so that what else the machine does counts little. A step is forward
and backward, the fastest of some; `capture` is what torch's compiler takes for the same model with
a backend that does nothing.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

import sublinear
from tests.sublinear.captured_zoo import seed_all
from tests.sublinear.foreign_models import FOREIGN, loss_of

VISION = (
    ("resnet18", 8),
    ("resnet50", 4),
    ("densenet121", 4),
    ("mobilenet_v3_small", 8),
    ("efficientnet_b0", 4),
    ("shufflenet_v2_x1_0", 8),
    ("convnext_tiny", 4),
    ("swin_t", 4),
    ("vit_b_16", 2),
    ("googlenet", 4),
)
STEPS = 7


def vision(name: str, rows: int) -> tuple[nn.Module, Callable[[], dict[str, Any]]]:
    from torchvision import models

    extra = {"init_weights": False} if name == "googlenet" else {}
    model = models.get_model(name, **extra)
    return model, lambda: {"x": torch.randn(rows, 3, 224, 224)}


MODELS = {name: partial(vision, name, rows) for name, rows in VISION} | FOREIGN


def step_seconds(model: nn.Module, batch: dict[str, Any]) -> float:
    """Processor seconds of a step."""
    begin = time.process_time()
    loss_of(model(**batch)).backward()
    model.zero_grad()
    return time.process_time() - begin


def tried(name: str) -> tuple[float, float, float]:
    """Seconds of a plain step, of `fit`, and of a capture."""
    seed_all(0)
    model, make = MODELS[name]()
    batch = make()
    model.train()
    # Libraries may change a model as it runs.
    fresh = copy.deepcopy(model)
    step = min(step_seconds(model, batch) for _ in range(STEPS))
    torch._dynamo.reset()
    plainly = torch.compile(model, backend="eager")
    capture = step_seconds(plainly, batch) - step
    torch._dynamo.reset()
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        sublinear.fit(fresh, batch, loss=loss_of, repeats=1)
    return step, time.process_time() - begin, capture


def main() -> None:
    torch.set_num_threads(1)
    found = []
    for name in sys.argv[1:] or dict(VISION):
        step, whole, capture = tried(name)
        steps = (whole - capture) / step
        found.append(steps)
        print(
            f"{name:34} step {1e3 * step:7.1f} ms  fit {whole:6.1f} s  capture {capture:5.1f} s  "
            f"{steps:5.0f} steps beside the capture",
            flush=True,
        )
    print(f"median of {len(found)}: {statistics.median(found):.0f} steps")


if __name__ == "__main__":
    main()
