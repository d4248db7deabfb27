"""Learning-rate range test on the reader's own training step; everything it touches is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.optim import Optimizer

from labkit.lr_curve import Array, find_divergence, suggest
from labkit.progress import progress
from labkit.restore import restoring

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from tqdm import tqdm

# What a step may return: its loss.
Loss = torch.Tensor | float

# Steps between two looks at the losses: each look waits for the device.
CHECK_EVERY = 25

# Rules further apart than this factor name no learning rate.
AGREEMENT = 10.0


@dataclass(frozen=True)
class LRFindResult:
    """One range test: what was tried, what came of it, and what four rules read from the curve.

    ``smoothed`` is freed of outliers and capped above its start; ``diverged_at`` is the learning
    rate that ended the test, or None. ``suggestions`` has one entry a rule, None where the curve
    has nothing for it:

    - ``steepest``: where the loss falls fastest against log(lr);
    - ``minimum_over_10``: a tenth of the learning rate of the lowest loss (fastai's ``minimum``);
    - ``valley``: two thirds into the longest stretch of falling loss (ESRI; fastai's default);
    - ``slide``: the low end of a decade that slides down from the minimum until its ends have one
      slope (A. Chang).
    """

    lrs: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggestions: dict[str, float | None]
    diverged_at: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Lowest and highest suggestion; None where no rule found any."""
        found = self._found()
        return (min(found), max(found)) if found else None

    @property
    def suggestion(self) -> float | None:
        """Geometric median of the rules; None where they do not agree, or found nothing.

        They agree where they lie within a factor of ten.
        """
        found = self._found()
        if not found or max(found) > AGREEMENT * min(found):
            return None
        return float(np.exp(np.median(np.log(found))))

    def _found(self) -> list[float]:
        return [lr for lr in self.suggestions.values() if lr is not None]

    def __str__(self) -> str:
        end = "no divergence"
        if self.diverged_at is not None:
            end = f"diverged at {self.diverged_at:.1e}"
        tried = f"lr {self.lrs[0]:.1e} to {self.lrs[-1]:.1e}"
        lines = [f"range test: {len(self.lrs)} steps, {tried}, {end}"]
        for rule, lr in self.suggestions.items():
            shown = "-" if lr is None else f"{lr:.1e}"
            lines.append(f"  {rule:<16} {shown}")
        lines.append(f"  {self._verdict()}")
        return "\n".join(lines)

    def _verdict(self) -> str:
        if self.interval is None:
            return "no suggestion: the loss never fell clearly below where it began"
        low, high = self.interval
        span = f"the rules span {low:.1e} to {high:.1e}, a factor of {high / low:.1f}"
        if self.suggestion is None:
            return f"no agreement: {span}"
        return f"lr = {self.suggestion:.1e}: {span}"


def lr_find(
    step: Callable[[], Loss],
    model: torch.nn.Module,
    optimizer: Optimizer,
    *,
    also: Iterable[object] = (),
    min_lr: float = 1e-6,
    max_lr: float = 10.0,
    steps: int = 100,
) -> LRFindResult:
    """Learning-rate range test (Smith 2015, arXiv:1506.01186) with your own training step.

    ``step()`` is one whole step (forward, backward, ``optimizer.step()``, ``zero_grad()``) and
    returns its loss: a tensor of one element, or a number. The rate grows exponentially from
    ``min_lr`` to ``max_lr``, set before each step: the parameter group with the highest rate gets
    it, the others keep their ratio to it. The test ends early at a loss that is not finite, or that
    has diverged: over four times the best loss, unless that fell far. The rules read a smoothed
    curve.

    Model, optimizer and all that the step reaches (schedulers, GradScaler, generators, counters
    ...) are afterwards as before, bit for bit, also after an exception or interrupt: see
    `labkit.restore.restoring`. ``also`` lists what it cannot find by itself. Batches taken from an
    iterator are gone: give the training a fresh one. Raises TypeError and ValueError for bad
    arguments, ValueError for a missing or non-finite first loss, and for a step that trains in a
    generator function what ``also`` does not list.

    >>> model = torch.nn.Linear(4, 1)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> def step():
    ...     loss = (model(torch.ones(8, 4)) - 3).square().mean()
    ...     loss.backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    ...     return loss
    >>> result = lr_find(step, model, optimizer)
    >>> result.diverged_at < 10, optimizer.param_groups[0]["lr"]
    (True, 0.1)
    """
    _check_objects(step, model, optimizer)
    if not 0 < min_lr < max_lr < np.inf:
        raise ValueError(
            f"lr_find({min_lr=}, {max_lr=}): expected 0 < min_lr < max_lr, both finite"
        )
    if not (isinstance(steps, int) and steps >= 10):
        raise ValueError(f"lr_find({steps=}): expected a whole number of steps, at least 10")
    lrs = np.geomspace(min_lr, max_lr, steps)
    bar = progress(total=steps, desc="lr_find", unit="step")
    beside = ", or list in also= what it trains"
    with closing(bar), restoring(step, also=(model, optimizer, *also), advice=beside):
        losses, stopped = _sweep(step, optimizer, lrs, bar)
    lrs = lrs[: len(losses)]
    smoothed, suggestions = suggest(lrs, losses, diverged=stopped is not None)
    return LRFindResult(
        tuple(lrs.tolist()), tuple(losses.tolist()), tuple(smoothed.tolist()), suggestions, stopped
    )


def _check_objects(step: object, model: object, optimizer: object) -> None:
    well = callable(step) and isinstance(model, torch.nn.Module)
    if not (well and isinstance(optimizer, Optimizer)):
        got = ", ".join(type(value).__name__ for value in (step, model, optimizer))
        raise TypeError(
            f"lr_find(step, model, optimizer) takes a function, a Module and an Optimizer, got "
            f"{got}"
        )


def _sweep(
    step: Callable[[], Loss], optimizer: Optimizer, lrs: Array, bar: tqdm[object]
) -> tuple[Array, float | None]:
    """The losses, all finite, and the learning rate at which the test stopped, if it did."""
    shares = _shares(optimizer)
    returned: list[torch.Tensor] = []
    for i, lr in enumerate(lrs.tolist()):
        _set_rates(optimizer, lr, shares)
        returned.append(_copied(step()))
        if i % CHECK_EVERY == 0 or i == len(lrs) - 1:
            losses = np.array(torch.stack(returned).tolist())
            bar.update(len(losses) - bar.n)
            if not np.isfinite(losses[0]):
                at = f"at the first step (lr={lrs[0]:g}), before any training"
                raise ValueError(f"the loss is {losses[0]} {at}")
            stop = find_divergence(losses)
            if stop is not None:
                # With the two further steps that showed it was no spike.
                shown = losses[: stop + 3]
                return shown[np.isfinite(shown)], float(lrs[stop])
    return losses, None


def _shares(optimizer: Optimizer) -> list[float]:
    """Each parameter group's rate as a share of the highest."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    highest = max(rates)
    if highest <= 0:
        # A warm-up that begins at zero.
        return [1.0] * len(rates)
    return [rate / highest for rate in rates]


def _set_rates(optimizer: Optimizer, lr: float, shares: list[float]) -> None:
    for group, share in zip(optimizer.param_groups, shares, strict=True):
        if isinstance(group["lr"], torch.Tensor):
            # Filled in place: compiled or captured optimizers read this very tensor.
            group["lr"].fill_(lr * share)
        else:
            group["lr"] = lr * share


def _copied(returned: Loss) -> torch.Tensor:
    """The loss, on its device: nothing waits for it, and the step may reuse its tensor.

    ValueError where it is none.
    """
    loss = (
        torch.tensor(float(returned), dtype=torch.float64)
        if isinstance(returned, Real)
        else returned
    )
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.is_complex():
        expected = "a real tensor of one element or a number"
        raise ValueError(f"step() returned {returned!r}: expected its loss, {expected}")
    kind = torch.promote_types(loss.dtype, torch.float32)
    return loss.detach().to(kind, copy=True).reshape(())


def lr_find_figure(result: LRFindResult, *, dark: bool = False) -> Figure:
    """Loss against learning rate: each step's loss, the smoothed curve, each rule's choice."""
    # Here, since a result does not depend on its drawing.
    from labkit.plots import GREY, ORANGE, SKY, legend, new_figure

    figure, (axis,) = new_figure(width=7.0, height=4.0, dark=dark)
    # Points of the blow-up, above, would flatten all others.
    top = max(result.smoothed) + np.ptp(result.smoothed) / 4
    losses = np.array(result.losses)
    shown = np.where(losses <= top, losses, np.nan)
    axis.plot(result.lrs, shown, ".", color=GREY, alpha=0.6, label="loss of each step")
    axis.plot(result.lrs, result.smoothed, color=SKY, lw=2, label="smoothed")
    for (rule, lr), marker in zip(result.suggestions.items(), "ovs^", strict=True):
        if lr is not None:
            height = np.interp(np.log(lr), np.log(result.lrs), result.smoothed)
            axis.plot(lr, height, marker, ms=9, label=f"{rule}: {lr:.1e}")
    title = "Learning-rate range test"
    if result.interval is None:
        title += ": no suggestion"
    else:
        axis.axvspan(*result.interval, color=ORANGE, alpha=0.15, lw=0, label="span of the rules")
    if result.suggestion is not None:
        label = f"suggestion: {result.suggestion:.1e}"
        axis.axvline(result.suggestion, color=ORANGE, ls="--", label=label)
    elif result.interval is not None:
        title += ": the rules do not agree"
    axis.set(xscale="log", xlabel="learning rate", ylabel="loss", title=title)
    legend(axis)
    return figure
