"""A lab's controls and scenarios: what each lists, and which values it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from labkit.results import changed, same_value
from labkit.text import format_settings

Settings = dict[str, Any]
# What a scenario calls the settings of its baseline, where these are not the first values.
BASELINE = "baseline"
# The values of each control, the baseline's first.
Controls = Mapping[str, tuple[Any, ...]]


def all_controls(
    technique: Mapping[str, Iterable[Any]], situation: Mapping[str, Iterable[Any]] | None
) -> dict[str, tuple[Any, ...]]:
    """The values of every control, the technique first."""
    situation = situation or {}
    if twice := set(technique) & set(situation):
        raise TypeError(
            f"{names(twice)} is given twice: a control belongs to the technique, in which the "
            "sides differ, or to situation, which is the same on both"
        )
    controls = {}
    for name, values in (*technique.items(), *situation.items()):
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise TypeError(
                f"{name}={values!r}: list the control's values, the baseline first, "
                f"as in {name}=[{values!r}]"
            )
        controls[name] = tuple(values)
        if not controls[name]:
            raise ValueError(f"{name}=[]: a control needs at least one value, the baseline")
    return controls


def check_names(controls: Controls, methods: Iterable[Callable[..., Any]]) -> None:
    """TypeError for a control named like an argument of ``methods`` that is given by name."""
    taken: list[inspect.Parameter] = []
    for method in methods:
        taken += inspect.signature(method).parameters.values()
    by_name = {each.name for each in taken if each.kind is not each.POSITIONAL_ONLY}
    if reserved := set(controls) & by_name:
        raise TypeError(
            f"a control cannot be named {names(reserved)}: "
            "lab.run or lab.sweep has such an argument"
        )


def check_signature(make_workload: Callable[..., Any], controls: Controls) -> None:
    """TypeError when the controls are not the keywords of ``make_workload``."""
    wants = inspect.signature(make_workload)
    try:
        wants.bind(**controls)
    except TypeError as error:
        raise TypeError(
            f"make_workload{wants} cannot be called with the controls {names(controls)}: {error}"
        ) from None


def check_known(what: str, given: Iterable[str], controls: Controls) -> None:
    """TypeError for a name that is no control's."""
    if unknown := set(given) - set(controls):
        raise TypeError(f"{what} {names(unknown)}; the controls are {names(controls)}")


def check_value(name: str, value: Any, listed: tuple[Any, ...]) -> None:
    """ValueError for a word or switch that the control does not list.

    Other numbers than those listed are accepted where numbers are.
    """
    if any(type(value) is type(other) and value == other for other in listed):
        return
    numbers = any(map(is_number, listed))
    if numbers and is_number(value):
        return
    if isinstance(value, bool | str) or is_number(value):
        accepted = ", ".join(map(repr, listed))
        if numbers:
            accepted += ", or another number"
        raise ValueError(f"{name}={value!r}: use {accepted}")


def is_number(value: Any) -> bool:
    """Whether a control's value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def all_scenarios(
    scenarios: Mapping[str, Mapping[str, Any]], controls: Controls, technique: Iterable[str]
) -> dict[str, Settings]:
    """What was given as ``scenarios``; ValueError for an unlisted value: a panel has to show it."""
    of_technique = {control: controls[control] for control in technique}
    for name, settings in scenarios.items():
        own, candidate = sides_of(settings)
        _check_listed(f"scenario {name!r}", candidate, controls)
        _check_listed(f"the baseline of scenario {name!r}", own, of_technique)
    return {name: dict(settings) for name, settings in scenarios.items()}


def sides_of(scenario: Mapping[str, Any]) -> tuple[Any, Settings]:
    """The baseline's own settings of a scenario, and the rest."""
    rest = dict(scenario)
    return rest.pop(BASELINE, {}), rest


def _check_listed(who: str, settings: Mapping[str, Any], controls: Controls) -> None:
    """TypeError for an unknown control, ValueError for a value that is not listed."""
    check_known(f"{who} names", settings, controls)
    for control, value in settings.items():
        if not any(_same(value, listed) for listed in controls[control]):
            accepted = ", ".join(map(repr, controls[control]))
            raise ValueError(f"{who} sets {control}={value!r}, which is not listed: use {accepted}")


def _same(value: Any, listed: Any) -> bool:
    """Equal, and both switches or neither: 1 is not True here."""
    return isinstance(value, bool) == isinstance(listed, bool) and same_value(value, listed)


def scenario_settings(scenarios: Mapping[str, Settings], name: str | None) -> Settings:
    """The settings of the scenario of that name, {} for None. ValueError for an unknown one."""
    if name is None:
        return {}
    if not isinstance(name, str) or name not in scenarios:
        raise ValueError(
            f"unknown scenario {name!r}; the scenarios of this lab are {names(scenarios)}; "
            "settings are given by keyword, as in lab.run(width=8)"
        )
    return scenarios[name]


def difference(settings: Mapping[str, Any], from_these: Mapping[str, Any]) -> str:
    """What ``settings`` change, in words; "" for nothing."""
    differs = changed(from_these, settings)
    return format_settings({name: after for name, (_, after) in differs.items()})


def names(given: Iterable[str]) -> str:
    """Names in quotes, in alphabetical order."""
    return ", ".join(map(repr, sorted(given))) or "none"
