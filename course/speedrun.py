"""A small ResNet learns CIFAR-10 to a target accuracy. Every technique of the course is a switch.

With no switch on, this is a slow, common script. A switch is asked for by its name where it acts;
`course.switches` says what each does, and what is to be learned. Nothing else differs.
Run it with ``python -m course.speedrun data_loading mixed_precision``, or with no switch.
"""

import io
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.optim import SGD, lr_scheduler
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

import sublinear
from course import data
from course.switches import TASK, Task, checked
from labkit import pick_device
from labkit.busy import cores

read = cache(data.cifar10_jpeg)


def conv(on: frozenset[str], inputs: int, outputs: int) -> nn.Sequential:
    bias = not ("normalization" in on and "bias_before_batchnorm" in on)
    norm = nn.BatchNorm2d(outputs) if "normalization" in on else nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias), norm, nn.ReLU())


class Residual(nn.Sequential):
    recompute = False

    def forward(self, x: Tensor) -> Tensor:
        if self.recompute:
            return x + checkpoint(super().forward, x, use_reentrant=False)
        return x + super().forward(x)


def resnet(on: frozenset[str], width: int) -> nn.Module:
    layers: list[nn.Module] = [conv(on, 3, width)]
    for wide in (2 * width, 4 * width, 8 * width):
        block = Residual(conv(on, wide, wide), conv(on, wide, wide))
        block.recompute = "activation_checkpointing" in on and "sublinear_memory" not in on
        layers += [conv(on, wide // 2, wide), nn.MaxPool2d(2), block]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(wide, 10))


def batch_size(on: frozenset[str]) -> int:
    size = 16 if "minibatch_sgd" in on else 64
    return 2 * size if "batch_size" in on else size


def round_products() -> None:
    """Let fp32 layers multiply rounded numbers, where the hardware is made for it."""
    backends: Any = torch.backends
    backends.cudnn.conv.fp32_precision = backends.cuda.matmul.fp32_precision = "tf32"
    backends.mkldnn.conv.fp32_precision = backends.mkldnn.matmul.fp32_precision = "bf16"


@cache
def plan(on: frozenset[str], width: int) -> sublinear.Plan:
    others = on - {"sublinear_memory", "activation_checkpointing", "compile"}
    model, optimizer = learner(others, TASK._replace(width=width))
    size = batch_size(on) // (4 if "gradient_accumulation" in on else 1)
    x = torch.randn(size, 3, 32, 32, device=pick_device())
    loss = partial(F.cross_entropy, target=torch.zeros(size, dtype=torch.long, device=x.device))
    with torch.autocast(x.device.type, torch.bfloat16, enabled="mixed_precision" in on):
        fitted = sublinear.fit(model, x, max_overhead=0.25, optimizer=optimizer, loss=loss)
    return fitted.plan


def decode(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file))).transpose(2, 0, 1)


def flip_and_scale(x: Tensor, flip: Tensor) -> Tensor:
    return torch.where(flip, x.flip(-1), x).float() / 127.5 - 1


class Decoding:
    """The images of undecoded files, a batch at a time."""

    def __init__(self, files: np.ndarray) -> None:
        self.files = files

    def __getitem__(self, index: np.ndarray) -> list[np.ndarray]:
        return [decode(file) for file in self.files[index]]


def unchanged(batch: Any) -> Any:
    return batch


def loader(on: frozenset[str], files: np.ndarray) -> Any:
    once = "decode_once" in on
    images: Any = np.array([decode(file) for file in files]) if once else Decoding(files)
    workers = min(4, max(1, cores() - 1)) if "data_loading" in on else 0
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    return DataLoader(images, batch_size=None, sampler=[], collate_fn=unchanged, **options)


