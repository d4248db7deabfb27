"""A budget as people write it: bytes, a text such as "6 GB", a share of a plain step, or "all"."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch

from labkit.restore.memory import free_bytes
from sublinear.planner import check_limits, check_one

_POWERS = ("", "k", "m", "g", "t")
_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b\s*", re.IGNORECASE)
_PERCENT = re.compile(r"\s*(\d+(?:\.\d*)?)\s*%\s*")

# Of the free memory, what "all" leaves free: for work space, and for others.
_MARGIN = 0.1

# Of the plain step's time: what a plan may take longer where nothing is asked for.
OVERHEAD = 0.3


@dataclass(frozen=True)
class Budget:
    """One of: ``bytes``; a ``share`` of the peak of a plain step; ``everything`` that is free now.

    None of them: no budget.
    """

    bytes: float | None = None
    share: float | None = None
    everything: bool = False

    @property
    def given(self) -> bool:
        """Whether there is one."""
        return self.bytes is not None or self.share is not None or self.everything

    def limit(self, plain_bytes: int, device: torch.device, held: int) -> float | None:
        """In bytes, for a model on ``device``, of which ``held`` bytes are there already."""
        if self.share is not None:
            return int(self.share * plain_bytes)
        if not self.everything:
            return self.bytes
        free = free_bytes(str(device))
        if free is None:
            raise ValueError(
                f"budget='all': how much memory is free on {device} is not known here: give a "
                "number of bytes, or a text such as '6 GB'"
            )
        return int(free * (1 - _MARGIN)) + held


def request(
    budget: float | str | None, max_overhead: float | None, method: str
) -> tuple[Budget, float | None]:
    """The budget and the overhead that are asked for. Raises ValueError or TypeError."""
    asked = as_budget(budget)
    check_limits(asked.bytes, max_overhead, method)
    check_one(budget, max_overhead)
    if budget is None and max_overhead is None and method == "menu":
        max_overhead = OVERHEAD
    return asked, max_overhead


def as_budget(budget: float | str | None) -> Budget:
    """``"6 GB"``, ``"6 GiB"``, ``0.5`` or ``"50 %"``, ``"all"``, a number of bytes, or None.

    A float up to 1 is a share; any other number is bytes. Raises ValueError for any other text.
    """
    if isinstance(budget, float) and 0 < budget <= 1:
        return Budget(share=budget)
    if not isinstance(budget, str):
        return Budget(bytes=budget)
    if budget.strip().lower() == "all":
        return Budget(everything=True)
    percent = _PERCENT.fullmatch(budget)
    if percent is not None and 0 < float(percent[1]) <= 100:
        return Budget(share=float(percent[1]) / 100)
    found = _TEXT.fullmatch(budget)
    if found is None or (found[3] and not found[2]):
        raise ValueError(
            f"budget={budget!r}: a number of bytes is accepted, or a text such as '6 GB' or "
            "'500 MB' (powers of 1000) and '6 GiB' or '500 MiB' (powers of 1024); or a share of "
            "what a plain step needs, 0.5 or '50 %'; or 'all', what is free now less a tenth"
        )
    unit = (1024 if found[3] else 1000) ** _POWERS.index(found[2].lower())
    return Budget(bytes=int(float(found[1]) * unit))
