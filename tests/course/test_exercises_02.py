"""The exercise of notebook 02: the rate above which gradient descent diverges."""

import pytest
import torch

from course.exercises import check_02_largest_rate


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


def empty(inputs): ...


def no_bias(inputs):
    return 2 / torch.linalg.eigvalsh(inputs.T @ inputs / len(inputs))[-1].item()


def not_a_mean(inputs):
    A = torch.cat([inputs, torch.ones_like(inputs[:, :1])], dim=1)
    return 2 / torch.linalg.eigvalsh(A.T @ A)[-1].item()


def covariance(inputs):
    return 2 / torch.linalg.eigvalsh(torch.cov(inputs.T))[-1].item()


@pytest.mark.parametrize("answer", [right, by_singular_values, by_trying])
def test_solutions_pass(answer, capsys):
    assert check_02_largest_rate(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_02_largest_rate(answer) is False
    assert capsys.readouterr().out == "not yet: return the largest rate\n"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (
            lambda inputs: right(inputs) / 2,
            "at 1.01 of your",
            # 1 / the curvature, or the limit of MSELoss
        ),
        # without the 1/2
        (lambda inputs: 2 * right(inputs), "diverges already"),
        (not_a_mean, "does not diverge yet"),
        # the first case has features of mean zero
        (no_bias, "a mean of 2: at 0.99 of your"),
        (covariance, "diverges already"),
        # the trace
        (lambda inputs: 2 / curvatures(inputs).sum().item(), "does not diverge yet"),
        (
            lambda inputs: 2 / curvatures(inputs).clamp(min=1e-9)[0].item(),
            "diverges already",
            # the smallest
        ),
        (lambda inputs: 0, "a positive number is wanted, not 0"),
        (lambda inputs: float("nan"), "a positive number is wanted, not nan"),
        (lambda inputs: 2 / curvatures(inputs), "a positive number is wanted, not tensor"),
        (lambda inputs: "0.95", "a positive number is wanted, not '0.95'"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_02_largest_rate(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert hint in printed


def test_it_hands_out_copies_and_leaves_the_generator_alone():
    state = torch.get_rng_state()
    assert check_02_largest_rate(lambda inputs: [right(inputs), inputs.zero_()][0])
    assert torch.equal(state, torch.get_rng_state())


def test_an_error_of_the_reader_s_own_is_shown():
    with pytest.raises(AttributeError, match="nonsense"):
        check_02_largest_rate(lambda inputs: inputs.nonsense)
