"""The exercise of notebook 17."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from course.exercises.tell import attempt, verdict
from labkit.preserve import preserve_flags

Step = Callable[[], torch.Tensor]


def _step(
    operator: Callable[[torch.Tensor], torch.Tensor], value: float, modes: list[bool]
) -> Step:
    """A step that notes whether anomaly mode was on when it was called."""
    weight = torch.tensor([value], requires_grad=True)

    def step() -> torch.Tensor:
        modes.append(torch.is_anomaly_enabled())
        loss = operator(weight).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    return step


def check_17_replay(answer: Callable[[Step], str | None]) -> bool:
    """``answer(step)`` calls a step; if its loss is not finite, once more in anomaly mode.

    It returns the message of the RuntimeError that was then raised, else None, and leaves anomaly mode as it was.
    """
    cases = (  # the second has a nan in its loss and its gradient, the third in its loss alone
        ("a step with a finite loss", torch.sqrt, 1.0, [False], None),
        ("sqrt(-1)", torch.sqrt, -1.0, [False, True], "SqrtBackward0"),
        ("log(-1), whose gradient is finite", torch.log, -1.0, [False, True], None),
        ("log(0), which is infinite", torch.log, 0.0, [False, True], None),
    )
    with preserve_flags(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anomaly mode warns with the traceback of the forward call
        torch.autograd.set_detect_anomaly(False)
        for name, operator, value, wanted_modes, wanted in cases:
            modes: list[bool] = []
            found = attempt(answer, _step(operator, value, modes))
            if not modes:
                return verdict(False, "", f"{name}: step() was never called")
            if modes != wanted_modes:
                return verdict(
                    False,
                    "",
                    f"{name}: calls with anomaly mode on should be {wanted_modes}, were {modes}",
                )
            if wanted is None and found is not None:
                return verdict(False, "", f"{name}: wants None, yours says {found!r}")
            if wanted is not None and not (isinstance(found, str) and wanted in found):
                return verdict(
                    False, "", f"{name}: wants the error's message, a text, yours says {found!r}"
                )
            if torch.is_anomaly_enabled():
                return verdict(False, "", f"{name}: anomaly mode is still on afterwards")
        torch.autograd.set_detect_anomaly(True)
        for value in (1.0, -1.0):
            attempt(answer, _step(torch.log, value, []))
            if not torch.is_anomaly_enabled():
                return verdict(
                    False, "", f"log({value:g}): anomaly mode was on before, and is off afterwards"
                )
    return verdict(
        True, "the tool is on for one step, and only when there is something to find", ""
    )
