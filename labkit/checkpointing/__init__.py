"""Plan which activations to keep and which to compute again.

`fit` does all of it for a reader's own model; `profile`, `plan`, `apply` and `verify` are its parts.
"""

from labkit.checkpointing.apply import MENU, apply
from labkit.checkpointing.blocks import Blocks, split
from labkit.checkpointing.card import Card, Probe, emulate_card, probe_in_process, search_batch
from labkit.checkpointing.chain import Around, Block, Chain, Option
from labkit.checkpointing.cost import Prediction, simulate
from labkit.checkpointing.draw import alive_figure, plan_figure
from labkit.checkpointing.fit import Fitted, fit
from labkit.checkpointing.gauge import Roofline
from labkit.checkpointing.pareto import pareto
from labkit.checkpointing.plan import Checkpoint, Keep, Plan
from labkit.checkpointing.planner import METHODS, largest_batch, plan
from labkit.checkpointing.profile import profile
from labkit.checkpointing.searches.genetic import evolve
from labkit.checkpointing.verify import Verification, verify

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
