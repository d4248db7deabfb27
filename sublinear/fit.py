"""Three lines for a reader's own model: fit this batch into this much memory.

    fitted = fit(model, inputs, budget="6 GB")
    print(fitted)             # what is predicted
    print(fitted.measure())   # what is so

Before it returns, one step of the planned model is compared with a plain one. An nn.Sequential is
planned child by child, any other model as torch's compiler captures it, with guards: what changes
later is captured and planned anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from labkit.comparing import measuring
from labkit.memory import saved_bytes
from labkit.progress import progress
from sublinear import together
from sublinear.apply import apply
from sublinear.backend import Backend, captured, check_compiler
from sublinear.blocks import Blocks, is_plain_sequential
from sublinear.budget import Budget, request
from sublinear.capture.graphs import InsideBlocks, heard
from sublinear.chain import Chain
from sublinear.fitted import Fitted
from sublinear.plan import Plan, keep_all
from sublinear.planner import plan as find
from sublinear.profiling import Inputs, Loss, Training, restored, training
from sublinear.profiling.profiler import check_number, check_trains, profiled
from sublinear.proof import prove, spot_checked
from sublinear.repeatable import refuse
from sublinear.split import split
from sublinear.wrapped import WrappedBlocks

if TYPE_CHECKING:
    from tqdm import tqdm


def fit(
    model: nn.Module,
    inputs: Inputs,
    *,
    budget: float | str | None = None,
    max_overhead: float | None = None,
    method: str = "menu",
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    modules: list[str] | None = None,
    repeats: int = 3,
    check_every: int | None = None,
    compile: bool = False,
) -> Fitted:
    """Train ``model`` on this batch within ``budget`` bytes, or within ``max_overhead``.

    ``budget``: a number, a text such as "6 GB" or "6 GiB", a share of what a plain step needs, 0.5
    or "50 %", or "all", what is free now less a tenth. ``max_overhead=0.25``: the lowest peak at a
    quarter more time. With neither, of method "menu", that is 0.3.

    ``inputs``: a tensor, a tuple of the model's arguments, or a dict of its keyword arguments;
    ``loss``: of the model's output, the mean by default; ``optimizer``: its state counts, and its
    step; ``modules``: those to plan, by name, in place of what the compiler captures;
    ``check_every``: compare again at every so many training forwards, and raise RuntimeError where
    the model has come to train otherwise; ``compile``: Inductor compiles the plan's pieces, as
    `backend` says, and the comparison is within rounding.

    Before it is returned, one step of the planned model is compared with a plain one, and its peak
    with the budget. An nn.Sequential is planned child by child, any other model as torch's compiler
    captures it, see `backend`, where a later change is captured and planned anew. What it captures
    in too small parts is wrapped, module by module.
    Raises ValueError, with the floor, if no plan is that small, and, with what differs, if no way
    to plan the model trains as it does, and Busy while something else is measured. The model stays
    as it is.
    """
    # Before the profile, which may take minutes.
    if not isinstance(model, nn.Module):
        raise TypeError(f"model={model!r} is not an nn.Module")
    asked, max_overhead = request(budget, max_overhead, method)
    check_number("repeats", repeats)
    if check_every is not None:
        check_number("check_every", check_every)
    task = training(inputs, loss, optimizer)
    with measuring(None), restored(model, task):
        blocks = _read(model, task, modules, compile)
        with progress(total=_STAGES, desc="planning") as bar:
            fitting = _Fitting(model, task, asked, max_overhead, method, compile, repeats, bar)
            fitted = fitting.by_compiler() if blocks is None else fitting.by_blocks(blocks)
    if fitted.gain and not asked.given:
        # Who asks for a peak gets one that keeps to it.
        warnings.warn(fitted.gain, UserWarning, stacklevel=2)
    if check_every is None:
        return fitted
    size = fitted.chain.batch_size
    checked = spot_checked(fitted.model, model, task, size, check_every, compiled=compile)
    return replace(fitted, model=checked)


# A plan into a model that trains by it.
Follow = Callable[[Plan], nn.Module]

# Of the progress bar, besides the blocks: the whole steps, the search, the real step, the proof.
_STAGES = 4

# Of the plain peak: below that much a plan is said to save next to nothing.
_LEAST_GAIN = 0.03
# Of the plain peak: below that much, what blocks keep is not what needs the memory.
_SMALL = 0.5

# How often a plan is made again because a real step needed more than was predicted.
_TRIES = 4


def _read(
    model: nn.Module, task: Training, modules: list[str] | None, compile: bool
) -> Blocks | None:
    """The blocks of a model that needs no compiler for it; None: one that has to be captured."""
    by_compiler = compile or not (modules is not None or is_plain_sequential(model))
    refuse(model, captured=by_compiler)
    check_trains(model)
    if compile and modules is not None:
        raise ValueError(f"compile=True and modules={modules!r}: choose one of them")
    if by_compiler:
        return None
    return split(model, task.args, task.kwargs, modules=modules)


@dataclass(frozen=True)
class _Fitting:
    """What is asked for: from blocks to a planned model that keeps to the budget."""

    model: nn.Module
    task: Training
    budget: Budget
    max_overhead: float | None
    method: str
    compile: bool
    repeats: int
    bar: tqdm[Any]

    def by_blocks(self, blocks: Blocks) -> Fitted:
        """The model by its blocks, proven. Raises ValueError where it would train otherwise."""
        chain = self._profile(blocks)

        def follow(found: Plan) -> nn.Module:
            return apply(self.model, found, self.task.args, blocks=blocks)

        return self._proven(self._planned(chain, blocks, follow))

    def by_compiler(self) -> Fitted:
        """The model as torch's compiler captures it, proven; or some of its modules, wrapped.

        Raises ValueError where neither can be planned.
        """
        if self.compile:
            check_compiler(next(self.model.parameters()).device)
        self.bar.set_description("capturing the model")
        overhead = None if self.budget.given else self.max_overhead
        by_plan = Backend(Budget(), overhead, self.method, self.repeats, compile=self.compile)
        model, task = captured(self.model, by_plan), self.task
        try:
            with restored(self.model, task):
                main = heard(by_plan, lambda: task.loss(model(*task.args, **task.kwargs)))
            if len(by_plan.cut) == 1:
                blocks = InsideBlocks.of_graph(self.model, main, model.forward)
                chain = self._profile(blocks)
        except ValueError as error:
            if self.compile:
                raise
            return self.by_blocks(self._wrapped(error))

        def follow(found: Plan) -> nn.Module:
            by_plan.follow(main, found)
            return model

        if len(by_plan.cut) > 1:
            fitted = self._several(by_plan, model)
        else:
            by_plan.know(main, chain)
            fitted = self._planned(chain, blocks, follow)
            limit = self._limit(fitted.plain.peak_bytes, chain)
            if limit is not None:
                # For graphs that come later.
                by_plan.limit = max(limit, fitted.predicted.peak_bytes)
        try:
            return self._proven(fitted)
        except ValueError as error:
            if self.compile:
                raise
            return self.by_blocks(self._wrapped(error))

    def _several(self, by_plan: Backend, model: nn.Module) -> Fitted:
        """By a plan for each graph of a step. Raises ValueError where none can be planned."""
        task = self.task
        with restored(self.model, task):
            # The graphs are profiled and planned as they run.
            task.loss(model(*task.args, **task.kwargs))
        if not by_plan.planned:
            raise ValueError(f"of what torch's compiler captures nothing can be planned: {by_plan}")
        note = (
            f"torch's compiler captures {len(by_plan.graphs)} graphs, {len(by_plan.planned)} "
            "planned; what is predicted follows the largest of them"
        )
        fitted = self._fitted(model, by_plan.main_plan, note, "captured")
        without = together.plain(by_plan.chains()).peak_bytes
        plain = fitted.peak_of(self.model) or without
        beside = plain - without
        limit = self._limit(plain, fitted.chain)

        def follow(aim: float) -> tuple[Fitted, int]:
            by_plan.limit = aim - beside
            return fitted, by_plan.plan(by_plan.limit).peak_bytes + beside

        if limit is None:
            found = replace(fitted, measured_bytes=fitted.peak_of(model))
        else:
            found = self._keeping_to(limit, follow)
        main = by_plan.main_plan
        size = max(0, main.known_chain.fixed_bytes + beside)
        whole = replace(main, chain=replace(main.known_chain, fixed_bytes=size))
        covered = self._share(sum(chain.saved_bytes for chain in by_plan.chains()))
        found = replace(found, plan=whole, covered=covered)
        return replace(found, gain=self._gain(found))

    def _wrapped(self, reason: ValueError) -> WrappedBlocks:
        """Some modules of a model that cannot be captured; the reason is raised without any."""
        model, task = self.model, self.task
        try:
            refuse(model)
            return WrappedBlocks.read(model, task.args, task.kwargs, None, str(reason))
        except ValueError:
            raise reason from None

    def _profile(self, blocks: Blocks) -> Chain:
        self.bar.set_description("measuring the blocks")
        self.bar.total = _STAGES + len(blocks)
        # Inside compiled code no operator can be chosen to be kept.
        options = not self.compile
        update = self.bar.update
        chain = profiled(self.model, self.task, blocks, self.repeats, options, update)
        update()
        return chain

    def _planned(self, chain: Chain, blocks: Blocks, follow: Follow) -> Fitted:
        """Plan; where that is asked for, until a real step keeps to the budget."""
        self.bar.set_description("searching for the plan")

        def by_plan(budget: float | None) -> tuple[Fitted, int]:
            found = find(chain, budget=budget, max_overhead=self.max_overhead, method=self.method)
            fitted = self._fitted(follow(found), found, blocks.note, blocks.kind)
            return fitted, found.costs.peak_bytes

        limit = self._limit(keep_all(chain).costs.peak_bytes, chain)
        if limit is None:
            fitted, _ = by_plan(None)
        else:
            fitted = self._keeping_to(limit, by_plan)
        self.bar.update(2)
        if blocks.partial:
            fitted = replace(fitted, covered=self._share(chain.saved_bytes))
        return replace(fitted, gain=self._gain(fitted))

    def _fitted(self, model: nn.Module, plan: Plan, note: str, kind: str) -> Fitted:
        task, compiled = self.task, self.compile
        return Fitted(model, plan, self.model, task, note, compiled=compiled, kind=kind)

    def _keeping_to(self, limit: float, follow: Callable[[float], tuple[Fitted, int]]) -> Fitted:
        """The model by a plan whose real step keeps to the limit.

        ``follow``: plans within so many bytes, and says how many it predicts.
        """
        aim = limit
        fitted, predicted = follow(aim)
        for _ in range(_TRIES):
            peak = fitted.peak_of(fitted.model)
            if peak is None:
                note = "a step of the plan did not fit into memory here"
                return replace(fitted, note=_joined(fitted.note, note))
            if peak <= limit:
                return replace(fitted, measured_bytes=peak)
            # What the account does not see takes up a part of the budget.
            aim = min(aim, predicted) - (peak - limit)
            try:
                fitted, predicted = follow(aim)
            except ValueError as error:
                raise ValueError(
                    f"budget={limit:.0f} bytes: a real step of the plan needed {peak} bytes, "
                    f"{peak - limit:.0f} too many, and with that much less to spend: {error}"
                ) from None
        raise ValueError(
            f"budget={limit:.0f} bytes: after {_TRIES} plans a real step still needed {peak}: "
            "the device gives out memory in larger pieces than are counted; ask for less"
        )

    def _proven(self, fitted: Fitted) -> Fitted:
        """The same, compared with the plain model. Raises ValueError where it trains otherwise."""
        self.bar.set_description("comparing a step with a plain one")
        size, compiled = fitted.chain.batch_size, fitted.compiled
        proof = prove(fitted.original, fitted.model, fitted.task, size, compiled=compiled)
        self.bar.update()
        if proof.differences:
            shown = "; ".join(proof.differences[:3])
            more = len(proof.differences) - 3
            refusal = (
                f"a step of the planned model is not the plain one: {shown}"
                f"{f'; and {more} more' if more > 0 else ''}. Choose by name what is planned, "
                "without the part that differs: modules=[...]"
            )
            raise ValueError(_joined(refusal, fitted.note))
        if proof.partial:
            return replace(fitted, note=_joined(fitted.note, proof.how))
        return replace(fitted, proof=proof.how)

    def _limit(self, plain_bytes: int, chain: Chain) -> float | None:
        """The budget in bytes; None without one."""
        device = next(self.model.parameters()).device
        return self.budget.limit(plain_bytes, device, chain.fixed_bytes)

    def _share(self, kept: int) -> float:
        """The part that ``kept`` bytes are of all that a plain step saves for backward."""
        model, task = self.model, self.task
        with restored(model, task):
            saved = saved_bytes(lambda: task.loss(model(*task.args, **task.kwargs)))
        return min(1.0, kept / max(1, saved))

    def _gain(self, fitted: Fitted) -> str:
        """That a plan saves next to nothing, why, and what may help; empty where it saves."""
        plain = fitted.plain.peak_bytes
        saved = 1 - fitted.predicted.peak_bytes / plain
        if saved >= _LEAST_GAIN or self.method == "none":
            return ""
        amount = f"{saved:.1%}"
        kept = fitted.chain.saved_bytes / plain
        return (
            f"the plan saves {'nothing' if amount == '0.0%' else amount} of the plain peak; the "
            f"planned blocks keep {kept:.0%} of it: {self._advice(fitted, kept)}"
        )

    def _advice(self, fitted: Fitted, kept: float) -> str:
        if self.budget.given:
            return "the budget asks for no more"
        chain = fitted.chain
        if self.max_overhead is not None:
            lowest = find(chain, method=self.method).costs.peak_bytes
            if lowest < (1 - _LEAST_GAIN) * fitted.plain.peak_bytes:
                return "a larger max_overhead saves more"
        if kept >= _SMALL:
            largest = max(chain.blocks, key=lambda block: block.options[0].saved_bytes)
            return (
                f"no plan of method {self.method!r} needs much less; smaller blocks than "
                f"{largest.name}, the largest, may"
            )
        if fitted.kind == "wrapped":
            return "choose by name modules that keep more, modules=[...]"
        return "the rest is weights, gradients and inputs, beside which a larger batch gains more"


def _joined(*notes: str) -> str:
    return "; ".join(filter(None, notes))
