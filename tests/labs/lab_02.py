"""02, minibatch SGD: what shows that the technique acts."""

from typing import Any

import torch

from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """Three steps of 500 rows are an epoch, and so is one of all of them."""
    everything, some = counters(names), counters(names, batch_size=500)
    assert everything.flops == 3 * some.flops
    pairs = names["batches"](500, "memory")
    seen = torch.cat([next(pairs)[0] for _ in range(3)])
    assert seen.sum(0).allclose(names["X"].sum(0), atol=1e-2)
    assert not seen.equal(names["X"]), "each epoch has an order of its own"
