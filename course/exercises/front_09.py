"""The exercise of the front notebook 09: a search that keeps the fastest of several kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from course.kernels import clock, kernels

# Seconds of a first call, and of a later one.
Cost = tuple[float, float]
COLD = 10.0


@check("each key is searched once, and the fastest kernel stays", judged="inside")
def check_09_autotune(answer: Callable[..., Any]) -> None:
    """`answer(candidates, clock)` is called with tensors; it keeps the fastest candidate per key.

    Candidates are counted, and their seconds are those of a clock that only they move. At the end
    it chooses among real kernels.
    """
    _fastest_once_warm(answer)
    _one_search_per_key(answer)
    _keys(answer)
    _failures(answer)
    _inputs(answer)
    _convolution(answer)


class Bench:
    """Candidates that add, each with seconds of its own, and the clock that they move."""

    def __init__(self, answer: Callable[..., Any], costs: Sequence[Callable[..., Cost]]) -> None:
        self.now, self.calls = 0.0, [0] * len(costs)
        self.seen: set[tuple[int, Any]] = set()
        self.candidates = [self._candidate(place, cost) for place, cost in enumerate(costs)]
        self.tune = attempt(answer, self.candidates, lambda: self.now)

    def _candidate(self, place: int, cost: Callable[..., Cost]) -> Callable[..., Tensor]:
        def candidate(*tensors: Tensor) -> Tensor:
            self.calls[place] += 1
            key = (place, _key(tensors))
            cold, warm = cost(*tensors)
            self.now += warm if key in self.seen else cold
            self.seen.add(key)
            result = tensors[0].clone()
            for tensor in tensors[1:]:
                result = result + tensor
            return result

        candidate.__name__ = f"candidate_{place}"
        return candidate

    def __call__(self, *tensors: Tensor) -> list[int]:
        """How often each candidate is called for the answer's result, which has to be right."""
        before = list(self.calls)
        expected = torch.stack([each.detach().clone() for each in tensors]).sum(0)
        result = attempt(self.tune, *tensors)
        if not isinstance(result, Tensor):
            raise NotYet(f"return what the kept candidate returns; this is {result!r:.60}")
        if not torch.equal(result.detach(), expected):
            raise NotYet("the result is not that of a candidate on the tensors as they came")
        return [now - then for now, then in zip(self.calls, before, strict=True)]

    def kept(self, *tensors: Tensor, case: str) -> int:
        """The candidate that a known key calls, once and alone."""
        called = self(*tensors)
        if sum(called) != 1:
            raise NotYet(f"{case}: a known key calls one candidate once; here {called} calls")
        return called.index(1)


def _key(tensors: Sequence[Tensor]) -> Any:
    return tuple((each.shape, each.dtype, each.stride()) for each in tensors)


def _costs(*costs: Cost) -> list[Callable[..., Cost]]:
    """Candidates that take as long whatever they are given."""
    return [lambda *_tensors, cost=cost: cost for cost in costs]


def _fastest_once_warm(answer: Callable[..., Any]) -> None:
    """In any place, and whatever a first call takes."""
    x = torch.ones(2, 3)
    for costs in (
        [(1.0, 1.0), (3.0, 3.0), (2.0, 2.0)],
        [(3.0, 3.0), (2.0, 2.0), (1.0, 1.0)],
        [(2.0, 2.0), (COLD, 1.0), (3.0, 3.0)],
        [(1.0, 4.0), (COLD, 2.0), (COLD, 3.0)],
    ):
        bench = Bench(answer, _costs(*costs))
        bench(x)
        warm = [later for _, later in costs]
        best = warm.index(min(warm))
        if (kept := bench.kept(x, case="the same tensor again")) != best:
            raise NotYet(
                f"seconds of a first and of a later call are {costs}: candidate {best} is the "
                f"fastest once warm; {kept} was kept. The first call loads and allocates"
            )


