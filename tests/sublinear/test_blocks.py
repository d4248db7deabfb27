"""Models as blocks: run one after the other they compute what the model computes."""

import copy

import pytest
import torch
import torchvision
from planner_models import Encoder, Looks, Norms, Recurrent, UNet, images, tokens
from torch import Tensor, nn

from course import models
from sublinear.blocks import split

MODELS = {
    "mlp": (lambda: models.mlp([6, 8, 8, 2]), lambda: torch.randn(3, 6), "sequential", 3),
    "convnet": (lambda: models.convnet(4), lambda: images(4, 16), "sequential", 4),
    "resnet18": (lambda: models.resnet(18), lambda: images(2, 16), "traced", 18),
    "resnet50": (
        lambda: torchvision.models.resnet50(num_classes=3),
        lambda: images(2, 32),
        "traced",
        50,
    ),
    "u-net": (UNet, images, "traced", 8),
    "eager attention": (Encoder, tokens, "traced", 14),
    "fused attention": (lambda: Encoder(fused=True), tokens, "traced", 14),
    "transformer": (lambda: models.Transformer(11, 16, 2, 3, 8), tokens, "traced", 6),
    "gru": (Recurrent, lambda: torch.randn(2, 64, 6), "traced", 4),
    "norms": (Norms, images, "traced", 3),
}


@pytest.mark.parametrize("name", MODELS)
def test_blocks_in_a_row_are_the_model(name: str) -> None:
    make, inputs, kind, count = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), inputs()
    blocks = split(model)
    assert (blocks.kind, len(blocks)) == (kind, count) and len(set(blocks.names)) == count
    with torch.no_grad():
        state = blocks.enter((x,), {})
        for i in range(len(blocks)):
            state = blocks.run(i, *state)
        assert torch.equal(state[0], model(x))


def test_several_tensors_cross_where_a_skip_does() -> None:
    model = UNet().eval()
    blocks = split(model)
    state, crossing = blocks.enter((images(),), {}), []
    for i in range(len(blocks) - 1):
        state = blocks.run(i, *state)
        crossing.append(len(state))
    assert crossing == [
        1,
        2,
        3,
        2,
        2,
        1,
        1,
    ]  # after each block: the first skip alone, then both and what is below


def test_blocks_share_the_models_modules() -> None:
    model = models.convnet(4).eval()
    blocks = split(model)
    assert list(blocks.modules(0))[:2] == [model[0], model[1]]
    before = blocks.run(0, images(2, 16))[0]
    with torch.no_grad():
        model[0].weight.zero_()
    assert not torch.equal(before, blocks.run(0, images(2, 16))[0])


def test_sequential_is_flattened_and_cut_before_weights() -> None:
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    blocks = split(nn.Sequential(nn.Flatten(), inner, nn.Sequential(nn.Dropout(), nn.Linear(4, 2))))
    assert blocks.names == ("0", "1.0..2.0", "2.1")


def test_no_cut_separates_a_value_from_what_overwrites_it() -> None:
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Linear(4, 4) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            y = self.a(x)
            z = self.b(y.sin())
            y += 1  # after b, of a value that was made before it
            return self.c(z + y)

    blocks = split(Residual())
    assert blocks.names == ("a..b", "c")


def test_an_opaque_module_stays_whole() -> None:
    class Looking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) if x.sum() > 0 else -self.inner(x)

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([Looking(), Looking(), Looking()])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            return x

    blocks = split(Outer())
    assert (blocks.kind, blocks.names) == ("traced", ("layers.0", "layers.1", "layers.2"))


def test_wrapping_says_why() -> None:
    model = Looks()
    with pytest.raises(ValueError, match=r"control flow.*needs example inputs"):
        split(model)
    before = copy.deepcopy(model.state_dict())
    blocks = split(model, torch.randn(3, 5))
    assert blocks.kind == "wrapped" and blocks.names == tuple(f"layers.{i}" for i in range(4))
    assert "control flow" in blocks.note and "stays as it is" in blocks.note
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all("forward" not in vars(module) for module in model.modules())


def test_modules_can_be_chosen() -> None:
    model, x = Looks(), torch.randn(3, 5)
    assert split(model, x, modules=["layers.1", "layers.2"]).names == ("layers.1", "layers.2")
    with pytest.raises(ValueError, match=r"no such module"):
        split(model, x, modules=["layer"])
    with pytest.raises(
        ValueError, match=r"called once, with a tensor that the one before it returned.*layers\.2"
    ):
        split(model, x, modules=["layers.0", "layers.2"])


def test_arguments_by_keyword_and_default() -> None:
    model, x, mask = Encoder().eval(), tokens(), torch.rand(3, 8, 1)
    blocks = split(model, (x,), {"mask": mask})
    state = blocks.enter((x,), {"mask": mask})
    for i in range(len(blocks)):
        state = blocks.run(i, *state)
    assert torch.equal(state[0], model(x, mask)) and not torch.equal(state[0], model(x))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: split("model"), TypeError, "not an nn.Module"),  # type: ignore[arg-type]
        (lambda: split(nn.Linear(1, 1), width=0), ValueError, "width=0"),
        (lambda: split(nn.Sequential()), ValueError, "nothing to plan"),
    ],
)
def test_bad_arguments(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call()
