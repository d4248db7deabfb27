"""A small ResNet learns CIFAR-10 to a target accuracy. Every technique of the course is a switch.

With no switch on, this is a slow, common script. A switch is asked for by its name where it acts;
`course.switches` says what each does, and what is to be learned. Nothing else differs.
Run it with ``python -m course.speedrun data_loading mixed_precision``, or with no switch.
"""

import io
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.optim import SGD, lr_scheduler
from torch.utils.checkpoint import checkpoint

from course import data
from course.switches import TASK, Task, checked
from labkit import pick_device

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
        block.recompute = "activation_checkpointing" in on
        layers += [conv(on, wide // 2, wide), nn.MaxPool2d(2), block]
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(wide, 10))


def batch_size(on: frozenset[str]) -> int:
    return 128 if "batch_size" in on else 64


def decode(file: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(file))).transpose(2, 0, 1)


def flip_and_scale(x: Tensor, flip: Tensor) -> Tensor:
    return torch.where(flip, x.flip(-1), x).float() / 127.5 - 1


def batches(
    on: frozenset[str], images: Any, labels: Tensor, order: np.ndarray, flips: np.ndarray
) -> Iterator[tuple[Tensor, Tensor]]:
    size, device = batch_size(on), pick_device()
    for begin in range(0, len(order), size):
        index, flip = order[begin : begin + size], torch.as_tensor(flips[begin : begin + size])
        x = images[index] if "data_loading" in on else [decode(file) for file in images[index]]
        x = torch.as_tensor(np.asarray(x)) if "as_tensor" in on else torch.tensor(x)
        x, y, flip = x.to(device), labels[index].to(device), flip.to(device)
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


def train(
    switches: Iterable[str] = (), task: Task = TASK, seed: int = 0
) -> Iterator[tuple[float, float, float]]:
    """After each epoch: seconds since the beginning, accuracy, and the sum of the losses."""
    on, random = checked(switches), np.random.default_rng(seed)
    torch.manual_seed(seed)
    images, labels = read(train=True, size=task.images)
    unseen, answers = read(train=False, size=task.validation)
    begin = time.perf_counter()
    if "data_loading" in on:
        images, unseen = (np.array([decode(x) for x in files]) for files in (images, unseen))
    model = resnet(on, task.width).to(pick_device())
    if "cudnn_benchmark" in on:
        model = model.to(memory_format=torch.channels_last)
        torch.backends.cudnn.benchmark = True
    if "compile" in on:
        model.compile()
    optimizer = SGD(model.parameters(), lr=0.01, momentum=0.9)
    if "optimizers" in on:
        optimizer = SGD(model.parameters(), 0.01, 0.9, weight_decay=5e-4, nesterov=True, fused=True)
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
