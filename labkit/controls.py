"""A lab's controls: the values that each lists, and which others it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from labkit.results import changed
from labkit.text import format_settings

Settings = dict[str, Any]


def listed_values(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """The values of one control. TypeError for no list, ValueError for an empty one."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(
            f"{name}={values!r}: list the control's values, the baseline first, "
            f"as in {name}=[{values!r}]"
        )
    listed = tuple(values)
    if not listed:
        raise ValueError(f"{name}=[]: a control needs at least one value, the baseline")
    return listed


def check_value(name: str, value: Any, listed: tuple[Any, ...]) -> None:
    """ValueError for a word or switch that the control does not list.

    Other numbers than those listed are accepted where numbers are.
    """
    for other in listed:
        if type(value) is type(other) and value == other:
            return
    numbers = any(map(_is_number, listed))
    if numbers and _is_number(value):
        return
    if isinstance(value, bool | str) or _is_number(value):
        accepted = ", ".join(map(repr, listed))
        if numbers:
            accepted += ", or another number"
        raise ValueError(f"{name}={value!r}: use {accepted}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def all_controls(
    technique: Mapping[str, Iterable[Any]], situation: Mapping[str, Iterable[Any]] | None
) -> dict[str, tuple[Any, ...]]:
    """The values of every control, the technique first.

    TypeError for a name that both have.
    """
    if not isinstance(situation, Mapping | None):
        raise TypeError(
            f"situation={situation!r}: give a dict, control -> its values, as in "
            'situation={"batch_size": [64, 256]}'
        )
    situation = situation or {}
    if twice := set(technique) & set(situation):
        raise TypeError(
            f"{names(twice)} is given twice: a control belongs to the technique, in which the "
            "sides differ, or to situation, which is the same on both"
        )
    controls = {}
    for name, values in (*technique.items(), *situation.items()):
        controls[name] = listed_values(name, values)
    return controls


def check_names(controls: Mapping[str, Any], methods: Iterable[Callable[..., Any]]) -> None:
    """TypeError for a control named like an argument of ``methods`` that is given by name."""
    taken: set[str] = set()
    for method in methods:
        for name, parameter in inspect.signature(method).parameters.items():
            if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
                taken.add(name)
    if reserved := set(controls) & taken:
        raise TypeError(
            f"a control cannot be named {names(reserved)}: "
            "lab.run or lab.sweep has such an argument"
        )


def check_signature(make_workload: Callable[..., Any], controls: Mapping[str, Any]) -> None:
    """TypeError when the controls are not the keywords of ``make_workload``."""
    wants = inspect.signature(make_workload)
    try:
        wants.bind(**controls)
    except TypeError as error:
        raise TypeError(
            f"make_workload{wants} cannot be called with the controls {names(controls)}: {error}"
        ) from None


def difference(settings: Mapping[str, Any], from_these: Mapping[str, Any]) -> str:
    """What ``settings`` change, in words; "" for nothing."""
    differs = {}
    for name, (_, after) in changed(from_these, settings).items():
        differs[name] = after
    return format_settings(differs)


def names(given: Iterable[str]) -> str:
    """Names in quotes, in alphabetical order."""
    return ", ".join(repr(name) for name in sorted(given)) or "none"
