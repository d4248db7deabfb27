"""Code that torch compiles again and again, since the shapes of the batches change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from labkit.restore import giving_back
from whyslow.clock import share_of
from whyslow.findings import Finding

# One compilation is no habit.
LEAST = 2
NAME = "compiled again for other shapes"


@dataclass
class Compilations:
    """Seconds of each compilation, in order."""

    seconds: list[float] = field(default_factory=list)
    _began: float = 0.0
    _depth: int = 0

    def begins(self, *_: Any) -> None:
        """torch begins to compile."""
        self._depth += 1
        if self._depth == 1:
            self._began = time.perf_counter()

    def ends(self, *_: Any) -> None:
        """It is done."""
        self._depth -= 1
        if self._depth == 0:
            self.seconds.append(time.perf_counter() - self._began)


@contextmanager
def watched() -> Iterator[Compilations]:
    """Note what torch compiles inside; nothing where nothing was compiled before."""
    found = Compilations()
    callback = sys.modules.get("torch._dynamo.callback")
    if callback is None:
        yield found
        return
    handler = callback.callback_handler

    def remove() -> None:
        # Gone already, where it is called again after an interrupt.
        with suppress(ValueError):
            handler.remove_start_callback(found.begins)
        with suppress(ValueError):
            handler.remove_end_callback(found.ends)

    with giving_back(remove):
        handler.register_start_callback(found.begins)
        handler.register_end_callback(found.ends)
        yield found


def finding(seconds: list[float], wholes: list[float]) -> Finding | None:
    """What compiling again costs: ``seconds`` of each compilation, in steps of these ``wholes``."""
    if len(seconds) < LEAST or not wholes:
        return None
    compiled = [sum(seconds) / len(wholes)] * len(wholes)
    share, interval = share_of(compiled, wholes)
    return Finding(
        NAME,
        share,
        interval,
        f"by the clock: {len(seconds)} compilations in {len(wholes)} warm steps",
        "Pad batches to one length, or to a few: compiled code is kept for each shape;\n"
        "or torch.compile(model, dynamic=True).",
        "22_compile_and_cuda_graphs",
    )
