"""Models of many families, planned, trained by the plan and measured: is the budget held?

    python -m tests.sublinear.zoo                 # the table of all, some minutes on two cores
    python -m tests.sublinear.zoo densenet121 gpt  # of some
    python -m tests.sublinear.zoo --json zoo.json  # and as a file

Each family is planned three times: for a budget of 1 % more than the lowest peak, for one half-way
between that and plain training, and for at most 1.35 times the predicted time. A step is forward,
loss, backward, the optimizer's step and
zero_grad. Its peak is that of labkit's storage tracker, the older tensors that it uses included.
Sizes are small: bytes need no large ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))

import zoo_models as own

from labkit.memory import MemoryMeter
from sublinear.apply import apply
from sublinear.chain import Chain
from sublinear.plan import keep_all
from sublinear.planner import plan as find
from sublinear.profiling import profile
from sublinear.split import split

QUICK_SECONDS = 1.35
NEAR = 1.01
MIB = 2**20


@dataclass(frozen=True)
class Family:
    """How to make a model and a batch; ``loss`` of the model's output."""

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    loss: Callable[[Any], Tensor]
    optimizer: type[torch.optim.Optimizer] | None = None


@dataclass(frozen=True)
class Row:
    """What was found of one plan; bytes, and factors of the plain step."""

    family: str
    goal: str
    kind: str
    blocks: int
    plain: int
    plain_predicted: int
    budget: int
    predicted: int
    measured: int
    factor: float

    @property
    def held(self) -> bool:
        return self.measured <= self.budget

    @property
    def saving(self) -> float:
        """The measured peak over the plain one."""
        return self.measured / self.plain

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def plain_error(self) -> float:
        return self.plain_predicted / self.plain - 1


def images(count: int, size: int = 64) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randn(count, 3, size, size),)


def tokens(count: int, length: int, vocabulary: int) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: (torch.randint(0, vocabulary, (count, length)),)


def rows(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(*shape) for shape in shapes)


def classes(output: Tensor) -> Tensor:
    """Cross entropy with made-up labels, (N, classes) or (N, classes, H, W)."""
    size = (output.shape[0], *output.shape[2:])
    return F.cross_entropy(output, torch.arange(output[:, 0].numel()).view(size) % 2)


def every_output(output: Any) -> Tensor:
    """As detection and segmentation heads do: all results count."""
    if isinstance(output, Tensor):
        return output.square().mean()
    values = output.values() if isinstance(output, dict) else output
    return torch.stack([every_output(value) for value in values]).sum()


def main_output(output: Any) -> Tensor:
    return classes(output["out"])


def named(output: Any) -> Tensor:
    return classes(output["logits"]) + output["penalty"]


def of_torchvision(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        from torchvision import models

        options.setdefault("num_classes", 10)
        model: nn.Module = models.get_model(name, weights=None, **options)
        return model

    return make


def segmentation(name: str) -> Callable[[], nn.Module]:
    return of_torchvision(name, weights_backbone=None, num_classes=3)


def pyramid() -> nn.Module:
    """The backbone of detectors: a ResNet and its feature pyramid."""
    from torchvision.models.detection.backbone_utils import resnet_fpn_backbone

    return resnet_fpn_backbone(backbone_name="resnet18", weights=None, trainable_layers=5)


def ssd_head() -> nn.Module:
    from torchvision.models.detection.ssdlite import SSDLiteHead
    from torchvision.models.mobilenetv3 import mobilenet_v3_small

    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = mobilenet_v3_small(weights=None).features
            self.extra = nn.Conv2d(576, 128, 3, 2, 1)
            self.head = SSDLiteHead([576, 128], [6, 6], 5, nn.BatchNorm2d)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            x = self.features(x)
            return self.head([x, self.extra(x).relu()])

    return Detector()


def vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 4, 6, 4, 64, 256, dropout=0.1, num_classes=10)


def mlp() -> nn.Module:
    return nn.Sequential(
        *[layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())],
        nn.Linear(256, 10),
    )


