"""Check functions of the exercises. Each prints ``✓`` or ``not yet``, and returns whether the answer is right."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


def verdict(right: bool, praise: str, hint: str) -> bool:
    """Print ``✓ praise`` or ``not yet: hint``."""
    print(f"✓ {praise}" if right else f"not yet: {hint}")
    return right


def attempt(answer: Callable[..., Any], *arguments: Any) -> Any:
    """Call the reader's function; an empty stub (NotImplementedError, or ``...`` that returns None) gives None.

    Any other error of the reader's own code is raised, since its traceback is the best hint there is.
    """
    try:
        return answer(*arguments)
    except NotImplementedError:
        return None


def check_06_clip_order(answer: Callable[..., Any]) -> bool:
    """`answer(scaler, optimizer, parameters, loss, max_norm)` does one step of fp16 training with clipped gradients.

    It is tried on the CPU on a large gradient, one that overflows, and a small one.
    """
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)  # moves the weight by exactly the gradient that it is given
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    for gradient, wanted, why in (
        ([3.0, 4.0], 1.0, "a gradient of norm 5, to be clipped to norm 1,"),
        ([math.inf, 0.0], 0.0, "an infinite gradient, whose step has to be skipped,"),
        ([0.3, 0.4], 0.5, "the gradient after that one, of norm 0.5 and not to be clipped,"),
    ):
        before, scale = weight.detach().clone(), scaler.get_scale()
        try:
            attempt(answer, scaler, optimizer, [weight], weight @ torch.tensor(gradient), 1.0)
        except RuntimeError as error:  # GradScaler's own words for calls that are missing or twice there
            return verdict(False, "", f"at {why} torch said: {error}")
        moved = (weight.detach() - before).norm().item()
        if not math.isclose(moved, wanted, rel_tol=1e-4, abs_tol=1e-7):
            return verdict(False, "", f"{why} moved the weight by {moved:.3g}, not by {wanted:g}")
        if wanted == 0 and scaler.get_scale() != scale / 2:
            return verdict(False, "", f"{why} left the scale at {scaler.get_scale():g}: it has to be halved")
    return verdict(True, "clipped in true units, skipped on overflow, and the scale follows", "")


def check_00_speedup(answer: Callable[[list[float], list[float]], float]) -> bool:
    """``answer(a, b)`` is the median of the paired ratios a / b: not of the means, not upside down."""
    a = [1.0, 2.0, 4.0, 8.0, 80.0]  # the machine slows down, and one block was disturbed
    b = [0.5, 1.0, 2.0, 4.0, 1.0]
    got = attempt(answer, a, b)
    if got is None:
        return verdict(False, "", "write the function, then run this cell again")
    return verdict(
        isinstance(got, float) and abs(got - 2.0) < 1e-6,
        "one disturbed block does not matter, nor does the drift",
        f"a={a} and b={b} are 2.0x apart, yours says {got}",
    )


def check_11_best_segments(answer: Callable[..., Any]) -> bool:
    """`answer(n, a, b)` is a number of pieces k from 1 to n with the smallest peak k*a + ceil(n/k)*b."""
    for n, a, b in ((24, 1, 5), (16, 1, 1), (50, 2, 12), (1, 1, 5), (6, 1, 20), (40, 9, 1)):
        peaks = {k: k * a + -(-n // k) * b for k in range(1, n + 1)}
        found, case = attempt(answer, n, a, b), f"n={n}, a={a}, b={b}"
        if found is None:
            return verdict(False, "", "return a number of pieces")
        if found not in peaks:
            return verdict(False, "", f"{case} gave {found!r}: a whole number of pieces from 1 to {n} is wanted")
        if peaks[found] > min(peaks.values()):
            return verdict(False, "", f"{case} gave {found}, of peak {peaks[found]}; {min(peaks.values())} is possible")
    return verdict(True, "the smallest peak in every case, rounding included", "")


def check_12_lowest_peak(answer: Callable[..., Any]) -> bool:
    """`answer(saved, outputs)` is the smallest peak of all ways to cut a chain; all pieces but the last are recomputed.

    The peak of a way: for each piece the outputs of the pieces before it, and all that its own blocks save.
    """
    for saved, outputs in (
        ([4], [1]),
        ([4, 4, 4, 4], [1, 1, 1, 1]),
        ([9, 1, 1, 1, 9, 1], [1, 8, 8, 8, 1, 1]),
        ([8, 8, 4, 4, 2, 2, 1, 1], [4, 4, 2, 2, 1, 1, 1, 1]),
        ([3, 1, 4, 1, 5, 9, 2, 6, 5], [2, 7, 1, 8, 2, 8, 1, 8, 2]),
        ([1, 2, 3, 4, 5], [9, 9, 9, 9, 9]),
    ):
        blocks = range(1, len(saved))
        ways = (cuts for number in range(len(saved)) for cuts in combinations(blocks, number))
        lowest = min(_peak(saved, outputs, cuts) for cuts in ways)
        found, case = attempt(answer, list(saved), list(outputs)), f"saved={saved}, outputs={outputs}"
        if found is None:
            return verdict(False, "", "return the smallest peak, a number")
        if found != lowest:
            why = f"some cuts give {lowest}" if found > lowest else f"no cuts give less than {lowest}"
            return verdict(False, "", f"{case} gave {found!r}: {why}")
    for count, lowest in ((36, 8), (37, 9)):  # pieces of 8, 7, ... 1 blocks; one block more does not fit into 8
        if attempt(answer, [1] * count, [1] * count) != lowest:
            return verdict(False, "", f"right for a few blocks; but {count} that save and hand on 1 each need {lowest}")
    return verdict(True, "the smallest peak in every case, also among 2^36 ways to cut", "")


def _peak(saved: list[int], outputs: list[int], cuts: tuple[int, ...]) -> int:
    """The peak of one way to cut a chain, as in notebook 12."""
    held = peak = 0
    for first, end in pairwise([0, *cuts, len(saved)]):
        peak = max(peak, held + sum(saved[first:end]))
        held += outputs[end - 1]
    return peak


def check_01_blocked_product(answer: Callable[..., Any]) -> bool:
    """``answer(B, C, rows, columns)`` is B @ C, computed in blocks of at most ``rows`` x ``columns`` elements."""
    generator = torch.Generator().manual_seed(1)
    for n, inner, m, rows, columns in ((8, 4, 6, 4, 3), (7, 5, 9, 3, 4), (5, 2, 5, 9, 9), (3, 3, 3, 1, 1)):
        B, C = torch.randn(n, inner, generator=generator), torch.randn(inner, m, generator=generator)
        with _Products() as products:
            got = attempt(answer, B, C, rows, columns)
        where = f"({n}, {inner}) by ({inner}, {m}) in blocks of ({rows}, {columns})"
        if got is None:
            return verdict(False, "", "write the function, then run this cell again")
        if not isinstance(got, torch.Tensor) or got.shape != (n, m):
            shape = tuple(got.shape) if isinstance(got, torch.Tensor) else got
            return verdict(False, "", f"{where} has the shape {(n, m)}, yours {shape}")
        if not torch.allclose(got, B @ C, atol=1e-5):
            return verdict(False, "", f"{where}: some elements are not those of B @ C")
        if products.largest > rows * columns:
            return verdict(False, "", f"{where}: one of your products had {products.largest} elements")
    return verdict(True, "the blocks fit together, also where they do not divide the shape", "")


class _Products(TorchDispatchMode):
    """Sees the largest result of any product of matrices."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.mv, torch.ops.aten.dot, torch.ops.aten.bmm):
            self.largest = max(self.largest, result.numel())
        return result


