"""Models as blocks: run one after the other they compute what the model computes."""

import copy

import pytest
import torch
import torchvision
from planner_models import Encoder, Looks, Norms, Recurrent, UNet, images, tokens
from torch import Tensor, nn

from course import models
from labkit.device import seed_all
from sublinear.split import split

MODELS = {
    "mlp": (lambda: models.mlp([6, 8, 8, 2]), lambda: torch.randn(3, 6), "sequential", 3),
    "convnet": (lambda: models.convnet(4), lambda: images(4, 16), "sequential", 4),
    "resnet18": (lambda: models.resnet(18), lambda: images(2, 16), "captured", 21),
    "resnet50": (
        lambda: torchvision.models.resnet50(num_classes=3),
        lambda: images(2, 32),
        "captured",
        54,
    ),
    "u-net": (UNet, images, "captured", 8),
    "eager attention": (Encoder, tokens, "captured", 20),
    "fused attention": (lambda: Encoder(fused=True), tokens, "captured", 17),
    "transformer": (lambda: models.Transformer(11, 16, 2, 3, 8), tokens, "captured", 12),
    "gru": (Recurrent, lambda: torch.randn(2, 64, 6), "captured", 4),
    "norms": (Norms, images, "captured", 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_blocks_in_a_row_are_the_model(name: str) -> None:
    make, inputs, kind, count = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    blocks = split(model, x)
    assert (blocks.kind, len(blocks)) == (kind, count)
    plain = copy.deepcopy(model)
    seed_all(1)
    wanted = plain(x)
    seed_all(1)
    if blocks.partial:
        ran: list[int] = []

        def work(*state: object) -> tuple[object, ...]:
            for i in range(count):
                ran.append(i)
                state = blocks.run(i, *state)
            return state

        found = blocks.around(work, model.forward, (x,), {})
        assert ran == list(range(count))
    else:
        state = blocks.enter((x,), {})
        for i in range(count):
            state = blocks.run(i, *state)
        found = state[0]
    assert torch.equal(found, wanted)
    for one, two in zip(model.buffers(), plain.buffers(), strict=True):
        assert torch.equal(one, two)


def test_several_tensors_cross_where_a_skip_does() -> None:
    model = UNet()
    blocks = split(model, images())
    crossing = []

    def work(*state: object) -> tuple[object, ...]:
        for i in range(len(blocks)):
            state = blocks.run(i, *state)
            crossing.append(sum(map(torch.is_tensor, state)))
        return state

    blocks.around(work, model.forward, (images(),), {})
    # After each block: the first skip alone, then both and what is below.
    assert crossing[:-1] == [1, 2, 3, 2, 2, 1, 1]


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

    blocks = split(Residual(), torch.randn(3, 4))
    assert blocks.names == ("a", "c")


def test_where_the_compiler_captures_too_little_modules_are_wrapped() -> None:
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

    model = Outer()
    before = copy.deepcopy(model.state_dict())
    blocks = split(model, torch.randn(3, 4))
    assert (blocks.kind, blocks.names) == ("wrapped", ("layers.0", "layers.1", "layers.2"))
    assert "captures nothing can be planned" in blocks.note and "stays as it is" in blocks.note
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all("forward" not in vars(module) for module in model.modules())
    with pytest.raises(ValueError, match=r"no nn\.Sequential: .*needs example inputs"):
        split(model)


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
    model, x, mask = Encoder(), tokens(), torch.rand(3, 8, 1)
    blocks = split(model, (x,), {"mask": mask})
    found = []
    for options in ({"mask": mask}, {}):
        seed_all(1)
        found.append(blocks.around(blocks.run_all, model.forward, (x,), options))
        seed_all(1)
        assert torch.equal(found[-1], model(x, **options))
    assert not torch.equal(*found)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: split("model"), TypeError, "not an nn.Module"),  # type: ignore[arg-type]
        (lambda: split(nn.Sequential()), ValueError, "nothing to plan"),
        (
            lambda: split(nn.Sequential(nn.Linear(2, 2))).enter((1, 2), {}),
            TypeError,
            "one input, not 2",
        ),
    ],
)
def test_bad_arguments(call, error, words) -> None:
    with pytest.raises(error, match=words):
        call()
