"""10, host and device: what shows that the technique acts."""

from typing import Any

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    every, once = (counters(names, read_every=number).host_reads for number in (1, 16))
    assert (every, once) == (16, 1)
