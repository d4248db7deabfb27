"""A training step is diagnosed by experiments: `diagnose`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from labkit.comparing import budget
from labkit.device import pick
from whyslow.findings import Diagnosis
from whyslow.lines import CAUSES
from whyslow.session import Session


def diagnose(
    step: Callable[..., object],
    batches: Any = None,
    *,
    seconds: float | None = None,
    model: Any = None,
    optimizer: Any = None,
    patience: float = 120.0,
    first: str = "",
) -> Diagnosis:
    """Find out what makes a training step slow: ``whyslow.diagnose(step, batches=loader)``.

    ``step(batch)`` does one training step; without ``batches``, ``step()`` gets its own.
    ``batches`` is a DataLoader, or whatever else gives such batches again and again. ``seconds`` is
    the budget, 20 by default. ``model`` and ``optimizer`` are found where the step uses them; give
    them, or a list of anything else with a state, where the step changes what it cannot reach by
    name. Whatever takes longer than ``patience`` seconds at once ends with a TimeoutError.
    Experiments on ``first``, a cause of a `Report`, come first; else those on the largest part.

    Returns a `Diagnosis`. Models, optimizers, random numbers, torch's switches and the variables of
    the step are as before; TypeError for a step that cannot be called like that, ValueError for one
    on a card that is not torch's current one, or that trains in a generator function, which cannot
    be put back; what the first step raises comes through.
    """
    if seconds is None:
        seconds = pick(cpu=20.0, test=4.0)
    given = [each if isinstance(each, (list, tuple)) else [each] for each in (model, optimizer)]
    state = tuple(item for each in given for item in each if item is not None)
    seconds = check_call(step, batches, seconds)
    if not patience > 0:
        raise ValueError(f"patience={patience!r}: use a positive number of seconds")
    if first and first not in CAUSES:
        raise ValueError(f"first={first!r}: use {', '.join(map(repr, CAUSES))}")
    return Session(step, batches, seconds, patience, state, first).run()


def check_call(step: Any, batches: Any, seconds: float) -> float:
    """The budget in seconds; TypeError and ValueError for what cannot be diagnosed."""
    if not callable(step):
        raise TypeError(f"step={step!r} cannot be called: pass a function that does one step")
    if batches is not None and not hasattr(batches, "__iter__"):
        raise TypeError(f"batches={batches!r} has no batches: pass a DataLoader, or a list of them")
    if hasattr(batches, "__next__"):
        raise TypeError(
            f"batches={batches!r} can be read only once: pass the DataLoader itself, "
            "or list(...) of a few batches"
        )
    arguments = () if batches is None else (None,)
    try:
        inspect.signature(step).bind(*arguments)
    except TypeError as error:
        called = "step(batch)" if batches is not None else "step()"
        hint = "" if batches is not None else "; its batches are given by batches= (--batches)"
        raise TypeError(f"step={step!r} is called as {called}: {error}{hint}") from None
    except ValueError:
        # A built-in function without a signature: calling it will tell.
        pass
    return budget(seconds)
