"""What a stack of Python's says: the lines of the reader's own files, and what libraries do there.

A `Stack` goes from the outermost frame to the innermost. Of the reader's own frames it has the
line; of a library's frames only a *mark*, a word for what that code is for, and nothing where the
code could be for anything.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import labkit
from labkit.restore.collector import looking_at_frames
from labkit.restore.own import is_own_code


class Place(NamedTuple):
    """A line of the reader's, in a function."""

    file: str
    line: int
    function: str


# Places and marks.
Stack = tuple[Place | str, ...]
# Where no line of the reader's runs, but what a diagnosis calls.
NOWHERE = Place("", 0, "")

LOADING, FORWARD, BACKWARD, UPDATE = "loading", "forward", "backward", "update"
LOGGING, COMPILING = "logging", "compiling"
VALIDATION, WAITING, START = "validation", "waiting", "start-up"
# What no mark says, but the lines of the reader's own.
HOST, OWN, OUTSIDE = "host waits", "your own code", "outside the loop"
# Of these it matters that they are in the loop.
TRAINING = LOADING, HOST, FORWARD, BACKWARD, UPDATE, WAITING, OWN
CAUSES = (*TRAINING, LOGGING, VALIDATION, COMPILING, START, OUTSIDE)

_WAIT = r"_?(join|wait|get|put|result|select|poll|communicate|recv)"
# Of a library's file and function, as in torch/_tensor.py:backward. The first that fits.
_MARKS = (
    (r"torch/utils/data/|torchvision/(transforms|io|datasets)/", LOADING),
    (r"(PIL|torchaudio|webdataset|datasets|h5py|soundfile|cv2|pandas|tokenizers)/", LOADING),
    (r"numpy/lib/_?npyio|torch/serialization\.py:load", LOADING),
    (r"torch/serialization\.py:save", LOGGING),
    (r"<frozen importlib", START),
    # What a diagnosis takes its batches from, whoever has written it.
    (r"whyslow/loading\.py:_one_pass", LOADING),
    # Compiling, and not the calls of what is compiled.
    (r"torch/_dynamo/(convert_frame|symbolic_convert|output_graph)\.py", COMPILING),
    (r"torch/_inductor/(compile_fx|graph|scheduler|async_compile)\.py", COMPILING),
    (r"/torchinductor_|torch/nn/functional\.py", FORWARD),
    (r"torch/nn/modules/module\.py:(_(wrapped_)?call_impl|__call__)", FORWARD),
    (r"torch/(_tensor|autograd/__init__)\.py:(backward|grad$)", BACKWARD),
    (r"torch/(optim|amp/grad_scaler|nn/utils/clip_grad\.py)", UPDATE),
    (r"/(logging|tqdm|wandb|mlflow|tensorboard|rich|IPython|ipykernel)/", LOGGING),
    # Trainers of libraries, whose loops are not the reader's.
    (r"lightning/.*evaluation_loop|fastai/learner\.py:.*validate", VALIDATION),
    (r"transformers/trainer\.py:(evaluat|predict)", VALIDATION),
    (rf"/(threading|queue|selectors|subprocess)\.py:{_WAIT}", WAITING),
    (rf"/(concurrent/futures|multiprocessing)/\w+\.py:{_WAIT}", WAITING),
)
_RULES = tuple((re.compile(place), mark) for place, mark in _MARKS)
_KIT = tuple(f"{Path(each).parent.resolve()}{os.sep}" for each in (__file__, labkit.__file__))
# Python's own functions that are made from text, such as those of dataclasses.
_MADE = re.compile(r"__\w+__$")


@functools.cache
def is_own(code: CodeType) -> bool:
    """Whether the reader has written it: a script, a module beside it, a cell, a text for exec."""
    file = code.co_filename
    if file.startswith("<"):
        typed = file in ("<string>", "<stdin>") or file.startswith("<ipython-input")
        return typed and not _MADE.match(code.co_name)
    return is_own_code(code) and not file.startswith(_KIT) and "/torchinductor_" not in file


@functools.cache
def mark_of(code: CodeType) -> str:
    """What a library's code is for, or nothing."""
    place = f"{code.co_filename}:{code.co_name}".replace("\\", "/")
    return next((mark for rule, mark in _RULES if rule.search(place)), "")


def stack_of(frame: FrameType | None) -> Stack:
    """Own places and marks, the outermost first; marks that follow each other once.

    Who calls a diagnosis is no part of it.
    """
    places: list[Place | str] = []
    while frame is not None:
        code = frame.f_code
        if is_own(code):
            line = frame.f_lineno or code.co_firstlineno
            places.append(Place(code.co_filename, line, code.co_name))
        elif (mark := mark_of(code)) and places[-1:] != [mark]:
            places.append(mark)
        if code.co_filename.startswith(_KIT[0]):
            places.append(NOWHERE)
            break
        frame = frame.f_back
    return tuple(reversed(places))


def stack_of_thread(thread: int) -> Stack:
    """Of this thread, or of one for which it only waits; empty where none runs a reader's line."""
    with looking_at_frames():
        frames = sys._current_frames()
        stack = stack_of(frames.get(thread))
        if stack and stack[-1] == WAITING:
            for other, frame in frames.items():
                instead = stack_of(frame) if other != thread else ()
                if own(instead) and instead[-1] != WAITING:
                    return instead
    return stack if own(stack) or NOWHERE in stack else ()


def own(stack: Iterable[Place | str]) -> list[Place]:
    """The own lines of a stack: the last one runs, or has called what runs."""
    return [place for place in stack if isinstance(place, Place) and place.file]
