"""The exercise of notebook 17."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from course.exercises.tell import NotYet, attempt, check, far
from labkit.restore import preserve_flags

Step = Callable[[], torch.Tensor]


class _Step:
    """A step that notes whether anomaly mode was on when it was called."""

    def __init__(self, operator: str, value: float) -> None:
        self.operator = operator
        self.weight = torch.tensor([value], requires_grad=True)
        self.modes: list[bool] = []

    def __call__(self) -> torch.Tensor:
        self.modes.append(torch.is_anomaly_enabled())
        loss = getattr(torch, self.operator)(self.weight).sum()
        loss.backward()
        return loss.detach()  # type: ignore[no-any-return]


@check("the tool is on for one step, and only when there is something to find", judged="both")
def check_17_replay(answer: Callable[[Step], str | None]) -> None:
    """``answer(step)`` calls a step; if its loss is not finite, once more in anomaly mode.

    It returns the message of the RuntimeError that was then raised, else None, and leaves
    anomaly mode as it was.
    """
    # the second has a nan in its loss and its gradient, the third in its loss alone
    cases = (
        ("a step with a finite loss", "sqrt", 1.0, [False], None),
        ("sqrt(-1)", "sqrt", -1.0, [False, True], "SqrtBackward0"),
        ("log(-1), whose gradient is finite", "log", -1.0, [False, True], None),
        ("log(0), which is infinite", "log", 0.0, [False, True], None),
    )
    with preserve_flags(), warnings.catch_warnings():
        # anomaly mode warns with the traceback of the forward call
        warnings.simplefilter("ignore")
        torch.autograd.set_detect_anomaly(False)
        for name, operator, value, wanted_modes, wanted in cases:
            step = _Step(operator, value)
            found = attempt(answer, step)
            # a step of another process notes nothing here
            if not far(answer):
                _check_modes(name, step.modes, wanted_modes)
            if wanted is None and found is not None:
                raise NotYet(f"{name}: wants None, yours says {found!r}")
            if wanted is not None and not (isinstance(found, str) and wanted in found):
                raise NotYet(f"{name}: wants the error's message, a text, yours says {found!r}")
            if torch.is_anomaly_enabled():
                raise NotYet(f"{name}: anomaly mode is still on afterwards")
        torch.autograd.set_detect_anomaly(True)
        for value in (1.0, -1.0):
            attempt(answer, _Step("log", value))
            if not torch.is_anomaly_enabled():
                raise NotYet(f"log({value:g}): anomaly mode was on before, and is off afterwards")


def _check_modes(name: str, modes: list[bool], wanted: list[bool]) -> None:
    if not modes:
        raise NotYet(f"{name}: step() was never called")
    if modes != wanted:
        raise NotYet(f"{name}: calls with anomaly mode on should be {wanted}, were {modes}")
