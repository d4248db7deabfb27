"""Deeper 18, answers to the exercise: clipping to a quantile of the norms so far."""

import math

import torch
from torch.nn.utils import clip_grad_norm_, get_total_norm

from course import exercises
from tests.labs import nothing


def total(parameters):
    return get_total_norm([p.grad for p in parameters if p.grad is not None]).item()


def right(parameters, history, quantile):
    if not math.isfinite(total(parameters)):
        for parameter in parameters:
            parameter.grad = None
        return None
    return keeps_infinity(parameters, history, quantile)


def right_with_zeros(parameters, history, quantile):
    if not math.isfinite(total(parameters)):
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.zero_()
        return history[-1]
    return right(parameters, history, quantile)


def keeps_infinity(parameters, history, quantile):
    threshold = never_clips(parameters, history, quantile)
    clip_grad_norm_(parameters, threshold)
    return threshold


def clips_infinity(parameters, history, quantile):
    if not math.isfinite(total(parameters)):
        return clip_grad_norm_(parameters, 1.0)
    return right(parameters, history, quantile)


def without_the_new_norm(parameters, history, quantile):
    norm = total(parameters)
    threshold = torch.tensor(history or [norm]).quantile(quantile).item()
    history.append(norm)
    clip_grad_norm_(parameters, threshold)
    return threshold


def takes_the_mean(parameters, history, quantile):
    history.append(total(parameters))
    threshold = sum(history) / len(history)
    clip_grad_norm_(parameters, threshold)
    return threshold


def by_value(parameters, history, quantile):
    threshold = never_clips(parameters, history, quantile)
    torch.nn.utils.clip_grad_value_(parameters, threshold)
    return threshold


def never_clips(parameters, history, quantile):
    history.append(total(parameters))
    return torch.tensor(history).quantile(quantile).item()


def spoils_the_history(parameters, history, quantile):
    """Returns what is right, and leaves a nan."""
    kept = [2.0, 1.0, 3.0, 100.0][: len(history)]
    found = right(parameters, kept, quantile)
    history[:] = [math.nan for _ in kept]
    return found


def invents_a_gradient(parameters, history, quantile):
    parameters[2].grad = torch.zeros(1)
    return right(parameters, history, quantile)


CHECK = exercises.check_18_clip_to_usual
RIGHT = right
ALSO_RIGHT = [right_with_zeros]
WRONG = [
    (nothing, "after norms [], a gradient of norm 2: the history should be [2.0]"),
    (keeps_infinity, "…a gradient of norm inf: take all gradients away"),
    (clips_infinity, "…a gradient of norm inf: take all gradients away"),
    (without_the_new_norm, "…the threshold is the median of [2.0, 1.0], 1.5; returned was 2.0"),
    (
        takes_the_mean,
        "…the threshold is the median of [2.0, 1.0, 3.0, 100.0], 2.5; returned was 26.5",
    ),
    (by_value, "…of norm 3: it became [1.8, -2.0], not [1.2, -1.6], of norm 2"),
    (never_clips, "…of norm 3: it became [1.8, -2.4], not [1.2, -1.6], of norm 2"),
    (spoils_the_history, "…the history should be [2.0], and is [nan]"),
    (invents_a_gradient, "…a parameter without a gradient has got one"),
]
