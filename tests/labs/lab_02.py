"""02, minibatch SGD: what shows that the technique acts; answers to its exercise."""

from functools import partial
from typing import Any

import torch

from course import exercises
from tests.labs import counters, nothing


def alive(names: dict[str, Any]) -> None:
    """Three steps of 500 rows are an epoch, and so is one of all of them."""
    everything, some = counters(names), counters(names, batch_size=500)
    assert everything.flops == 3 * some.flops
    pairs = names["batches"](500, "memory")
    seen = torch.cat([next(pairs)[0] for _ in range(3)])
    assert seen.sum(0).allclose(names["X"].sum(0), atol=1e-2)
    assert not seen.equal(names["X"]), "each epoch has an order of its own"


def right(X, y, w, batch_size, rate, *, orders=None, mean=None, copied=True, keep_last=True):
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
        return right(X, y, w, batch_size, rate)


CHECK = exercises.check_02_sgd_epoch
RIGHT = right
DRAWS = True
ALSO_RIGHT = [right_by_autograd]
WRONG = [
    (partial(right, mean=lambda _: 1), "…12 times as long"),
    (partial(right, mean=lambda _: 6), "…2 times as long"),
    (partial(right, mean=lambda size: size), "…divide by the rows"),
    (partial(right, orders=with_replacement), "…mean gradient"),
    (partial(right, keep_last=False), "…left out"),
    (partial(right, orders=in_order), "…shuffle anew"),
    (partial(right, orders=one_order), "…shuffle anew"),
    (one_seed, "…shuffle anew"),
    (partial(right, copied=False), "…in place"),
    (old_weights, "…0.75"),
    (nothing, "return the new weights"),
    (lambda *a: right(*a)[None], "…(1, 3)"),
    (lambda *a: 3.0, "…3.0"),
]
