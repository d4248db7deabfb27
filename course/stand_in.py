"""A device on every machine: a queue of calls, and a thread on another core that works them off.

torch releases Python's interpreter lock while an operator computes. So a thread can train while
the main thread prepares the next batch, as a GPU does. All devices have the same three methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any, Protocol

import torch
from torch import Tensor

from course.probe import Abilities
from labkit.comparing import measure
from labkit.device import synchronize, test_size

# Columns of the pictures that are normalized at once.
PIECE = 8192


class Device(Protocol):
    """What takes calls, and says later what the last one returned."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Queue a call, behind all that were submitted."""

    def read(self) -> Any:
        """Wait until all are done; the value of the last call."""

    def close(self) -> None:
        """End; nothing is submitted any more."""


class ThisCore:
    """No queue: each call is done at once, in the caller's own thread."""

    def __init__(self) -> None:
        self._value: Any = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._value = function(*arguments)

    def read(self) -> Any:
        return self._value

    def close(self) -> None:
        self._value = None


class GPU(ThisCore):
    """The real one: a call launches operators on CUDA tensors, which only queues them."""

    def read(self) -> Any:
        synchronize()
        return self._value


class SecondCore:
    """A thread that works off what is submitted. An error is raised by the next `read`.

    What was queued between that error and the read is dropped, as on a GPU.

    >>> device = SecondCore()
    >>> device.submit(pow, 2, 10)
    >>> device.read()
    1024
    >>> device.close()
    """

    def __init__(self) -> None:
        self._value: Any = None
        self._error: Exception | None = None
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="second core", daemon=True)
        self._thread.start()

    def submit(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._calls.put((function, arguments))

    def read(self) -> Any:
        reached = threading.Event()
        self._calls.put((self._reach, (reached,)))
        reached.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._value

    def close(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def _reach(self, reached: threading.Event) -> None:
        reached.set()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            function, arguments = call
            if function == self._reach:
                function(*arguments)
            elif self._error is None:
                try:
                    self._value = function(*arguments)
                except Exception as error:
                    self._error = error


DEVICES: dict[str, Callable[[], Device]] = {
    "GPU": GPU,
    "second core": SecondCore,
    "this core": ThisCore,
}


def on_this_machine(has: Abilities) -> tuple[list[str], dict[str, Any]]:
    """Who can play the device, the best one first, and what is unavailable here, with reasons."""
    withheld = {"yours": "build it in the exercise"}
    if has.gpu:
        withheld |= {"second core": "the GPU is the device", "this core": "the GPU is the device"}
        return ["GPU", "second core", "this core", "yours"], {"played_by": withheld}
    players = ["second core", "this core", "yours"]
    if has.cores == 1:
        players = ["this core", "second core", "yours"]
        withheld["second core"] = "this machine has one core"
    return players, {"played_by": withheld}


class Preparing:
    """The host's part of an update: normalize pictures, and cut out what is trained on.

    It takes about ``seconds``: so many columns the pictures have, piece by piece, each of a size
    that stays in a core's cache. An operator holds no lock while it computes.
    """

    def __init__(self, pixels: Tensor, seconds: float) -> None:
        """``pixels``: (N, P), uint8, what the model sees; a picture is at least as wide."""
        rows, seen = pixels.shape
        wanted = max(seen, round(PIECE * seconds / _seconds(rows)))
        piece = max(seen, PIECE)
        self._pictures = pixels.repeat(1, -(-piece // seen))[:, :piece].contiguous()
        self._normal = torch.empty(self._pictures.shape)
        self._rest = wanted % piece
        self._pieces = wanted // piece

    def __call__(self, batch: Tensor) -> Tensor:
        """Fill ``batch`` (N, P) with the normalized cut, and return it."""
        for _ in range(self._pieces):
            _normalize(self._pictures, self._normal)
        if self._rest:
            _normalize(self._pictures[:, : self._rest], self._normal[:, : self._rest])
        return batch.copy_(self._normal[:, : batch.shape[1]])


def seconds_of(train: Callable[..., Any], pixels: Tensor) -> float:
    """What one update takes where it is computed, with nothing beside it: the least of some."""
    batch = Preparing(pixels, 0.0)(torch.empty(pixels.shape))
    return min(measure(lambda: train(batch, False), seconds=0.05 if test_size() else 1.0).times)


def _normalize(pictures: Tensor, normal: Tensor) -> None:
    torch.sub(pictures, 127.5, out=normal)
    normal.div_(64)


def _seconds(rows: int) -> float:
    """What so many rows of a piece take."""
    pictures = torch.randint(256, (rows, PIECE), dtype=torch.uint8)
    prepare = partial(_normalize, pictures, torch.empty(rows, PIECE))
    return min(measure(prepare, seconds=0.02 if test_size() else 0.2).times)
