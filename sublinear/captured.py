"""A model that runs by the plans of a backend: another view of the same object."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from sublinear.apply import view_of
from sublinear.backend import Backend
from sublinear.capture.graphs import compiled_forward


class CapturedModel:
    """What `captured` puts before a model's own class: its forward is compiled for a backend.

    It is the same object; all that is added is ``runs_by``, the backend. In evaluation and without
    gradients it runs plain.
    """

    runs_by: Backend

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        raise TypeError("a planned model that was captured cannot be copied: copy the model")

    def __reduce_ex__(self, protocol: object) -> str:
        raise TypeError(
            "a planned model cannot be pickled: save its state_dict(), or the model itself"
        )


def captured(model: nn.Module, by_plan: Backend) -> nn.Module:
    """``model`` as it trains by the plans of a backend, which come with its first forward."""
    own = type(model).forward
    compiled = compiled_forward(model, by_plan)

    @torch.compiler.disable(reason="it is compiled for a backend of its own")
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return own(model, *args, **kwargs)
        return compiled(*args, **kwargs)

    return view_of(model, CapturedModel, forward, runs_by=by_plan)
