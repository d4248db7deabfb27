"""23, find the bottleneck: what shows that the technique acts."""

from typing import Any

from labkit import count


def alive(names: dict[str, Any]) -> None:
    """Fewer operators without anomaly mode and with a fused update, fewer bytes kept in bf16."""
    counted = {}
    for mended in ({}, {"tools_off": True}, {"fused": True}, {"tools_off": True, "bf16": True}):
        # Also where bf16 is withheld, because it is slow.
        step = names["make_workload"](**names["lab"].defaults | mended).step
        step()
        counted[tuple(mended)] = count(step)
    slow = counted[()]
    assert counted["tools_off",].launches < 0.8 * slow.launches
    assert counted["fused",].launches < 0.8 * slow.launches
    kept = counted["tools_off", "bf16"].saved_bytes
    assert 0 < kept < counted["tools_off",].saved_bytes
