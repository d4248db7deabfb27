"""Controls that change nothing with some settings of the others, and why, in words.

A lab is given one function for such a control: ``{"prefetch": lambda s: s["workers"] == 0}``. The
reason is read off what the function looks at: "changes nothing with workers=0".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from labkit.controls import names
from labkit.text import format_settings

# Takes the settings of one side: whether its control is idle, or why, in words.
Idle = Callable[[Mapping[str, Any]], object]


class _Watched(Mapping[str, Any]):
    """Settings that note which of them were read."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self.read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        self.read[name] = self._settings[name]
        return self.read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)


def why_idle(idle: Idle, settings: Mapping[str, Any]) -> str | None:
    """Why a control changes nothing with these settings, or None when it does."""
    watched = _Watched(settings)
    found = idle(watched)
    if not found:
        return None
    if isinstance(found, str):
        return found
    if not watched.read:
        return "changes nothing here"
    return f"changes nothing with {format_settings(watched.read)}"


def checked_idle(
    idle: Mapping[str, Idle] | None, controls: Mapping[str, tuple[Any, ...]]
) -> dict[str, Idle]:
    """What was given as ``idle``, found to name controls and to be functions of the settings.

    TypeError for an unknown control, for what is no function, and for a function that reads what is
    no control. Each is tried on the defaults and on each other value of one control.
    """
    if not isinstance(idle, Mapping | None):
        raise TypeError(
            f"idle={idle!r}: give a dict, control -> function of the settings, as in "
            'idle={"prefetch": lambda s: s["workers"] == 0}'
        )
    checked = dict(idle or {})
    if unknown := set(checked) - set(controls):
        raise TypeError(f"idle names {names(unknown)}; the controls are {names(controls)}")
    defaults = {name: values[0] for name, values in controls.items()}
    for name, function in checked.items():
        if not callable(function):
            raise TypeError(
                f"idle of {name!r} is {function!r}: give a function of the settings, as in "
                'lambda s: s["workers"] == 0'
            )
        try:
            for control, values in controls.items():
                for value in values:
                    why_idle(function, defaults | {control: value})
        except KeyError as error:
            raise TypeError(
                f"idle of {name!r} reads {error.args[0]!r}; the controls are {names(controls)}"
            ) from None
    return checked
