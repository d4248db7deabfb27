"""Deeper 06, answers to the exercise: a linear layer that multiplies in bf16."""

import torch
import torch.nn.functional as F

from course import exercises
from tests.labs import nothing


def right(x, weight, bias):
    return (x.bfloat16() @ weight.bfloat16().T).float() + bias


def by_autocast(x, weight, bias):
    with torch.autocast("cpu", torch.bfloat16):
        return F.linear(x, weight).float() + bias


def in_fp32(x, weight, bias):
    return x @ weight.T + bias


def in_fp16(x, weight, bias):
    return (x.half() @ weight.half().T).float() + bias


def by_autocast_in_fp16(x, weight, bias):
    with torch.autocast("cpu", torch.float16):
        return F.linear(x, weight).float() + bias


def only_the_weight_in_fp16(x, weight, bias):
    return (x.bfloat16().float() @ weight.half().float().T) + bias


def only_x(x, weight, bias):
    return x.bfloat16().float() @ weight.T + bias


def only_weight(x, weight, bias):
    return x @ weight.bfloat16().float().T + bias


def rounds_and_multiplies_in_fp32(x, weight, bias):
    return x.bfloat16().float() @ weight.bfloat16().float().T + bias


def stays_in_bf16(x, weight, bias):
    return x.bfloat16() @ weight.bfloat16().T + bias.bfloat16()


def rounds_the_bias(x, weight, bias):
    return F.linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16()).float()


def rounds_the_sum(x, weight, bias):
    return right(x, weight, bias).bfloat16().float()


def rounds_for_good(x, weight, bias):
    weight.data.copy_(weight.bfloat16())
    return right(x, weight, bias)


def converts_for_good(x, weight, bias):
    weight.data = weight.data.bfloat16()
    return (x.bfloat16() @ weight.T).float() + bias


def transposed(x, weight, bias):
    return (x.bfloat16().mT @ weight.bfloat16()).float()


def without_bias(x, weight, bias):
    return (x.bfloat16() @ weight.bfloat16().T).float()


def cuts_the_weight_off(x, weight, bias):
    return right(x, weight.detach(), bias)


def cuts_x_off(x, weight, bias):
    return right(x.data, weight, bias)


def knows_no_gradient(x, weight, bias):
    with torch.no_grad():
        return right(x, weight, bias)


def doubles_the_gradient(x, weight, bias):
    return right(x, 2 * weight - weight.detach(), bias)


def another_shape(x, weight, bias):
    return in_fp32(x, weight, bias).sum(0)


CHECK = exercises.check_06_mixed_linear
RIGHT = right
ALSO_RIGHT = [by_autocast]
RAISES = [(transposed, RuntimeError, "mat1 and mat2")]
WRONG = [
    (nothing, "return a tensor; returned was None"),
    (in_fp32, "x of 1.000977 is 1 in bf16…x was multiplied in 32 bits"),
    (in_fp16, "…x was rounded to fp16, as .half() does; .bfloat16() rounds to bf16"),
    (by_autocast_in_fp16, "…x was rounded to fp16"),
    (only_the_weight_in_fp16, "…the weight was rounded to fp16"),
    (only_x, "the weight of 1.000977 is 1 in bf16"),
    (only_weight, "x of 1.000977 is 1 in bf16"),
    (rounds_and_multiplies_in_fp32, "the rounded factors were multiplied in 32 bits"),
    (stays_in_bf16, "the result is torch.bfloat16"),
    (rounds_the_bias, "…the bias was rounded"),
    (rounds_the_sum, "…the bias was rounded"),
    (rounds_for_good, "the weight was changed for good"),
    (converts_for_good, "the weight was changed for good"),
    (without_bias, "…it has to be x @ weight.T + bias"),
    (cuts_the_weight_off, "no gradient arrives at the weight"),
    (cuts_x_off, "no gradient arrives at x"),
    (knows_no_gradient, "the result knows no gradient"),
    (doubles_the_gradient, "the gradient of the weight is [[8.0, 12.0]]"),
    (another_shape, "x of (2, 3) and a weight of (4, 3) give (2, 4), yours gives (4,)"),
]
