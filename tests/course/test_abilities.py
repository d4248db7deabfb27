"""What the probe finds, and what can be pretended."""

import os
import sys
from dataclasses import replace

import pytest
import torch

from course import probe
from course.probe import Abilities, abilities
from labkit.device import pick_device

STRONG = Abilities(bf16=True, bf16_speedup=4.0, cores=8, gpu=False, compiler=True)


@pytest.fixture(autouse=True)
def _nothing_pretended(monkeypatch):
    monkeypatch.delenv(probe.PRETEND, raising=False)
    find = probe._found
    find.cache_clear()
    yield
    find.cache_clear()


@pytest.fixture
def strong(monkeypatch):
    monkeypatch.setattr(probe, "_found", lambda device: STRONG)


def timed(monkeypatch, *, by_width: dict[int, float]):
    """Products that take so many times as long in fp32 as in bf16; which widths were asked."""
    asked = []
    monkeypatch.setattr(probe, "_product", lambda a, b, low: (a.shape[0], low))

    def seconds(run):
        width, low = run()
        asked.append(width)
        return 1.0 if low else by_width[width]

    monkeypatch.setattr(probe, "_seconds", seconds)
    return asked


def test_a_large_product_decides(monkeypatch):
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    timed(monkeypatch, by_width={probe.FIRST: 0.9, probe.LARGE: 3.0})
    found = abilities()
    assert (found.bf16, found.bf16_speedup) == (True, 3.0)


@pytest.mark.parametrize(("ratio", "fast"), [(1.19, False), (1.2, True), (0.9, False)])
def test_bf16_has_to_be_faster_by_a_fifth(monkeypatch, ratio, fast):
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    timed(monkeypatch, by_width={probe.FIRST: 1.0, probe.LARGE: ratio})
    assert abilities().bf16 is fast


def test_where_bf16_is_emulated_no_large_product_is_tried(monkeypatch):
    monkeypatch.setenv("LABKIT_DEVICE", "cpu")
    asked = timed(monkeypatch, by_width={probe.FIRST: 0.05})
    found = abilities()
    assert (found.bf16, found.bf16_speedup) == (False, 0.05)
    assert set(asked) == {probe.FIRST}


def test_it_is_found_out_once(monkeypatch):
    asked = timed(monkeypatch, by_width=dict.fromkeys((probe.FIRST, probe.LARGE, 4096), 0.1))
    abilities()
    count = len(asked)
    assert count
    assert abilities() == abilities()
    assert len(asked) == count


def test_draws_and_switches_stay_as_they_were():
    torch.set_num_threads(2)
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    found = abilities()
    assert torch.equal(torch.rand(2), wanted)
    assert torch.get_num_threads() == 2
    assert not torch.is_autocast_enabled("cpu")
    assert found.gpu == (pick_device().type != "cpu")
    assert found.bf16_speedup > 0


@pytest.mark.usefixtures("strong")
def test_each_ability_can_be_taken_away(monkeypatch):
    assert abilities() == STRONG
    monkeypatch.setenv(probe.PRETEND, "no-bf16, one-core,no-compiler")
    lacks = {"bf16": False, "cores": 1, "gpu": False, "compiler": False}
    assert abilities() == Abilities(**lacks, bf16_speedup=0.5, pretended=True)
    monkeypatch.setenv(probe.PRETEND, "one-core")
    assert (abilities().bf16, abilities().cores, abilities().compiler) == (True, 1, True)


@pytest.mark.usefixtures("strong")
def test_a_pretence_is_told_where_bf16_is_there(monkeypatch):
    """A reader who then measures a gain is not left alone with it."""
    monkeypatch.setenv(probe.PRETEND, "no-bf16")
    assert "LABKIT_PRETEND pretends that" in abilities().bf16_in_words
    monkeypatch.setattr(probe, "_found", lambda device: replace(STRONG, bf16=False))
    assert "pretends" not in abilities().bf16_in_words


@pytest.mark.usefixtures("strong")
def test_what_is_unknown_is_refused_with_what_is_accepted(monkeypatch):
    monkeypatch.setenv(probe.PRETEND, "no-bf16,two-cores")
    with pytest.raises(ValueError, match="'two-cores' is unknown; it takes 'no-bf16', 'one-core'"):
        abilities()


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_a_compiler_answers_or_not(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "nowhere"))
    assert not probe._compiler_answers()
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    assert not probe._compiler_answers()
    compiler.write_text("#!/bin/sh\nexit 0\n")
    assert probe._compiler_answers()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no such call here")
def test_only_usable_cores_count():
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(cores)})
        assert probe._cores() == 1
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.parametrize(
    ("fast", "speedup", "words"),
    [
        (True, 5.24, "bf16 is fast on this machine"),
        (False, 1.05, "bf16 brings little on this machine"),
        (False, 0.05, "bf16 is slow on this machine"),
    ],
)
def test_what_is_known_of_bf16_in_words(fast, speedup, words):
    found = Abilities(bf16=fast, bf16_speedup=speedup, cores=2, gpu=False, compiler=True)
    assert found.bf16_in_words.startswith(words)
    assert ("widened" in found.bf16_in_words) == (speedup < 0.9)


@pytest.mark.parametrize("speedup", [5.24, 1.05, 0.05])
def test_a_reader_who_bets_next_is_told_no_factor(speedup):
    found = Abilities(speedup > 2, bf16_speedup=speedup, cores=2, gpu=False, compiler=True)
    figures = set(found.bf16_in_words.split()) & {f"{speedup:.2g}", f"{1 / speedup:.1f}"}
    assert not figures and "times" not in found.bf16_in_words
