"""What a lab times: one step of training."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Workload:
    """One training step, and how much it gets through.

    ``step`` takes nothing and may return its loss (detached). ``samples`` is the number of
    ``unit`` that it processes. ``evaluate`` returns the metric of a race. ``close`` releases what
    the step holds, such as worker processes. TypeError for a step that cannot be called without
    arguments, ValueError for ``samples`` that are not positive.

    >>> Workload(lambda: sum(range(100)), samples=64, unit="images").samples
    64
    """

    step: Callable[[], Any]
    samples: float = 1
    unit: str = "samples"
    evaluate: Callable[[], float] | None = None
    close: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        if not callable(self.step):
            raise TypeError(
                f"Workload(step={self.step!r}): the step must be a function without arguments"
            )
        try:
            inspect.signature(self.step).bind()
        except TypeError as error:
            raise TypeError(
                f"a step takes no arguments ({error}): bind them, as in `lambda: step(inputs)`"
            ) from None
        except ValueError:
            # A built-in function without a signature: calling it will tell.
            pass
        if not self.samples > 0:
            raise ValueError(
                f"Workload(samples={self.samples!r}): "
                f"a step processes a positive number of {self.unit}"
            )
