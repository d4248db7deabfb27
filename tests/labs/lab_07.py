"""07, low precision: what shows that the technique acts."""

from typing import Any

import pytest
import torch

from course.measured.window import Notes
from labkit import seed_all


def gradients(names: dict[str, Any], **settings: Any) -> torch.Tensor:
    """Of the first layer's weights, in a batch of 64."""
    lab = names["lab"]
    seed_all(0)
    notes = Notes(names["FORMATS"][lab.settings(settings)["stored"]])
    net = names["models"].mlp([192, 64, 64, 10]).to(names["device"])
    x = names["inputs"][:64]
    for layer in net:
        x = names["Store"].apply(layer(x), notes)
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
    weights_are_stored(names)


def weights_are_stored(names: dict[str, Any]) -> None:
    """After a step at a small rate most weights in bf16 are where they were."""
    still = {}
    for kind in ("fp32", "bf16"):
        seed_all(0)
        notes = Notes(torch.float32)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(names["window"], "notes", lambda dtype, notes=notes: notes)
            settings = names["lab"].settings({"weights": kind, "rate": 1e-4})
            step = names["make_workload"](**settings).step
            for _ in range(10):
                step()
        still[kind] = notes.still
    assert still["bf16"] > 0.5 > 5 * still["fp32"]
