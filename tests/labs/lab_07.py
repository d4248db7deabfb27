"""07, low precision: what shows that the technique acts; answers to its exercise."""

from itertools import pairwise
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course import exercises
from course.measured.window import Notes
from labkit import seed_all


def gradients(names: dict[str, Any], **settings: Any) -> torch.Tensor:
    """Of the first layer's weights, in a batch of 64."""
    lab = names["lab"]
    seed_all(0)
    notes = Notes(names["FORMATS"][lab.settings(settings)["stored"]])
    net = names["models"].mlp([192, 64, 64, 10]).to(names["device"])
    x = names["forward"](net, names["inputs"][:64], notes)
    scale = float(settings.get("loss_scale", 1)) * settings.get("loss_weight", 1)
    (scale * torch.nn.functional.cross_entropy(x, names["labels"][:64])).backward()
    return net[0].weight.grad


def zeros(names: dict[str, Any], **settings: Any) -> float:
    return (gradients(names, **settings) == 0).float().mean().item()


def alive(names: dict[str, Any]) -> None:
    """A small loss has gradients in fp32 and none in fp16; a scale brings them back."""
    plain = zeros(names, loss_weight=1e-5)
    lost = zeros(names, stored="fp16", loss_weight=1e-5)
    scaled = zeros(names, stored="fp16", loss_weight=1e-5, loss_scale="4096")
    assert lost > 0.5 > 2 * scaled
    assert scaled < plain + 0.05
    assert zeros(names, stored="bf16", loss_weight=1e-5) < plain + 0.01
    assert still(names, "bf16") > 0.5 > 5 * still(names, "fp32")


def still(names: dict[str, Any], kind: str) -> float:
    """The share of weights of this type that a step at a small rate leaves where they were."""
    seen = []

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        every = [each for group in optimizer.param_groups for each in group["params"]]
        seen.append(torch.cat([each.detach().flatten() for each in every]))

    seed_all(0)
    step = names["make_workload"](**names["lab"].settings({"weights": kind, "rate": 1e-4})).step
    hook = register_optimizer_step_pre_hook(note)
    try:
        for _ in range(10):
            step()
    finally:
        hook.remove()
    # Before the first step they are rounded for the first time.
    pairs = list(pairwise(seen[1:]))
    return sum((one == other).float().mean().item() for one, other in pairs) / len(pairs)


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


CHECK = exercises.check_07_scaler
RIGHT = Right
ALSO_RIGHT = [LookedAtBefore, Torchs]
RAISES = [(FaultOfItsOwn, AttributeError, "missing")]
WRONG = [
    (NotDivided, "…1024 times too large: divide"),
    (DividedTwice, "…moves by 0.1, not 9.7"),
    (LastLookedAt, "the first parameter's gradient has inf"),
    (FirstLookedAt, "the second parameter's gradient has inf"),
    (OthersStep, "…no weight may move"),
    (NeverSkips, "…no weight may move"),
    (LargestCompared, "…gradient has nan"),
    (NotReset, "…inf in step 3, after step 4, the scale is"),
    (GrowsAfterASkip, "…inf in step 3, after step 4, the scale is"),
    (GrowsForEver, "…no overflow, after step 4, the scale is"),
    (NeverHalves, "after a skipped step, the scale is 512, yours 1024"),
    (SkipsForEver, "…inf in step 3, after step 4, the scale is"),
    (NeedsEveryGradient, "the third parameter has no gradient, its p.grad is None"),
    (StopsAtNone, "…the other two still move"),
    (AnotherScale, "…the scale is 1024, yours 65536"),
    (ReturnsANumber, "…a loss to call backward() on"),
    (Bare, "…has the method scale()"),
]
