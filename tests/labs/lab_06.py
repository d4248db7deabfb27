"""06, mixed precision: what shows that the technique acts."""

from typing import Any

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    plain, cast = counters(names), counters(names, precision="bf16")
    assert cast.saved_bytes < 0.75 * plain.saved_bytes
    assert cast.flops == plain.flops
