"""Channels before a norm and behind it, of both sides of a run: notebook 19's measured picture."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from course import networks
from course.measured import channels
from course.measured.channels import CHANNELS, Channels, Seen, Side
from labkit import Lab, Workload
from labkit.charts.svg import LETTERS
from tests.labs import lab_19

PURPLE = 'class="k-fill k-arm5"'


def net(bias: bool) -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 10, 3, bias=bias), nn.BatchNorm2d(10), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(10, 10))


def make_workload(bias: str, use: str) -> Workload:
    images = torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    model = net(bias != "left out" or use == "inference")
    if use == "inference":
        model = networks.for_inference(model, images, bias, lab_19.right)
    return Workload(lambda: model(images).detach(), 8, "images")


@pytest.fixture
def picture() -> Channels:
    return Channels()


@pytest.fixture
def lab(picture: Channels) -> Lab:
    return Lab(
        picture.watch(make_workload),
        bias=["kept", "left out", "folded"],
        situation={"use": ["training", "inference"]},
    )


def drawn(lab: Lab, picture: Channels, bias: str, use: str = "training") -> str:
    return picture(lab.run(baseline={"use": use}, bias=bias, use=use, seconds=0.1))


def marks(picture: str) -> int:
    """Purple bars, without the one of the legend."""
    return picture.count(PURPLE) - 1


def test_in_training_channels_move_and_behind_the_norm_nothing_does(
    lab: Lab, picture: Channels
) -> None:
    found = drawn(lab, picture, "left out")
    assert "Behind the norm nothing has changed but rounding." in found
    assert marks(found) == 0
    outlines = re.findall(r'<path d="([^"]*)" class="k-line k-candidate"', found)
    assert len(outlines) == 2 * CHANNELS + 1
    for words in ("baseline: kept", "candidate: left out", "before the norm", "behind it"):
        assert words in found
    assert len(re.findall(r"[\d.]+ .?s per step", found)) == 2


def test_a_frozen_norm_lets_it_through(lab: Lab, picture: Channels) -> None:
    found = drawn(lab, picture, "left out", "inference")
    (percent,) = re.findall(r">The norm\S+s outputs differ by (\d+) % of a deviation\.<", found)
    sides = [channels.look(make_workload(bias, "inference").step) for bias in ("kept", "left out")]
    assert int(percent) == round(100 * max(channels.changes(*(each.after for each in sides))))
    assert marks(found) > CHANNELS


def test_what_was_folded_gives_the_same(lab: Lab, picture: Channels) -> None:
    found = drawn(lab, picture, "folded", "inference")
    assert "nothing has changed but rounding" in found and marks(found) == 0


def test_a_norm_is_seen_as_the_reader_s_step_calls_it() -> None:
    model, images = net(True), torch.randn(8, 3, 6, 6)
    seen = channels.look(lambda: model(images))
    before = model[0](images)[:, :CHANNELS].transpose(0, 1).flatten(1)
    assert torch.equal(seen.before, before)
    torch.testing.assert_close(seen.after.mean(1), torch.zeros(CHANNELS), atol=1e-5, rtol=0)
    assert not torch.nn.modules.module._global_forward_hooks


def test_a_step_without_a_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="neither a batch norm nor"):
        channels.look(lambda: nn.Linear(2, 2)(torch.randn(1, 2)))


def test_a_change_is_told_in_deviations() -> None:
    numbers = torch.randn(2, 4096, generator=torch.Generator().manual_seed(0))
    shifted = 3 * numbers + torch.tensor([[0.0], [1.5]])
    assert channels.changes(3 * numbers, shifted) == pytest.approx([0, 0.5], rel=0.05, abs=1e-6)


def test_sentences_fit_a_line() -> None:
    far = Seen(torch.randn(2, 10), 1000 * torch.randn(2, 10))
    near = Seen(far.before, torch.randn(2, 10))
    said = channels.sentence([Side("kept", near, 0.1), Side("left out", far, 0.1)])
    assert "differ by" in said and len(said) <= LETTERS


def test_looking_leaves_random_numbers_alone(picture: Channels) -> None:
    watched = picture.watch(make_workload)
    state = torch.get_rng_state()
    make_workload("kept", "training")
    plain = torch.get_rng_state()
    torch.set_rng_state(state)
    watched(bias="kept", use="training")
    assert torch.equal(torch.get_rng_state(), plain)


def test_other_results_have_no_picture(picture: Channels) -> None:
    assert picture(None) == picture("a race") == ""


def test_a_network_for_inference_has_its_biases_as_it_is_told() -> None:
    images = torch.randn(8, 3, 6, 6)
    kept, out, folded = (
        networks.for_inference(net(True), images, bias, lab_19.right)
        for bias in ("kept", "left out", "folded")
    )
    assert not any(each.training for each in (*kept.modules(), *folded.modules()))
    assert kept[0].bias is not None and out[0].bias is None
    assert isinstance(folded[1], nn.Identity) and isinstance(kept[1], nn.BatchNorm2d)
    torch.testing.assert_close(folded(images), kept(images), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(out(images), kept(images), atol=1e-2)
    # The running averages are those of these images.
    convolved = kept[0](images)
    torch.testing.assert_close(kept[1].running_mean, convolved.mean((0, 2, 3)))
    with pytest.raises(ValueError, match="bias='gone': use 'kept', 'left out' or 'folded'"):
        networks.for_inference(net(True), images, "gone", lab_19.right)
