"""Figures: drawn without pyplot, from any result, in both themes."""

import math

import matplotlib.colors
import matplotlib.image
import pytest

from labkit import plots
from labkit.results import Comparison, Measurement
from labkit.text import format_bytes, format_rate, format_seconds, format_settings


def comparison(**settings):
    times = tuple(0.01 + 0.0001 * (position % 3) for position in range(30))
    return Comparison(
        Measurement("baseline", settings, times, samples=8),
        Measurement("candidate", settings, tuple(seconds / 2 for seconds in times), samples=8),
    )


def labels(figure):
    texts = [axis.get_title() + axis.get_xlabel() + axis.get_ylabel() for axis in figure.axes]
    legends = [axis.get_legend() for axis in figure.axes if axis.get_legend()]
    return " ".join(texts + [text.get_text() for legend in legends for text in legend.get_texts()])


@pytest.mark.parametrize("dark", [False, True])
def test_paper_and_ink_are_those_of_the_theme(dark, tmp_path):
    figure = plots.bar_figure([comparison(size=8)], "size", title="sizes", dark=dark)
    assert "sizes" in labels(figure)
    figure.savefig(tmp_path / "figure.png")
    corner = matplotlib.image.imread(tmp_path / "figure.png")[0, 0, :3].mean()
    assert corner < 0.2 if dark else corner > 0.9


def test_a_direction_stands_in_the_bars_where_the_size_is_unclear():
    few = Comparison(
        Measurement("baseline", {"size": 1}, (1.0,) * 3),
        Measurement("candidate", {"size": 1}, (7.0,) * 3),
    )
    [axis] = plots.bar_figure([few], "size").axes
    assert any("slower, size unclear" in text.get_text() for text in axis.texts)


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
        (format_settings({"amp": True, "kind": "a"}), "amp=True, kind='a'"),
    ],
)
def test_units(text, expected):
    assert text == expected


def test_a_figure_shows_itself_in_a_notebook():
    figure, _ = plots.new_figure()
    assert figure._repr_png_().startswith(b"\x89PNG")


def bars_of(figure):
    """Each bar of the first axis: where it stands, where it ends, its colour."""
    found = []
    for bar in figure.axes[0].patches:
        end = bar.get_x() + bar.get_width()
        found.append((bar.get_y() + bar.get_height() / 2, end, bar.get_facecolor()))
    return found


def test_a_sweep_as_bars_is_coloured_by_its_verdicts():
    found = [comparison(act="relu"), comparison(act="tanh")]
    figure = plots.bar_figure(found, "act", title="Activations")
    axis = figure.axes[0]
    assert axis.get_title() == "Activations"
    assert [text.get_text() for text in axis.get_yticklabels()] == ["relu", "tanh"]
    green = matplotlib.colors.to_rgba(plots.VERDICT_COLOUR["faster"])
    assert bars_of(figure) == [(0, pytest.approx(2), green), (1, pytest.approx(2), green)]
    assert [text.get_text().strip() for text in axis.texts] == ["2.00x faster"] * 2
    assert axis.get_xlim()[1] > 2
    assert axis.get_legend() is None
    figure.canvas.draw()


def test_bars_of_several_sweeps_stand_together_by_value():
    """Also where one sweep lacks a value, and as what the candidate costs."""
    both = {
        "narrow": [comparison(act="relu"), comparison(act="tanh")],
        "wide": [comparison(act="tanh")],
    }
    figure = plots.bar_figure(both, "act", slowdown=True, dark=True)
    (relu, end, narrow), (tanh, _, also_narrow), (beside, _, wide) = bars_of(figure)
    assert end == pytest.approx(0.5)
    assert relu < 0.5 < tanh < beside < 1.5
    assert narrow == also_narrow != wide
    assert "narrow wide" in labels(figure)
    assert "candidate / baseline" in labels(figure)
    figure.canvas.draw()


def test_a_comparison_that_ended_early_has_its_reason_for_a_bar():
    failed = Comparison(
        Measurement("baseline", {"act": "relu"}, times=(1.0,) * 8),
        Measurement("candidate", {"act": "relu"}, error="out of memory"),
    )
    figure = plots.bar_figure([failed], "act")
    assert bars_of(figure) == []
    assert [text.get_text().strip() for text in figure.axes[0].texts] == ["out of memory"]
    figure.canvas.draw()
