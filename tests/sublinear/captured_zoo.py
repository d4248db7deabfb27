"""Foreign models, trained as the compiler captures and `sublinear` plans them, and plainly.

``python -m tests.sublinear.captured_zoo [names]`` prints one line of JSON for each: the graphs, how
many are planned, the bytes saved for backward in a plain and in a planned step, their peaks, the
seconds to capture, and what differs after twelve steps on changing batches: nothing.
"""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import sublinear
from labkit import MemoryMeter
from labkit.restore.generators import rng_state
from sublinear.equal import Seen, copied, differences
from tests.sublinear.foreign_models import FOREIGN, Batch, loss_of

STEPS = 12
# Its gradients are not those of a plain step where torch's compiler has captured it, whatever runs
# it then: it is held against what is captured and runs as it is.
CAPTURED_OTHERWISE = {"mamba"}


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def batches(make: Callable[[], Batch]) -> list[Batch]:
    seed_all(1)
    return [make() for _ in range(STEPS)]


def trained(run: nn.Module, model: nn.Module, data: list[Batch]) -> Seen:
    """Copies of what each step leaves behind. ``run``: the model, or what stands in for it."""
    seed_all(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    seen: Seen = {}
    for step, batch in enumerate(data):
        loss = loss_of(run(**batch))
        loss.backward()
        seen[f"loss {step}"] = copied(loss)
        for name, parameter in model.named_parameters():
            seen[f"gradient of {name} {step}"] = copied(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        seen[name] = copied(tensor)
    for kind, state in rng_state().items():
        seen[f"random state of {kind}"] = state
    return seen


def saved_bytes(run: nn.Module, batch: Batch) -> int:
    """Of a forward pass: the storages that autograd holds, but weights."""
    held: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, nn.Parameter):
            storage = tensor.untyped_storage()
            held[storage._cdata] = storage
        return tensor

    seed_all(3)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = loss_of(run(**batch))
    loss.backward()
    return sum(storage.nbytes() for storage in held.values())


def peak_bytes(run: nn.Module, batch: Batch) -> int:
    seed_all(3)
    with MemoryMeter("cpu", saved=False) as memory:
        loss_of(run(**batch)).backward()
    return memory.peak


def dynamo_seconds() -> float:
    """What the compiler's capture took since its last reset."""
    times = torch._dynamo.utils.compilation_time_metrics
    return sum(times.get("_compile.compile_inner", []))


def tried(name: str, **options: Any) -> dict[str, Any]:
    """Train one plainly and one planned."""
    seed_all(0)
    model, make = FOREIGN[name]()
    model.train()
    # Else the compiler draws NumPy's random numbers from torch's generator.
    torch._dynamo.config.use_numpy_random_stream = True
    other = copy.deepcopy(model)
    data = batches(make)
    same = torch.compile(model, backend="eager") if name in CAPTURED_OTHERWISE else model
    wanted = trained(same, model, data)
    torch._dynamo.reset()
    by_plan = sublinear.backend(**options)
    planned = torch.compile(other, backend=by_plan)
    begin = time.perf_counter()
    found = trained(planned, other, data)
    whole = time.perf_counter() - begin
    return {
        "model": name,
        "graphs": len(by_plan.graphs),
        "planned": len(by_plan.planned),
        "differences": differences(wanted, found)[:3],
        "plain": saved_bytes(model, data[0]),
        "saved": saved_bytes(planned, data[0]),
        "plain_peak": peak_bytes(model, data[0]),
        "peak": peak_bytes(planned, data[0]),
        "capture_seconds": round(dynamo_seconds(), 1),
        "training_seconds": round(whole, 1),
    }


def main() -> None:
    for name in sys.argv[1:] or FOREIGN:
        print(json.dumps(tried(name, max_overhead=0.5, repeats=1)), flush=True)


if __name__ == "__main__":
    main()
