"""Plan which activations to keep and which to compute again.

`fit` does all of it for a reader's own model; `profile`, `plan`, `apply` and `verify` are its parts.
"""

from sublinear.apply import MENU, apply
from sublinear.blocks import Blocks, split
from sublinear.card import Card, Probe, emulate_card, probe_in_process, search_batch
from sublinear.chain import Around, Block, Chain, Option
from sublinear.cost import Prediction, simulate
from sublinear.draw import alive_figure, plan_figure
from sublinear.fit import Fitted, fit
from sublinear.gauge import Roofline
from sublinear.pareto import pareto
from sublinear.plan import Checkpoint, Keep, Plan
from sublinear.planner import METHODS, largest_batch, plan
from sublinear.profile import profile
from sublinear.searches.genetic import evolve
from sublinear.verify import Verification, verify

__all__ = [
    "MENU",
    "METHODS",
    "Around",
    "Block",
    "Blocks",
    "Card",
    "Chain",
    "Checkpoint",
    "Fitted",
    "Keep",
    "Option",
    "Plan",
    "Prediction",
    "Probe",
    "Roofline",
    "Verification",
    "alive_figure",
    "apply",
    "emulate_card",
    "evolve",
    "fit",
    "largest_batch",
    "pareto",
    "plan",
    "plan_figure",
    "probe_in_process",
    "profile",
    "search_batch",
    "simulate",
    "split",
    "verify",
]
