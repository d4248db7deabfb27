"""Learning-rate range test on the reader's own training step; everything it touches is put back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labkit.device import preserve_rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHECK_EVERY = 10  # steps between two looks at the losses: each look waits for the device
_FOLLOWED = (torch.Tensor, torch.Generator, dict, list, deque, tuple)
AGREEMENT = 10.0  # rules further apart than this factor name no learning rate


@dataclass(frozen=True)
class LRFindResult:
    """One range test: what was tried, what came of it, and what four rules read from the curve.

    ``smoothed`` has outliers removed and is capped above the start of the curve; ``diverged_at`` is the learning rate at which
    the test stopped, or None. ``suggestions`` has one entry a rule, None where the curve has nothing for it:

    - ``steepest``: where the loss falls fastest against log(lr);
    - ``minimum_over_10``: a tenth of the learning rate of the lowest loss (fastai's ``minimum``);
    - ``valley``: two thirds into the longest stretch of falling loss (ESRI; fastai's default);
    - ``slide``: a window of one decade slides down from the minimum until the slopes at its two ends agree; its lower end
      (after A. Chang; fastai's starts at the last step instead, where a flat tail would stop it).
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
        """Geometric median of the rules; None where they lie more than a factor of ten apart, or found nothing."""
        found = self._found()
        return float(np.exp(np.median(np.log(found)))) if found and max(found) <= AGREEMENT * min(found) else None

    def _found(self) -> list[float]:
        return [lr for lr in self.suggestions.values() if lr is not None]

    def __str__(self) -> str:
        end = "no divergence" if self.diverged_at is None else f"diverged at {self.diverged_at:.1e}"
        lines = [f"range test: {len(self.lrs)} steps, lr {self.lrs[0]:.1e} to {self.lrs[-1]:.1e}, {end}"]
        lines += [f"  {rule:<16} {'-' if lr is None else format(lr, '.1e')}" for rule, lr in self.suggestions.items()]
        if self.interval is None:
            lines.append("  no suggestion: the loss never fell clearly below where it began")
        else:
            low, high = self.interval
            verdict = "no agreement" if self.suggestion is None else f"lr = {self.suggestion:.1e}"
            lines.append(f"  {verdict}: the rules span {low:.1e} to {high:.1e} (a factor of {high / low:.1f})")
            if self.suggestions["minimum_over_10"] is None:
                lines.append("  the loss has no minimum yet where the test ends: try a higher max_lr")
        return "\n".join(lines)


def lr_find(
    step: Callable[[], Any],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    also: Iterable[Any] = (),
    min_lr: float = 1e-6,
    max_lr: float = 10.0,
    steps: int = 100,
    divergence: float = 4.0,
    smoothing: float = 0.2,
) -> LRFindResult:
    """Learning-rate range test (Smith 2015, arXiv:1506.01186) with your own training step.

    ``step()`` is one whole step (forward, backward, ``optimizer.step()``, ``zero_grad()``) and returns its loss: a tensor of one
    element, or a number. The rate grows exponentially from ``min_lr`` to ``max_lr`` and is set before each step: the parameter
    group with the highest rate gets it, the others keep their ratio to that group. The test ends early at a loss that is not
    finite or exceeds ``best + (divergence - 1) * max(|best|, first - best)`` (``divergence * best``, unless the loss fell far).
    Rules read the curve smoothed over ``smoothing`` decades (standard deviation).

    Model, optimizer and random numbers are afterwards as they were, bit for bit, also after an exception or interrupt; so is
    what ``also`` lists: schedulers, a GradScaler, loss modules, an averaged model, generators. See `preserved`. Batches that the
    step took from an iterator are gone: give the training a fresh one.

    Raises ValueError for settings out of range, and for a step that returns no loss or starts with one that is not finite.
    """
    _check_arguments(step, model, optimizer, min_lr, max_lr, steps, divergence, smoothing)
    lrs = np.geomspace(min_lr, max_lr, steps)
    with preserve_rng(), preserved(model, optimizer, *also):
        losses, stopped = _sweep(step, optimizer, lrs, divergence)
    lrs = lrs[: len(losses)]
    smoothed, suggestions = _read(lrs, losses, smoothing)
    return LRFindResult(tuple(lrs.tolist()), tuple(losses.tolist()), tuple(smoothed.tolist()), suggestions, stopped)


def _check_arguments(
    step: Any, model: Any, optimizer: Any, min_lr: float, max_lr: float, steps: int, divergence: float, smoothing: float
) -> None:
    if not callable(step):
        raise TypeError(f"step={step!r}: expected a function without arguments that runs one training step")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if not 0 < min_lr < max_lr < np.inf:
        raise ValueError(f"min_lr={min_lr!r}, max_lr={max_lr!r}: expected 0 < min_lr < max_lr, both finite")
    if isinstance(steps, bool) or not isinstance(steps, int) or steps < 10:
        raise ValueError(f"steps={steps!r}: expected a whole number of steps, at least 10")
    if not divergence > 1:
        raise ValueError(f"divergence={divergence!r}: expected a factor above 1")
    if not 0 < smoothing < np.inf:
        raise ValueError(f"smoothing={smoothing!r}: expected a positive width in decades of the learning rate")


# ------------------------------------------------------------------------------------------------------------- the sweep


def _sweep(
    step: Callable[[], Any], optimizer: torch.optim.Optimizer, lrs: np.ndarray, divergence: float
) -> tuple[np.ndarray, float | None]:
    """The finite losses (at most one a step) and the learning rate at which the test stopped, if it did."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    shares = [rate / max(rates) if max(rates) > 0 else 1.0 for rate in rates]  # all zero: a warm-up that begins at zero
    record = torch.empty(0)
    for i, lr in enumerate(lrs.tolist()):
        for group, share in zip(optimizer.param_groups, shares, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(lr * share)  # in place: compiled or captured optimizers read this very tensor
            else:
                group["lr"] = lr * share
        loss = step()
        if not isinstance(loss, Real) and not (isinstance(loss, torch.Tensor) and loss.numel() == 1 and not loss.is_complex()):
            got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else repr(loss)
            raise ValueError(f"step() returned {got}: expected its loss, a real tensor of one element or a number")
        loss = loss.detach() if isinstance(loss, torch.Tensor) else torch.tensor(float(loss), dtype=torch.float64)
        if i == 0:
            record = torch.empty(len(lrs), dtype=torch.promote_types(loss.dtype, torch.float32), device=loss.device)
        record[i] = loss.reshape(())  # a copy on the device: nothing waits, and the step may reuse its tensor
        if i % CHECK_EVERY == 0 or i == len(lrs) - 1:
            losses = np.array(record[: i + 1].tolist())
            if not np.isfinite(losses[0]):
                raise ValueError(f"the loss is {losses[0]} at the very first step (lr={lrs[0]:g}): the step fails without any training")
            stop = _divergence(losses, divergence, last=i == len(lrs) - 1)
            if stop is not None:
                return losses[: stop + 1 if np.isfinite(losses[stop]) else stop], float(lrs[stop])
    return losses, None


def _divergence(losses: np.ndarray, factor: float, *, last: bool) -> int | None:
    """Index of the first diverged step; one that the median filter cannot settle yet is left to the next look."""
    finite = int(np.argmin(np.append(np.isfinite(losses), False)))
    level = _without_outliers(losses[:finite])
    first, best = np.median(losses[:finite][:5]), np.minimum.accumulate(level)
    over = level > best + (factor - 1) * np.maximum(np.abs(best), first - best)
    if not last and finite == len(losses):
        over[-2:] = False
    return int(np.argmax(over)) if over.any() else finite if finite < len(losses) else None


# ------------------------------------------------------------------------------------------------------------- the rules


def _without_outliers(losses: np.ndarray) -> np.ndarray:
    """Running median of five, narrower at the ends: a spike of one or two steps leaves no trace."""
    padded = np.pad(losses, 2, constant_values=np.nan)
    return np.nanmedian(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)


def _smooth(x: np.ndarray, losses: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Value and slope against ``x`` of straight lines fitted around each point, with Gaussian weights.

    Unlike a running average it has no lag, and no bias at the ends.
    """
    y = _without_outliers(losses)
    first, best = np.median(losses[:5]), y.min()
    y = np.minimum(y, 2 * first - best)  # else the blow-up at the end bends the curve far below it
    distance = x[None, :] - x[:, None]
    weight = np.exp(-0.5 * (distance / max(width, x[1] - x[0])) ** 2)
    s0, s1, s2 = weight.sum(1), (weight * distance).sum(1), (weight * distance**2).sum(1)
    t0, t1 = weight @ y, (weight * distance) @ y
    return (s2 * t0 - s1 * t1) / (s0 * s2 - s1**2), (s0 * t1 - s1 * t0) / (s0 * s2 - s1**2)


def _read(lrs: np.ndarray, losses: np.ndarray, width: float) -> tuple[np.ndarray, dict[str, float | None]]:
    """The smoothed losses and the four suggestions."""
    found: dict[str, float | None] = dict.fromkeys(("steepest", "minimum_over_10", "valley", "slide"))
    if len(losses) < 5:
        return losses, found
    x = np.log10(lrs)
    value, slope = _smooth(x, losses, width)
    low, first = int(value.argmin()), float(np.median(losses[: max(5, len(losses) // 10)]))
    drop, noise = first - value[low], 1.48 * np.median(np.abs(losses - value))
    if low == 0 or drop <= 2.5 * noise + 1e-5 * abs(first):
        return value, found
    # From where the loss leaves its first level for good: a hump before that falls steeply too, yet leads nowhere.
    start = int(np.flatnonzero(value[:low] >= first - 0.05 * drop)[-1:].sum())
    steepest = start + int(slope[start : low + 1].argmin())
    found["steepest"] = float(lrs[steepest])
    if low < len(lrs) - 1 and lrs[low] / 10 >= lrs[0]:
        found["minimum_over_10"] = float(lrs[low] / 10)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], slope < 0.05 * slope[steepest], [False]))))
    begin, end = max(edges.reshape(-1, 2), key=lambda stretch: stretch[1] - stretch[0])
    found["valley"] = float(10 ** (x[begin] + 2 / 3 * (x[end - 1] - x[begin])))
    decade = round(1 / (x[1] - x[0]))
    for right in range(low, decade - 1, -1):
        if slope[right] - slope[right - decade] <= 0.1 * abs(slope[steepest]):
            found["slide"] = float(lrs[right - decade])
            break
    return value, found


# ----------------------------------------------------------------------------------------------------- putting things back


@contextmanager
def preserved(*objects: Any) -> Iterator[None]:
    """Put ``objects`` back as they were, in place and bit for bit, whatever the block does or raises.

    Follows their attributes through dicts, lists, tuples, tensors, modules, optimizers and whatever has a ``state_dict``; so it
    covers parameters, buffers, gradients, training modes, optimizer state (what did not exist goes again), schedulers, scalers.
    Attributes of other plain objects are out of reach: pass these by themselves. Costs a copy of every tensor, on its device.
    """
    undo: list[Callable[[], Any]] = []
    seen: dict[int, Any] = {}
    for item in objects:
        if not isinstance(item, _FOLLOWED) and not hasattr(item, "__dict__"):
            raise TypeError(f"cannot preserve {item!r}: it holds no state")
    todo = [item if isinstance(item, _FOLLOWED) else vars(item) for item in objects]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item  # kept alive, so that its id stays its own
        if isinstance(item, torch.Tensor):
            undo.append(_keep_tensor(item))
            todo.append(item.grad if item.is_leaf else None)
        elif isinstance(item, torch.Generator):
            undo.append(partial(item.set_state, item.get_state()))
        elif isinstance(item, dict):
            undo.append(partial(_refill, item, item.copy(), item.update))
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, (list, deque)):
            undo.append(partial(_refill, item, item.copy(), item.extend))
            todo += item
        elif isinstance(item, tuple):
            todo += item
        elif isinstance(item, torch.nn.Module) or hasattr(type(item), "state_dict"):
            todo.append(vars(item))
    try:
        yield
    finally:
        try:
            _call_all(undo)
        except KeyboardInterrupt:  # a second, impatient one: nothing may stay half restored
            _call_all(undo)
            raise


def _call_all(functions: list[Callable[[], Any]]) -> None:
    for function in functions:
        function()


def _refill(container: Any, content: Any, fill: Callable[[Any], None]) -> None:
    container.clear()
    fill(content)


def _keep_tensor(tensor: torch.Tensor) -> Callable[[], None]:
    """Copy a tensor now; the returned function writes the copy back to the same memory."""
    data, is_leaf, trained = tensor.data, tensor.is_leaf, tensor.requires_grad
    grad = tensor.grad if is_leaf else None
    target = data  # expanded dimensions share their memory: copy_ refuses to write it twice
    if data.layout is torch.strided:
        for dim, stride in enumerate(data.stride()):
            target = target.narrow(dim, 0, 1) if stride == 0 and data.shape[dim] > 1 else target
    value = target.clone()

    def put_back() -> None:
        target.copy_(value)
        tensor.data = data  # a step may have given it other memory, or another type
        if is_leaf:
            tensor.grad = grad
            tensor.requires_grad_(trained)

    return put_back


# ------------------------------------------------------------------------------------------------------------- the figure


def lr_find_figure(result: LRFindResult, *, dark: bool = False) -> Figure:
    """Loss against learning rate: raw losses faint, the smoothed curve, each rule's choice on it, their interval shaded."""
    from labkit.plots import GREY, ORANGE, PALETTE, SKY, legend, new_figure  # results do not depend on how they are drawn

    figure, (axis,) = new_figure(width=7.0, height=4.0, dark=dark)
    axis.plot(result.lrs, result.losses, ".", color=GREY, alpha=0.6, label="loss of each step")
    axis.plot(result.lrs, result.smoothed, color=SKY, lw=2, label="smoothed")
    marks = zip(result.suggestions.items(), "ovs^", strict=True)
    for number, ((rule, lr), marker) in enumerate(marks, start=1):
        if lr is not None:
            height = np.interp(np.log(lr), np.log(result.lrs), result.smoothed)
            axis.plot(lr, height, marker, color=PALETTE[number], ms=9, ls="none", label=f"{rule}: {lr:.1e}", zorder=3)
    if result.interval is not None:
        axis.axvspan(*result.interval, color=ORANGE, alpha=0.15, lw=0, label="span of the rules")
    if result.suggestion is not None:
        axis.axvline(result.suggestion, color=ORANGE, ls="--", label=f"suggestion: {result.suggestion:.1e}")
    low, high = min(result.smoothed), max(result.smoothed)
    margin = 0.1 * (high - low) or 0.1
    axis.set(ylim=(low - margin, high + margin))  # the blow-up would flatten everything else
    title = "Learning-rate range test" + (": the rules do not agree" if result.interval and result.suggestion is None else "")
    axis.set(xscale="log", xlabel="learning rate", ylabel="loss", title=title)
    legend(axis)
    return figure