def batches(
    on: frozenset[str], images: Any, labels: Tensor, order: np.ndarray, flips: np.ndarray
) -> Iterator[tuple[Tensor, Tensor]]:
    device, cuts = pick_device(), range(batch_size(on), len(order), batch_size(on))
    images.sampler[:] = np.split(order, cuts)
    for index, x, turned in zip(images.sampler, images, np.split(flips, cuts), strict=True):
        x = torch.as_tensor(np.asarray(x)) if "as_tensor" in on else torch.tensor(x)
        x, y, flip = x.to(device), labels[index].to(device), torch.as_tensor(turned).to(device)
        if "vectorization" in on:
            x = flip_and_scale(x, flip[:, None, None, None])
        else:
            x = torch.stack([flip_and_scale(*pair) for pair in zip(x, flip, strict=True)])
        if "cudnn_benchmark" in on:
            x = x.to(memory_format=torch.channels_last)
        yield x, y


def learn(on: frozenset[str], model: nn.Module, optimizer: SGD, x: Tensor, y: Tensor) -> Any:
    total: Any = 0
    parts = 4 if "gradient_accumulation" in on else 1
    for some, answers in zip(x.chunk(parts), y.chunk(parts), strict=True):
        with torch.autocast(x.device.type, torch.bfloat16, enabled="mixed_precision" in on):
            loss = F.cross_entropy(model(some), answers) / parts
        loss.backward()
        total += loss.detach() if "host_device_transfers" in on else loss.item()
    if "gradient_clipping" in on:
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1)
    optimizer.step()
    optimizer.zero_grad(set_to_none="zeroing_gradients" in on)
    return total


def validate(on: frozenset[str], model: nn.Module, images: Any, labels: Tensor) -> float:
    model.eval()
    right, order = 0, np.arange(len(labels))
    with torch.inference_mode("validation_without_grad" in on):
        for x, y in batches(on, images, labels, order, order < 0):
            with torch.autocast(x.device.type, torch.bfloat16, enabled="mixed_precision" in on):
                right += int((model(x).argmax(1) == y).sum())
    return right / len(labels)


def learner(on: frozenset[str], task: Task) -> tuple[nn.Module, SGD]:
    model = resnet(on, task.width).to(pick_device())
    if "cudnn_benchmark" in on:
        model = model.to(memory_format=torch.channels_last)
        torch.backends.cudnn.benchmark = True
    if "fp16_numerics" in on:
        round_products()
    # It follows the larger batch; the steps of small ones are as long, and there are more of them.
    rate = 0.02 if "batch_size" in on else 0.01
    optimizer = SGD(model.parameters(), lr=rate, momentum=0.9)
    if "optimizers" in on:
        optimizer = SGD(model.parameters(), rate, 0.9, weight_decay=5e-4, nesterov=True, fused=True)
    if "sublinear_memory" in on:
        model = sublinear.apply(model, plan(on, task.width))
    if "compile" in on:
        model.compile()
    return model, optimizer


def train(
    switches: Iterable[str] = (), task: Task = TASK, seed: int = 0
) -> Iterator[tuple[float, float, float]]:
    """After each epoch: seconds since the beginning, accuracy, and the sum of the losses."""
    on, random = checked(switches), np.random.default_rng(seed)
    torch.manual_seed(seed)
    images, labels = read(train=True, size=task.images)
    unseen, answers = read(train=False, size=task.validation)
    begin = time.perf_counter()
    images, unseen = loader(on, images), loader(on, unseen)
    model, optimizer = learner(on, task)
    epochs, schedule = task.epochs, None
    if "learning_rate_schedules" in on:
        epochs, steps = task.cycle, len(range(0, len(labels), batch_size(on)))
        schedule = lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=epochs, steps_per_epoch=steps)
    for _ in range(epochs):
        total, order, flips = 0, random.permutation(len(labels)), random.random(len(labels)) < 0.5
        model.train()
        with torch.autograd.set_detect_anomaly("debug_tools" not in on):
            for x, y in batches(on, images, labels, order, flips):
                total += learn(on, model, optimizer, x, y)
                if schedule:
                    schedule.step()
        accuracy = validate(on, model, unseen, answers)
        yield time.perf_counter() - begin, accuracy, float(total)
        if accuracy >= task.target:
            return


if __name__ == "__main__":
    for seconds, accuracy, _ in train(sys.argv[1:]):
        print(f"{accuracy:.1%} of unseen images are right after {seconds:.0f} s")
