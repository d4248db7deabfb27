"""Learning-rate range test on the reader's own training step; everything it touches is put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labkit.preserve import preserve_rng, preserve_state
from labkit.progress import progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECK_EVERY = 25  # steps between two looks at the losses: each look waits for the device
AGREEMENT = 10.0  # rules further apart than this factor name no learning rate


@dataclass(frozen=True)
class LRFindResult:
    """One range test: what was tried, what came of it, and what four rules read from the curve.

    ``smoothed`` is freed of outliers and capped above its start; ``diverged_at`` is the learning rate that ended the
    test, or None. ``suggestions`` has one entry a rule, None where the curve has nothing for it:

    - ``steepest``: where the loss falls fastest against log(lr);
    - ``minimum_over_10``: a tenth of the learning rate of the lowest loss (fastai's ``minimum``);
    - ``valley``: two thirds into the longest stretch of falling loss (ESRI; fastai's default);
    - ``slide``: the low end of a decade that slides down from the minimum until its ends have one slope (A. Chang).
    """

    lrs: tuple[float, ...]
    losses: tuple[float, ...]
    smoothed: tuple[float, ...]
    suggestions: dict[str, float | None]
    diverged_at: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Lowest and highest suggestion; None where no rule found any."""
        found = [lr for lr in self.suggestions.values() if lr is not None]
        return (min(found), max(found)) if found else None

    @property
    def suggestion(self) -> float | None:
        """Geometric median of the rules; None where they lie more than a factor of ten apart, or found nothing."""
        found = [lr for lr in self.suggestions.values() if lr is not None]
        return (
            float(np.exp(np.median(np.log(found))))
            if found and max(found) <= AGREEMENT * min(found)
            else None
        )

    def __str__(self) -> str:
        end = "no divergence" if self.diverged_at is None else f"diverged at {self.diverged_at:.1e}"
        lines = [
            f"range test: {len(self.lrs)} steps, lr {self.lrs[0]:.1e} to {self.lrs[-1]:.1e}, {end}"
        ]
        lines += [
            f"  {rule:<16} {'-' if lr is None else format(lr, '.1e')}"
            for rule, lr in self.suggestions.items()
        ]
        if self.interval is None:
            return "\n".join(
                [*lines, "  no suggestion: the loss never fell clearly below where it began"]
            )
        low, high = self.interval
        verdict = "no agreement" if self.suggestion is None else f"lr = {self.suggestion:.1e}"
        return "\n".join(
            [
                *lines,
                f"  {verdict}: the rules span {low:.1e} to {high:.1e}, a factor of {high / low:.1f}",
            ]
        )


def lr_find(
    step: Callable[[], Any], model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, also: Iterable[Any] = (),
    min_lr: float = 1e-6, max_lr: float = 10.0, steps: int = 100, divergence: float = 4.0, smoothing: float = 0.2
) -> LRFindResult:  # fmt: skip
    """Learning-rate range test (Smith 2015, arXiv:1506.01186) with your own training step.

    ``step()`` is one whole step (forward, backward, ``optimizer.step()``, ``zero_grad()``) and returns its loss: a
    tensor of one element, or a number. The rate grows exponentially from ``min_lr`` to ``max_lr``, set before each
    step: the parameter group with the highest rate gets it, the others keep their ratio to it. The test ends early at a
    loss that is not finite, or over ``best + (divergence - 1) * max(|best|, first - best)``: ``divergence`` times the
    best loss, unless that fell far. The rules read a curve smoothed over ``smoothing`` decades (standard deviation).

    Model, optimizer, random numbers and what ``also`` lists (schedulers, GradScaler, generators ...) are afterwards as
    before, bit for bit, also after an exception or interrupt: see `preserve_state`. Batches taken from an iterator are gone:
    give the training a fresh one. Raises ValueError for bad settings and for a missing or non-finite first loss.
    """
    if not (
        callable(step)
        and isinstance(model, torch.nn.Module)
        and isinstance(optimizer, torch.optim.Optimizer)
    ):
        got = ", ".join(type(value).__name__ for value in (step, model, optimizer))
        raise TypeError(
            f"lr_find(step, model, optimizer) takes a function, a Module and an Optimizer, got {got}"
        )
    if not (0 < min_lr < max_lr < np.inf and divergence > 1 and 0 < smoothing < np.inf):
        got = f"{min_lr=}, {max_lr=}, {divergence=}, {smoothing=}"
        raise ValueError(
            f"lr_find({got}): expected 0 < min_lr < max_lr, divergence > 1 and smoothing > 0, all finite"
        )
    if not (isinstance(steps, int) and steps >= 10):
        raise ValueError(f"lr_find({steps=}): expected a whole number of steps, at least 10")
    lrs = np.geomspace(min_lr, max_lr, steps)
    bar = progress(total=steps, desc="lr_find", unit="step")
    with closing(bar), preserve_rng(), preserve_state(model, optimizer, *also):
        losses, stopped = _sweep(step, optimizer, lrs, divergence, bar)
    lrs = lrs[: len(losses)]
    smoothed, suggestions = _read(lrs, losses, smoothing, stopped is not None)
    return LRFindResult(
        tuple(lrs.tolist()), tuple(losses.tolist()), tuple(smoothed.tolist()), suggestions, stopped
    )


def _sweep(
    step: Any, optimizer: Any, lrs: np.ndarray, divergence: float, bar: Any
) -> tuple[np.ndarray, float | None]:
    """The losses, all finite, and the learning rate at which the test stopped, if it did."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    shares = [
        rate / max(rates) if max(rates) > 0 else 1.0 for rate in rates
    ]  # all zero: a warm-up that begins there
    for i, lr in enumerate(lrs.tolist()):
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            old = group[
                "lr"
            ]  # a tensor is filled in place: compiled or captured optimizers read this very one
            group["lr"] = old.fill_(lr * share) if isinstance(old, torch.Tensor) else lr * share
        returned = step()
        loss = (
            torch.tensor(float(returned), dtype=torch.float64)
            if isinstance(returned, Real)
            else returned
        )
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.is_complex():
            raise ValueError(
                f"step() returned {loss!r}: expected its loss, a real tensor of one element or a number"
            )
        if i == 0:
            record = torch.empty(
                len(lrs), dtype=torch.promote_types(loss.dtype, torch.float32), device=loss.device
            )
            places = (
                record.unbind()
            )  # all at once: an index for each step would cost more than the copy
        places[i].copy_(
            loss.detach().reshape(())
        )  # a copy on the device: nothing waits, and the step may reuse its tensor
        if i % CHECK_EVERY == 0 or i == len(lrs) - 1:
            losses = np.array(record[: i + 1].tolist())
            bar.update(i + 1 - bar.n)
            if not np.isfinite(losses[0]):
                raise ValueError(
                    f"the loss is {losses[0]} at the first step (lr={lrs[0]:g}), before any training"
                )
            stop = _divergence(losses, divergence)
            if stop is not None:
                shown = losses[: stop + 3]  # with the two further steps that showed it was no spike
                return shown[np.isfinite(shown)], float(lrs[stop])
    return losses, None


def _divergence(losses: np.ndarray, factor: float) -> int | None:
    """Index of the first diverged step, if any; the running median settles a step two steps later."""
    finite = int(np.argmin(np.append(np.isfinite(losses), False)))
    level = _without_outliers(losses[:finite])
    first, best = np.median(losses[: min(finite, 5)]), np.minimum.accumulate(level)
    over = level > best + (factor - 1) * np.maximum(np.abs(best), first - best)
    return int(np.argmax(over)) if over.any() else finite if finite < len(losses) else None


def _without_outliers(losses: np.ndarray) -> np.ndarray:
    """Running median of five, its ends repeated: a spike of one or two steps leaves no trace."""
    if len(losses) < 5:
        return losses
    return np.pad(
        np.median(np.lib.stride_tricks.sliding_window_view(losses, 5), axis=1), 2, mode="edge"
    )


def _read(
    lrs: np.ndarray, losses: np.ndarray, width: float, diverged: bool
) -> tuple[np.ndarray, dict[str, Any]]:
    """The smoothed losses and the four suggestions."""
    found: dict[str, float | None] = dict.fromkeys(
        ("steepest", "minimum_over_10", "valley", "slide")
    )
    if len(losses) < 5:
        return losses, found
    # Value and slope of the straight line that fits best around each point: unlike an average, no lag and no edge bias.
    x, y = np.log10(lrs), _without_outliers(losses)
    y = np.minimum(
        y, 2 * np.median(losses[:5]) - y.min()
    )  # else the blow-up at the end bends the curve far below it
    away = x[None, :] - x[:, None]
    weight = np.exp(-0.5 * (away / max(width, x[1] - x[0])) ** 2)
    s0, s1, s2 = weight.sum(1), (weight * away).sum(1), (weight * away**2).sum(1)
    t0, t1, det = weight @ y, (weight * away) @ y, s0 * s2 - s1**2
    value, slope = (s2 * t0 - s1 * t1) / det, (s0 * t1 - s1 * t0) / det
    first = float(np.median(losses[: max(5, len(losses) // 10)]))
    clear = 2.5 * 1.48 * np.median(np.abs(losses - value)) + 1e-5 * abs(
        first
    )  # 2.5 standard deviations of the noise
    fall = first - np.minimum.accumulate(value)
    risen = (fall > max(clear, fall[-1] / 5)) & (
        value > first - fall / 2
    )  # the valley is over, the rest is not read
    low = int(value[: np.argmax(risen) if risen.any() else None].argmin())
    # From where the loss leaves its first level for good: a hump before that falls steeply too, yet leads nowhere.
    start = int(np.flatnonzero(value[:low] >= 0.95 * first + 0.05 * value[low])[-1:].sum())
    steepest = start + int(slope[start : low + 1].argmin())
    if fall[low] <= clear or slope[steepest] >= 0:
        return value, found
    found["steepest"] = float(lrs[steepest])
    if (low < len(lrs) - 1 or diverged) and lrs[low] / 10 >= lrs[
        0
    ]:  # else it lies beyond what was tried
        found["minimum_over_10"] = float(lrs[low] / 10)
    falling = np.concatenate(([False], slope[: low + 1] < 0.05 * slope[steepest], [False]))
    begin, end = max(
        np.flatnonzero(np.diff(falling)).reshape(-1, 2), key=lambda stretch: stretch[1] - stretch[0]
    )
    found["valley"] = float(10 ** (x[begin] + 2 / 3 * (x[end - 1] - x[begin])))
    decade = max(1, round(1 / (x[1] - x[0])))
    bend = (
        slope[decade:] - slope[:-decade]
    )  # by how much the slope grows over the decade that begins here
    slides = np.flatnonzero(
        bend[: max(0, low - decade + 1)] <= -0.1 * slope[steepest]
    )  # a flat tail must not stop it
    found["slide"] = float(lrs[slides[-1]]) if slides.size else None
    return value, found


def lr_find_figure(result: LRFindResult, *, dark: bool = False) -> Figure:
    """Loss against learning rate: each step's loss faint, the smoothed curve, each rule's choice, their span shaded."""
    from labkit.plots import (
        GREY,
        ORANGE,
        SKY,
        legend,
        new_figure,
    )  # here: a result does not depend on its drawing

    figure, (axis,) = new_figure(width=7.0, height=4.0, dark=dark)
    top = (
        max(result.smoothed) + np.ptp(result.smoothed) / 4
    )  # points above, of the blow-up, would flatten all others
    shown = [loss if loss <= top else np.nan for loss in result.losses]
    axis.plot(result.lrs, shown, ".", color=GREY, alpha=0.6, label="loss of each step")
    axis.plot(result.lrs, result.smoothed, color=SKY, lw=2, label="smoothed")
    for (rule, lr), marker in zip(result.suggestions.items(), "ovs^", strict=True):
        if lr is not None:
            height = np.interp(np.log(lr), np.log(result.lrs), result.smoothed)
            axis.plot(lr, height, marker, ms=9, label=f"{rule}: {lr:.1e}")
    if result.interval is not None:
        axis.axvspan(*result.interval, color=ORANGE, alpha=0.15, lw=0, label="span of the rules")
    if result.suggestion is not None:
        axis.axvline(
            result.suggestion, color=ORANGE, ls="--", label=f"suggestion: {result.suggestion:.1e}"
        )
    verdict = (
        ""
        if result.suggestion
        else ": the rules do not agree"
        if result.interval
        else ": no suggestion"
    )
    axis.set(
        xscale="log",
        xlabel="learning rate",
        ylabel="loss",
        title="Learning-rate range test" + verdict,
    )
    legend(axis)
    return figure
