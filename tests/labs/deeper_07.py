"""Deeper 07, answers to the exercise: Kahan's carry beside 16-bit weights."""

import torch

from course import exercises
from tests.labs import nothing


@torch.no_grad()
def right(weight, carry, update):
    wanted = update + carry
    new = weight + wanted
    carry.copy_(wanted - (new - weight))
    weight.copy_(new)


def also_right(weight, carry, update):
    carry += update
    old = weight.clone()
    weight += carry
    carry -= weight - old


def no_carry(weight, carry, update):
    weight += update


def too_late(weight, carry, update):
    wanted = update + carry
    weight += wanted
    # the old weight is gone
    carry.copy_(wanted - (weight - weight))


def wrong_sign(weight, carry, update):
    wanted = update + carry
    new = weight + wanted
    carry.copy_((new - weight) - wanted)
    weight.copy_(new)


def forgets_old_carry(weight, carry, update):
    new = weight + update
    carry.copy_(update - (new - weight))
    weight.copy_(new)


def grows_to_nan(weight, carry, update):
    wanted = update + carry
    new = weight + wanted
    carry.copy_(wanted - (new - weight) + 2 * carry)
    weight.copy_(new)


def in_fp32(weight, carry, update):
    wanted = weight.float() + carry.float() + update.float()
    weight.copy_(wanted)
    carry.copy_(wanted - weight.float())


def not_in_place(weight, carry, update):
    wanted = update + carry
    new = weight + wanted
    return new, wanted - (new - weight)


CHECK = exercises.check_07_kahan_add
RIGHT = right
ALSO_RIGHT = [also_right]
WRONG = [
    (nothing, "after one update of eps / 8 in torch.bfloat16 the weight is 1 and"),
    (not_in_place, "after one update of eps / 8 in torch.bfloat16 the weight is 1 and"),
    (no_carry, "…the carry has to hold all of"),
    (wrong_sign, "…the carry has to hold all of"),
    (too_late, "256 updates of"),
    (forgets_old_carry, "256 updates of"),
    (grows_to_nan, "…in torch.bfloat16 took 1 to nan"),
    (in_fp32, "something was computed in torch.float32; torch.bfloat16 alone is allowed"),
]
