"""fp32 where the device multiplies 16-bit numbers faster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_map

from labkit.restore.attributes import exchanged
from whyslow.experiment import Experiment
from whyslow.subject import Subject


def experiments(subject: Subject) -> Iterator[Experiment]:
    """The models' forward passes under autocast, where their weights are fp32."""
    seen = subject.seen
    if seen.lower_precision or seen.compiled or not seen.parameters:
        return
    if any(each.dtype != torch.float32 for each in seen.parameters if each.is_floating_point()):
        return
    kind = seen.device
    dtype = torch.bfloat16
    if kind == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        dtype = torch.float16

    @contextmanager
    def lowered() -> Iterator[None]:
        with exchanged((root, "forward", _under(root.forward, kind, dtype)) for root in seen.roots):
            yield

    name = str(dtype).removeprefix("torch.")
    yield Experiment(
        "fp32 where 16 bits are faster",
        f"by experiment: the forward pass under autocast to {name}",
        f"with torch.autocast({kind!r}, torch.{name}): around forward pass and loss;\n"
        + ("backward() and the update stay outside of it." if name == "bfloat16" else _SCALER),
        "06_mixed_precision",
        lowered,
    )


_SCALER = "scale the loss by torch.amp.GradScaler."


def _under(forward: Any, kind: str, dtype: torch.dtype) -> Any:
    def lowered(*args: Any, **keywords: Any) -> Any:
        with torch.autocast(kind, dtype):
            output = forward(*args, **keywords)
        return tree_map(_as_float, output)

    return lowered


def _as_float(item: Any) -> Any:
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bfloat16, torch.float16):
        return item.float()
    return item
