"""00, start here: what shows that the technique acts."""

from typing import Any

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    assert counters(names).flops == 64 * counters(names, rows=1).flops
