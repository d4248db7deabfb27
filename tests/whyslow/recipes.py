"""How a library's trainer is diagnosed or watched. ``python -m tests.whyslow.recipes NAME``.

Prints a line of JSON: the phases of a step and the findings' names, or causes and lines. The
libraries are no dependency of the project.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import whyslow

SECONDS = 1.0
RECIPES: dict[str, Callable[[], Any]] = {}


def recipe(make: Any) -> Any:
    """Add a recipe; its name is that of the library."""
    RECIPES[make.__name__] = make
    return make


def data() -> TensorDataset:
    """Rows (N, 16) and classes (N,)."""
    torch.manual_seed(0)
    return TensorDataset(torch.randn(256, 16), torch.randint(4, (256,)))


def network() -> nn.Module:
    """A small network for `data`."""
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


@recipe
def plain() -> Any:
    """A loop of one's own: its body is the step."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters())

    def step(batch: Any) -> None:
        inputs, targets = batch
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    return whyslow.diagnose(step, DataLoader(data(), batch_size=32), seconds=SECONDS)


@recipe
def accelerate() -> Any:
    """What `prepare` returns is used in the step as ever."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = network()
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.AdamW(model.parameters()), DataLoader(data(), batch_size=32)
    )

    def step(batch: Any) -> None:
        inputs, targets = batch
        accelerator.backward(F.cross_entropy(model(inputs), targets))
        optimizer.step()
        optimizer.zero_grad()

    return whyslow.diagnose(step, loader, seconds=SECONDS)


@recipe
def lightning() -> Any:
    """A with-block around `fit`: the trainer keeps its loop to itself."""
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def training_step(self, batch: Any) -> torch.Tensor:
            inputs, targets = batch
            time.sleep(0.02)  # in the step
            return F.cross_entropy(self.network(inputs), targets)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with whyslow.watch() as watched:
        trainer.fit(Module(), DataLoader(data(), batch_size=32))
    return watched.report


@recipe
def transformers() -> Any:
    """A with-block around `train`, or `training_step` of the Trainer as the step."""
    import transformers

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            time.sleep(0.02)  # in the step
            logits = self.network(inputs)
            return {"loss": F.cross_entropy(logits, labels), "logits": logits}

    rows = [{"inputs": inputs, "labels": labels} for inputs, labels in data()]
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder,
            num_train_epochs=2,
            per_device_train_batch_size=32,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            logging_strategy="no",
        )
        trainer = transformers.Trainer(Model(), settings, train_dataset=rows)
        with whyslow.watch() as watched:
            trainer.train()
    return watched.report


@recipe
def fastai() -> Any:
    """A with-block around `fit`."""
    from fastai.data.core import DataLoaders
    from fastai.learner import Learner

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            time.sleep(0.02)  # in the step
            return self.network(inputs)

    loaders = DataLoaders(DataLoader(data(), batch_size=32), DataLoader(data(), batch_size=256))
    learner = Learner(loaders, Model(), loss_func=F.cross_entropy)
    with whyslow.watch() as watched, learner.no_bar(), learner.no_logging():
        learner.fit(2)
    return watched.report


def main(name: str) -> None:
    """Run one recipe."""
    found = RECIPES[name]()
    if isinstance(found, whyslow.Report):
        print(json.dumps({"causes": found.causes, "lines": [line.source for line in found.lines]}))
        return
    told = {"phases": found.phases, "findings": [each.name for each in found]}
    print(json.dumps(told | {"step_seconds": found.step_seconds}))


if __name__ == "__main__":
    main(sys.argv[1])
