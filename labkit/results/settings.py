"""Settings of two sides. When two are the same: one rule, for runs of now and for recorded ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar

ROLES = ("baseline", "candidate")


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


class _Set(Protocol):
    """What has settings."""

    @property
    def settings(self) -> dict[str, Any]: ...


Side = TypeVar("Side", bound=_Set)


class Sides(Generic[Side]):
    """Two sides that were held against each other, and what their settings have in common."""

    baseline: Side
    candidate: Side
    names: tuple[str, str] | None

    @property
    def roles(self) -> tuple[str, str]:
        """What the sides are called: baseline and candidate, or by names of their own."""
        return self.names or ROLES

    @property
    def arms(self) -> tuple[Side, Side]:
        """Both sides, the baseline first."""
        return self.baseline, self.candidate

    @cached_property
    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The settings in which the sides differ: name -> (baseline's value, candidate's)."""
        return changed(self.baseline.settings, self.candidate.settings)

    @cached_property
    def shared(self) -> dict[str, Any]:
        """The settings that both sides have alike: name -> value."""
        settings = self.candidate.settings
        return {name: value for name, value in settings.items() if name not in self.changed}
