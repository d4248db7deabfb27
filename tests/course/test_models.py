"""Models: shapes, sizes known from the literature or by hand, causality, bad arguments."""

import importlib.util
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course import models


def parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_resnet_has_the_stem_for_small_images() -> None:
    model = models.resnet(18)
    # The usual CIFAR ResNet-18.
    assert parameters(model) == 11_173_962
    shapes = []
    model.layer1.register_forward_hook(lambda module, args, output: shapes.append(output.shape))
    model.layer4.register_forward_hook(lambda module, args, output: shapes.append(output.shape))
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert shapes == [(2, 64, 32, 32), (2, 512, 4, 4)]


def test_resnet_of_another_depth() -> None:
    with torch.device("meta"):
        model = models.resnet(50, num_classes=100)
        assert model(torch.empty(2, 3, 32, 32)).shape == (2, 100)


def test_linear_layers_with_a_function_of_the_reader_s() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2)))
    x, weights = torch.randn(5, 3), list(model.parameters())
    wanted, asked = model(x), []

    def function(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        asked.append(weight.shape)
        return x @ weight.T + bias

    assert models.with_linear(model, function) is model
    torch.testing.assert_close(model(x), wanted)
    assert asked == [(4, 3), (2, 4)]
    assert all(a is b for a, b in zip(model.parameters(), weights, strict=True))


def test_convnet() -> None:
    model = models.convnet(width=4, num_classes=7, in_channels=1)
    convolutions = 9 * (1 * 4 + 4 * 8 + 8 * 16)
    assert parameters(model) == convolutions + 2 * (4 + 8 + 16) + 16 * 7 + 7
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 7)
    assert model(torch.randn(2, 1, 8, 8)).shape == (2, 7)


def test_mlp() -> None:
    model = models.mlp([5, 10, 1])
    assert [type(layer) for layer in model] == [nn.Linear, nn.ReLU, nn.Linear]
    assert parameters(model) == 5 * 10 + 10 + 10 + 1
    assert model(torch.randn(3, 2, 5)).shape == (3, 2, 1)


def test_transformer_block() -> None:
    block = models.transformer_block(16, 4)
    attention, feed_forward, norms = 4 * (16 * 16 + 16), 16 * 64 + 64 + 64 * 16 + 16, 4 * 16
    assert parameters(block) == attention + feed_forward + norms
    x = torch.randn(2, 5, 16)
    expected = (
        x + block.self_attn(block.norm1(x), block.norm1(x), block.norm1(x), need_weights=False)[0]
    )
    expected = expected + block.linear2(F.gelu(block.linear1(block.norm2(expected))))
    torch.testing.assert_close(block(x), expected)


def test_attention_is_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fused = F.scaled_dot_product_attention

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(args[3])
        return fused(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    models.Transformer(11, dim=16, heads=2, depth=3, length=8)(torch.zeros(1, 8, dtype=torch.int64))
    # is_causal in place of a mask.
    assert calls == [None] * 3


@pytest.mark.parametrize("training", [True, False])
def test_transformer_is_causal(training: bool) -> None:
    torch.manual_seed(0)
    model = models.Transformer(11, dim=16, heads=2, length=8).train(training)
    tokens = torch.randint(11, (3, 8))
    changed = tokens.clone()
    changed[:, 5] = (tokens[:, 5] + 1) % 11
    with torch.set_grad_enabled(training):
        before, after = model(tokens), model(changed)
    assert before.shape == (3, 8, 11)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.isclose(before[:, 5:], after[:, 5:]).all()
    assert model(tokens[:, :3]).shape == (3, 3, 11)


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (models.convnet(4), torch.randn(2, 3, 16, 16)),
        (models.mlp([4, 3, 2]), torch.randn(2, 4)),
        (models.transformer_block(8, 2), torch.randn(2, 3, 8)),
        (models.Transformer(5, dim=8, heads=2, length=4), torch.zeros(2, 4, dtype=torch.int64)),
    ],
)
def test_every_parameter_has_a_gradient(model: nn.Module, inputs: torch.Tensor) -> None:
    model(inputs).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: models.resnet(17), "depth=17: torchvision has 18, 34"),
        (lambda: models.convnet(0), "width=0"),
        (lambda: models.convnet(8, num_classes=2.5), "num_classes=2.5"),
        (lambda: models.mlp([3]), r"sizes=\[3\]"),
        (lambda: models.mlp([3, -1]), r"sizes\[1\]=-1"),
        (lambda: models.transformer_block(10, 4), "dim=10 is not a multiple of heads=4"),
        (lambda: models.Transformer(True), "vocabulary=True"),
    ],
)
def test_bad_arguments(build: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def test_resnet_without_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        models, "find_spec", lambda name: None if name == "torchvision" else found(name)
    )
    with pytest.raises(ImportError, match="pip install torchvision"):
        models.resnet()
