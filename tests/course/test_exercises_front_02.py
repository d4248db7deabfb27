"""The exercise of the front notebook 02: an epoch of minibatch SGD by hand."""

import pytest
import torch

from course.exercises import check_02_sgd_epoch


def epoch(X, y, w, batch_size, rate, *, orders=None, mean=None, copied=True, keep_last=True):
    """The right epoch, and what may be wrong with it."""
    order = torch.randperm(len(X)) if orders is None else orders(len(X))
    if copied:
        w = w.clone()
    for rows in order.split(batch_size):
        if len(rows) < batch_size and not keep_last:
            continue
        x, targets = X[rows], y[rows]
        w -= rate * x.T @ (x @ w - targets) / (len(rows) if mean is None else mean(batch_size))
    return w


def right(X, y, w, batch_size, rate):
    return epoch(X, y, w, batch_size, rate)


def right_by_autograd(X, y, w, batch_size, rate):
    for rows in torch.randperm(len(X)).split(batch_size):
        w = w.detach().requires_grad_()
        ((X[rows] @ w - y[rows]).square().mean() / 2).backward()
        w = w.detach() - rate * w.grad
    return w


def old_weights(X, y, w, batch_size, rate):
    new = w.clone()
    for rows in torch.randperm(len(X)).split(batch_size):
        x = X[rows]
        new -= rate * x.T @ (x @ w - y[rows]) / len(rows)
    return new


def with_replacement(n):
    return torch.randint(n, (n,))


def in_order(n):
    return torch.arange(n)


def one_order(n):
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))


def one_seed(X, y, w, batch_size, rate):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return epoch(X, y, w, batch_size, rate)


@pytest.mark.parametrize("answer", [right, right_by_autograd])
def test_right(answer, capsys):
    state = torch.get_rng_state()
    assert check_02_sgd_epoch(answer)
    assert "✓" in capsys.readouterr().out
    assert not torch.get_rng_state().equal(state), "the reader's shuffling uses torch's numbers"


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (lambda *a: epoch(*a, mean=lambda _: 1), "12 times as long"),
        (lambda *a: epoch(*a, mean=lambda _: 6), "2 times as long"),
        (lambda *a: epoch(*a, mean=lambda size: size), "divide by the rows"),
        (lambda *a: epoch(*a, orders=with_replacement), "mean gradient"),
        (lambda *a: epoch(*a, keep_last=False), "left out"),
        (lambda *a: epoch(*a, orders=in_order), "shuffle anew"),
        (lambda *a: epoch(*a, orders=one_order), "shuffle anew"),
        (one_seed, "shuffle anew"),
        (lambda *a: epoch(*a, copied=False), "in place"),
        (old_weights, "0.75"),
        (lambda *a: None, "return the new weights"),
        (lambda *a: epoch(*a)[None], r"(1, 3)"),
        (lambda *a: 3.0, "3.0"),
    ],
)
def test_wrong(answer, hint, capsys):
    assert not check_02_sgd_epoch(answer)
    assert hint in capsys.readouterr().out


def test_a_stub_is_told_to_write_it(capsys):
    def stub(X, y, w, batch_size, rate):
        raise NotImplementedError("your turn")

    assert not check_02_sgd_epoch(stub)
    assert "write the function" in capsys.readouterr().out
