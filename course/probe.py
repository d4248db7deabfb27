"""What this machine is good at, measured before a notebook asks its first question.

A name in a list of instructions promises too much: there are CPUs whose bf16 product takes longer
than the one in fp32, and a virtual machine may hide or emulate instructions. So the product is
timed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from statistics import median

import torch

from labkit.device import pick, pick_device, synchronize
from labkit.restore import preserve_flags, preserve_rng

PRETEND = "LABKIT_PRETEND"
PRETENCE = f"\n({PRETEND} pretends that: what you measure is your machine as it is.)"
# From this ratio on bf16 is worth a notebook's while.
FASTER = 1.2
# Widths of the square product. Emulated bf16 shows at the first one, and is not asked further.
FIRST, LARGE, LARGE_ON_GPU = 192, 1024, 4096
HOPELESS = 0.3
# Below it bf16 loses.
SLOWER = 0.9
# For all pairs of products together, and seconds to wait for a compiler's version.
SECONDS, PATIENCE = 0.3, 5.0


@dataclass(frozen=True)
class Abilities:
    """What a machine can do.

    ``bf16``: a large product is at least 1.2 times as fast in bf16, under autocast, as in fp32;
    ``bf16_speedup``: how many times as fast, on one thread of a CPU. ``cores``: those that this
    process may use. ``gpu``: the labs train on one. ``compiler``: the C++ compiler that
    `torch.compile` looks for answers. ``pretended``: bf16 was taken away, and is there.
    """

    bf16: bool
    bf16_speedup: float
    cores: int
    gpu: bool
    compiler: bool
    pretended: bool = False

    @property
    def bf16_in_words(self) -> str:
        """What bf16 does to a large product here, without a figure: a reader bets on it next."""
        if self.bf16_speedup < SLOWER:
            return (
                "bf16 is slow on this machine: without units for it, numbers are widened first."
                + PRETENCE * self.pretended
            )
        if self.bf16:
            return "bf16 is fast on this machine: a large product gains by it. A whole step, too?"
        return "bf16 brings little on this machine: a large product gains next to nothing."


# What can be pretended, and how.
LACKS: dict[str, Callable[[Abilities], Abilities]] = {
    "no-bf16": lambda has: replace(
        has, bf16=False, bf16_speedup=min(has.bf16_speedup, 0.5), pretended=has.bf16
    ),
    "one-core": lambda has: replace(has, cores=1),
    "no-compiler": lambda has: replace(has, compiler=False),
}


def abilities() -> Abilities:
    """What this machine is good at; found out once per process, in less than a second.

    Draws and switches of torch are as before at its end. ``LABKIT_PRETEND="no-bf16,one-core"`` in
    the environment takes abilities away, for tests and for a teacher who wants to see what a weak
    machine shows: "no-bf16", "one-core", "no-compiler", with commas between. What is measured stays
    as it is: ``ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`` makes bf16 slow, too. ValueError
    for others.

    >>> abilities().cores >= 1
    True
    """
    found = _found(pick_device())
    for name in _pretended():
        found = LACKS[name](found)
    return found


def _pretended() -> list[str]:
    text = os.environ.get(PRETEND, "")
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in LACKS:
            accepted = ", ".join(map(repr, LACKS))
            raise ValueError(f"{PRETEND}={text!r}: {name!r} is unknown; it takes {accepted}")
    return names


@cache
def _found(device: torch.device) -> Abilities:
    speedup = _bf16_speedup(device)
    return Abilities(
        bf16=speedup >= FASTER,
        bf16_speedup=speedup,
        cores=_cores(),
        gpu=device.type != "cpu",
        compiler=_compiler_answers(),
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _compiler_answers() -> bool:
    """Whether the compiler that `torch.compile` calls can be called: what it tries first, too."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    compiler = shutil.which(os.environ.get("CXX", usual))
    if compiler is None:
        return False
    # Microsoft's compiler knows no --version.
    command = [compiler] if sys.platform == "win32" else [compiler, "--version"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _bf16_speedup(device: torch.device) -> float:
    """How many times as fast a large product is in bf16 as in fp32."""
    with preserve_rng(), preserve_flags(), torch.no_grad():
        if device.type == "cpu":
            # As labs run, and as other programs disturb it least.
            torch.set_num_threads(1)
            first = _ratio(FIRST, device, pairs=2)
            return first if first < HOPELESS else _ratio(LARGE, device)
        # In the test size the GPU may be a rehearsed one, on a CPU that emulates bf16.
        return _ratio(pick(cpu=LARGE, cuda=LARGE_ON_GPU, test=FIRST), device)


def _ratio(width: int, device: torch.device, pairs: int = 9) -> float:
    """The median of pairs of products, fp32 beside bf16; as many as there is time for."""
    a, b = (torch.rand(width, width, device=device) for _ in range(2))
    ratios: list[float] = []
    end = time.perf_counter() + SECONDS
    # The first pair loads libraries.
    while len(ratios) < 2 or (len(ratios) <= pairs and time.perf_counter() < end):
        full, half = (_seconds(partial(_product, a, b, low)) for low in (False, True))
        ratios.append(full / half)
    return median(ratios[1:])


def _product(a: torch.Tensor, b: torch.Tensor, low: bool) -> torch.Tensor:
    with torch.autocast(a.device.type, torch.bfloat16) if low else nullcontext():
        return a @ b


def _seconds(run: Callable[[], torch.Tensor]) -> float:
    synchronize()
    begin = time.perf_counter()
    run()
    synchronize()
    return time.perf_counter() - begin
