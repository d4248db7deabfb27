"""Figures: drawn without pyplot, from any result, in both themes."""

import math
import re

import matplotlib.image
import pytest

from labkit import plots
from labkit.results import Comparison, Measurement
from labkit.text import format_bytes, format_rate, format_seconds, format_settings, format_short


def comparison(**settings):
    times = tuple(0.01 + 0.0001 * (position % 3) for position in range(30))
    return Comparison(
        Measurement("baseline", settings, times, samples=8),
        Measurement("candidate", settings, tuple(seconds / 2 for seconds in times), samples=8),
    )


@pytest.mark.parametrize("dark", [False, True])
def test_paper_and_ink_are_those_of_the_theme(dark, tmp_path):
    figure, _ = plots.new_figure(dark=dark)
    figure.savefig(tmp_path / "figure.png")
    corner = matplotlib.image.imread(tmp_path / "figure.png")[0, 0, :3].mean()
    assert corner < 0.2 if dark else corner > 0.9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_seconds(0.00123), "1.23 ms"),
        (format_seconds(12.34), "12.3 s"),
        (format_seconds(4.5e-6), "4.50 µs"),
        (format_seconds(2e-8), "20.0 ns"),
        (format_seconds(math.inf), "never"),
        (format_seconds(math.nan), "-"),
        (format_seconds(None), "-"),
        (format_bytes(3 * 2**20), "3.00 MiB"),
        (format_bytes(17), "17 B"),
        (format_bytes(None), "-"),
        (format_rate(1234567), "1.23 M samples/s"),
        (format_rate(12.5, "tokens"), "12.5 tokens/s"),
        (format_short(1500), "1.5 k"),
        (format_short(0.25), "0.25"),
        (format_short(2e12), "2 T"),
        (format_short(math.nan), "-"),
        (format_settings({"amp": True, "kind": "a"}), "amp=True, kind='a'"),
    ],
)
def test_units(text, expected):
    assert text == expected


def test_a_figure_shows_itself_in_a_notebook():
    figure, _ = plots.new_figure()
    assert figure._repr_png_().startswith(b"\x89PNG")


def places(figure, kind):
    """The tone of each mark of a kind in the figure's picture."""
    found = re.findall(rf'class="k-{kind} ([^"]*)"', figure._repr_html_())
    return [classes.removeprefix("k-") for classes in found]


def test_a_sweep_as_bars_is_coloured_by_its_verdicts():
    figure = plots.bar_figure([comparison(act="relu"), comparison(act="tanh")], "act", title="Acts")
    assert places(figure, "band") == ["faster", "faster"]
    page = figure._repr_html_()
    assert repr(figure) == "Acts" and page.count("2.00× faster") == 2
    assert page.index("relu") < page.index("tanh")


def test_bars_of_several_sweeps_stand_together_by_value():
    """Also where one sweep lacks a value, and as what the candidate costs."""
    both = {
        "narrow": [comparison(act="relu"), comparison(act="tanh")],
        "wide": [comparison(act="tanh")],
    }
    page = plots.bar_figure(both, "act", slowdown=True)._repr_html_()
    assert re.findall(r"> (narrow|wide)<", page) == ["narrow", "narrow", "wide"]
    assert page.count("0.50× the time, faster") == 3
    assert page.index("← faster") < page.index("slower →")


def test_a_direction_stands_in_the_bars_where_the_size_is_unclear():
    few = Comparison(
        Measurement("baseline", {"size": 1}, (1.0,) * 3),
        Measurement("candidate", {"size": 1}, (7.0,) * 3),
    )
    assert "slower, size unclear" in plots.bar_figure([few], "size")._repr_html_()


def test_a_comparison_that_ended_early_has_its_reason_for_a_bar():
    failed = Comparison(
        Measurement("baseline", {"act": "relu"}, times=(1.0,) * 8),
        Measurement("candidate", {"act": "relu"}, error="out of memory"),
    )
    for slowdown in (False, True):
        figure = plots.bar_figure([failed], "act", slowdown=slowdown)
        assert places(figure, "band") == [] and "out of memory" in figure._repr_html_()
