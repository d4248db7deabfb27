"""The exercise of notebook 10: the mean loss of an epoch with one read."""

import pytest
import torch

from course.exercises import check_10_one_read


def right(step, batches):
    total = 0.0
    for batch in batches:
        total += step(batch).detach()
    return (total / len(batches)).item()


def on_a_list(step, batches):
    return torch.stack([step(batch).detach() for batch in batches]).mean().item()


def stub(step, batches):
    raise NotImplementedError("your turn")


def empty(step, batches): ...


def reads_every_step(step, batches):
    return sum(step(batch).item() for batch in batches) / len(batches)


def keeps_the_graphs(step, batches):
    total = 0.0
    for batch in batches:
        total += step(batch)
    return (total / len(batches)).item()


def returns_a_tensor(step, batches):
    return torch.stack([step(batch).detach() for batch in batches]).mean()


def returns_the_sum(step, batches):
    return torch.stack([step(batch).detach() for batch in batches]).sum().item()


def returns_the_last(step, batches):
    for batch in batches:
        loss = step(batch).detach()
    return loss.item()


def steps_twice(step, batches):
    return torch.stack([step(batch).detach() for batch in batches for _ in range(2)]).mean().item()


@torch.no_grad()
def without_gradients(step, batches):
    return right(step, batches)


def around_the_counter(step, batches):
    return float(sum(step(batch).detach().numpy() for batch in batches) / len(batches))


@pytest.mark.parametrize("answer", [right, on_a_list])
def test_solutions_pass(answer, capsys):
    assert check_10_one_read(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (stub, "write the function"),
        (empty, "write the function"),
        (reads_every_step, "4 reads were counted, 1 is wanted"),
        (keeps_the_graphs, "you held the graphs of 4 steps"),
        (returns_a_tensor, "return a float, yours is a Tensor"),
        (returns_the_sum, "have the mean 3.5, yours says 14"),
        (returns_the_last, "have the mean 3.5, yours says 8"),
        (steps_twice, "8 steps were done, not 4"),
        (without_gradients, "leave gradients on"),
        (around_the_counter, "0 reads were counted"),
    ],
)
def test_wrong_answers_are_told_why(answer, hint, capsys):
    assert check_10_one_read(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ") and hint in printed


def test_an_error_of_one_s_own_comes_through():
    with pytest.raises(ZeroDivisionError):
        check_10_one_read(lambda step, batches: 1 / 0)
