"""Text: numbers as people read them, and tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

_SECONDS = (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0))


def format_seconds(seconds: float | None) -> str:
    """``0.00123`` -> ``'1.23 ms'``; None or nan -> ``'-'``; infinity -> ``'never'``."""
    if seconds is None or math.isnan(seconds):
        return "-"
    if math.isinf(seconds):
        return "never"
    return _in_unit(seconds, _SECONDS)


def share_of(part: float, whole: float) -> tuple[str, str]:
    """Two times in the unit of the second: ``0.0003, 0.0412`` -> ``('0.30', '41.2 ms')``."""
    text = format_seconds(whole)
    scale = dict(_SECONDS)[text.split()[1]]
    return _three_digits(part / scale), text


def number_of(count: int, word: str) -> str:
    """``1, 'build'`` -> ``'one build'``; ``3, 'build'`` -> ``'3 builds'``."""
    if count == 1:
        return f"one {word}"
    return f"{count} {word}s"


def format_steps(steps: float) -> str:
    """``12.5`` -> ``'12.5'``; nan -> ``'-'``; infinity -> ``'never'``."""
    if math.isnan(steps):
        return "-"
    if math.isinf(steps):
        return "never"
    return f"{steps:g}"


def format_bytes(size: float | None) -> str:
    """``3 * 2**20`` -> ``'3.00 MiB'``; None -> ``'-'``."""
    if size is None:
        return "-"
    # There are no parts of a byte.
    whole = f"{size:.0f}"
    if not float(whole) >= 1024:
        return f"{whole} B"
    return _in_unit(size, (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30)), step=1024)


def format_rate(rate: float | None, unit: str = "samples") -> str:
    """``1234567, 'samples'`` -> ``'1.23 M samples/s'``."""
    if rate is None or math.isnan(rate):
        return "-"
    prefixes = (("", 1.0), ("k ", 1e3), ("M ", 1e6), ("G ", 1e9), ("T ", 1e12))
    return _in_unit(rate, [(f"{prefix}{unit}/s", scale) for prefix, scale in prefixes])


def format_share(ratio: float) -> str:
    """``0.523`` -> ``'52 %'``; one decimal below 10 %; nan -> ``'-'``."""
    if math.isnan(ratio):
        return "-"
    return f"{100 * ratio:.{0 if ratio >= 0.0995 else 1}f} %"


def format_factor(ratio: float) -> str:
    """``1.504`` -> ``'1.50'``; three decimals near 1, two significant digits below 0.1; nan ->
    ``'-'``.
    """
    if math.isnan(ratio):
        return "-"
    if ratio < 0.1:
        return f"{ratio:.2g}"
    if 0.9 < ratio < 1.1:
        return f"{ratio:.3f}"
    if ratio < 100:
        return f"{ratio:.2f}"
    return f"{ratio:,.0f}"


def format_interval(low: float, high: float, digits: int = 3) -> str:
    """``0.5, inf`` -> ``'[0.500, ∞]'``; nan -> ``''``."""
    if math.isnan(low + high):
        return ""
    ends = ("∞" if math.isinf(end) else f"{end:.{digits}f}" for end in (low, high))
    return f"[{', '.join(ends)}]"


def format_short(value: float) -> str:
    """A number in few letters: ``1500`` -> ``'1.5 k'``; nan -> ``'-'``."""
    if math.isnan(value):
        return "-"
    for scale, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g}"


def format_settings(settings: dict[str, Any]) -> str:
    """``{'amp': True, 'batch_size': 64}`` -> ``'amp=True, batch_size=64'``: the way they stand in a
    call.
    """
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def listed(found: Iterable[tuple[str, object]]) -> str:
    """Words and where they are true: ``'faster at 64, 256; unclear at 8'``."""
    places: dict[str, list[str]] = {}
    for words, place in found:
        places.setdefault(words, []).append(str(place))
    return "; ".join(f"{words} at {', '.join(names)}" for words, names in places.items())


def _in_unit(value: float, units: Sequence[tuple[str, float]], step: float = 1000) -> str:
    """The value in the smallest unit in which it is less than ``step`` once it is rounded."""
    *smaller, (largest, most) = units
    for unit, scale in smaller:
        digits = _three_digits(value / scale)
        if float(digits) < step:
            return f"{digits} {unit}"
    return f"{_three_digits(value / most)} {largest}"


def _three_digits(value: float) -> str:
    """``1.5`` -> ``'1.50'``, ``99.96`` -> ``'100'``; two decimals below 1."""
    for decimals, end in ((2, 10), (1, 100)):
        text = f"{value:.{decimals}f}"
        if float(text) < end:
            return text
    return f"{value:.0f}"


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows of texts as a table whose columns stand below each other; empty without rows."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in lines)
