"""The call without widgets that does what a panel shows, as source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.controls import Settings
from labkit.lab import Lab
from labkit.results import same_value


def call_of(
    lab: Lab,
    method: str,
    baseline: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    seconds: float | None = None,
    sweep: str | None = None,
    follow: bool = False,
) -> str:
    """As in ``lab.run(amp=True)``: only what differs from the lab's defaults is written.

    ``method`` is "run", "timeline" or "race"; with ``sweep``, a control, it is that of a sweep.
    """
    given = _differing(settings, lab.defaults)
    own = {name: value for name, value in baseline.items() if name in lab.technique}
    base = _differing(own, lab.defaults)
    arguments: list[str] = []
    if sweep is not None:
        method, arguments = "sweep", [repr(sweep)]
        given.pop(sweep, None)
        if follow:
            base.pop(sweep, None)
    if method == "race":
        arguments.append(repr(given))
    else:
        arguments += [f"{name}={value!r}" for name, value in given.items()]
    if follow and sweep in lab.technique:
        arguments.append("follow=True")
    if base:
        arguments.append(f"baseline={base!r}")
    if seconds is not None and method in ("run", "sweep"):
        arguments.append(f"seconds={seconds:g}")
    return f"lab.{method}({', '.join(arguments)})"


def _differing(settings: Mapping[str, Any], reference: Mapping[str, Any]) -> Settings:
    return {
        name: value for name, value in settings.items() if not same_value(value, reference[name])
    }
