"""09, layout and kernel choice: what shows that the technique acts; answers to the exercise."""

from typing import Any

import torch

from course import exercises
from course.measured.layouts import watch
from labkit import seed_all


def laid(names: dict[str, Any], **settings: Any) -> Any:
    """The layouts of a step with these settings."""
    seed_all(0)
    # The norm is offered below the panel.
    workload = names["make_workload"](**names["lab"].settings({}) | settings)
    return watch(workload.step)[1]


def alive(names: dict[str, Any]) -> None:
    """All results lie channels last; a norm per channel turns them back, in every block."""
    first, last = laid(names), laid(names, channels_last=True)
    assert (first.share, first.changes) == (0, 0)
    assert (last.share, last.changes) == (1, 0)
    assert len(first.lines) > len(last.lines)
    asks = laid(names, channels_last=True, network="norm per channel")
    blocks = sum(letter == "n" for letter, _ in asks.layers)
    assert 0.2 < asks.share < 0.8 and asks.changes >= blocks >= 5
    assert laid(names, channels_last=False, network="norm per channel").changes == 0


class Right:
    """As the notebook's solution; the wrong ones change one part of it."""

    def __init__(self, candidates, clock):
        self.candidates, self.clock, self.kept = candidates, clock, {}

    def __call__(self, *tensors):
        key = self.key(tensors)
        if key not in self.kept:
            self.kept[key] = self.search(tensors)
        return self.kept[key](*tensors)

    def key(self, tensors):
        return tuple((each.shape, each.dtype, each.stride()) for each in tensors)

    def search(self, tensors):
        seconds = {}
        for candidate in self.candidates:
            try:
                candidate(*self.copies(tensors))
                seconds[candidate] = self.timed(candidate, tensors)
            except ValueError:
                continue
        return min(seconds, key=seconds.get)

    def copies(self, tensors):
        return [each.clone() for each in tensors]

    def timed(self, candidate, tensors):
        copies = self.copies(tensors)
        begin = self.clock()
        candidate(*copies)
        return self.clock() - begin


class NoStrides(Right):
    def key(self, tensors):
        return tuple((each.shape, each.dtype) for each in tensors)


class NoType(Right):
    def key(self, tensors):
        return tuple((each.shape, each.stride()) for each in tensors)


class NoShape(Right):
    """Strides of (2, 4, 3, 3) and (8, 4, 3, 3) are the same."""

    def key(self, tensors):
        return tuple((each.dtype, each.stride()) for each in tensors)


class FirstTensorOnly(Right):
    def key(self, tensors):
        return super().key(tensors[:1])


class ByTheTensor(Right):
    def key(self, tensors):
        return tuple(map(id, tensors))


class SearchesEachCall(Right):
    def __call__(self, *tensors):
        return self.search(tensors)(*tensors)


class RanksTheColdCall(Right):
    def search(self, tensors):
        return min(self.candidates, key=lambda each: self.timed(each, tensors))


class KeepsTheFirst(Right):
    def search(self, tensors):
        return self.candidates[0]


class KeepsTheLastOfAll(Right):
    def search(self, tensors):
        for candidate in self.candidates:
            self.timed(candidate, tensors)
            self.timed(candidate, tensors)
        return self.candidates[-1]


class EndsAtAnError(Right):
    def search(self, tensors):
        seconds = {}
        for candidate in self.candidates:
            candidate(*self.copies(tensors))
            seconds[candidate] = self.timed(candidate, tensors)
        return min(seconds, key=seconds.get)


class SwallowsAllErrors(Right):
    def __call__(self, *tensors):
        try:
            return super().__call__(*tensors)
        except ValueError:
            return tensors[0]


class OnTheInputs(Right):
    def copies(self, tensors):
        return tensors


class WithoutGradients(Right):
    def __call__(self, *tensors):
        with torch.no_grad():
            return super().__call__(*tensors)


CHECK = exercises.check_09_autotune
RIGHT = Right
WRONG = (
    (KeepsTheFirst, "seconds of a first and of a later call are [(3.0, 3.0)"),
    (KeepsTheLastOfAll, "seconds of a first and of a later call are [(1.0, 1.0)"),
    (RanksTheColdCall, "seconds of a first and of a later call are [(2.0, 2.0), (10.0, 1.0)"),
    (SearchesEachCall, "the same tensor again: a known key calls one candidate once; here"),
    (ByTheTensor, "another tensor of the same shape, type and strides: a known key"),
    (NoShape, "another shape: candidate 1 is faster there; 0 was kept"),
    (NoType, "another type: candidate 1 is faster there; 0 was kept"),
    (NoStrides, "other strides, channels last: candidate 1 is faster there; 0"),
    (FirstTensorOnly, "other strides of the second tensor: candidate 1 is faster"),
    (EndsAtAnError, "a candidate that raises is out"),
    (SwallowsAllErrors, "where every candidate raises, there is no result"),
    (OnTheInputs, "a candidate doubles its input in place"),
    (WithoutGradients, "the weight gets no gradient"),
)
