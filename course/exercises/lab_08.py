"""The exercise of notebook 08."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course.exercises.tell import NotYet, attempt, check


@check("four steps, the same as torch.optim.AdamW")
def check_08_adamw(answer: Callable[..., Any]) -> None:
    """`answer(w, g, m, v, t, lr, beta1, beta2, eps, weight_decay)` does one step of AdamW in
    place, t = 1, 2, ...
    """
    # a large eps shows where it was added
    lr, betas, eps, decay = 0.1, (0.8, 0.95), 0.1, 0.5
    generator = torch.Generator().manual_seed(8)
    start, gradients = torch.randn(5, 6, generator=generator, dtype=torch.float64).split([1, 4])
    rules = torch.optim.AdamW, torch.optim.Adam
    right, l2 = (torch.nn.Parameter(start[0].clone()) for _ in rules)
    optimizers = [
        rule([weight], lr=lr, betas=betas, eps=eps, weight_decay=decay)
        for rule, weight in zip(rules, (right, l2), strict=True)
    ]
    w = start[0].clone()
    m, v = torch.zeros(2, 6, dtype=torch.float64)
    for t, gradient in enumerate(gradients, start=1):
        before = w.clone()
        with torch.no_grad():
            attempt(answer, w, gradient.clone(), m, v, t, lr, *betas, eps, decay)
        for weight, optimizer in zip((right, l2), optimizers, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
        if torch.equal(w, before):
            raise NotYet(
                "w did not change: write the step, and write it in place (w.mul_, w.addcdiv_)"
            )
        if torch.allclose(w, l2.detach()):
            raise NotYet(f"step {t} is Adam with L2: the decay must not go through the gradient")
        if not torch.allclose(w, right.detach()):
            off = (w - right.detach()).abs().max()
            raise NotYet(f"after step {t} your weights differ from torch's by up to {off:.3g}")
        state = optimizers[0].state[right]
        for name, mine, kept in (("m", m, state["exp_avg"]), ("v", v, state["exp_avg_sq"])):
            if not torch.allclose(mine, kept):
                raise NotYet(
                    f"step {t} is right, but {name} is not what it must keep for the next one"
                )
