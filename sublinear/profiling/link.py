"""How fast the way from a device to the CPU's memory is, and the way back."""

from __future__ import annotations

import torch

from labkit.device import survive
from sublinear.chain import Link
from sublinear.probe import Clock

# Bytes of one copy: long enough that its launch does not count.
SIZE = 2**26


def measured_link(device: torch.device, repeats: int) -> Link | None:
    """The fastest of ``repeats`` copies each way, by page-locked memory; None for a CPU.

    None as well where not even `SIZE` bytes are free.
    """
    if device.type != "cuda":
        return None
    clock = Clock()
    there, back = [], []
    with survive() as outcome:
        here = torch.zeros(SIZE, dtype=torch.uint8, device=device)
        # The first also gets the page-locked memory.
        for _ in range(repeats + 1):
            begin = clock.now()
            sent = here.to("cpu", non_blocking=True)
            turn = clock.now()
            here.copy_(sent, non_blocking=True)
            end = clock.now()
            there.append(turn - begin)
            back.append(end - turn)
    if outcome.error:
        return None
    return Link(SIZE / min(there), SIZE / min(back))