def autoencoder() -> nn.Module:
    layers: list[nn.Module] = []
    for before, size in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, size, 3, 2, 1), nn.BatchNorm2d(size), nn.LeakyReLU(0.2)]
    for before, size in ((64, 32), (32, 16), (16, 3)):
        layers += [nn.ConvTranspose2d(before, size, 4, 2, 1), nn.ReLU()]
    return nn.Sequential(*layers)


def convnet(name: str, count: int = 8, size: int = 64, **options: Any) -> Family:
    return Family(of_torchvision(name, **options), images(count, size), classes, torch.optim.SGD)


ADAM = torch.optim.AdamW
FAMILIES: dict[str, Family] = {
    "mlp": Family(mlp, rows((512, 256)), classes, ADAM),
    "mlp, small batch": Family(mlp, rows((16, 256)), classes, ADAM),
    "resnet18": convnet("resnet18"),
    "resnet50": convnet("resnet50"),
    "vgg11_bn": convnet("vgg11_bn", 4, 32),
    "mobilenet_v3_small": convnet("mobilenet_v3_small"),
    "efficientnet_b0": convnet("efficientnet_b0"),
    "shufflenet_v2": convnet("shufflenet_v2_x1_0"),
    "squeezenet": convnet("squeezenet1_1"),
    "regnet_y_400mf": convnet("regnet_y_400mf"),
    "densenet121": convnet("densenet121"),
    "convnext_tiny": convnet("convnext_tiny"),
    "googlenet": Family(
        of_torchvision("googlenet", init_weights=False), images(8, 96), every_output
    ),
    "autoencoder": Family(autoencoder, images(16), every_output, ADAM),
    "vit": Family(vit, images(16, 32), classes, ADAM),
    "swin_t": convnet("swin_t", 4),
    "mixer": Family(own.Mixer, images(32, 32), classes, ADAM),
    "fcn_resnet50": Family(segmentation("fcn_resnet50"), images(2), main_output),
    "deeplabv3": Family(
        segmentation("deeplabv3_mobilenet_v3_large"), images(4), main_output, torch.optim.SGD
    ),
    "lraspp": Family(segmentation("lraspp_mobilenet_v3_large"), images(4), main_output),
    "fpn backbone": Family(pyramid, images(4), every_output, torch.optim.SGD),
    "ssdlite": Family(ssd_head, images(8, 96), every_output),
    "r3d_18": Family(of_torchvision("r3d_18"), rows((1, 3, 8, 48, 48)), classes),
    "mc3_18": Family(of_torchvision("mc3_18"), rows((1, 3, 8, 48, 48)), classes),
    "unet": Family(own.UNet, images(4), classes, ADAM),
    "unet 3d": Family(partial(own.UNet, 8, 3, 3, 1), rows((1, 1, 32, 32, 32)), classes, ADAM),
    "gpt": Family(partial(own.Gpt, 100, 96, 6, 64), tokens(8, 64, 100), classes, ADAM),
    "gpt, 20,000 words": Family(
        partial(own.Gpt, 20_000, 64, 4, 64), tokens(2, 64, 20_000), classes, ADAM
    ),
    "encoder-decoder": Family(
        own.EncoderDecoder, rows((16, 24, 16), (16, 20, 16)), classes, torch.optim.SGD
    ),
    "lstm": Family(own.LstmModel, tokens(16, 48, 100), classes, ADAM),
    "gru": Family(own.GruModel, rows((16, 40, 24)), classes),
    "lstm cells": Family(own.CellLoop, rows((64, 32, 16)), classes, torch.optim.SGD),
    "mixture of experts": Family(own.MixtureOfExperts, rows((16, 32, 16)), classes, ADAM),
    "temporal": Family(own.Temporal, rows((8, 8, 256)), classes, ADAM),
    "twins": Family(own.Twins, rows((4, 3, 32, 32), (4, 3, 32, 32)), lambda gap: gap.mean(), ADAM),
    "tuple layers": Family(
        own.TupleLayers, lambda: (torch.randn(16, 32, 16), torch.ones(16, 32)), named, ADAM
    ),
}


