"""03, learning-rate schedules: what shows that the technique acts; answers to its exercise."""

from typing import Any

from torch.optim.lr_scheduler import OneCycleLR
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course import exercises


def alive(names: dict[str, Any]) -> None:
    """The rates of the first six steps of 20, in percent of the highest one; the last is built in
    the exercise.
    """
    taken = {}
    for schedule in names["lab"].controls["schedule"][:-1]:
        rates: list[int] = []
        hook = register_optimizer_step_pre_hook(
            lambda optimizer, *_, rates=rates: rates.append(
                round(1000 * optimizer.param_groups[0]["lr"])
            )
        )
        try:
            settings = names["lab"].defaults | {"schedule": schedule, "max_lr": 0.1}
            step = names["make_workload"](**settings).step
            for _ in range(6):
                step()
        finally:
            hook.remove()
        taken[schedule] = rates
    assert taken == {
        "constant": [100] * 6,
        "linear": [100, 95, 90, 85, 80, 75],
        "cosine": [100, 99, 98, 95, 90, 85],
        "WSD": [10, 55, 100, 100, 100, 100],
        "rise": [10, 25, 40, 55, 70, 85],
        "1cycle": [4, 13, 37, 67, 91, 100],
    }


RATES, MOMENTA = (0.1, 1.0, 0.1, 0.001), (0.95, 0.85, 0.95, 0.95)


def between(now, corners, values):
    """Straight lines through the corners; beyond the last one its value."""
    for (left, low), (right, high) in zip(
        zip(corners, values, strict=True),
        zip(corners[1:], values[1:], strict=False),
        strict=False,
    ):
        if now <= right:
            return low + (high - low) * (now - left) / (right - left)
    return values[-1]


class Right:
    rates, momenta = RATES, MOMENTA

    def __init__(self, optimizer, peak, steps):
        self.optimizer, self.steps, self.now = optimizer, steps, 0
        self.peaks = self.of_groups(peak)
        self.set()

    def of_groups(self, peak):
        rates = [group["lr"] for group in self.optimizer.param_groups]
        return [peak * rate / rates[0] for rate in rates]

    def corners(self):
        return 0, 0.45 * self.steps - 1, 0.9 * self.steps - 2, self.steps - 1

    def place(self):
        return self.now

    def step(self):
        self.now += 1
        self.set()

    def set(self):
        part = between(self.place(), self.corners(), self.rates)
        for group, peak in zip(self.optimizer.param_groups, self.peaks, strict=True):
            group["lr"] = part * peak
            group["momentum"] = between(self.place(), self.corners(), self.momenta)


class RightWithTorch:
    def __init__(self, optimizer, peak, steps):
        first, *_ = rates = [group["lr"] for group in optimizer.param_groups]
        form = {"three_phase": True, "anneal_strategy": "linear", "pct_start": 0.45}
        self.schedule = OneCycleLR(
            optimizer,
            [peak * rate / first for rate in rates],
            total_steps=steps,
            div_factor=10,
            final_div_factor=100,
            **form,
        )
        self.left = steps - 1

    def step(self):
        if self.left:
            self.left -= 1
            self.schedule.step()


class WithoutStep:
    def __init__(self, optimizer, peak, steps): ...


class OneStepLate(Right):
    def place(self):
        return max(0, self.now - 1)


class CornersOneLate(Right):
    def corners(self):
        return 0, 0.45 * self.steps, 0.9 * self.steps, self.steps


class SetsNothingAtFirst(Right):
    def __init__(self, optimizer, peak, steps):
        self.optimizer, self.steps, self.now = optimizer, steps, 0
        self.peaks = self.of_groups(peak)


class NoTail(Right):
    rates = (0.1, 1.0, 0.1, 0.1)


class TwoPhases(Right):
    rates, momenta = (0.1, 1.0, 0.001), MOMENTA[:3]

    def corners(self):
        return 0, 0.45 * self.steps - 1, self.steps - 1


class MomentumTheSameWay(Right):
    momenta = (0.85, 0.95, 0.85, 0.85)


class MomentumLeftAlone(Right):
    momenta = (0.9, 0.9, 0.9, 0.9)


class OneRateForAll(Right):
    def of_groups(self, peak):
        return [peak for _ in self.optimizer.param_groups]


class BeginsAgain(Right):
    def place(self):
        return self.now % self.steps


class GoesOnDown(Right):
    def place(self):
        return min(self.now, self.steps - 1) - 1e-3 * max(0, self.now - self.steps + 1)


class FactorOfThePresentRate(Right):
    def set(self):
        part = between(self.place(), self.corners(), self.rates)
        for group in self.optimizer.param_groups:
            group["lr"] *= part
            group["momentum"] = between(self.place(), self.corners(), self.momenta)


CHECK = exercises.check_03_one_cycle
RIGHT = Right
ALSO_RIGHT = [RightWithTorch]
WRONG = [
    (WithoutStep, "the class has no method step() yet"),
    (SetsNothingAtFirst, "step 0 of 100, peak 0.1 has the rate 0.03, and with torch 0.01"),
    (OneStepLate, "step 1 of 100, peak 0.1 has the rate 0.01, and with torch 0.01205"),
    (CornersOneLate, "step 1 of 100, peak 0.1 has the rate 0.012,"),
    (NoTail, "step 89 of 100, peak 0.1 has the rate 0.01, and with torch 0.0091"),
    (TwoPhases, "step 45 of 100, peak 0.1 has the rate 0.09818, and with torch 0.09795"),
    (MomentumTheSameWay, "step 0 of 100, peak 0.1 has the momentum 0.85, and with torch 0.95"),
    (MomentumLeftAlone, "…has the momentum 0.9, and with torch 0.95"),
    (OneRateForAll, "…peak 2: group 1 has the rate 0.2, and with torch 0.1"),
    (BeginsAgain, "step 100 of 100, peak 0.1 has the rate 0.01, and with torch 0.0001"),
    (GoesOnDown, "step 100 of 100, peak 0.1 has the rate 0.0001009, and with torch 0.0001"),
    (FactorOfThePresentRate, "step 0 of 100, peak 0.1 has the rate 0.003"),
]
