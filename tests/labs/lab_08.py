"""08, optimizers: what shows that the technique acts, and answers to the exercise."""

from typing import Any

import torch

from course.exercises import check_08_own_adamw
from tests.labs import counters


def alive(names: dict[str, Any]) -> None:
    """Fused is fewer calls; AdamW shrinks weights without a gradient's help, Adam hardly moves."""
    plain, fused = (counters(names, rule=rule) for rule in ("AdamW", "AdamW, fused"))
    assert fused.launches < 0.8 * plain.launches
    assert fused.flops == plain.flops
    shrunk = {}
    for rule in ("SGD", "AdamW", "Adam"):
        model = names["models"].Transformer(27, 16, 4, 2, 8)
        [optimizer] = names["make_optimizers"](rule, model, 1)
        weight = next(model.parameters())
        weight.data.fill_(1)
        weight.grad = torch.zeros_like(weight)
        optimizer.step()
        shrunk[rule] = round(1 - weight.mean().item(), 6)
    # rate * decay; a whole step of L2, since the root divides it by itself; nothing.
    assert shrunk == {"SGD": 0, "AdamW": 1e-4, "Adam": 3e-3}
    muon, rest = names["make_optimizers"]("Muon", model, 1)
    assert {weight.ndim for weight in muon.param_groups[0]["params"]} == {2}
    assert sum(len(each.param_groups[0]["params"]) for each in (muon, rest)) == len(
        list(model.parameters())
    )


class Right(torch.optim.Optimizer):
    def __init__(self, params, lr, weight_decay):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for w in group["params"]:
                self.update(w, group["lr"], group["weight_decay"])

    def update(self, w, lr, decay):
        if w.grad is not None:
            t, m, v = self.moments(w, w.grad)
            w.mul_(1 - lr * decay)
            self.move(w, lr, m / (1 - 0.9**t), v / (1 - 0.999**t))

    def moments(self, w, g):
        kept = self.kept(w)
        kept["t"] += 1
        kept["m"].lerp_(g, 0.1)
        kept["v"].lerp_(g**2, 0.001)
        return kept["t"], kept["m"], kept["v"]

    def kept(self, w):
        if not self.state[w]:
            self.state[w].update(t=0, m=torch.zeros_like(w), v=torch.zeros_like(w))
        return self.state[w]

    def move(self, w, lr, m, v):
        w -= lr * m / (v.sqrt() + 1e-8)


class Stub(Right):
    def step(self):
        raise NotImplementedError("your turn")


class NoOptimizer:
    def __init__(self, params, lr, weight_decay): ...


class OneCountForAll(Right):
    steps = 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        super().step()

    def moments(self, w, g):
        _, m, v = super().moments(w, g)
        return self.steps, m, v


class L2(Right):
    def update(self, w, lr, decay):
        if w.grad is not None:
            t, m, v = self.moments(w, w.grad + decay * w)
            self.move(w, lr, m / (1 - 0.9**t), v / (1 - 0.999**t))


class EpsilonInsideTheRoot(Right):
    def move(self, w, lr, m, v):
        w -= lr * m / (v + 1e-8).sqrt()


class NoCorrection(Right):
    def update(self, w, lr, decay):
        if w.grad is not None:
            _, m, v = self.moments(w, w.grad)
            w.mul_(1 - lr * decay)
            self.move(w, lr, m, v)


class DecayWithoutGradient(Right):
    def update(self, w, lr, decay):
        w.mul_(1 - lr * decay)
        super().update(w, lr, 0)


class ZeroForNone(Right):
    def update(self, w, lr, decay):
        if w.grad is None:
            w.grad = torch.zeros_like(w)
        super().update(w, lr, decay)


class OneRateForAll(Right):
    def update(self, w, lr, decay):
        super().update(w, self.param_groups[0]["lr"], decay)


class InLists(Right):
    def __init__(self, params, lr, weight_decay):
        super().__init__(params, lr, weight_decay)
        self.lists = {}

    def kept(self, w):
        zeros = {"t": 0, "m": torch.zeros_like(w), "v": torch.zeros_like(w)}
        return self.lists.setdefault(w, zeros)


class GraphKept(Right):
    @torch.enable_grad()
    def moments(self, w, g):
        t, m, v = super().moments(w, g)
        self.state[w]["last"] = w * m
        return t, m, v


class GradientChanged(Right):
    def moments(self, w, g):
        t, m, v = super().moments(w, g)
        g.mul_(0.1)
        return t, m, v


CHECK = check_08_own_adamw
RIGHT = Right
WRONG = [
    (Stub, "write it, then run this cell again"),
    (NoOptimizer, "AdamW is no class of the kind torch.optim.Optimizer"),
    (OneCountForAll, "step 3, weights 1: they differ from torch's"),
    (L2, "step 1, weights 0: that is Adam with L2"),
    (EpsilonInsideTheRoot, "step 1, weights 1: they differ from torch's"),
    (NoCorrection, "step 1, weights 0: m and v are not corrected: they begin at zero"),
    (DecayWithoutGradient, "step 2, weights 1: without a gradient they are to stay as they are"),
    (ZeroForNone, "step 2, weights 1: without a gradient they are to stay as they are"),
    (OneRateForAll, "step 1, weights 2: they differ from torch's"),
    (InLists, "a new optimizer with the first one's state_dict() does not go on"),
    (GraphKept, "state[w]['last'] keeps a graph"),
    (GradientChanged, "step 1 changed a gradient"),
]
