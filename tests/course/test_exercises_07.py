"""The exercise of notebook 07: Kahan's carry beside 16-bit weights."""

import pytest
import torch

from course.exercises import check_07_kahan_add


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


def empty(weight, carry, update): ...


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


@pytest.mark.parametrize("answer", [right, also_right])
def test_the_solution_passes(answer, capsys):
    assert check_07_kahan_add(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize("answer", [empty, not_in_place])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_07_kahan_add(answer) is False
    assert capsys.readouterr().out.startswith(
        "not yet: after one update of eps / 8 in torch.bfloat16 the weight is 1 and"
    )


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (no_carry, "the carry has to hold all of"),
        (wrong_sign, "the carry has to hold all of"),
        (too_late, "256 updates of"),
        (forgets_old_carry, "256 updates of"),
        (grows_to_nan, "in torch.bfloat16 took 1 to nan"),
        (in_fp32, "something was computed in torch.float32; torch.bfloat16 alone is allowed"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_07_kahan_add(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert hint in printed


def test_random_state_and_grad_mode_are_untouched():
    state = torch.get_rng_state()
    check_07_kahan_add(right)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
