"""Deeper 02, answers to the exercise: the rate above which gradient descent diverges."""

import torch

from course import exercises
from tests.labs import nothing


def curvatures(inputs):
    A = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1).double()
    return torch.linalg.eigvalsh(A.T @ A / len(A))


def right(inputs):
    return 2 / curvatures(inputs)[-1].item()


def by_singular_values(inputs):
    A = torch.cat([torch.ones(len(inputs), 1), inputs], dim=1)
    # a tensor of one number
    return 2 * len(A) / torch.linalg.matrix_norm(A, 2) ** 2


def by_trying(inputs):
    """Bisection on gradient descent itself: minimise half the mean square of A v."""
    A = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1).double()

    def diverges(rate):
        v = torch.ones(A.shape[1], dtype=torch.double)
        for _ in range(3000):
            v = v - rate * A.T @ (A @ v) / len(A)
        return not (A @ v).norm() < (A @ torch.ones_like(v)).norm()

    low, high = 0.0, 10.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if diverges(middle) else (middle, high)
    return (low + high) / 2


def spoils_its_inputs(inputs):
    found = right(inputs)
    inputs.zero_()
    return found


def no_bias(inputs):
    return 2 / torch.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[-1].item()


def not_a_mean(inputs):
    A = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
    return 2 / torch.linalg.eigvalsh(A.T @ A)[-1].item()


def covariance(inputs):
    return 2 / torch.linalg.eigvalsh(torch.cov(inputs.T))[-1].item()


CHECK = exercises.check_02_largest_rate
RIGHT = right
ALSO_RIGHT = [by_singular_values, by_trying, spoils_its_inputs]
RAISES = [(lambda inputs: inputs.nonsense, AttributeError, "nonsense")]
WRONG = [
    (nothing, "return the largest rate\n"),
    # 1 / the curvature, or the limit of MSELoss
    (lambda inputs: right(inputs) / 2, "…at 1.01 of your"),
    # without the 1/2
    (lambda inputs: 2 * right(inputs), "…diverges already"),
    (not_a_mean, "…does not diverge yet"),
    # the first case has features of mean zero
    (no_bias, "…a mean of 2: at 0.99 of your"),
    (covariance, "…diverges already"),
    # the trace
    (lambda inputs: 2 / curvatures(inputs).sum().item(), "…does not diverge yet"),
    # the smallest
    (lambda inputs: 2 / curvatures(inputs).clamp(min=1e-9)[0].item(), "…diverges already"),
    (lambda inputs: 0, "…a positive number is wanted, not 0"),
    (lambda inputs: float("nan"), "…a positive number is wanted, not nan"),
    (lambda inputs: 2 / curvatures(inputs), "…a positive number is wanted, not tensor"),
    (lambda inputs: "0.95", "…a positive number is wanted, not '0.95'"),
]
