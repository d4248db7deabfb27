"""A model that runs by the plans of a backend: another view of the same object."""

from __future__ import annotations

from types import FunctionType
from typing import Any

import torch
from torch import nn

from sublinear.apply import view_of
from sublinear.capture.backend import Backend


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
    # Code of its own: the compiler keeps what it has captured, and how often, with the code.
    compiled = torch.compile(_copied(own), backend=by_plan)

    @torch.compiler.disable(reason="it is compiled for a backend of its own")
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return own(model, *args, **kwargs)
        # Else the compiler draws NumPy's random numbers from torch's generator.
        with torch._dynamo.config.patch(use_numpy_random_stream=True):
            return compiled(model, *args, **kwargs)

    return view_of(model, CapturedModel, forward, runs_by=by_plan)


def _copied(function: Any) -> Any:
    if not isinstance(function, FunctionType):
        return function
    code = function.__code__.replace()
    space, closure = function.__globals__, function.__closure__
    copy = FunctionType(code, space, function.__name__, function.__defaults__, closure)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
