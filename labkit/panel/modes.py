"""The modes of a panel: what is measured, and the call that does it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from labkit.lab import Lab
from labkit.panel.run import Job
from labkit.workers import Workers

TIME, MEMORY, RACE = "Time", "Memory", "Race"
# The method of a lab that each calls.
METHODS = {TIME: "run", MEMORY: "timeline", RACE: "race"}


def modes_of(lab: Lab) -> tuple[str, ...]:
    """The modes that a lab offers, the one that it opens in first."""
    modes = [TIME]
    if lab.memory and not isinstance(lab.runs_in, Workers):
        modes.append(MEMORY)
    if lab.race_options:
        modes.append(RACE)
    return tuple(modes)


def job_of(
    lab: Lab, mode: str, baseline: Mapping[str, Any], settings: Mapping[str, Any], seconds: float
) -> Job:
    """What a run in this mode does; it takes ``on_update`` and ``stop``."""
    if mode == MEMORY:
        return partial(_remember, lab, baseline, settings)
    if mode == RACE:
        return partial(_race, lab, baseline, settings)
    return partial(_time, lab, baseline, settings, seconds)


def _time(
    lab: Lab,
    baseline: Mapping[str, Any],
    settings: Mapping[str, Any],
    seconds: float,
    *,
    on_update: Any,
    stop: Any,
) -> Any:
    return lab.run(
        baseline=baseline,
        seconds=seconds,
        on_update=on_update,
        on_rough=on_update,
        stop=stop,
        **settings,
    )


def _remember(
    lab: Lab, baseline: Mapping[str, Any], settings: Mapping[str, Any], *, on_update: Any, stop: Any
) -> Any:
    return lab.timeline(baseline=baseline, stop=stop, **settings)


def _race(
    lab: Lab, baseline: Mapping[str, Any], settings: Mapping[str, Any], *, on_update: Any, stop: Any
) -> Any:
    return lab.race(settings, baseline=baseline, on_update=on_update, on_point=on_update, stop=stop)
