"""The task of `course.speedrun`, and its switches, with the notebook that explains each."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from labkit import pick


class Task(NamedTuple):
    """What is learned; the first epoch that ends with ``target`` is the last one."""

    width: int = pick(cpu=16, cuda=64, test=4)
    images: int = pick(cpu=10_000, cuda=50_000, test=128)
    validation: int = pick(cpu=2_000, cuda=10_000, test=32)
    # The part of the validation images that is recognised.
    target: float = pick(cpu=0.55, cuda=0.9, test=0.1)
    # At most, at a constant rate.
    epochs: int = pick(cpu=16, cuda=50, test=3)
    # Exactly, with a schedule: its length.
    cycle: int = pick(cpu=2, cuda=10, test=3)


TASK = Task()


class Switch(NamedTuple):
    """``notebook`` is its number; ``learns`` says that it changes what is learned.

    ``saves`` is what it is for: "time", or "memory", which may cost time. ``label`` is what its
    notebook calls it; by default its name. ``loses`` says why it lost where it was recorded.
    """

    notebook: int
    text: str
    learns: bool = False
    saves: str = "time"
    label: str = ""
    loses: str = ""


SWITCHES = {
    "vectorization": Switch(1, "flip and scale a whole batch at once, not image by image"),
    "minibatch_sgd": Switch(
        2,
        "learn from a quarter of the images in each step, at the same rate",
        learns=True,
        label="smaller minibatches",
        loses="all others had a schedule, which fixes the images: more steps only cost more",
    ),
    "learning_rate_schedules": Switch(
        3, "let the rate rise and fall (1cycle)", learns=True, label="1cycle schedule"
    ),
    "data_loading": Switch(
        4,
        "let worker processes decode the next images meanwhile",
        label="loading by workers",
        loses="it had two cores, both busy with the training",
    ),
    "decode_once": Switch(23, "decode every image once, not in every epoch"),
    "batch_size": Switch(
        5,
        "take twice as many images a step, at twice the rate",
        learns=True,
        label="larger batch",
        loses="larger batches need more images, and an image takes as long as before: c/s is small",
    ),
    "mixed_precision": Switch(6, "multiply in bfloat16 where autocast allows it", label="bf16"),
    "fp16_numerics": Switch(
        7,
        "keep fp32, and let products round inside: TF32 on a GPU, bfloat16 on a CPU",
        label="rounded products",
    ),
    "optimizers": Switch(
        8,
        "add Nesterov's momentum and weight decay, fused",
        learns=True,
        label="fused optimizer",
        loses="on top of those before it; with all others the target was reached only with it",
    ),
    "cudnn_benchmark": Switch(
        9, "lay images out channels last; on a GPU let cuDNN search", label="channels last"
    ),
    "host_device_transfers": Switch(
        10, "read the loss once an epoch, not every step", label="loss read once"
    ),
    "activation_checkpointing": Switch(
        11,
        "compute activations again instead of keeping them",
        saves="memory",
        label="checkpointing",
    ),
    "sublinear_memory": Switch(
        12,
        "let a planner choose what to compute again, for a quarter of a step more",
        saves="memory",
        label="memory planner",
    ),
    "gradient_accumulation": Switch(
        13, "take each batch in four parts", saves="memory", label="batch in parts"
    ),
    "zeroing_gradients": Switch(
        15, "drop old gradients instead of filling them with zeros", label="None for gradients"
    ),
    "as_tensor": Switch(
        16,
        "stack the arrays and share NumPy's memory, not copy number by number",
        label="as_tensor",
    ),
    "debug_tools": Switch(
        17, "turn anomaly mode off, which had been left on", label="no anomaly mode"
    ),
    "gradient_clipping": Switch(
        18, "limit the norm of the gradient to 1", learns=True, label="clipping"
    ),
    "bias_before_batchnorm": Switch(
        19,
        "leave out biases that batch norm takes away again, if there is one",
        label="no bias before norm",
    ),
    "validation_without_grad": Switch(
        20, "validate without recording a graph", label="validation without gradients"
    ),
    "normalization": Switch(
        21, "put batch norm behind each convolution", learns=True, label="batch norm"
    ),
    "compile": Switch(22, "compile the model"),
}

# What both sides of a short race have, and those of a switch that needs more: recorded without
# one of these no training with the schedule reached the target.
EARLY_ON = ("normalization",)
NEEDED = {"learning_rate_schedules": ("normalization", "optimizers", "gradient_clipping")}

# What leaves a switch nothing to do.
IN_THE_WAY = {
    "data_loading": "decode_once",
    "activation_checkpointing": "sublinear_memory",
}
# What a switch does nothing without.
BUILDS_ON = {"bias_before_batchnorm": "normalization"}


def label(switch: str) -> str:
    """What a switch is called where nobody types it: ``bf16`` for ``mixed_precision``."""
    known = SWITCHES.get(switch)
    return (known.label if known else "") or switch.replace("_", " ")


def labelled(text: str) -> str:
    """A text with the labels of the switches in it; what is quoted stays: it is to be typed."""
    names = "|".join(SWITCHES)
    return re.sub(rf"(?<![\w'./])({names})(?![\w'])", lambda found: label(found[0]), text)


def checked(names: Iterable[str]) -> frozenset[str]:
    """The names as a set; ValueError for one that is no switch, TypeError for a single word."""
    if isinstance(names, str):
        raise TypeError(f"{names!r}: give a list of switches, [{names!r}]")
    chosen = frozenset(names)
    if unknown := chosen - SWITCHES.keys():
        listed = ", ".join(sorted(map(repr, unknown)))
        raise ValueError(f"{listed}: no such switch; there are {', '.join(SWITCHES)}")
    return chosen
