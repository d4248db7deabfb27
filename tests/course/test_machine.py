"""The machine card: what it says, what it does not guess, and that measuring leaves no trace."""

import importlib
import json
import os
import platform
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from course.machine import doctor, fast_dtypes, format_card, machine_card, matmul_rate
from labkit.restore.switches import torch_flags

machine = importlib.import_module("course.machine")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measurements of a few milliseconds."""
    monkeypatch.setattr(machine, "_SECONDS", 0.01)
    monkeypatch.setattr(machine, "_SIZES", {"cpu": (64, 2048), "accelerator": (64, 2048)})
    seconds = machine._seconds
    monkeypatch.setattr(
        machine,
        "_seconds",
        lambda run, device, **options: seconds(run, device, **options | {"budget": 0.01}),
    )


def pretend_cpuinfo(
    monkeypatch: pytest.MonkeyPatch, text: str | None, capabilities: dict[str, Any]
) -> None:
    """Another processor: what /proc/cpuinfo holds (None: no such file) and what torch says."""
    exists, read = Path.exists, Path.read_text
    is_it = lambda path: str(path) == "/proc/cpuinfo"  # noqa: E731
    monkeypatch.setattr(
        Path, "exists", lambda path: text is not None if is_it(path) else exists(path)
    )
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, *args, **kw: text if is_it(path) else read(path, *args, **kw),
    )
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_card_holds_what_is_known() -> None:
    card = json.loads(json.dumps(machine_card()))
    assert card["torch"] == torch.__version__
    assert card["python"] == platform.python_version()
    assert card["threads"] == torch.get_num_threads()
    assert (card["gpu"] is None) == (not torch.cuda.is_available())
    assert set(card["native_dtypes"]) == {"bfloat16", "float16"}
    assert card["cpu"]["model"]
    assert 1 <= card["cpu"]["cores"] <= (os.cpu_count() or 1)
    assert card["switches"]["float32_matmul_precision"] == torch.get_float32_matmul_precision()
    assert "measured" not in card
    # A record of it is published.
    assert platform.node() not in card.values()


def test_measured_card(quick: None) -> None:
    seen = []
    card = machine_card(measure=True, bar=lambda probes: seen.extend(probes) or probes)
    measured = json.loads(json.dumps(card))["measured"]
    names = {
        "host_copy_bytes_per_s",
        "float32_flop_per_s",
        "bfloat16_flop_per_s",
        "float16_flop_per_s",
        "launch_s",
    }
    assert names <= {name for name, _ in seen}
    assert measured.pop("device") == str(machine.pick_device())
    assert measured.pop("float32_precision") == "ieee"
    assert measured["float32_flop_per_s"] > 0
    assert all(value is None or value > 0 for value in measured.values())
    assert len(measured) == len(seen)


def test_measuring_leaves_no_trace(quick: None) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        flags, states = (
            torch_flags(),
            (random.getstate(), torch.get_rng_state(), str(np.random.get_state())),
        )
        machine_card(measure=True)
        matmul_rate(torch.float32, tf32=True)
        assert torch_flags() == flags
        after = (random.getstate(), torch.get_rng_state(), str(np.random.get_state()))
        assert torch.equal(states[1], after[1])
        assert (states[0], states[2]) == (after[0], after[2])
    finally:
        torch.set_float32_matmul_precision("highest")


def test_matmul_rate_of_a_type_without_products(monkeypatch: pytest.MonkeyPatch) -> None:
    assert matmul_rate(torch.bool, torch.device("cpu")) is None

    def out_of_memory(*args: Any) -> None:
        raise RuntimeError("can't allocate memory")

    monkeypatch.setattr(torch, "mm", out_of_memory)
    with pytest.raises(RuntimeError, match="allocate"):
        matmul_rate(torch.float32, torch.device("cpu"))


def test_a_slow_type_is_not_tried_at_large_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def slow(run: Any, device: torch.device, **options: Any) -> float:
        sizes.append(run.args[0].shape[0])
        return 0.1

    monkeypatch.setattr(machine, "_seconds", slow)
    assert matmul_rate(torch.float32, torch.device("cpu")) == 2 * 64**3 / 0.1
    # Not believed at once.
    assert sizes == [64] * 3


def test_one_disturbed_product_does_not_end_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def interrupted_once(run: Any, device: torch.device, **options: Any) -> float:
        sizes.append(run.args[0].shape[0])
        if len(sizes) == 1:
            return 0.1
        return 2 * sizes[-1] ** 3 / 1e15

    monkeypatch.setattr(machine, "_seconds", interrupted_once)
    assert matmul_rate(torch.float32, torch.device("cpu")) == pytest.approx(1e15)
    assert sizes == [64, 64, 128, 256, 512, 1024, 2048]


def test_loading_a_library_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    clock, multiply = machine.time.perf_counter, torch.mm

    def product(*factors: torch.Tensor) -> torch.Tensor:
        order.append("product")
        return multiply(*factors)

    def now() -> float:
        order.append("clock")
        return clock()

    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(machine.time, "perf_counter", now)
    monkeypatch.setattr(machine, "_seconds", lambda *_, **__: 1e-9)
    assert matmul_rate(torch.bfloat16, torch.device("cpu")) > 0
    assert order[:2] == ["product", "clock"]


def test_float32_is_ieee_unless_tf32_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def note(*_: Any, **__: Any) -> float:
        seen.append(torch.get_float32_matmul_precision())
        return 1.0

    monkeypatch.setattr(machine, "_seconds", note)
    for name, (dtype, tf32) in machine._PRECISIONS.items():
        seen.clear()
        matmul_rate(dtype, torch.device("cpu"), tf32=tf32)
        expected = "high" if name == "tf32" else "highest"
        assert set(seen) == {expected}


@pytest.mark.parametrize(
    ("cpuinfo", "capabilities", "expected"),
    [
        ("model name\t: X\nflags\t\t: fpu avx2 avx512f avx512_bf16\n", {}, (True, False)),
        ("model name\t: X\nflags\t\t: avx2 amx_bf16 amx_fp16\n", {}, (True, True)),
        ("flags\t\t: avx2\n", {}, (False, False)),
        ("Features\t: asimd asimdhp bf16\n", {}, (True, False)),
        (
            None,
            {"cpu_name": "Y", "avx2": True, "avx512_bf16": True, "amx_fp16": False},
            (True, False),
        ),
        (None, {"neon": True, "fp16_arith": True, "bf16": False}, (False, False)),
        ("flags\t\t: avx512_bf16 avx512_fp16\n", {}, (True, False)),
        (None, {}, (None, None)),
        ("processor\t: 0\n", {}, (None, None)),
    ],
)
def test_fast_dtypes_of_cpus(
    monkeypatch: pytest.MonkeyPatch,
    cpuinfo: str | None,
    capabilities: dict[str, Any],
    expected: tuple[bool | None, ...],
) -> None:
    pretend_cpuinfo(monkeypatch, cpuinfo, capabilities)
    assert tuple(fast_dtypes().values()) == expected


@pytest.mark.parametrize(
    ("capability", "expected"),
    [((6, 1), (False, False)), ((7, 5), (False, True)), ((9, 0), (True, True))],
)
def test_fast_dtypes_of_gpus(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], expected: tuple[bool, bool]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    assert tuple(fast_dtypes().values()) == expected
    monkeypatch.setattr(torch.version, "hip", "6.0")
    assert tuple(fast_dtypes().values()) == (None, None)


def test_gpu_on_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    exists, read = Path.exists, Path.read_text
    version = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
        "GCC version: 12.2.0\n"
    )
    pretend = {"/proc/driver/nvidia/version": version}
    monkeypatch.setattr(Path, "exists", lambda path: str(path) in pretend or exists(path))
    monkeypatch.setattr(
        Path,
        "read_text",
        lambda path, *args, **kw: pretend.get(str(path)) or read(path, *args, **kw),
    )
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=139 * 2**30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: properties)
    known = {
        "name": "NVIDIA H200",
        "count": 1,
        "capability": "9.0",
        "memory_bytes": 139 * 2**30,
        "driver": "580.95.05",
    }
    assert machine._gpu() == known
    monkeypatch.setattr(Path, "exists", lambda path: False)
    assert machine._gpu() == known | {"driver": "unknown"}


def test_unknown_hardware_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cpuinfo(monkeypatch, None, {})
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(Path, "glob", lambda *_: iter(()))
    # Windows has none of them.
    for name in ("sysconf_names", "getloadavg", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    card = machine_card()
    assert set(card["cpu"].values()) == {"unknown"}
    assert card["load_average"] == "unknown"
    assert set(card["native_dtypes"].values()) == {"unknown"}
    assert "cpu L1 cache" in format_card(card)


def test_format_card() -> None:
    card = {
        "cpu": {
            "model": "Z80",
            "L1_cache_bytes": 49152,
            "memory_bytes": "unknown",
            "instructions": ["avx2", "sve"],
        },
        "gpu": None,
        "native_dtypes": {"bfloat16": True, "float16": False},
        "load_average": [0.5, 1.0],
        "measured": {
            "host_copy_bytes_per_s": 12.34e9,
            "float32_flop_per_s": 1.5e12,
            "x_flop_per_s": None,
            "launch_s": 5e-6,
        },
    }
    assert [
        tuple(part.strip() for part in line.split("  ") if part)
        for line in format_card(card).splitlines()
    ] == [
        ("cpu model", "Z80"),
        ("cpu L1 cache", "48.0 KiB"),
        ("cpu memory", "unknown"),
        ("cpu instructions", "avx2, sve"),
        ("gpu", "none"),
        ("native dtypes bfloat16", "yes"),
        ("native dtypes float16", "no"),
        ("load average", "0.5, 1.0"),
        ("measured host copy", "12.3 GB/s"),
        ("measured float32", "1.50 T FLOP/s"),
        ("measured x", "none"),
        ("measured launch", "5.00 µs"),
    ]


def test_doctor(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress, bars = machine.progress, []
    monkeypatch.setattr(
        machine,
        "progress",
        lambda **options: (
            bars.append(progress(**options | {"delay": 0, "disable": False})) or bars[-1]
        ),
    )
    assert doctor() == 0
    out, err = capsys.readouterr()
    assert "cpu model" in out
    assert "measured launch" in out
    assert "measuring" in err
    assert bars[0].n == bars[0].total >= 5
