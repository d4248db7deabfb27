"""The exercise of notebook 19."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course.exercises.tell import NotYet, attempt, check
from labkit.restore import preserve_rng


@check("the bias is gone, and the outputs are the same in both modes")
def check_19_drop_bias(answer: Callable[..., Any]) -> None:
    """`answer(layer, norm)` takes a trained layer's bias away in place, and the outputs stay the
    same in both modes.
    """
    with preserve_rng(), torch.no_grad():
        torch.manual_seed(19)
        pairs: list[tuple[Any, Any, torch.Tensor]] = [
            (nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), torch.randn(4, 3, 6, 6)),
            (nn.Linear(7, 6), nn.BatchNorm1d(6), torch.randn(8, 7)),
        ]
        # as if they had been trained
        for layer, norm, _ in pairs:
            for tensor in (layer.weight, layer.bias, norm.weight, norm.bias, norm.running_mean):
                tensor.normal_()
            norm.running_var.uniform_(0.5, 2)
    for layer, norm, x in pairs:
        name, before = type(layer).__name__, copy.deepcopy((layer, norm))
        attempt(answer, layer, norm)
        if layer.bias is not None:
            raise NotYet(f"the {name} still has a bias: set layer.bias to None")
        for mode, training in (("evaluation", False), ("training", True)):
            with torch.no_grad():
                outputs = [
                    one.train(training)(each.train(training)(x))
                    for each, one in ((layer, norm), before)
                ]
            off = (outputs[0] - outputs[1]).abs().max().item()
            # not `>`, which nan would pass
            if not off <= 1e-4:
                raise NotYet(f"{name}: in {mode} mode the outputs changed by up to {off:.2f}")
