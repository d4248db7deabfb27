"""The random generators of Python, NumPy and torch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from labkit.device import accelerator_in_use
from labkit.restore.undo import giving_back

# Sources of random numbers of one's own, beside the global ones.
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def rng_state() -> dict[str, Any]:
    """The state of every generator that `labkit.seed_all` seeds, for `set_rng_state`.

    Those of the accelerator are under ``device``: None while it is unused.
    """
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "device": _device_states(),
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Put back what `rng_state` returned."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    _set_device_states(state["device"])


def _device_states() -> list[torch.Tensor] | None:
    """The states of an accelerator's generators, one a device; None while it is unused."""
    kind = accelerator_in_use()
    if kind is None:
        return None
    module = torch.get_device_module(kind)
    if not hasattr(module, "get_rng_state_all"):
        # mps: there is one device.
        return [module.get_rng_state()]
    return module.get_rng_state_all()


def _set_device_states(states: list[torch.Tensor] | None) -> None:
    kind = accelerator_in_use()
    if kind is None:
        return
    module = torch.get_device_module(kind)
    if states is None:
        # It was first used since: seed it as it would have been without us.
        seed = getattr(module, "manual_seed_all", module.manual_seed)
        seed(torch.initial_seed())
    elif hasattr(module, "set_rng_state_all"):
        module.set_rng_state_all(states)
    else:
        module.set_rng_state(states[0])


@contextmanager
def preserve_rng() -> Iterator[None]:
    """Give back every random generator as it was."""
    with giving_back(partial(set_rng_state, rng_state())):
        yield