def _one_search_per_key(answer: Callable[..., Any]) -> None:
    bench = Bench(answer, _costs((2.0, 2.0), (1.0, 1.0)))
    x, y = torch.ones(2, 3), torch.full((2, 3), 5.0)
    searched = bench(x)
    if min(searched) == 0:
        raise NotYet(f"a new key calls each candidate; here {searched} calls")
    if max(searched) > 3:
        raise NotYet(f"a search calls each candidate twice; here {searched} calls")
    for _ in range(3):
        bench.kept(y, case="another tensor of the same shape, type and strides")


def _keys(answer: Callable[..., Any]) -> None:
    """Shapes, types and strides of all tensors, each of which changes what is fastest."""
    images = torch.ones(2, 4, 3, 3)
    last = images.to(memory_format=torch.channels_last)
    many, wide = torch.ones(8, 4, 3, 3), torch.ones(2, 4, 3, 3, dtype=torch.float64)
    for case, other in (
        ("another shape", (many, many)),
        ("another type", (wide, wide)),
        ("other strides, channels last", (last, last)),
        ("other strides of the second tensor", (images, last)),
    ):
        second = _key(other)
        bench = Bench(
            answer,
            [
                lambda *given, second=second: (1.0, 1.0) if _key(given) != second else (4.0, 4.0),
                lambda *given: (2.0, 2.0),
            ],
        )
        bench(images, images)
        bench(*other)
        for tensors, best in (((images, images), 0), (other, 1)):
            if (kept := bench.kept(*tensors, case=case)) != best:
                raise NotYet(f"{case}: candidate {best} is faster there; {kept} was kept")


def _failures(answer: Callable[..., Any]) -> None:
    """Who raises is out; if all do, so does the search."""

    def fails(*_tensors: Tensor) -> Cost:
        raise ValueError("no kernel for these tensors")

    bench = Bench(answer, [fails, *_costs((2.0, 2.0), (1.0, 1.0)), fails])
    x = torch.ones(3)
    try:
        bench(x)
    except ValueError as error:
        raise NotYet(f"a candidate that raises is out, and the others go on: {error}") from error
    if (kept := bench.kept(x, case="some candidates raise")) != 2:
        raise NotYet(f"two candidates raise, candidate 2 is the fastest of the rest; {kept} kept")
    try:
        Bench(answer, [fails, fails]).tune(x)
    except Exception:
        return
    raise NotYet("where every candidate raises, there is no result: raise an error")


def _inputs(answer: Callable[..., Any]) -> None:
    """A candidate that writes into its inputs."""
    now = [0.0]

    def doubled(x: Tensor) -> Tensor:
        now[0] += 1.0
        return x.mul_(2)

    def slow(x: Tensor) -> Tensor:
        now[0] += 2.0
        return x * 2

    x = torch.ones(2, 2)
    result = attempt(attempt(answer, [slow, doubled], lambda: now[0]), x)
    if not isinstance(result, Tensor) or not torch.equal(result, torch.full((2, 2), 2.0)):
        raise NotYet(
            "a candidate doubles its input in place, and ones became something else than twos: "
            "search on clones"
        )


def _convolution(answer: Callable[..., Any]) -> None:
    """Real kernels, with gradients, plain and in groups."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for groups in (1, 4):
            layer = nn.Conv2d(4, 8, 3, padding=1, groups=groups)
            x = torch.randn(2, 4, 6, 5)
            search = attempt(answer, kernels(layer), clock)
            for _ in range(2):
                layer.zero_grad()
                result = attempt(search, x, layer.weight, layer.bias)
                if not torch.allclose(result, layer(x), atol=1e-5):
                    raise NotYet("the result is not that of a convolution")
                if not result.requires_grad:
                    raise NotYet("the weight gets no gradient: call the kept one as it is")
                result.square().sum().backward()
                if layer.weight.grad is None or not layer.weight.grad.any():
                    raise NotYet("the weight gets no gradient: call the kept one on the tensors")