# Some seconds together: those that the tests try.
QUICK = (
    "mlp, small batch",
    "unet",
    "gpt, 20,000 words",
    "lstm",
    "lstm cells",
    "autoencoder",
    "mixture of experts",
    "tuple layers",
)


def step(model: nn.Module, family: Family, inputs: tuple[Tensor, ...], optimizer: Any) -> None:
    """As a reader's own: nothing holds the output while the gradients are made."""
    family.loss(model(*inputs)).backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
    else:
        model.zero_grad()


def peak(model: nn.Module, family: Family, inputs: tuple[Tensor, ...], optimizer: Any) -> int:
    """Bytes of the second step: the first makes the optimizer's state."""
    step(model, family, inputs, optimizer)
    with MemoryMeter("cpu", saved=False) as memory:
        step(model, family, inputs, optimizer)
    return memory.peak


def chain_of(name: str) -> tuple[Chain, Any, nn.Module, tuple[Tensor, ...], Any]:
    family = FAMILIES[name]
    torch.manual_seed(0)
    model, inputs = family.make().train(), family.inputs()
    optimizer = None
    if family.optimizer is not None:
        optimizer = family.optimizer(model.parameters(), lr=1e-4)
    blocks = split(model, inputs)
    chain = profile(model, inputs, loss=family.loss, optimizer=optimizer, blocks=blocks, repeats=1)
    return chain, blocks, model, inputs, optimizer


def rows_of(name: str, method: str = "menu") -> list[Row]:
    """What three plans of a family need."""
    family = FAMILIES[name]
    chain, blocks, model, inputs, optimizer = chain_of(name)
    plain = peak(model, family, inputs, optimizer)
    all_kept = keep_all(chain).costs
    least = find(chain, method=method).costs.peak_bytes
    middle = (least + all_kept.peak_bytes) // 2
    goals: dict[str, dict[str, float]] = {
        "lowest": {"budget": int(NEAR * least)},
        "middle": {"budget": middle},
        "1.35": {"max_overhead": QUICK_SECONDS - 1},
    }
    found = []
    for goal, limit in goals.items():
        chosen = find(chain, method=method, **limit)
        costs = chosen.costs
        planned = apply(model, chosen, blocks=blocks)
        found.append(
            Row(
                name,
                goal,
                blocks.kind,
                len(chain),
                plain,
                all_kept.peak_bytes,
                int(limit.get("budget", NEAR * costs.peak_bytes)),
                costs.peak_bytes,
                peak(planned, family, inputs, optimizer),
                costs.seconds / all_kept.seconds,
            )
        )
    return found


TITLES = (
    f"{'family':22} {'goal':7} {'kind':10} {'blocks':>6} {'plain':>9} {'pred.':>6} "
    f"{'budget':>9} {'predicted':>9} {'measured':>9} {'error':>6} {'held':>5} {'saving':>7} "
    f"{'time':>5}"
)


def line(row: Row) -> str:
    sizes = [f"{size / MIB:9.3f}" for size in (row.budget, row.predicted, row.measured)]
    held = "yes" if row.held else f"+{row.measured / row.budget - 1:.1%}"
    return (
        f"{row.family:22} {row.goal:7} {row.kind:10} {row.blocks:6} {row.plain / MIB:9.3f} "
        f"{row.plain_error:+6.1%} {' '.join(sizes)} {row.error:+6.1%} {held:>5} "
        f"{row.saving:7.3f} {row.factor:5.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("families", nargs="*", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--json", type=Path, help="where to write the rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"MiB; torch {torch.__version__}, one thread\n{TITLES}")
    found: list[Row] = []
    for name in options.families or FAMILIES:
        begin = time.perf_counter()
        some = rows_of(name)
        found += some
        for row in some:
            print(line(row), flush=True)
        print(f"{'':22} {time.perf_counter() - begin:.1f} s", file=sys.stderr)
    broken = [row for row in found if not row.held]
    off = [row for row in found if max(abs(row.error), abs(row.plain_error)) > 0.03]
    families = {row.family for row in found}
    print(
        f"{len(families)} families, {len(found)} plans: {len(broken)} over their budget, "
        f"{len(off)} predicted more than 3 % off"
    )
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
