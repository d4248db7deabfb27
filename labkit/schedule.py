"""The learning rate and momentum that a scheduler will give, step by step, without touching it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labkit.plots import GREY, legend, new_figure
from labkit.restore import preserve_rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Phase(NamedTuple):
    """A stretch of a one-cycle schedule, from step ``start`` to step ``end``."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class ScheduleCurve:
    """Learning rates (steps, groups), momenta (steps, groups) or None, and phases where the curve
    is one cycle.

    Row ``i`` holds what the optimizer's step ``i`` uses. Momentum is SGD's ``momentum`` or the
    first of Adam's betas, nan in a group that has neither.
    """

    lrs: np.ndarray
    momenta: np.ndarray | None
    phases: tuple[Phase, ...]


def schedule_curve(scheduler: Any, steps: int) -> ScheduleCurve:
    """The next ``steps`` steps of a scheduler; it, its optimizer and the random numbers stay as
    they are.

    What runs is a copy, yet a function that counts its own calls cannot be copied. ValueError for a
    scheduler that ends before ``steps``, or waits for a metric.
    """
    name = type(scheduler).__name__
    if not (hasattr(scheduler, "optimizer") and hasattr(scheduler, "step")):
        raise TypeError(
            f"expected a scheduler with an optimizer, as in torch.optim.lr_scheduler, got {name}"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps={steps!r}: expected a whole number of steps, at least 1")
    rates, momenta = [], []
    with preserve_rng():
        twin = _twin(scheduler)
        for i in range(steps):
            try:
                if i > 0:
                    twin.step()
            except Exception as error:
                raise ValueError(f"{name} ends after {i} of {steps} steps: {error}") from error
            groups = twin.optimizer.param_groups
            rates.append([float(group["lr"]) for group in groups])
            momenta.append(
                [float(group.get("momentum", group.get("betas", (np.nan,))[0])) for group in groups]
            )
    lrs, moments = np.array(rates), np.array(momenta)
    phases = _phases(scheduler, lrs[:, 0], moments[:, 0])
    return ScheduleCurve(lrs, None if np.isnan(moments).all() else moments, phases)


def _twin(scheduler: Any) -> Any:
    """A deep copy of ``scheduler`` on a stand-in for its optimizer: the same parameters, a copy of
    the settings.
    """
    optimizer = scheduler.optimizer
    twin = object.__new__(type(optimizer))
    # Never called; with these two marks torch has no cause to warn.
    step = SimpleNamespace(_wrapped_by_lr_sched=True)
    vars(twin).update(vars(optimizer), state={}, step=step, _opt_called=True)
    twin.param_groups = [
        {
            key: list(value) if key == "params" else copy.deepcopy(value)
            for key, value in group.items()
        }
        for group in optimizer.param_groups
    ]
    return copy.deepcopy(scheduler, {id(optimizer): twin})


def _phases(scheduler: Any, lr: np.ndarray, momentum: np.ndarray) -> tuple[Phase, ...]:
    """The phases, if ``lr`` rises once and then falls below its start (1cycle: Smith 2018,
    arXiv:1803.09820).
    """
    way, momentum_way = _ways(lr), _ways(momentum)
    up, down = np.flatnonzero(way > 0), np.flatnonzero(way < 0)
    if not (up.size and down.size and up[-1] < down[0] and lr[-1] < lr[0]):
        return ()
    turns = (np.diff(way) != 0) | (np.diff(momentum_way) != 0)
    cuts = (np.flatnonzero(turns) + 1).tolist()
    # torch's own: phases that follow each other without a turn.
    known = getattr(scheduler, "_schedule_phases", ())
    if len(known) > 1:
        cuts = [phase["end_step"] - scheduler.last_epoch for phase in known[:-1]]
    edges = [0, *(cut for cut in cuts if 0 < cut < len(lr) - 1), len(lr) - 1]
    phases: list[Phase] = []
    for start, end in pairwise(edges):
        rise = np.diff(np.interp((start, end), range(len(lr)), lr)).item()
        fallen = any(phase.name == "annealing" for phase in phases)
        phases.append(Phase(_phase_name(rise, fallen), start, end))
    return tuple(phases)


def _ways(values: np.ndarray) -> np.ndarray:
    """Of each step: 1 where the values rise, -1 where they fall, 0 where they stay."""
    known = np.nan_to_num(values)
    largest = np.abs(known).max(initial=1e-300)
    return np.sign(np.round(np.diff(known) / largest, 12))


def _phase_name(rise: float, fallen: bool) -> str:
    """By how far the rate rises in the phase, and whether it has fallen in one before."""
    if rise > 0:
        return "warm-up"
    if rise == 0:
        return "constant"
    if fallen:
        return "annihilation"
    return "annealing"


def plot_schedule(scheduler: Any, steps: int, *, dark: bool = False) -> Figure:
    """Learning rate and momentum of a scheduler over its next ``steps`` steps; one-cycle with its
    phases labelled.

    One line per parameter group where they differ. ``dark`` draws for a dark page. The scheduler
    stays as it is.

    TypeError for what is no scheduler; ValueError for ``steps`` that are not a positive whole
    number, and for a scheduler that ends before ``steps``, or waits for a metric. One-cycle: Smith
    and Topin 2017, arXiv:1708.07120; Smith 2018, arXiv:1803.09820.

    >>> from torch import nn, optim
    >>> optimizer = optim.SGD(nn.Linear(4, 1).parameters(), lr=0.1, momentum=0.9)
    >>> scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.4, total_steps=50)
    >>> figure = plot_schedule(scheduler, 50)
    >>> [axis.get_title() for axis in figure.axes]
    ['Learning rate', 'Momentum']
    """
    curve = schedule_curve(scheduler, steps)
    panels = {"Learning rate": curve.lrs}
    if curve.momenta is not None and np.nan_to_num(curve.momenta).any():
        panels["Momentum"] = curve.momenta
    figure, axes = new_figure(len(panels), dark=dark)
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        for group, line in enumerate(values.T if (values != values[:, :1]).any() else values.T[:1]):
            axis.plot(line, marker="." if steps < 20 else "", label=f"group {group}")
        for number, (name, start, end) in enumerate(curve.phases):
            axis.axvspan(start, end, color=GREY, alpha=0.1 + 0.15 * (number % 2), lw=0)
            # Steps across, fraction of the height upwards.
            place = axis.get_xaxis_transform()
            axis.text(
                (start + end) / 2, 1.02, name, transform=place, ha="center", fontsize=8, color=GREY
            )
        if len(axis.lines) > 1:
            legend(axis)
        axis.set_title(title, pad=18 if curve.phases else 6, fontsize=10)
        axis.set_xlabel("step")
    return figure
