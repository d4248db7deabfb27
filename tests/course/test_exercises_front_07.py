"""The exercise of the front notebook 07: a scaler that finds its scale."""

import math

import pytest
import torch

from course.exercises import check_07_scaler


class Right:
    def __init__(self, scale, interval):
        self.now, self.interval, self.clean, self.skipped = scale, interval, 0, False

    def scale(self, loss):
        return loss * self.now

    def gradients(self, optimizer):
        every = [p.grad for group in optimizer.param_groups for p in group["params"]]
        return [gradient for gradient in every if gradient is not None]

    def divide(self, gradients):
        for gradient in gradients:
            gradient /= self.now

    def fine(self, gradients):
        return all(gradient.isfinite().all() for gradient in gradients)

    def step(self, optimizer):
        found = self.gradients(optimizer)
        self.divide(found)
        self.skipped = not self.fine(found)
        if not self.skipped:
            optimizer.step()

    def update(self):
        self.clean = 0 if self.skipped else self.clean + 1
        if self.skipped:
            self.now /= 2
        elif self.clean == self.interval:
            self.now, self.clean = 2 * self.now, 0


class LookedAtBefore(Right):
    """inf stays inf when it is divided."""

    def step(self, optimizer):
        found = self.gradients(optimizer)
        self.skipped = not self.fine(found)
        self.divide(found)
        if not self.skipped:
            optimizer.step()


class Torchs:
    def __init__(self, scale, interval):
        self.inner = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
        self.scale, self.step, self.update = self.inner.scale, self.inner.step, self.inner.update


class NotDivided(Right):
    def divide(self, gradients):
        pass


class DividedTwice(Right):
    def divide(self, gradients):
        for _ in range(2):
            super().divide(gradients)


class LastLookedAt(Right):
    def fine(self, gradients):
        return gradients[-1].isfinite().all()


class FirstLookedAt(Right):
    def fine(self, gradients):
        return gradients[0].isfinite().all()


class OthersStep(Right):
    """What has inf gets no update, the others do."""

    def step(self, optimizer):
        found = self.gradients(optimizer)
        self.divide(found)
        self.skipped = not self.fine(found)
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p.grad is not None and not p.grad.isfinite().all():
                    p.grad = None
        optimizer.step()


class NeverSkips(Right):
    def fine(self, gradients):
        return True


class LargestCompared(Right):
    """nan is larger than nothing."""

    def fine(self, gradients):
        return not any(gradient.abs().max() > 1e30 for gradient in gradients)


class NotReset(Right):
    def update(self):
        self.clean += not self.skipped
        if self.skipped:
            self.now /= 2
        elif self.clean == self.interval:
            self.now, self.clean = 2 * self.now, 0


class GrowsAfterASkip(Right):
    def update(self):
        self.clean += 1
        if self.skipped:
            self.now /= 2
        elif self.clean >= self.interval:
            self.now, self.clean = 2 * self.now, 0


class GrowsForEver(Right):
    """After its first growth, in every step."""

    def update(self):
        self.clean = 0 if self.skipped else self.clean + 1
        if self.skipped:
            self.now /= 2
        elif self.clean >= self.interval:
            self.now *= 2


class NeverHalves(Right):
    def update(self):
        if not self.skipped:
            super().update()


class SkipsForEver(Right):
    """One overflow is remembered."""

    def step(self, optimizer):
        found = self.gradients(optimizer)
        self.divide(found)
        self.skipped = self.skipped or not self.fine(found)
        if not self.skipped:
            optimizer.step()


class NeedsEveryGradient(Right):
    def gradients(self, optimizer):
        return [p.grad for group in optimizer.param_groups for p in group["params"]]


class StopsAtNone(Right):
    """No weight moves where one has no gradient."""

    def step(self, optimizer):
        if any(gradient is None for gradient in self.every(optimizer)):
            self.skipped = False
            return
        super().step(optimizer)

    def every(self, optimizer):
        return [p.grad for group in optimizer.param_groups for p in group["params"]]


class FaultOfItsOwn(Right):
    def update(self):
        self.missing.count()


class AnotherScale(Right):
    def __init__(self, scale, interval):
        super().__init__(2.0**16, interval)


class ReturnsANumber(Right):
    def scale(self, loss):
        return loss.item() * self.now


class Bare:
    def __init__(self, scale, interval):
        pass


@pytest.mark.parametrize("answer", [Right, LookedAtBefore, Torchs])
def test_right_answers_pass(answer, capsys):
    assert check_07_scaler(answer)
    assert "✓" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (NotDivided, "1024 times too large: divide"),
        (DividedTwice, "moves by 0.1, not 9.7"),
        (LastLookedAt, "the first parameter's gradient has inf"),
        (FirstLookedAt, "the second parameter's gradient has inf"),
        (OthersStep, "no weight may move"),
        (NeverSkips, "no weight may move"),
        (LargestCompared, "gradient has nan"),
        (NotReset, "inf in step 3, after step 4, the scale is"),
        (GrowsAfterASkip, "inf in step 3, after step 4, the scale is"),
        (GrowsForEver, "no overflow, after step 4, the scale is"),
        (NeverHalves, "after a skipped step, the scale is 512, yours 1024"),
        (SkipsForEver, "inf in step 3, after step 4, the scale is"),
        (NeedsEveryGradient, "the third parameter has no gradient, its p.grad is None"),
        (StopsAtNone, "the other two still move"),
        (AnotherScale, "the scale is 1024, yours 65536"),
        (ReturnsANumber, "a loss to call backward() on"),
        (Bare, "has the method scale()"),
    ],
)
def test_wrong_answers_are_told_what_is_wrong(answer, hint, capsys):
    assert not check_07_scaler(answer)
    said = capsys.readouterr().out
    assert hint in said, said


def test_another_error_is_the_readers_own():
    with pytest.raises(AttributeError, match="missing"):
        check_07_scaler(FaultOfItsOwn)


def test_the_case_of_the_hints_is_a_power_of_two():
    """Halving and doubling it are exact."""
    from course.exercises import front_07

    assert math.frexp(front_07.SCALE)[0] == 0.5
