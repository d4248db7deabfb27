"""01, calls: what shows that the technique acts."""

from typing import Any

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """The same operations in fewer calls."""
    n, ways = names["N"], ("column", "row", "8 rows", "all")
    column, row, eight, whole = (counters(names, per_call=way) for way in ways)
    assert eight.launches == n // 8 * whole.launches
    assert min(column.launches, row.launches) > 4 * eight.launches
    assert row.flops == eight.flops == whole.flops == 2 * n**3
