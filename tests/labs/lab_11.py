"""11, activation checkpointing: what shows that the technique acts."""

from typing import Any

from labkit import MemoryMeter
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    plain, whole, pieces = (counters(names, pieces=number) for number in (0, 1, 8))
    assert pieces.saved_bytes < 0.3 * plain.saved_bytes
    # A second forward pass of all blocks, but for the last product of a piece, which nobody needs.
    assert 1.25 < pieces.flops / plain.flops < 4 / 3
    assert pieces.flops <= whole.flops < 4 / 3 * plain.flops
    # One piece keeps little as well, until all of it is computed again.
    peaks = []
    for number in (0, 1, 8):
        step = names["make_workload"](**names["lab"].settings({"pieces": number})).step
        step()
        with MemoryMeter(saved=False) as memory:
            step()
        peaks.append(memory.peak)
    assert peaks[1] > 0.95 * peaks[0]
    assert peaks[2] < 0.5 * peaks[0]
