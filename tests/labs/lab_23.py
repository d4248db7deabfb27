"""23, find the bottleneck: what shows that the technique acts."""

from typing import Any

from labkit import count


def alive(names: dict[str, Any]) -> None:
    """Fewer operators without anomaly mode and with a fused update, fewer bytes kept in bf16."""
    counted = {}
    no_tool = {"anomaly_mode": False}
    for mended in ({}, no_tool, {"fused": True}, no_tool | {"bf16": True}):
        # Also where bf16 is withheld, because it is slow.
        step = names["make_workload"](**names["lab"].defaults | mended).step
        step()
        counted[tuple(mended)] = count(step)
    slow = counted[()]
    assert counted["anomaly_mode",].launches < 0.8 * slow.launches
    assert counted["fused",].launches < 0.8 * slow.launches
    kept = counted["anomaly_mode", "bf16"].saved_bytes
    assert 0 < kept < counted["anomaly_mode",].saved_bytes
