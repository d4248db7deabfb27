"""No prose of a notebook holds a measured number that is in no record."""

import math
import re

import pytest

from course.notebook_files import course_notebooks, place, read_notebook
from course.records import reference
from labkit.racing import RaceResult
from labkit.results import Comparison

PATHS = course_notebooks()

# What looks like a measurement: a number with a unit of time, of bytes or of images, or a factor.
MEASURED = re.compile(
    r"(?<![\w.,])\d[\d.,]*\d?\s?(?:x(?! ?\d)|ms|µs|s|MiB|GiB|KiB|MB|GB|images/s|GB/s|%)(?![\w-])"
)
BOUND = re.compile(r"\[([^\]]*)\]\((?:\.\./)+RESULTS\.md[^)]*\)")
# A number of somebody else's, with its source in the same paragraph or row of a table.
CITED = re.compile(
    r"\b(?:19|20)\d\d\b|arXiv|[Ss]ection \d|Guide\b|\bblog\b|\brecipe\b|\barticle\b|\bpaper\b|"
    r"\bthe same\b|\bMigacz\b"
)
# Rules of the kit and of the exercises: numbers that we set, not numbers that we found.
SET = {
    "00_start_here": {"95 %", "2 %", "0.5 %"},
    "04_data_loading": {"193 GB"},  # a product of three cited sizes
    "06_mixed_precision": {"5 %"},
    "10_host_device_transfers": {"4 ms"},
    # 16, 5.5, 3.75 and 2 bytes for each of 10^9 weights
    "14_distributed_data_parallel": {"16 GB", "5.5 GB", "3.75 GB", "2 GB"},
}


def prose(path):
    """The paragraphs, list items and rows of a notebook's text, without code and formulas."""
    for cell in read_notebook(path).cells:
        if cell.cell_type == "markdown":
            text = re.sub(
                r"```.*?```|\$\$.*?\$\$|\$[^$\n]*\$|`[^`\n]*`", " ", cell.source, flags=re.DOTALL
            )
            yield from re.split(r"\n\s*\n|\n(?=\s*[-|])", text)


def recorded_numbers(name):
    """Every figure that a reader of the notebook's records could see."""
    for record in reference(name).records:
        for result in record.results:
            if isinstance(result, Comparison):
                yield from (
                    result.speedup,
                    1 / result.speedup,
                    *result.interval,
                    result.memory_ratio,
                )
                for arm in result.arms:
                    yield from (
                        arm.median,
                        arm.median * 1e3,
                        (arm.peak_bytes or math.nan) / 2**20,
                        arm.throughput,
                    )
            elif isinstance(result, RaceResult):
                for arm in result.arms:
                    yield from (result.median(arm), *result.speedup(arm), result.target * 100)


def unbound(name, paragraphs, numbers):
    """Measured numbers of a notebook's prose that are neither in a record nor cited nor set by
    us.
    """
    values = [number for number in numbers if math.isfinite(number)]
    for paragraph in paragraphs:
        for linked in BOUND.findall(paragraph):
            for text in re.findall(r"\d[\d,]*\.?\d*", linked):
                number, digits = float(text.replace(",", "")), len(text.partition(".")[2])
                if not any(
                    math.isclose(round(value, digits), number, abs_tol=1e-9) for value in values
                ):
                    place = f"in no record of {name}: {paragraph[:80]!r}"
                    yield f"{text} is linked to RESULTS.md, but {place}"
        if not CITED.search(paragraph):
            for text in MEASURED.findall(BOUND.sub("", paragraph)):
                if text not in SET.get(name, ()):
                    yield f"{text} is neither cited nor linked to RESULTS.md: {paragraph[:80]!r}"


@pytest.mark.parametrize("path", PATHS, ids=place)
def test_no_prose_holds_a_measured_number_that_is_in_no_record(path):
    assert list(unbound(path.stem, prose(path), recorded_numbers(path.stem))) == []


def test_the_search_for_unbound_numbers_finds_them():
    bound = "It ran [1.26x](../RESULTS.md) as fast."
    assert list(unbound("x", [bound], [1.2649])) == []
    [problem] = unbound("x", [bound], [1.3])
    assert "1.26 is linked" in problem
    [problem] = unbound("x", ["It ran 1.26x as fast."], [1.26])
    assert "neither cited nor linked" in problem
    assert (
        list(unbound("x", ["Smith (2017) found 1.26x.", "On 8 x 8 pixels, 24 blocks, 3x3."], []))
        == []
    )
    assert len(list(unbound("x", ["30 ms, 12.5 MiB, and 80 % of it"], []))) == 3
