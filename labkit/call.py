"""The headless call for settings that a panel shows, as source: only what differs is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from labkit.controls import Settings
from labkit.results import same_value


@dataclass(frozen=True)
class Call:
    """What the settings of both sides are held against.

    ``defaults`` are those of the lab, ``situation`` the names that set both sides, ``scenario`` the
    settings of the named scenario.
    """

    defaults: Settings
    situation: tuple[str, ...]
    scenario: Settings

    def given(self, settings: Mapping[str, Any]) -> Settings:
        """What the call has to name."""
        return differing(settings, self.defaults | self.scenario)

    def baseline(self, settings: Mapping[str, Any], given: Settings) -> Settings:
        """What it has to name of the baseline, beside what it has ``given``."""
        shared = self.scenario | given
        reference = dict(self.defaults)
        for name in self.situation:
            if name in shared:
                reference[name] = shared[name]
        return differing(settings, reference)

    def sweep(
        self,
        control: str,
        follow: bool,
        given: Settings,
        base: Settings,
        baseline: Mapping[str, Any],
    ) -> list[str]:
        """The arguments of a sweep of ``control``, taken out of ``given`` and ``base``."""
        given.pop(control, None)
        if follow:
            base.pop(control, None)
        elif control in self.situation:
            # Else the baseline would follow.
            base[control] = baseline[control]
        arguments = keywords(given)
        if follow and control not in self.situation:
            arguments.append("follow=True")
        return arguments


def differing(settings: Mapping[str, Any], reference: Mapping[str, Any]) -> Settings:
    """The settings that are not those of ``reference``."""
    return {
        name: value for name, value in settings.items() if not same_value(value, reference[name])
    }


def keywords(settings: Mapping[str, Any]) -> list[str]:
    """Settings as the arguments of a call."""
    return [f"{name}={value!r}" for name, value in settings.items()]
