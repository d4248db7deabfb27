"""Numbers as people read them: three digits, in the unit that fits what was rounded."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator

import pytest

from labkit.text import format_bytes, format_rate, format_seconds

KILO = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
RATES = {f"{prefix} x/s".strip(): scale for prefix, scale in KILO.items()}
BYTES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}

FORMATS = pytest.mark.parametrize(
    ("form", "units", "step"),
    [
        (format_seconds, SECONDS, 1000),
        (lambda value: format_rate(value, "x"), RATES, 1000),
        (format_bytes, BYTES, 1024),
    ],
    ids=["seconds", "rate", "bytes"],
)


def values(units: dict[str, float]) -> Iterator[float]:
    """20,000 of all sizes, and those at which a unit or a digit changes."""
    generator = random.Random(0)
    least, most = min(units.values()), 999 * max(units.values())
    for _ in range(20_000):
        yield math.exp(generator.uniform(math.log(least), math.log(most)))
    for scale in units.values():
        for edge in (1, 9.995, 10, 99.95, 100, 999.5, 1000, 1023.5, 1024):
            for near in (-1e-3, -1e-9, 0, 1e-9, 1e-3):
                if least <= edge * (1 + near) * scale <= most:
                    yield edge * (1 + near) * scale


def read(text: str, units: dict[str, float]) -> tuple[str, str, float]:
    """The digits of a text, its unit, and its value."""
    found = re.fullmatch(r"([\d.]+) (.+)", text)
    assert found and found[2] in units, text
    return found[1], found[2], float(found[1]) * units[found[2]]


@FORMATS
def test_no_number_is_a_whole_one_of_the_next_unit(
    form: Callable[[float], str], units: dict[str, float], step: int
) -> None:
    largest = max(units, key=lambda unit: units[unit])
    for value in values(units):
        digits, unit, _ = read(form(value), units)
        assert unit == largest or float(digits) < step, (value, form(value))


@FORMATS
def test_a_number_has_three_digits_and_is_as_near_as_they_allow(
    form: Callable[[float], str], units: dict[str, float], step: int
) -> None:
    for value in values(units):
        digits, unit, shown = read(form(value), units)
        if unit != "B":
            # 1000 to 1023 KiB have four.
            whole = 4 if float(digits) >= 1000 else 3
            assert len(digits.replace(".", "")) == whole, (value, form(value))
        assert abs(shown / value - 1) <= (0.501 / value if unit == "B" else 0.00501), form(value)


@FORMATS
def test_a_larger_number_is_never_shown_as_a_smaller_one(
    form: Callable[[float], str], units: dict[str, float], step: int
) -> None:
    shown = [read(form(value), units)[2] for value in sorted(values(units))]
    assert all(one <= other * (1 + 1e-9) for one, other in itertools.pairwise(shown))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_seconds(0.99996), "1.00 s"),
        (format_seconds(0.000_999_7), "1.00 ms"),
        (format_seconds(9.996e-6), "10.0 µs"),
        (format_seconds(1e6), "1000000 s"),
        (format_bytes(2**20 - 1), "1.00 MiB"),
        (format_bytes(1010 * 2**10), "1010 KiB"),
        (format_bytes(1023.6), "1.00 KiB"),
        (format_rate(999_600), "1.00 M samples/s"),
        # As ever: below the smallest unit two decimals.
        (format_seconds(0.0), "0.00 ns"),
        (format_seconds(5e-10), "0.50 ns"),
        (format_seconds(-2e-9), "-2.00 ns"),
        (format_seconds(math.nan), "-"),
        (format_seconds(math.inf), "never"),
        (format_bytes(0), "0 B"),
        (format_bytes(-5), "-5 B"),
        (format_bytes(math.nan), "nan B"),
        (format_rate(0.0), "0.00 samples/s"),
        (format_rate(0.5), "0.50 samples/s"),
        (format_rate(math.nan), "-"),
    ],
)
def test_units_at_their_ends(text: str, expected: str) -> None:
    assert text == expected
