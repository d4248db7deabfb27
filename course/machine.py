"""The machine card: what this computer is, and how fast it measures.

A rate of products belongs to a precision. On CUDA float32 is multiplied as IEEE defines it or, much
faster, rounded to TF32. Two switches choose: that for products is off, that for convolutions on by
default. The card has both rates, as ``float32`` (IEEE) and ``tf32``; a roof takes the one in which
the step below it computes.

Two things made rates wrong. The first product of a type loads its library, so it is not timed. And
on a busy machine one interrupted product of the smallest size looks like a type that is a thousand
times slower, so it is tried again before that is believed.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from labkit.device import device_in_words, pick_device, synchronize
from labkit.progress import progress
from labkit.restore import preserve_flags, preserve_rng
from labkit.restore.switches import torch_flags
from labkit.text import format_bytes, format_rate, format_seconds

UNKNOWN = "unknown"
# Instruction sets that matter for tensors, with the names that Linux on Intel and Arm and torch's
# own look give them.
_INSTRUCTIONS = {
    name: {name}
    for name in ("avx2", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_fp16", "bf16", "sve")
}
_INSTRUCTIONS |= {
    "avx512f": {"avx512f", "avx512_f"},
    "neon": {"neon", "asimd"},
    "fp16": {"asimdhp", "fp16_arith"},
}
# Not avx512_fp16 and Arm's fp16: they multiply no faster than fp32, and oneDNN then runs the
# gradients of convolutions in a reference loop, dozens of times slower.
_FAST = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"amx_fp16"}}
# The CUDA compute capability whose tensor cores know the type.
_FAST_FROM = {
    "bfloat16": (8, 0),
    "float16": (7, 0),
}
_SWITCHES = ("float32_matmul_precision", "cudnn.allow_tf32", "cudnn.benchmark", "default_dtype")
_FORMATS: dict[str, Callable[[float], str]] = {
    "_flop_per_s": partial(format_rate, unit="FLOP"),
    "_bytes_per_s": lambda rate: f"{rate / 1e9:.3g} GB/s",
    "_bytes": format_bytes,
    "_s": format_seconds,
}
# For each measurement.
_SECONDS = 0.3
# Of a product of the smallest size, before its type is taken for slow.
_TRIES = 3
# Columns of the first product that is timed, and of the largest.
_SIZES = {"cpu": (64, 2048), "accelerator": (1024, 8192)}
# The rates of products on the card, by precision: the type, and whether CUDA may round it to TF32.
_PRECISIONS = {
    "float32": (torch.float32, False),
    "bfloat16": (torch.bfloat16, False),
    "float16": (torch.float16, False),
    "tf32": (torch.float32, True),
}


def machine_card(
    measure: bool = False, *, bar: Callable[[Iterable[Any]], Iterable[Any]] = iter
) -> dict[str, Any]:
    """What is known of this machine, ready for JSON; ``"unknown"`` stands for what the system does
    not tell.

    ``measure=True`` adds ``"measured"``: rates in bytes/s and FLOP/s, and seconds per operator, of
    the device that `pick_device` picks, with torch's present number of threads; 2 s on a CPU.
    ``float32_flop_per_s`` is of IEEE arithmetic, see `matmul_rate`. ``bar`` wraps the list of
    measurements.
    """
    # Here, because the package imports this module.
    from labkit import __version__

    flags, device = torch_flags(), pick_device()
    card: dict[str, Any] = {
        "cpu": _cpu(),
        "gpu": _gpu(),
        "native_dtypes": {
            name: UNKNOWN if fast is None else fast for name, fast in fast_dtypes().items()
        },
        "os": platform.platform(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "labkit": __version__,
        "threads": torch.get_num_threads(),
        "load_average": machine_state()["load_average"],
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "switches": {name: str(flags.get(name, UNKNOWN)) for name in _SWITCHES},
    }
    if device.type not in ("cpu", "cuda"):
        card["accelerator"] = f"{device_in_words(device.type)}; LABKIT_DEVICE=cpu leaves it alone"
    if measure:
        card["measured"] = {"device": str(device), "float32_precision": "ieee"}
        for name, probe in bar(list(_probes(device).items())):
            card["measured"][name] = probe()
    return card


def machine_state() -> dict[str, Any]:
    """What changes while a machine works, to be noted before and after: load, clocks in MHz, GPU
    watts and celsius.
    """
    state: dict[str, Any] = {"load_average": UNKNOWN, "cpu_mhz": UNKNOWN, "gpu": None}
    if hasattr(os, "getloadavg"):
        state["load_average"] = [round(load, 2) for load in os.getloadavg()]
    path = Path("/proc/cpuinfo")
    if path.exists():
        clocks = re.findall(r"cpu MHz\s*: ([\d.]+)", path.read_text())
        if clocks:
            state["cpu_mhz"] = round(median(map(float, clocks)))
    if torch.cuda.is_available():
        state["gpu"] = _gpu_state()
    return state


def _gpu_state() -> dict[str, Any]:
    """From NVIDIA's own tool, which needs no Python package; "unknown" where it is missing or does
    not tell.
    """
    fields = {
        "power_w": "power.draw",
        "sm_mhz": "clocks.sm",
        "memory_mhz": "clocks.mem",
        "celsius": "temperature.gpu",
    }
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return dict.fromkeys(fields, UNKNOWN)
    # By its UUID: CUDA_VISIBLE_DEVICES numbers the devices anew, and nvidia-smi does not know of
    # that.
    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    query = [
        f"--id=GPU-{uuid}",
        f"--query-gpu={','.join(fields.values())}",
        "--format=csv,noheader,nounits",
    ]
    try:
        done = subprocess.run([tool, *query], capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(fields, UNKNOWN)
    numbers = [text.strip() for text in done.stdout.split(",")] if done.returncode == 0 else []
    known = dict(zip(fields, numbers, strict=False))
    return {
        name: float(known[name]) if re.fullmatch(r"[\d.]+", known.get(name, "")) else UNKNOWN
        for name in fields
    }


def fast_dtypes() -> dict[str, bool | None]:
    """Whether the device that `pick_device` picks multiplies bfloat16 and float16 faster; None: it
    does not tell.
    """
    device = pick_device()
    if device.type == "cuda":
        capability = None if torch.version.hip else torch.cuda.get_device_capability()
        return {
            name: None if capability is None else capability >= least
            for name, least in _FAST_FROM.items()
        }
    if device.type != "cpu":
        return dict.fromkeys(_FAST)
    known = _cpu()["instructions"]
    return {
        name: None if known == UNKNOWN else bool(wanted & set(known))
        for name, wanted in _FAST.items()
    }


def matmul_rate(
    dtype: torch.dtype, device: torch.device | None = None, *, tf32: bool = False
) -> float | None:
    """FLOP/s of square matrix products, the best of growing sizes within about 0.3 s; None where
    torch has none.

    float32 is multiplied by IEEE arithmetic; ``tf32`` lets CUDA round it to TF32 on the way in, as
    it does in convolutions unless told otherwise.
    """
    device = device or pick_device()
    size, largest = _SIZES["cpu" if device.type == "cpu" else "accelerator"]
    best, tries = 0.0, 0
    with preserve_rng(), preserve_flags(), torch.no_grad():
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        if not _multiplies(dtype, size, device):
            return None
        end = time.perf_counter() + _SECONDS
        while True:
            a, b = _factors(dtype, size, device)
            tries += 1
            seconds = _seconds(partial(torch.mm, a, b), device, budget=_SECONDS / 8)
            best = max(best, 2 * size**3 / seconds)
            now = time.perf_counter()
            # Without fast instructions a type may take a hundred times as long: begin nothing that
            # cannot end in time.
            if size < largest and 16 * seconds <= end - now:
                size *= 2
            elif tries < _TRIES and size < largest:
                # What interrupted so few products would pass for a slow type.
                end = now + _SECONDS
            else:
                return best


def _factors(dtype: torch.dtype, size: int, device: torch.device) -> list[torch.Tensor]:
    return [torch.rand(size, size, device=device).to(dtype) for _ in range(2)]


def _multiplies(dtype: torch.dtype, size: int, device: torch.device) -> bool:
    """Whether torch has products of this type. The first one, here, loads their library."""
    try:
        torch.mm(*_factors(dtype, size, device))
        _wait_for(device)
    except RuntimeError as error:
        if re.search("not.(implemented|supported)", str(error), re.IGNORECASE):
            return False
        raise
    return True


def _probes(device: torch.device) -> dict[str, Callable[[], float | None]]:
    cpu, tiny = torch.device("cpu"), torch.zeros(1, device=device)
    probes: dict[str, Callable[[], float | None]] = {
        "host_copy_bytes_per_s": partial(copy_rate, cpu, cpu)
    }
    for name, (dtype, tf32) in _PRECISIONS.items():
        if device.type == "cuda" or not tf32:
            probes[f"{name}_flop_per_s"] = partial(matmul_rate, dtype, device, tf32=tf32)
    probes["launch_s"] = partial(_seconds, lambda: tiny.add_(1), device, repeat=1000)
    if device.type != "cpu":
        probes["device_copy_bytes_per_s"] = partial(copy_rate, device, device)
        probes["host_to_device_bytes_per_s"] = partial(copy_rate, cpu, device)
    if device.type == "cuda":
        probes["pinned_host_to_device_bytes_per_s"] = partial(copy_rate, cpu, device, pinned=True)
        probes["event_s"] = partial(
            _seconds, torch.cuda.Event(enable_timing=True).record, device, repeat=1000
        )
    return probes


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type != "cpu":
        synchronize()


def _seconds(
    run: Callable[[], Any], device: torch.device, *, repeat: int = 1, budget: float = _SECONDS
) -> float:
    """Median seconds of ``run()``, called in groups of ``repeat``: one to warm up, then at least
    one.
    """
    times: list[float] = []
    end = time.perf_counter() + budget
    while len(times) < 2 or time.perf_counter() < end:
        begin = time.perf_counter()
        for _ in range(repeat):
            run()
        _wait_for(device)
        times.append((time.perf_counter() - begin) / repeat)
    return median(times[1:])


def copy_rate(source: torch.device, target: torch.device, *, pinned: bool = False) -> float:
    """Bytes per second between buffers larger than any cache; within one memory, bytes read plus
    bytes written.
    """
    size = 2**27
    data = torch.ones(size, dtype=torch.uint8, device=source, pin_memory=pinned)
    copy = torch.zeros(size, dtype=torch.uint8, device=target)
    seconds = _seconds(lambda: copy.copy_(data, non_blocking=pinned), target)
    return size * (2 if source == target else 1) / seconds


def _cpu() -> dict[str, Any]:
    """Linux tells in /proc and /sys; elsewhere torch's own look at the processor helps, where this
    torch takes one.
    """
    info: dict[str, str] = {}
    if (path := Path("/proc/cpuinfo")).exists():
        for name, _, value in (line.partition(":") for line in path.read_text().splitlines()):
            info.setdefault(name.strip(), value.strip())
    torch_says: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    found = set(info.get("flags", info.get("Features", "")).split())
    found |= {name for name, value in torch_says.items() if value is True}
    caches = {"L1": torch_says.get("l1d_cache_size"), "L2": torch_says.get("l2_cache_size")}
    for size in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")):
        if (size.parent / "type").read_text().strip() != "Instruction":
            level = (size.parent / "level").read_text().strip()
            caches[f"L{level}"] = int(size.read_text().strip().removesuffix("K")) * 1024
    model = info.get("model name") or torch_says.get("cpu_name") or platform.processor()
    cpu: dict[str, Any] = {
        "model": model or UNKNOWN,
        "cores": os.cpu_count() or UNKNOWN,
        "memory_bytes": UNKNOWN,
        "instructions": UNKNOWN,
    }
    if hasattr(os, "sched_getaffinity"):
        cpu["cores"] = len(os.sched_getaffinity(0))
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        cpu["memory_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if found:
        cpu["instructions"] = [name for name, names in _INSTRUCTIONS.items() if found & names]
    for level, held in caches.items():
        cpu[f"{level}_cache_bytes"] = held or UNKNOWN
    return cpu


def _gpu() -> dict[str, Any] | None:
    if not torch.cuda.is_available():
        return None
    about, path = torch.cuda.get_device_properties(), Path("/proc/driver/nvidia/version")
    driver = (
        re.search(r"Kernel Module.*?(\d+\.[\d.]+)", path.read_text()) if path.exists() else None
    )
    return {
        "name": about.name,
        "count": torch.cuda.device_count(),
        "capability": f"{about.major}.{about.minor}",
        "memory_bytes": about.total_memory,
        "driver": driver[1] if driver else UNKNOWN,
    }


def format_card(card: dict[str, Any]) -> str:
    """A card as an aligned text table."""
    rows = dict(_rows(card))
    return "\n".join(f"{name:<{max(map(len, rows))}}  {text}" for name, text in rows.items())


def _rows(card: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in card.items():
        suffix = next((suffix for suffix in _FORMATS if name.endswith(suffix)), "")
        if isinstance(value, dict):
            yield from _rows(value, f"{name} ")
            continue
        if isinstance(value, list):
            value = ", ".join(map(str, value))
        elif value is None or isinstance(value, bool):
            value = {None: "none", True: "yes", False: "no"}[value]
        elif suffix and value != UNKNOWN:
            value = _FORMATS[suffix](value)
        yield f"{prefix}{name.removesuffix(suffix)}".replace("_", " "), str(value)


def doctor() -> int:
    """Measure with a progress bar and print the card (``python -m course doctor``)."""
    print(
        format_card(
            machine_card(
                measure=True, bar=lambda probes: progress(iterable=probes, desc="measuring")
            )
        )
    )
    return 0
