"""Deeper 17, answers to the exercise: anomaly mode for one step only."""

import torch

from course import exercises
from tests.labs import nothing


def right(step):
    return None if step().isfinite() else always_on(step)


def always_on(step):
    try:
        with torch.autograd.set_detect_anomaly(True):
            step()
    except RuntimeError as error:
        return str(error)


def replays_all(step):
    step()
    return always_on(step)


def never_on(step):
    if not step().isfinite():
        step()


def leaves_it_on(step):
    if step().isfinite():
        return None
    try:
        torch.autograd.set_detect_anomaly(True)
        step()
        torch.autograd.set_detect_anomaly(False)
    except RuntimeError as error:
        return str(error)


def the_error_itself(step):
    if step().isfinite():
        return None
    try:
        with torch.autograd.set_detect_anomaly(True):
            step()
    except RuntimeError as error:
        return error


def swallows(step):
    return right(step) and None


def only_nan(step):
    return always_on(step) if step().isnan() else None


def off_afterwards(step):
    if step().isfinite():
        return None
    try:
        torch.autograd.set_detect_anomaly(True)
        step()
    except RuntimeError as error:
        return str(error)
    finally:
        torch.autograd.set_detect_anomaly(False)


def always_a_text(step):
    return right(step) or "all is well"


def switches_off(step):
    found = right(step)
    torch.autograd.set_detect_anomaly(False)
    return found


def by_hand(step):
    found, before = None, torch.is_anomaly_enabled()
    if not step().isfinite():
        torch.autograd.set_detect_anomaly(True)
        try:
            step()
        except RuntimeError as error:
            found = str(error)
        finally:
            torch.autograd.set_detect_anomaly(before)
    return found


CHECK = exercises.check_17_replay
RIGHT = right
ALSO_RIGHT = [by_hand]
WRONG = [
    (nothing, "a step with a finite loss: step() was never called"),
    (always_on, "…should be [False], were [True]"),
    (replays_all, "…should be [False], were [False, True]"),
    (
        never_on,
        "sqrt(-1): calls with anomaly mode on should be [False, True], were [False, False]",
    ),
    (leaves_it_on, "sqrt(-1): anomaly mode is still on afterwards"),
    (the_error_itself, "…wants the error's message, a text, yours says RuntimeError("),
    (swallows, "…wants the error's message, a text, yours says None"),
    (always_a_text, "a step with a finite loss: wants None, yours says 'all is well'"),
    (
        only_nan,
        "log(0), which is infinite: calls with anomaly mode on should be [False, True], "
        "were [False]",
    ),
    (off_afterwards, "log(-1): anomaly mode was on before, and is off afterwards"),
    (switches_off, "…anomaly mode was on before, and is off afterwards"),
]
