"""18, gradient clipping: what shows that the technique acts."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    norms = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        weights = [weight for group in optimizer.param_groups for weight in group["params"]]
        norms.append(nn.utils.get_total_norm([weight.grad for weight in weights]).item())

    hook = register_optimizer_step_pre_hook(note)
    try:
        for max_norm in ("off", 0.01):
            counters(names, max_norm=max_norm)
    finally:
        hook.remove()
    off, clipped = norms
    assert off > 0.1
    assert clipped == pytest.approx(0.01, rel=1e-3)
