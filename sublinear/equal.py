"""Are two tensors equal: bit by bit, or up to a share of their largest value?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

# Copies of what steps leave behind, by a name that says what it is.
Seen = dict[str, object]


def copied(tensor: torch.Tensor | None) -> torch.Tensor | None:
    """A copy on the CPU, of a gradient that is None as well."""
    if tensor is None:
        return None
    return tensor.detach().to("cpu", copy=True)


def differences(
    wanted: Seen, found: Mapping[str, object], tolerance: Mapping[str, float] | None = None
) -> list[str]:
    """What differs, in words; by more than its ``tolerance``, a share of its largest value.

    What has none must be equal.
    """
    lines = []
    for key, want in wanted.items():
        allowed = (tolerance or {}).get(key, 0.0)
        if line := _difference(want, found[key], allowed):
            lines.append(f"{key}: {line}")
    return lines


def _difference(want: object, have: object, tolerance: float) -> str | None:
    wanted, found = tree_leaves(want), tree_leaves(have)
    if len(wanted) != len(found):
        return "missing in one of the two"
    for one, two in zip(wanted, found, strict=True):
        if torch.is_tensor(one) != torch.is_tensor(two):
            return "missing in one of the two"
        if not torch.is_tensor(one):
            if not np.array_equal(one, two):
                return "differs"
            continue
        if one.shape != two.shape or one.dtype != two.dtype or one.layout != two.layout:
            return "another shape, type or layout"
        gap, size = gap_of(one, two)
        if gap > tolerance * size:
            rounds = one.is_floating_point() or one.is_complex()
            return f"differs by {gap:.3g}, of values up to {size:.3g}" if rounds else "differs"
    return None


def same(one: torch.Tensor, two: torch.Tensor, among: Iterable[torch.Tensor] = ()) -> bool:
    """Whether two tensors are equal bit by bit.

    On an accelerator without deterministic algorithms, where kernels may add in any order, as
    `nearly_same` says.
    """
    if one.shape != two.shape:
        return False
    if one.is_meta:
        return True
    exact = one.device.type == "cpu" or torch.are_deterministic_algorithms_enabled()
    if one.is_floating_point() and not exact:
        return nearly_same(one, two, among)
    gap, _ = gap_of(one, two)
    return not gap


def nearly_same(one: torch.Tensor, two: torch.Tensor, among: Iterable[torch.Tensor] = ()) -> bool:
    """Whether two tensors are equal within 1 % of the largest finite value of the first.

    Or within 0.1 % of the largest ``among`` others: beside them the gradient of a bias before batch
    norm is rounding alone, which another order of sums changes altogether.
    """
    gap, size = gap_of(one, two)
    others = [1e-3 * _largest(_comparable(other)) for other in among]
    return gap <= max([1e-2 * size, *others])


def gap_of(one: torch.Tensor, two: torch.Tensor) -> tuple[float, float]:
    """The largest difference, and the largest value of the first, of those that are finite.

    nan is equal to nan, and so are infinite values; without a difference, both are 0.
    """
    if one.layout is not torch.strided:
        one, two = one.to_dense(), two.to_dense()
    if torch.equal(one, two):
        return 0.0, 0.0
    # Large whole numbers may be equal once they are rounded.
    least = 0.0 if one.is_floating_point() or one.is_complex() else 1.0
    one, two = _comparable(one), _comparable(two)
    odd = ~one.isfinite()
    if not torch.equal(odd, ~two.isfinite()):
        return math.inf, 0.0
    if not torch.equal(one[odd].nan_to_num(), two[odd].nan_to_num()):
        return math.inf, 0.0
    return max(least, _largest(one - two)), _largest(one)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to_dense().double()


def _largest(tensor: torch.Tensor) -> float:
    """The largest finite value."""
    if not tensor.numel():
        return 0.0
    return float(tensor.masked_fill(~tensor.isfinite(), 0).abs().max())
