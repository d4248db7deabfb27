"""The memory planner: which activations of a training step to keep, and which to compute again.

    import sublinear

    fitted = sublinear.fit(model, inputs, budget=6 * 2**30)
    print(fitted, fitted.measure())

`fit` does all of it. Its parts are `profile`, which makes a `Chain` from a model: a table of what
each block costs; `plan`, which finds the `Plan` of least time or memory for a chain; `apply`, which
makes a model that trains by a plan; and `verify`, which shows that it trains as before. `fit` shows
that by one step before it returns. `backend` plans what torch's compiler captures.

The arrows between the modules::

    chain, nodes <- events <- cost <- plan <- searches <- planner
    equal <- repeatable <- blocks <- wrapped; plan, blocks <- capture; wrapped, capture <- split
    split <- apply <- profiling
    profiling <- verify <- proof <- fit; profiling <- fitted <- fit
    profiling <- together <- backend <- fit
"""

from sublinear.apply import MENU, apply
from sublinear.backend import backend
from sublinear.blocks import Blocks
from sublinear.chain import Around, Block, Chain, Option
from sublinear.cost import Costs
from sublinear.fit import fit
from sublinear.fitted import Fitted
from sublinear.plan import Checkpoint, Keep, Plan, simulate
from sublinear.planner import METHODS, largest_batch, plan
from sublinear.profiling import Roofline, profile
from sublinear.split import split
from sublinear.verify import Verification, verify

__all__ = [
    "MENU",
    "METHODS",
    "Around",
    "Block",
    "Blocks",
    "Chain",
    "Checkpoint",
    "Costs",
    "Fitted",
    "Keep",
    "Option",
    "Plan",
    "Roofline",
    "Verification",
    "apply",
    "backend",
    "fit",
    "largest_batch",
    "plan",
    "profile",
    "simulate",
    "split",
    "verify",
]
