"""15, zeroing gradients: what shows that the technique acts."""

from typing import Any

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """Filling with zeros runs an operator for each of 16 gradients, and keeps them."""
    zeros, none = counters(names), counters(names, way="none")
    assert zeros.launches == none.launches + 16
    assert zeros.flops == none.flops
