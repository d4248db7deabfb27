"""The exercise of the front notebook 03: 1cycle with its momentum and its tail."""

import pytest
import torch
from torch.optim.lr_scheduler import OneCycleLR

from course.exercises import check_03_one_cycle

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


class Stub:
    def __init__(self, optimizer, peak, steps):
        raise NotImplementedError("your turn")


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


@pytest.mark.parametrize("answer", [Right, RightWithTorch])
def test_solutions_pass(answer, capsys):
    assert check_03_one_cycle(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (Stub, "write the function, then run this cell again"),
        (WithoutStep, "the class has no method step() yet"),
        (SetsNothingAtFirst, "step 0 of 100, peak 0.1 has the rate 0.03, and with torch 0.01"),
        (OneStepLate, "step 1 of 100, peak 0.1 has the rate 0.01, and with torch 0.01205"),
        (CornersOneLate, "step 1 of 100, peak 0.1 has the rate 0.012,"),
        (NoTail, "step 89 of 100, peak 0.1 has the rate 0.01, and with torch 0.0091"),
        (TwoPhases, "step 45 of 100, peak 0.1 has the rate 0.09818, and with torch 0.09795"),
        (MomentumTheSameWay, "step 0 of 100, peak 0.1 has the momentum 0.85, and with torch 0.95"),
        (MomentumLeftAlone, "has the momentum 0.9, and with torch 0.95"),
        (OneRateForAll, "peak 2: group 1 has the rate 0.2, and with torch 0.1"),
        (BeginsAgain, "step 100 of 100, peak 0.1 has the rate 0.01, and with torch 0.0001"),
        (GoesOnDown, "step 100 of 100, peak 0.1 has the rate 0.0001009, and with torch 0.0001"),
        (FactorOfThePresentRate, "step 0 of 100, peak 0.1 has the rate 0.003"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_03_one_cycle(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ") and hint in printed, printed


def test_random_state_is_untouched():
    state = torch.get_rng_state()
    check_03_one_cycle(Right)
    assert torch.equal(torch.get_rng_state(), state)
