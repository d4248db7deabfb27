"""Plans for a lab: a table for each network, batch and activation, made once, and what cuts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import course.searches  # noqa: F401  # adds its methods to the planner's
import sublinear
from course.searches.splits import from_splits

# What the notebook calls them, and what the planner does.
METHODS = {
    "keep all": "none",
    "√n": "sqrt",
    "grid": "grid",
    "genetic": "genetic",
    "exact cuts": "single-level",
    "menu": "menu",
}
# Makes a network with a module such as `torch.nn.ReLU` behind its layers.
Build = Callable[[Callable[[], nn.Module]], nn.Module]


class Tables:
    """The networks of a lab by their names, for images of ``side`` pixels on a device."""

    def __init__(self, networks: Mapping[str, Build], side: int, device: torch.device) -> None:
        self._networks, self._side, self._device = networks, side, device
        self._chains: dict[tuple[str, str, int], sublinear.Chain] = {}

    def new(
        self, activation: str, network: str, batch_size: int
    ) -> tuple[nn.Module, Tensor, Tensor]:
        """A network, images of noise (N, 3, side, side), and their classes (N,), all 0."""
        net = self._networks[network](getattr(nn, activation)).to(self._device)
        x = torch.randn(batch_size, 3, self._side, self._side, device=self._device)
        return net, x, torch.zeros(batch_size, dtype=torch.long, device=self._device)

    def chain(self, activation: str, network: str, batch_size: int) -> sublinear.Chain:
        """What its blocks cost, trained by SGD with momentum; profiled once."""
        names = (activation, network, batch_size)
        if names not in self._chains:
            net, x, y = self.new(*names)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

            def loss(output: Tensor) -> Tensor:
                return F.cross_entropy(output, y)

            self._chains[names] = sublinear.profile(net, x, loss=loss, optimizer=optimizer)
        return self._chains[names]


def plan_of(chain: sublinear.Chain, method: str, budget: int) -> sublinear.Plan:
    """The plan of one of `METHODS`. Only "menu" minds ``budget``, in percent of the plain peak; of
    less than it needs at least it takes that.
    """
    lowest = sublinear.plan(chain, method=METHODS[method])
    if method != "menu":
        return lowest
    plain = sublinear.plan(chain, method="none").costs.peak_bytes
    room = max(plain * budget // 100, lowest.costs.peak_bytes)
    return sublinear.plan(chain, budget=room)


def sizes(chain: sublinear.Chain) -> tuple[list[int], list[int]]:
    """What each block saves, and of it hands on, in bytes."""
    saved = [block.options[0].saved_bytes for block in chain.blocks]
    return saved, [block.output_bytes for block in chain.blocks]


def cut_at(chain: sublinear.Chain, cuts: Sequence[int]) -> sublinear.Plan:
    """The plan with a checkpoint for each piece but the last, cut before these blocks."""
    return from_splits(chain, cuts, "yours")
