"""Scenarios: named settings of a lab, chosen by one click or by one word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from labkit.controls import Settings, names
from labkit.results import same_value


def checked_scenarios(
    scenarios: Mapping[str, Mapping[str, Any]] | None, controls: Mapping[str, tuple[Any, ...]]
) -> dict[str, Settings]:
    """What was given as ``scenarios``, found to name controls and values that they list.

    TypeError for an unknown control and for what is no dict, ValueError for a value that is not
    listed: a panel has to show it.
    """
    if not isinstance(scenarios, Mapping | None):
        raise TypeError(
            f"scenarios={scenarios!r}: give a dict, name -> settings, as in "
            'scenarios={"small": {"width": 8}}'
        )
    checked: dict[str, Settings] = {}
    for name, settings in (scenarios or {}).items():
        if not isinstance(name, str) or not isinstance(settings, Mapping):
            raise TypeError(
                f"scenario {name!r}: {settings!r}: give a name and a dict of settings, as in "
                '{"small": {"width": 8}}'
            )
        if unknown := set(settings) - set(controls):
            raise TypeError(
                f"scenario {name!r} names {names(unknown)}; the controls are {names(controls)}"
            )
        for control, value in settings.items():
            if not any(_same(value, listed) for listed in controls[control]):
                accepted = ", ".join(map(repr, controls[control]))
                raise ValueError(
                    f"scenario {name!r} sets {control}={value!r}, which is not listed: "
                    f"use {accepted}"
                )
        checked[name] = dict(settings)
    return checked


def _same(value: Any, listed: Any) -> bool:
    """Equal, and both switches or neither: 1 is not True here."""
    return isinstance(value, bool) == isinstance(listed, bool) and same_value(value, listed)


def scenario_settings(scenarios: Mapping[str, Settings], name: object) -> Settings:
    """The settings of the scenario of that name. TypeError for what is no name, else ValueError."""
    known = names(scenarios)
    if not isinstance(name, str):
        raise TypeError(
            f"{name!r}: name a scenario ({known}); settings are given by keyword, as in "
            "lab.run(width=8)"
        )
    if name not in scenarios:
        raise ValueError(f"unknown scenario {name!r}; the scenarios of this lab are {known}")
    return dict(scenarios[name])
