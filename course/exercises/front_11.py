"""The exercise of the front notebook 11: a checkpoint written as an autograd function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course.exercises.tell import NotYet, attempt, check
from labkit import MemoryMeter

OUTPUT = "the output"
# What torch says of some mistakes, far from the line that makes them, and what is missing there.
MISTAKES = {
    "does not require grad": "your backward ran the piece without recording it: autograd records "
    "nothing there, unless the piece runs under `with torch.enable_grad():`",
    "incorrect number of gradients": "your backward has to return a gradient for each argument of "
    "forward after ctx: None for the piece, and that of x",
    "through the graph a second time": "the x that you kept still belongs to the network, so that "
    "your backward runs on into the piece before; make a new leaf: `x.detach().requires_grad_()`",
    "only for scalar outputs": "the piece's output is no single number: hand on the gradient that "
    "your backward was given, `y.backward(gradient)`",
}
# Torch's remark on the third of them, which names a file of its own.
REMARK = "The .grad attribute of a Tensor that is not a leaf"
Checkpoint = Callable[[nn.Module, Tensor], Any]


@check(
    "the same gradients to the last bit, the same dropout, and only the entrance was kept",
    judged="inside",
)
def check_11_recompute(answer: Checkpoint) -> None:
    """`answer(piece, x)` is `piece(x)`, with an autograd function that keeps `x` alone and runs
    the piece again in the backward pass.

    It is tried on two small pieces, one of them with dropout; the random state of torch is left as
    it was.
    """
    with torch.random.fork_rng(devices=[]):
        _same_gradients(answer, 0.0, "a piece without dropout")
        _keeps_little(answer, _piece(dropout=0.0))
        _same_gradients(answer, 0.5, "a piece with dropout")
        _same_random_numbers(answer, _piece(dropout=0.5))


def _piece(dropout: float) -> nn.Module:
    inside = [nn.Linear(6, 24), nn.ReLU(), nn.Dropout(dropout), nn.Linear(24, 6), nn.Tanh()]
    return nn.Sequential(*inside)


def _same_gradients(answer: Checkpoint, dropout: float, case: str) -> None:
    """Two pieces in a row, as in a network, and two backward passes, whose gradients add up."""
    wanted = _gradients(_plainly, dropout)
    found = _gradients(answer, dropout)
    other = "; the second run of the piece drops other numbers" if dropout else ""
    for name, right in wanted.items():
        gradient = found[name]
        if gradient is None:
            adds = "; y.backward(gradient) adds to .grad, torch.autograd.grad does not"
            raise NotYet(f"{case}: {name} got no gradient{adds if name != 'the input' else ''}")
        if name == OUTPUT and not torch.equal(gradient, right):
            raise NotYet(f"{case}: the output is not that of piece(x)")
        if not torch.equal(gradient, right):
            raise NotYet(
                f"{case}: the gradient of {name} is not the one without a checkpoint, to which "
                f"it should be equal bit by bit (off by {_off(gradient, right):.0%}){other}"
            )


def _off(found: Tensor, wanted: Tensor) -> float:
    return ((found - wanted).norm() / wanted.norm()).item()


def _plainly(piece: nn.Module, x: Tensor) -> Tensor:
    return piece(x)


def _gradients(call: Checkpoint, dropout: float) -> dict[str, Any]:
    """The output, and the gradients of the input and of all weights."""
    torch.manual_seed(0)
    pieces = nn.Sequential(_piece(dropout), _piece(dropout))
    x = torch.randn(3, 6, requires_grad=True)
    for seed in (1, 2):
        torch.manual_seed(seed)
        output = 2 * x
        for piece in pieces:
            output = _tensor(attempt(call, piece, output))
        _backward(output.square().sum())
    gradients = {f"weight {name}": weight.grad for name, weight in pieces.named_parameters()}
    return {OUTPUT: output.detach(), "the input": x.grad} | gradients


def _backward(loss: Tensor) -> None:
    """Run the reader's backward; a mistake that torch tells of in its own terms in ours."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", REMARK)
            loss.backward()
    except RuntimeError as error:
        for said, missing in MISTAKES.items():
            if said in str(error):
                raise NotYet(missing) from error
        raise


def _tensor(found: object) -> Tensor:
    if not isinstance(found, Tensor):
        raise NotYet(f"return the output of the piece; returned was {found!r}")
    if not found.requires_grad:
        raise NotYet("the output needs no gradient: autograd has to know of your function")
    return found


def _keeps_little(answer: Checkpoint, piece: nn.Module) -> None:
    """Only the entrance is kept, and by a function of the reader's own."""
    x = torch.randn(3, 6, requires_grad=True)
    kept = {}
    for name, call in (("plain", _plainly), ("yours", answer)):
        with MemoryMeter() as memory:
            output = call(piece, x)
        kept[name] = memory.saved_for_backward or 0
    if kept["yours"] > x.nbytes:
        raise NotYet(
            f"{kept['yours']} bytes are kept for the backward pass ({kept['plain']} without a "
            f"checkpoint); only x, of {x.nbytes} bytes, has to be"
        )
    function = output.grad_fn
    if not isinstance(function, torch.autograd.function.BackwardCFunction):
        raise NotYet(f"build it yourself, as a torch.autograd.Function; this is {function}")


def _same_random_numbers(answer: Checkpoint, piece: nn.Module) -> None:
    """What is drawn after the forward pass, and after the backward pass, is drawn as without."""
    states = []
    for call in (_plainly, answer):
        torch.manual_seed(2)
        output = call(piece, torch.ones(3, 6, requires_grad=True))
        after = torch.get_rng_state()
        torch.rand(5)
        _backward(output.sum())
        states.append((after, torch.get_rng_state()))
    plain, yours = states
    if not torch.equal(plain[0], yours[0]):
        raise NotYet("the forward pass leaves another random state than piece(x) does")
    if not torch.equal(plain[1], yours[1]):
        raise NotYet(
            "the backward pass changes the random state: the next step would draw the same "
            "numbers again. Put the state back after the piece ran (torch.random.fork_rng)"
        )
