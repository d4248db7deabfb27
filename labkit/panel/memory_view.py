"""What the page draws of a comparison of memory: peaks as bars, and what is alive when."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.panel.bars import group
from labkit.text import format_bytes, format_factor

# On the canvas, of each side.
MOST_POINTS = 120
# A ratio of peaks this near to 1 is no difference: allocators round.
SAME = 0.01


def state(found: MemoryComparison) -> dict[str, Any]:
    """For the page."""
    shown, caption = f"{format_factor(found.ratio)}×", "the memory of the baseline"
    if 0 in (found.baseline.peak, found.candidate.peak):
        shown, caption = found.candidate.peak_text, f"instead of {found.baseline.peak_text}"
    verdict, badge = _verdict(found.baseline.peak, found.candidate.peak)
    values = [math.nan if side.peak is None else side.peak for side in found.arms]
    texts = [side.peak_text for side in found.arms]
    return {
        "speedup": shown,
        "caption": caption,
        "verdict": verdict,
        "badge": badge,
        "detail": "peak of live tensors in one step",
        "sentence": found.sentence,
        "bars": [group("Peak memory", values, texts)],
        "timelines": [_timeline(side) for side in found.arms],
        "unit": max(1, max(max(side.alive, default=0) for side in found.arms)),
    }


def _verdict(before: int | None, after: int | None) -> tuple[str, str]:
    """The verdict that colours it, and what the badge says."""
    if before is None or after is None:
        return "unclear", "not countable"
    if not before and not after:
        return "unclear", "no tensors"
    if before and after and abs(math.log(after / before)) <= SAME:
        return "same", "same memory"
    if after < before:
        return "faster", "less memory"
    return "slower", "more memory"


def _timeline(side: Timeline) -> dict[str, Any]:
    """One side's curve, as bytes of float32; where its parts begin, as parts of its length."""
    alive = np.asarray(side.alive, np.float32)
    parts = [[begin / max(1, len(alive)), name] for begin, name in side.parts]
    peak = float(np.argmax(alive) + 0.5) / len(alive) if len(alive) else 0.0
    return {
        "alive": _highest_of_each(alive).tobytes(),
        "parts": parts,
        "before": side.before,
        "most": format_bytes(float(np.max(alive))) if len(alive) else "",
        "at": peak,
    }


def _highest_of_each(alive: np.ndarray) -> np.ndarray:
    """Thinned such that no peak is lost."""
    if len(alive) <= MOST_POINTS:
        return alive
    pieces = np.array_split(alive, MOST_POINTS)
    return np.asarray([piece.max() for piece in pieces], np.float32)
