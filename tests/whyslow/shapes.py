"""Short loops in the shape of public training scripts, each with a planted wait of known cause.

Each function trains for a moment. Its planted line sleeps, which takes the same time on any
machine; `SHAPES` says which cause and which line have to come first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

LONG = 0.02
STEPS = 20
# The first optimizer of a process imports the compiler, which takes seconds.
torch.optim.SGD([torch.zeros(1)])


@dataclass(frozen=True)
class Shape:
    """``run`` is one of the functions; ``line`` is part of the text of its heaviest line."""

    run: Callable[[], Any]
    cause: str
    line: str


SHAPES: dict[str, Shape] = {}


def shape(cause: str, line: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Add a shape with what is true of it."""

    def add(run: Callable[[], Any]) -> Callable[[], Any]:
        SHAPES[run.__name__] = Shape(run, cause, line)
        return run

    return add


def rows(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs (N, 8) and classes (N,)."""
    return torch.randn(count, 8), torch.randint(4, (count,))


def small() -> nn.Module:
    """A network for `rows`."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


class Slow(nn.Module):
    """A module that takes its time in forward, or a transform that does."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        time.sleep(LONG)  # in a module
        return inputs


class Images(Dataset):
    """Rows that a module transforms, as torchvision's transforms do."""

    def __init__(self, transform: nn.Module) -> None:
        self.inputs, self.targets = rows()
        self.transform = transform

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.transform(self.inputs[number]), self.targets[number]


@shape("loading", "in a module")
def mnist() -> None:
    """Transforms are modules, and run in the loader."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(Images(Slow()), batch_size=2):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()


@shape("forward", "in a module")
def vae() -> None:
    """The model itself is slow."""
    model = nn.Sequential(Slow(), small())
    optimizer = torch.optim.Adam(model.parameters())
    for inputs, targets in DataLoader(TensorDataset(*rows()), batch_size=4):
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


@shape("update", "by hand")
def word_language_model() -> None:
    """No optimizer: the update is a loop of one's own."""
    model = small()
    inputs, targets = rows()
    for _ in range(STEPS):
        model.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        with torch.no_grad():
            for weight in model.parameters():
                time.sleep(LONG / 4)  # by hand
                weight.sub_(0.1 * weight.grad)


@shape("your own code", "a Python loop over nodes")
def gcn() -> None:
    """No loader, sparse tensors, and a loop over nodes."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    links = torch.eye(64).to_sparse()
    inputs, targets = rows()
    for _ in range(STEPS):
        time.sleep(LONG)  # a Python loop over nodes
        F.cross_entropy(model(torch.sparse.mm(links, inputs)), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


@shape("your own code", "the environment")
def actor_critic() -> None:
    """Many small forward passes of an episode, and steps of an environment between them."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(4):
        losses = []
        for _ in range(6):
            state = model(torch.randn(1, 8))
            time.sleep(LONG)  # the environment
            losses.append(state.sum())
        torch.stack(losses).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@shape("forward", "in a module")
def dcgan() -> None:
    """Two optimizers in one step."""
    maker, critic = nn.Sequential(nn.Linear(4, 8), Slow()), small()
    both = [torch.optim.Adam(each.parameters()) for each in (maker, critic)]
    for _ in range(STEPS):
        fake = maker(torch.randn(8, 4))
        critic(fake.detach()).sum().backward()
        both[1].step()
        critic(fake).sum().backward()
        both[0].step()
        critic.zero_grad()
        maker.zero_grad()


@shape("validation", "in a module")
def imagenet() -> None:
    """Validation takes longer than training, with a loader of its own."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    slow = nn.Sequential(Slow(), model)

    def validate() -> None:
        slow.eval()
        with torch.no_grad():
            for inputs, _ in DataLoader(TensorDataset(*rows()), batch_size=4):
                slow(inputs)

    for _ in range(2):
        for inputs, targets in DataLoader(TensorDataset(*rows()), batch_size=4):
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            optimizer.zero_grad()
        validate()


@shape("forward", "a loop over time")
def time_sequence_prediction() -> None:
    """LBFGS calls a closure within its step; a cell of an LSTM runs in a loop."""

    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(1, 8).double()

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            state = torch.zeros(4, 8, dtype=torch.double), torch.zeros(4, 8, dtype=torch.double)
            for part in inputs.split(1, dim=1):
                time.sleep(LONG / 4)  # a loop over time
                state = self.cell(part, state)
            return state[0].sum(1)

    model = Sequence()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
    inputs = torch.randn(4, 6, dtype=torch.double)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    for _ in range(4):
        optimizer.step(closure)


@shape("validation", "estimating the loss")
def nano_gpt() -> None:
    """Batches by hand, everything inline, and an estimate of the loss every few steps."""
    model = small()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = rows(256)

    @torch.no_grad()
    def estimate_loss() -> None:
        for _ in range(8):
            time.sleep(LONG)  # estimating the loss
            F.cross_entropy(model(inputs), targets)

    for number in range(STEPS):
        if number % 5 == 0:
            estimate_loss()
        chosen = torch.randint(256, (32,))
        F.cross_entropy(model(inputs[chosen]), targets[chosen]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@shape("loading", "a slow data set")
def min_gpt() -> None:
    """A trainer with a loop that never ends by itself, and callbacks."""

    class Slowly(Dataset):
        def __len__(self) -> int:
            return 64

        def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
            time.sleep(LONG / 2)  # a slow data set
            return torch.randn(8), torch.tensor(1)

    class Trainer:
        def __init__(self) -> None:
            self.model, self.steps = small(), 0
            self.optimizer = torch.optim.AdamW(self.model.parameters())

        def run(self) -> None:
            batches = iter(DataLoader(Slowly(), batch_size=4))
            while True:
                inputs, targets = next(batches)
                F.cross_entropy(self.model(inputs), targets).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                self.steps += 1
                if self.steps == 10:
                    break

    Trainer().run()


@shape("forward", "a step of the module")
def lightning() -> None:
    """The loop is a library's: a hook of the reader's is all that is seen."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = small()

        def forward(self, batch: Any) -> torch.Tensor:
            time.sleep(LONG)  # a step of the module
            return F.cross_entropy(self.network(batch[0]), batch[1])

    fit(Module())


def fit(module: nn.Module) -> None:
    """A trainer's loop, with a closure that its optimizer calls."""
    optimizer = torch.optim.Adam(module.parameters())
    for batch in DataLoader(TensorDataset(*rows()), batch_size=4):

        def closure(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = module(batch)
            loss.backward()
            return loss

        optimizer.step(closure)


@shape("backward", "a backward of one's own")
def transformers() -> None:
    """A function with a backward pass of its own."""

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, inputs: torch.Tensor) -> torch.Tensor:
            return inputs.clone()

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
            time.sleep(LONG)  # a backward of one's own
            return gradient

    model = small()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = rows()
    for _ in range(STEPS):
        loss = F.cross_entropy(Through.apply(model(inputs)), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@shape("update", "an optimizer of one's own")
def fastai() -> None:
    """An optimizer of one's own, in a trainer with callbacks."""

    class Mine(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            time.sleep(LONG)  # an optimizer of one's own
            return super().step(closure)

    model = small()
    optimizer = Mine(model.parameters(), lr=0.1)
    for inputs, targets in DataLoader(TensorDataset(*rows()), batch_size=4):
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()


@shape("your own code", "in a thread")
def in_a_thread() -> None:
    """The training runs in a thread, for which the main thread waits."""

    def train() -> None:
        model = small()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        inputs, targets = rows()
        for _ in range(STEPS):
            time.sleep(LONG)  # in a thread
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

    thread = Thread(target=train)
    thread.start()
    thread.join()
