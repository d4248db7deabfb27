"""The learning rate and momentum that a scheduler will give, step by step, without touching it."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from labkit.device import preserve_rng
from labkit.plots import GREY, PALETTE, legend, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Phase(NamedTuple):
    """A stretch of a one-cycle schedule, from step ``start`` to step ``end``."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class ScheduleCurve:
    """Learning rates (steps, groups), momenta (steps, groups) or None, and phases where the curve is one cycle.

    Row ``i`` holds what the optimizer's step ``i`` uses. Momentum is SGD's ``momentum`` or the first of Adam's ``betas``.
    """

    lrs: np.ndarray
    momenta: np.ndarray | None
    phases: tuple[Phase, ...]


def schedule_curve(scheduler: Any, steps: int, *, metrics: Sequence[float] | None = None) -> ScheduleCurve:
    """The next ``steps`` steps of any scheduler; it, its optimizer and the random numbers stay as they are.

    ``metrics`` feeds a scheduler whose ``step()`` wants a metric, one value a step. A copy of the scheduler is run: what it
    cannot copy (a function that counts its own calls) goes on counting. Raises ValueError when the scheduler ends too early.
    """
    if not (hasattr(scheduler, "optimizer") and hasattr(scheduler, "step")):
        raise TypeError(f"expected a scheduler (a torch.optim.lr_scheduler.LRScheduler), got {type(scheduler).__name__}")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps={steps!r}: expected a whole number of steps, at least 1")
    asks = any(p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD for p in _parameters(scheduler.step))
    if asks and (metrics is None or len(metrics) < steps - 1):
        given = "none" if metrics is None else str(len(metrics))
        raise ValueError(
            f"{type(scheduler).__name__}.step() needs a metric: pass metrics=[...] with {steps - 1} values, got {given}"
        )
    if not asks and metrics is not None:
        raise ValueError(f"metrics: {type(scheduler).__name__}.step() takes no metric, leave it out")

    lrs: list[list[float]] = []
    momenta: list[list[float]] = []
    with preserve_rng():
        twin = _twin(scheduler)
        for i in range(steps):
            try:
                if i > 0:
                    twin.step(*([] if metrics is None else [metrics[i - 1]]))
            except Exception as error:
                raise ValueError(f"{type(scheduler).__name__} ends after {i} of {steps} steps: {error}") from error
            lrs.append([float(group["lr"]) for group in twin.optimizer.param_groups])
            momenta.append([_momentum(group) for group in twin.optimizer.param_groups])
    has_momentum = not np.isnan(momenta).all()
    rates, moments = np.array(lrs), np.array(momenta) if has_momentum else None
    return ScheduleCurve(rates, moments, _phases(scheduler, rates[:, 0], None if moments is None else moments[:, 0]))


def _parameters(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _twin(scheduler: Any) -> Any:
    """A deep copy of ``scheduler`` on a stand-in for its optimizer, which shares the parameters and copies the settings.

    The stand-in claims to have stepped, else torch would warn the reader of a ``step()`` in the wrong order.
    """
    optimizer = scheduler.optimizer
    stand_in = object.__new__(type(optimizer))
    vars(stand_in).update(vars(optimizer), state={}, step=_no_step, _opt_called=True)
    stand_in.param_groups = [
        {key: list(value) if key == "params" else copy.deepcopy(value) for key, value in group.items()}
        for group in optimizer.param_groups
    ]
    return copy.deepcopy(scheduler, {id(optimizer): stand_in})


def _no_step() -> None:
    """The stand-in's ``step``: no scheduler calls it, torch only looks for the mark below."""


vars(_no_step)["_wrapped_by_lr_sched"] = True


def _momentum(group: dict[str, Any]) -> float:
    return float(group["momentum"] if "momentum" in group else group.get("betas", (np.nan,))[0])


def _phases(scheduler: Any, lr: np.ndarray, momentum: np.ndarray | None) -> tuple[Phase, ...]:
    """The phases of a one-cycle curve (up once, then down below where it began; Smith 2018, arXiv:1803.09820), else none."""
    way = np.sign(np.diff(lr)) * (np.abs(np.diff(lr)) > 1e-12 * np.abs(lr).max())
    up, down = np.flatnonzero(way > 0), np.flatnonzero(way < 0)
    if not (up.size and down.size and up[-1] < down[0] and lr[-1] < lr[0]):
        return ()
    known = getattr(scheduler, "_schedule_phases", None)  # torch's own cycle knows its phases, also where the slope hides them
    if known:
        cuts = [phase["end_step"] - scheduler.last_epoch for phase in known[:-1]]
    else:
        turns = way if momentum is None else way + 3 * np.sign(np.round(np.diff(momentum), 12))
        cuts = [float(i + 1) for i in np.flatnonzero(np.diff(turns))]
    edges = [0.0, *(cut for cut in cuts if 0 < cut < len(lr) - 1), len(lr) - 1.0]
    phases: list[Phase] = []
    for start, end in zip(edges, edges[1:], strict=False):
        change = np.interp(end, range(len(lr)), lr) - np.interp(start, range(len(lr)), lr)
        annealed = any(phase.name == "annealing" for phase in phases)
        name = "warm-up" if change > 0 else "constant" if change == 0 else "annihilation" if annealed else "annealing"
        phases.append(Phase(name, start, end))
    return tuple(phases)


def plot_schedule(scheduler: Any, steps: int, *, metrics: Sequence[float] | None = None, dark: bool = False) -> Figure:
    """Learning rate and momentum of any scheduler over its next ``steps`` steps; one-cycle with its phases labelled.

    One line per parameter group where they differ. Arguments and errors as for `schedule_curve`.
    """
    curve = schedule_curve(scheduler, steps, metrics=metrics)
    panels = {"learning rate": curve.lrs}
    if curve.momenta is not None and np.nan_to_num(curve.momenta).any():
        panels["momentum"] = curve.momenta
    figure, axes = new_figure(len(panels), dark=dark)
    for axis, (name, values) in zip(axes, panels.items(), strict=True):
        alike = bool((values == values[:, :1]).all())
        for group in range(1 if alike else values.shape[1]):
            axis.plot(values[:, group], color=PALETTE[group % len(PALETTE)], marker="." if steps == 1 else None, label=f"group {group}")
        for number, (phase, start, end) in enumerate(curve.phases):
            axis.axvspan(start, end, color=GREY, alpha=0.12 + 0.12 * (number % 2), lw=0)
            place = {"xy": ((start + end) / 2, 1.0), "xycoords": ("data", "axes fraction"), "ha": "center", "va": "bottom"}
            axis.annotate(phase, fontsize=8, color=axis.title.get_color(), **place)
        if not alike:
            legend(axis)
        axis.set(xlabel="step", title=name.capitalize())
        axis.title.set_position((0.5, 1.06))
    return figure
