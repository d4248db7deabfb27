"""Notebook 09's measured picture: layouts of a step's layers, lines that a window fetches."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import cloudpickle
import pytest
import torch
from torch import nn

from course.kernels import tuned
from course.measured import lines
from course.measured.layouts import A_MEAN, A_WINDOW, FIRST, LAST, Layouts, fetched, layout, watch
from labkit import Lab, Workload
from labkit.results import Comparison, Measurement


def net(norm: bool) -> nn.Sequential:
    between = [nn.InstanceNorm2d(32)] if norm else []
    return nn.Sequential(nn.Conv2d(4, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 1), *between, nn.ReLU())


def make_workload(last: bool, norm: bool) -> Workload:
    memory = torch.channels_last if last else torch.contiguous_format
    model, image = net(norm).to(memory_format=memory), torch.randn(2, 4, 34, 34)
    return Workload(lambda: model(image), 2, "images")


def test_a_layout_is_that_of_the_strides():
    image = torch.zeros(2, 4, 3, 5)
    assert layout(image) == FIRST
    assert layout(image.to(memory_format=torch.channels_last)) == LAST
    assert layout(image.transpose(2, 3)) == "otherwise"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_window_fetches_the_lines_of_its_numbers(dtype):
    for memory in (torch.contiguous_format, torch.channels_last):
        image = torch.zeros(2, 32, 32, 16, dtype=dtype).to(memory_format=memory)
        part = image[0, :, 8:11, 4:7]
        offsets = {
            (part[place].data_ptr() - image.data_ptr()) // 64
            for place in torch.cartesian_prod(torch.arange(32), *[torch.arange(3)] * 2).unbind(0)
            for place in [tuple(place.tolist())]
        }
        found, count, used = fetched(image)
        assert found == tuple(sorted(offsets))
        assert count == 32 * 32 * 16 * image.element_size() // 64
        assert used == pytest.approx(part.numel() * image.element_size() / (64 * len(found)))


def test_figures_of_the_notebook_are_those_of_the_moving_picture():
    image = torch.zeros(1, 32, 32, 32)
    found, _, used = fetched(image)
    assert (len(found), round(100 * used)) == (96, 19)
    found, _, used = fetched(image.to(memory_format=torch.channels_last))
    assert (len(found), used) == (18, 1)


def test_the_mean_of_a_channel_is_what_a_norm_reads():
    image = torch.zeros(1, 32, 32, 32)
    found, _, used = fetched(image, A_MEAN)
    assert (len(found), used) == (64, 1)
    found, count, used = fetched(image.to(memory_format=torch.channels_last), A_MEAN)
    assert len(found) == 1024 == count // 2 and used == 1 / 16
    for norm, reads in ((False, A_WINDOW), (True, A_MEAN)):
        laid = watch(make_workload(True, norm).step)[1]
        assert laid is not None and laid.reads == reads


def test_a_norm_per_channel_turns_the_layout_back():
    found = {
        (last, norm): watch(make_workload(last, norm).step)[1]
        for last in (False, True)
        for norm in (False, True)
    }
    assert [letter for letter, _ in found[True, True].layers] == ["c", "r", "c", "n", "r"]
    assert {key: (laid.share, laid.changes) for key, laid in found.items()} == {
        (False, False): (0, 0),
        (False, True): (0, 0),
        (True, False): (1, 0),
        (True, True): (0.6, 1),
    }


def test_nothing_is_noted_without_images_and_the_hook_is_gone():
    layer = nn.Linear(3, 3)
    assert watch(lambda: layer(torch.ones(2, 3)))[1] is None
    assert not torch.nn.modules.module._global_forward_hooks
    with pytest.raises(ZeroDivisionError):
        watch(lambda: 1 / 0)
    assert not torch.nn.modules.module._global_forward_hooks


def test_only_the_first_step_is_watched_and_it_returns_what_it_did():
    layouts = Layouts()
    step = layouts.noted(make_workload)(last=True, norm=False).step
    assert step().shape == (2, 32, 32, 32)
    assert layouts.of({"norm": False, "last": True}).share == 1
    assert layouts.of({"norm": True, "last": True}) is None
    layouts._file({"norm": False, "last": True}).unlink()
    step()
    assert layouts.of({"norm": False, "last": True}) is None


def test_notes_come_back_from_another_process():
    layouts = Layouts()
    copy = cloudpickle.loads(cloudpickle.dumps(layouts))
    copy.noted(make_workload)(last=False, norm=True).step()
    assert layouts.of({"last": False, "norm": True}).share == 0


def lab_of(layouts: Layouts) -> Lab:
    return Lab(
        layouts.noted(make_workload),
        last=[False, True],
        situation={"norm": [False, True]},
        memory=False,
    )


def test_the_picture_has_the_lines_and_layers_of_both_sides():
    layouts = Layouts()
    result = lab_of(layouts).run(last=True, norm=True, seconds=0.1)
    drawn = lines.of(layouts)(result)
    root = ET.fromstring(drawn)
    words = root.get("aria-label")
    assert "baseline: the mean of one channel: 64 lines, 100 % used, one layout" in words
    assert "candidate: the mean of one channel: 1024 lines, 6 % used, the layout changes" in words
    fills = [each.get("class") for each in root.iter() if each.tag.endswith("rect")]
    # And one each in the legend.
    assert fills.count("k-fill k-arm3") == 64 + 1024 + 1
    assert fills.count("k-fill k-candidate") == 3 + 1
    assert fills.count("k-fill k-baseline") == 5 + 2 + 1


def test_a_longer_step_has_a_longer_bar():
    layouts = Layouts()
    laid = watch(make_workload(last=True, norm=False).step)[1]
    root = ET.fromstring(lines.draw([("baseline", laid, 0.002), ("candidate", laid, 0.001)]))
    kind = " ".join(f"k-{word}" for word in lines.TIME.split())
    bars = [float(each.get("width")) for each in root.iter() if each.get("class") == kind]
    assert bars[0] == pytest.approx(2 * bars[1])
    assert lines.of(layouts)("no comparison") == ""


def fastest_is_last(candidates, _clock):
    """A search that tries all, and keeps the second one."""

    def search(*tensors):
        for candidate in candidates:
            candidate(*tensors)
        return candidates[1](*tensors)

    return search


def test_what_a_search_kept_and_cost_is_noted_and_told():
    layouts = Layouts()

    def make(search: bool) -> Workload:
        model, image = net(False), torch.randn(2, 4, 34, 34)
        if search:
            tuned(model, fastest_is_last)
        return Workload(lambda: model(image), 2, "images")

    layouts.noted(make)(search=True).step()
    laid = layouts.of({"search": True})
    assert laid.kept == ("channels last",) * 2 and laid.searched > 0
    layouts.noted(make)(search=False).step()
    plain = layouts.of({"search": False})
    assert (plain.kept, plain.searched) == ((), 0)
    drawn = lines.draw([("baseline", plain, 0.002), ("candidate", laid, 0.001)])
    assert "and kept" in drawn and "2 × channels last" in drawn


def test_a_search_pays_after_the_steps_of_the_formula():
    laid = watch(make_workload(last=True, norm=False).step)[1]
    assert lines.search(laid, 0.002, 0.003) == []
    kept = replace(laid, kept=("unfolded", "channels last", "unfolded"), searched=0.045)
    assert lines.search(kept, 0.002, 0.003) == [
        "your search took 45.0 ms for this size of image, and kept",
        "2 × unfolded, 1 × channels last",
        "it pays after 45 steps",
    ]
    assert lines.search(kept, 0.003, 0.002)[-1] == "it does not pay: no step is shorter"
    assert lines.search(kept, 0.002, None)[-1] == "this run does not tell whether it pays"


def test_sides_without_notes_have_no_picture():
    sides = [Measurement(str(last), {"last": last}, times=(0.1,) * 4) for last in (False, True)]
    assert lines.of(Layouts())(Comparison(*sides)) == ""