def check_04_enough_workers(answer: Callable[[float, float], int]) -> bool:
    """``answer(L, T)`` is the smallest number of workers, at least 1, that loads a batch every T seconds or sooner."""
    for L, T, wanted in ((12.0, 4.0, 3), (13.0, 4.0, 4), (0.002, 0.008, 1), (8.0, 8.0, 1), (0.0, 1.0, 1)):
        got = attempt(answer, L, T)
        if got != wanted:
            return verdict(False, "", f"L={L:g} and T={T:g} want {wanted} workers, yours says {got}")
    return verdict(True, "with these the training never waits, and with one fewer it would", "")


def check_03_one_cycle_lr(answer: Callable[..., Any]) -> bool:
    """`answer(step, max_lr, total_steps, pct_start, div_factor, final_div_factor)` is the rate of OneCycleLR."""
    from labkit.schedule import schedule_curve

    for max_lr, steps, *shape in ((0.1, 100, 0.3, 25.0, 1e4), (2.0, 37, 0.25, 10.0, 100.0)):
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, max_lr, steps, pct_start=shape[0], div_factor=shape[1], final_div_factor=shape[2]
        )
        for step, expected in enumerate(schedule_curve(scheduler, steps).lrs[:, 0].tolist()):
            got = attempt(answer, step, max_lr, steps, *shape)
            if got is None:
                return verdict(False, "", "the function returns nothing yet")
            if not math.isclose(got, expected, rel_tol=1e-6):
                where = f"step {step} of {steps} (max_lr={max_lr}, pct_start={shape[0]}, div_factor={shape[1]:g})"
                return verdict(False, "", f"at {where} you give {got:.6g}, and torch {expected:.6g}")
    return verdict(True, "every step of two different cycles agrees with OneCycleLR", "")
