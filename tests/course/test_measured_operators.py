"""The picture of a profiler's events holds what the profiler recorded."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from course.measured.operators import Span, spans, timeline, uncovered
from labkit.plots import RED


def event(name, start, end, thread=1, mark=False, device=DeviceType.CPU):
    return SimpleNamespace(
        name=name,
        time_range=SimpleNamespace(start=start, end=end),
        thread=thread,
        is_user_annotation=mark,
        is_async=False,
        device_type=device,
    )


def recorded(*events):
    return SimpleNamespace(events=lambda: list(events))


def test_depth_is_the_number_of_operators_around():
    taken = recorded(
        event("inner", 1200, 1400),
        event("mark", 1000, 3000, mark=True),
        event("outer", 1000, 2000),
        event("elsewhere", 1100, 1300, thread=2),
        event("kernel", 1000, 9000, device=DeviceType.CUDA),
        event("next", 2000, 3000),
    )
    found = {each.name: each for each in spans(taken)}
    assert "kernel" not in found
    assert {name: each.depth for name, each in found.items()} == {
        "mark": 0,
        "outer": 0,
        "inner": 1,
        "elsewhere": 0,
        "next": 0,
    }
    assert (found["inner"].begin, found["inner"].end) == pytest.approx((0.2, 0.4))
    assert found["mark"].mark and not found["outer"].mark


def test_nothing_recorded_is_named():
    with pytest.raises(ValueError, match="recorded no operator"):
        spans(recorded())


@pytest.mark.parametrize(
    ("intervals", "share"),
    [
        ([(0, 10)], 0.0),
        ([(0, 2), (8, 10)], 0.6),
        ([(0, 6), (1, 2), (4, 10)], 0.0),
        ([(0, 6), (1, 2), (8, 10)], 0.2),
    ],
)
def test_the_share_without_an_operator(intervals, share):
    found = [Span("op", begin, end) for begin, end in intervals]
    found.append(Span("mark", 0, 10, mark=True))
    assert uncovered(found) == pytest.approx(share)


def test_a_real_step_is_drawn():
    model = nn.Linear(8, 8)
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        with record_function("forward of mine"):
            loss = model(torch.ones(2, 8)).sum()
        loss.backward()
    found = spans(taken)
    marks = [each.name for each in found if each.mark]
    assert "forward of mine" in marks
    linear = next(each for each in found if each.name == "aten::linear")
    inside = [each for each in found if linear.begin <= each.begin and each.end <= linear.end]
    assert max(each.depth for each in inside) >= 1 and not linear.backward
    assert any(each.backward and each.depth for each in found)
    assert 0 <= uncovered(found) < 1

    figure = timeline(taken, highlight=["aten::linear"], levels=2)
    [axis] = figure.axes
    assert len(axis.collections) == sum(each.mark or each.depth < 2 for each in found)
    red = [bar for bar in axis.collections if list(bar.get_facecolor()[0]) == list(rgba(RED))]
    assert len(red) == sum(each.name == "aten::linear" for each in found) == 1
    assert "no operator runs" in axis.get_title()


def rgba(colour):
    from matplotlib.colors import to_rgba

    return to_rgba(colour)
