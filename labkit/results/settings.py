"""When two settings are the same: the one rule, for runs of now and for those read from records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def same_value(one: Any, other: Any) -> bool:
    """Whether two values of a setting are the same: equal numbers, or values with the same text.

    By text since a record holds a dtype, say, by its name, and what was read from it has to equal
    what runs here.
    """
    if isinstance(one, int | float) and isinstance(other, int | float) and one == other:
        return True
    return str(one) == str(other)


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that differ: name -> (value before, value after).

    None stands where a side lacks the setting.
    """
    differing = {}
    for name in dict.fromkeys([*after, *before]):
        pair = before.get(name), after.get(name)
        if not same_value(*pair):
            differing[name] = pair
    return differing
