"""07, low precision: what shows that the technique acts."""

from itertools import pairwise
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course.measured.window import Notes
from labkit import seed_all


def gradients(names: dict[str, Any], **settings: Any) -> torch.Tensor:
    """Of the first layer's weights, in a batch of 64."""
    lab = names["lab"]
    seed_all(0)
    notes = Notes(names["FORMATS"][lab.settings(settings)["stored"]])
    net = names["models"].mlp([192, 64, 64, 10]).to(names["device"])
    x = names["forward"](net, names["inputs"][:64], notes)
    scale = float(settings.get("loss_scale", 1)) * settings.get("loss_weight", 1)
    (scale * torch.nn.functional.cross_entropy(x, names["labels"][:64])).backward()
    return net[0].weight.grad


def zeros(names: dict[str, Any], **settings: Any) -> float:
    return (gradients(names, **settings) == 0).float().mean().item()


def alive(names: dict[str, Any]) -> None:
    """A small loss has gradients in fp32 and none in fp16; a scale brings them back."""
    plain = zeros(names, loss_weight=1e-5)
    lost = zeros(names, stored="fp16", loss_weight=1e-5)
    scaled = zeros(names, stored="fp16", loss_weight=1e-5, loss_scale="4096")
    assert lost > 0.5 > 2 * scaled
    assert scaled < plain + 0.05
    assert zeros(names, stored="bf16", loss_weight=1e-5) < plain + 0.01
    assert still(names, "bf16") > 0.5 > 5 * still(names, "fp32")


def still(names: dict[str, Any], kind: str) -> float:
    """The share of weights of this type that a step at a small rate leaves where they were."""
    seen = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        every = [each for group in optimizer.param_groups for each in group["params"]]
        seen.append(torch.cat([each.detach().flatten() for each in every]))

    seed_all(0)
    step = names["make_workload"](**names["lab"].settings({"weights": kind, "rate": 1e-4})).step
    hook = register_optimizer_step_pre_hook(note)
    try:
        for _ in range(10):
            step()
    finally:
        hook.remove()
    # Before the first step they are rounded for the first time.
    pairs = list(pairwise(seen[1:]))
    return sum((one == other).float().mean().item() for one, other in pairs) / len(pairs)
