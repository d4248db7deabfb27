"""A budget as people write it: a number of bytes, or a text such as "6 GB"."""

from __future__ import annotations

import re

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY = {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TEXT = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b\s*", re.IGNORECASE)


def in_bytes(budget: float | str | None) -> float | None:
    """``"6 GB"`` -> 6 * 10**9, ``"6 GiB"`` -> 6 * 2**30; numbers and None stay what they are.

    Raises ValueError for any other text.
    """
    if not isinstance(budget, str):
        return budget
    found = _TEXT.fullmatch(budget)
    if found is None or (found[3] and not found[2]):
        raise ValueError(
            f"budget={budget!r}: a number of bytes is accepted, or a text such as '6 GB' or "
            "'500 MB' (powers of 1000) and '6 GiB' or '500 MiB' (powers of 1024)"
        )
    units = _BINARY if found[3] else _UNITS
    return int(float(found[1]) * units[found[2].lower()])
