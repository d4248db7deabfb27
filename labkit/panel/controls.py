"""The widgets that a reader sets.

Two for each control of the technique, one for either side; one for each of the situation, which a
link splits into two.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import ipywidgets as W

from labkit.lab import Lab

# Whatever a lab's control lists.
Value = Any
AnyWidget = TypeVar("AnyWidget", bound=W.Widget)


class Control:
    """The widgets of one control, and the ``values`` that this machine offers.

    One value alone leaves nothing to set. A control of the technique has a widget for each side. A
    control of the situation has a ``link``: while it is on, the candidate's widget stands for both,
    and the baseline's is hidden and follows.
    """

    def __init__(
        self, lab: Lab, name: str, values: tuple[Value, ...], candidate: Value, *, linked: bool
    ) -> None:
        self.name = name
        self.values = values
        self.baseline = _choice(lab, name, values, values[0], "baseline")
        self.candidate = _choice(lab, name, values, candidate, "candidate")
        self.label = marked(W.Label(heading(lab, name)), "name")
        self.link: W.ToggleButton | None = None
        if linked:
            self.link = _link(name)
            self.link.observe(self._link_changed, "value")
            self.candidate.observe(self._follow, "value")
            self._link_changed(None)

    @property
    def settable(self) -> bool:
        return len(self.values) > 1

    @property
    def linked(self) -> bool:
        """Whether one widget stands for both sides."""
        return self.link is not None and self.link.value

    def of(self, side: str) -> W.ValueWidget:
        """The widget of the "baseline" or the "candidate"."""
        return {"baseline": self.baseline, "candidate": self.candidate}[side]

    def cells(self) -> list[W.Widget]:
        """The line of this control in the grid: its name, its widgets, its link."""
        return [self.label, self.baseline, self.candidate, self.link or W.Label("")]

    def put(self, **values: Value) -> None:
        """Set the widgets of the named sides."""
        for side, value in values.items():
            self.of(side).value = value

    def _follow(self, _: object) -> None:
        if self.linked:
            self.baseline.value = self.candidate.value

    def _link_changed(self, _: object) -> None:
        assert self.link is not None
        self._follow(None)
        self.link.icon = "link" if self.linked else "chain-broken"
        self.link.tooltip = "Set each side alone" if self.linked else "Set both sides alike"
        for widget in (self.baseline, self.candidate):
            if self.linked:
                widget.add_class("labkit-linked")
            else:
                widget.remove_class("labkit-linked")


def make_controls(lab: Lab) -> dict[str, Control]:
    """The controls of a lab.

    At first the sides differ in the first one of the technique that can be set.
    """
    made: dict[str, Control] = {}
    differ = False
    for name, values in lab.controls.items():
        offered = tuple(value for value in values if not lab.why_not(name, value)) or values[:1]
        second = offered[0]
        if len(offered) > 1 and not differ and name in lab.technique:
            second, differ = offered[1], True
        made[name] = Control(lab, name, offered, second, linked=name in lab.situation)
    return made


def heading(lab: Lab, name: str) -> str:
    """The name of a control, and below it what this machine cannot show and why."""
    reasons = lab.unavailable.get(name, {})
    if isinstance(reasons, str):
        return f"{name}\n{reasons}"
    lines = [name]
    for value, why in reasons.items():
        lines.append(f"{value}: {why}")
    return "\n".join(lines)


def marked(widget: AnyWidget, *names: str) -> AnyWidget:
    """The widget with CSS classes of ours."""
    for name in names:
        widget.add_class(f"labkit-{name}")
    return widget


def tree(widget: W.Widget) -> Iterator[W.Widget]:
    """A widget and all below it, children first."""
    for child in getattr(widget, "children", ()):
        yield from tree(child)
    yield widget


def parts(widget: W.Widget) -> Iterator[W.Widget]:
    """The tree with the layout and the style of each of its widgets, which come before it."""
    for each in tree(widget):
        for name in ("layout", "style"):
            if isinstance(part := getattr(each, name, None), W.Widget):
                yield part
        yield each


def _link(name: str) -> W.ToggleButton:
    return marked(W.ToggleButton(value=True), "link", f"{name}-link")


def _choice(
    lab: Lab, name: str, values: tuple[Value, ...], value: Value, side: str
) -> W.ValueWidget:
    """A widget for one side of one control, as ``ipywidgets.interact`` would choose it."""
    settable = len(values) > 1
    if all(isinstance(item, bool) for item in lab.controls[name]):
        widget, kind = _toggle(value, settable), "toggle"
    elif settable and all(map(_is_number, values)):
        pairs = sorted(_texts(values), key=lambda pair: pair[1])
        widget, kind = W.SelectionSlider(options=pairs, value=value), "slider"
    else:
        pairs = _texts(values)
        widget, kind = W.Dropdown(options=pairs, value=value, disabled=not settable), "dropdown"
    names = [kind, side, f"{name}-{side}"]
    if not settable:
        names.append("disabled")
    return marked(widget, *names)


def _toggle(value: Value, settable: bool) -> W.Checkbox:
    words = {True: "on", False: "off"}
    widget = W.Checkbox(
        value=value, indent=False, description=words[bool(value)], disabled=not settable
    )
    widget.observe(
        lambda change: setattr(widget, "description", words[change["new"]]), names="value"
    )
    return widget


def _texts(values: tuple[Value, ...]) -> list[tuple[str, Value]]:
    pairs = []
    for item in values:
        text = f"{item:g}" if isinstance(item, float) else str(item)
        pairs.append((text, item))
    return pairs


def _is_number(item: Value) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)
