"""The exercise of notebook 06: the order of GradScaler's calls around gradient clipping."""

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from course.exercises import check_06_clip_order


def right(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(parameters, max_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def empty(scaler, optimizer, parameters, loss, max_norm): ...


def clips_scaled(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    clip_grad_norm_(parameters, max_norm)
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def never_unscales(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    clip_grad_norm_(parameters, max_norm)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def never_clips(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def no_scaler(scaler, optimizer, parameters, loss, max_norm):
    loss.backward()
    clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    optimizer.zero_grad()


def steps_itself(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    scaler.update()
    optimizer.zero_grad()


def never_updates(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(parameters, max_norm)
    scaler.step(optimizer)
    optimizer.zero_grad()


def keeps_gradients(scaler, optimizer, parameters, loss, max_norm):
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(parameters, max_norm)
    scaler.step(optimizer)
    scaler.update()


def test_the_solution_passes(capsys):
    assert check_06_clip_order(right) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_06_clip_order(answer) is False
    assert capsys.readouterr().out.startswith(
        "not yet: a gradient of norm 5, to be clipped to norm 1, moved the weight by 0, not by 1"
    )


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (clips_scaled, "moved the weight by 1.53e-05, not by 1"),
        (never_unscales, "moved the weight by 1.53e-05, not by 1"),
        (never_clips, "moved the weight by 5, not by 1"),
        (no_scaler, "whose step has to be skipped, moved the weight by nan"),
        (steps_itself, "whose step has to be skipped, moved the weight by nan"),
        (
            never_updates,
            "to be skipped, torch said: unscale_() is being called after step()",
        ),
        (
            keeps_gradients,
            "after that one, of norm 0.5 and not to be clipped, moved the weight by 0, not by 0.5",
        ),
    ],
)
def test_wrong_orders_fail_and_are_told_why(answer, hint, capsys):
    assert check_06_clip_order(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert hint in printed


def test_random_state_and_grad_mode_are_untouched():
    state = torch.get_rng_state()
    check_06_clip_order(right)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
