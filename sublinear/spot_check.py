"""A planned model that proves one of its steps again now and then.

What neither the plan nor torch's compiler can notice, such as a file or a variable of the
environment that the model's code reads, may make it train otherwise later. The first step was
compared with a plain one in `fit`; here every so many are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from sublinear.apply import view_of
from sublinear.profiling import Training
from sublinear.profiling.training import mean_of_outputs
from sublinear.proof import prove


def spot_checked(
    planned: nn.Module,
    original: nn.Module,
    task: Training,
    batch_size: int,
    every: int,
    *,
    compiled: bool = False,
) -> nn.Module:
    """``planned``, which compares itself with the plain model at every so many training forwards.

    On the batch of that forward, by the mean of all outputs; everything is put back before the
    forward goes on. RuntimeError, with what differs, where they train otherwise. Of its class,
    ``unchecked`` is ``planned``.
    """
    forwards = 0
    plan_forward = type(planned).forward

    @torch.compiler.disable(reason="it compares a planned step with a plain one")
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal forwards
        if self.training and torch.is_grad_enabled():
            forwards += 1
            if forwards % every == 0:
                now = replace(task, args=args, kwargs=kwargs, loss=mean_of_outputs)
                found = prove(original, planned, now, batch_size, compiled=compiled)
                if found.differences:
                    raise RuntimeError(
                        f"forward {forwards}: the planned model no longer trains as the plain one: "
                        f"{'; '.join(found.differences[:3])}. Fit it anew."
                    )
        return plan_forward(planned, *args, **kwargs)

    return view_of(planned, forward, unchecked=planned)
