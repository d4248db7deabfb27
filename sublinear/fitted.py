"""What `fit` gives back: a planned model, what is predicted of it, and what is measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from labkit.comparing import compare, measuring
from labkit.device import survive
from labkit.memory import MemoryMeter
from labkit.results import Comparison, Workload
from labkit.text import format_bytes, format_seconds
from sublinear.chain import Chain
from sublinear.cost import Costs
from sublinear.picture import picture
from sublinear.plan import Plan, keep_all
from sublinear.probe import peak_of_compiled
from sublinear.profiling import Training, restored
from sublinear.profiling.training import drop_gradients, parameters

# A share that is shown as all.
_ALL = 0.995


@dataclass(frozen=True)
class Fitted:
    """A model that trains by a plan, and what the plan is expected to need.

    ``note``: why the model was not read in a better way, and what could not be proven, if so;
    ``original``: the model as it was; ``proof``: how it was shown that the planned model trains as
    the plain one; ``measured_bytes``: the peak of a real step, with a budget or several graphs;
    ``gain``: that the plan saves next to nothing, and what may help, if so; ``covered``: the share
    that the planned part keeps of all that is saved for backward; ``compiled``: its pieces are.
    ``kind``: how the model was read, "sequential", "captured" or "wrapped".
    """

    model: nn.Module
    plan: Plan
    original: nn.Module
    task: Training
    note: str = ""
    proof: str = ""
    measured_bytes: int | None = None
    gain: str = ""
    covered: float = 1.0
    compiled: bool = False
    kind: str = ""

    @property
    def chain(self) -> Chain:
        """What the plan was made for."""
        return self.plan.known_chain

    @property
    def predicted(self) -> Costs:
        """What a step by the plan costs."""
        return self.plan.costs

    @property
    def plain(self) -> Costs:
        """What a step costs without a plan."""
        return keep_all(self.chain).costs

    def __str__(self) -> str:
        chain, plan = self.chain, self.plan
        lines = [
            _line(f"predicted ({chain.source} blocks)", self.predicted),
            _line("predicted without a plan", self.plain),
            f"{len(chain)} {self.kind} blocks on {chain.device}, method {plan.method!r}: {plan}",
            picture(plan),
        ]
        if self.measured_bytes is not None:
            lines.insert(1, f"{'measured, one step':<30} {format_bytes(self.measured_bytes):>10}")
        if self.covered < _ALL:
            share = f"{self.covered:.0%} of what is saved for backward"
            lines.append(f"covered: the planned part keeps {share}")
        if self.gain:
            lines.append(f"gain: {self.gain}")
        if self.proof:
            lines.append(f"proven: {self.proof}")
        if self.note:
            lines.append(f"note: {self.note}")
        return "\n".join(lines)

    __repr__ = __str__

    def measure(self, seconds: float | None = None) -> Measured:
        """Train both models for a while (``seconds``, as in `labkit.compare`).

        On as many threads as the profile, all that torch has. Everything is put back.
        """
        with measuring(None):
            peaks = self._peak(self.original), self._peak(self._planned)
            with restored(self.original, self.task):
                plain = Workload(partial(self._step, self.original), self.chain.batch_size)
                planned = Workload(partial(self._step, self._planned), self.chain.batch_size)
                comparison = compare(plain, planned, seconds=seconds, threads=None, restore=False)
        comparison = comparison.with_peaks(*peaks)
        return Measured(comparison, self.predicted, self.plain)

    @property
    def _planned(self) -> nn.Module:
        """The model without its spot checks."""
        found: nn.Module = getattr(type(self.model), "unchecked", self.model)
        return found

    def _step(self, model: nn.Module) -> torch.Tensor:
        loss = self.task.loss(model(*self.task.args, **self.task.kwargs))
        loss.backward()
        if self.task.optimizer is not None:
            self.task.optimizer.step()
        drop_gradients(parameters(model, self.task.optimizer))
        return loss.detach()

    def peak_of(self, model: nn.Module) -> int | None:
        """Bytes of a real step of the model or the planned one; None where it does not fit.

        Everything is put back.
        """
        return self._peak(model)[0]

    def _peak(self, model: nn.Module) -> tuple[int | None, int | None]:
        """Bytes of the second step, allocated and reserved; None where it does not fit at all."""
        device = next(model.parameters()).device
        with measuring(None), restored(self.original, self.task), survive() as outcome:
            self._step(model)
            if self.compiled and model is not self.original and device.type == "cpu":
                step = partial(self._step, model)
                return peak_of_compiled(partial(self._step, self.original), step), None
            with MemoryMeter(device, saved=False) as memory:
                self._step(model)
        if outcome.error:
            return None, None
        return memory.peak, memory.reserved


@dataclass(frozen=True)
class Measured:
    """A planned model beside the plain one, and how far the prediction was off."""

    comparison: Comparison
    predicted: Costs
    plain: Costs

    @property
    def peak_bytes(self) -> int | None:
        """Measured peak of the planned model."""
        return self.comparison.candidate.peak_bytes

    @property
    def peak_error(self) -> float:
        """Predicted over measured peak, less 1; nan where the model did not fit."""
        if not self.peak_bytes:
            return float("nan")
        return self.predicted.peak_bytes / self.peak_bytes - 1

    def __str__(self) -> str:
        memory = self.predicted.peak_bytes / self.plain.peak_bytes
        seconds = self.predicted.seconds / self.plain.seconds
        return (
            f"{self.comparison}\n"
            f"memory {self.comparison.memory_ratio:.3f} of plain "
            f"(predicted {memory:.3f}, peak {self.peak_error:+.1%}), "
            f"time {1 / self.comparison.speedup:.3f} (predicted {seconds:.3f})"
        )

    __repr__ = __str__


def _line(label: str, costs: Costs) -> str:
    peak, seconds = format_bytes(costs.peak_bytes), format_seconds(costs.seconds)
    return f"{label:<30} {peak:>10}  {seconds:>8} a step"
