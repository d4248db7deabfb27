"""The exercise of the front notebook 18: one update, clipped by hand."""

import pytest
import torch
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from course.exercises import check_18_clipped_update


def gradients(optimizer):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return [p.grad for p in parameters if p.grad is not None]


def accumulate(losses, scaler):
    for loss in losses:
        scaler.scale(loss / len(losses)).backward()


def clip(optimizer, max_norm):
    parts = gradients(optimizer)
    norm = torch.stack([part.norm() for part in parts]).norm()
    for part in parts:
        part.mul_((max_norm / norm).clamp(max=1))
    return norm


def finish(scaler, optimizer):
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


def right(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    norm = clip(optimizer, max_norm)
    finish(scaler, optimizer)
    return norm


def right_with_if(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    parts = gradients(optimizer)
    norm = sum(float((part**2).sum()) for part in parts) ** 0.5
    if norm > max_norm:
        for part in parts:
            part *= max_norm / norm
    finish(scaler, optimizer)
    return norm


def right_with_torch(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    norm = clip_grad_norm_(optimizer.param_groups[0]["params"], max_norm)
    finish(scaler, optimizer)
    return norm


def stub(losses, scaler, optimizer, max_norm): ...


def never_clips(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    norm = torch.stack([part.norm() for part in gradients(optimizer)]).norm()
    finish(scaler, optimizer)
    return norm


def always_scales(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    parts = gradients(optimizer)
    norm = torch.stack([part.norm() for part in parts]).norm()
    for part in parts:
        part.mul_(max_norm / norm)
    finish(scaler, optimizer)
    return norm


def each_tensor_alone(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    parts = gradients(optimizer)
    norm = torch.stack([part.norm() for part in parts]).norm()
    for part in parts:
        part.mul_((max_norm / part.norm()).clamp(max=1))
    finish(scaler, optimizer)
    return norm


def sum_of_norms(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    parts = gradients(optimizer)
    norm = sum(part.norm() for part in parts)
    for part in parts:
        part.mul_((max_norm / norm).clamp(max=1))
    finish(scaler, optimizer)
    return norm


def by_value(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    parts = gradients(optimizer)
    norm = torch.stack([part.norm() for part in parts]).norm()
    clip_grad_value_(optimizer.param_groups[0]["params"], max_norm)
    finish(scaler, optimizer)
    return norm


def before_unscaling(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    norm = clip(optimizer, max_norm)
    finish(scaler, optimizer)
    return norm / scaler.get_scale()


def unscales_after(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    norm = clip(optimizer, max_norm * scaler.get_scale()) / scaler.get_scale()
    finish(scaler, optimizer)
    return norm


def each_micro_batch(losses, scaler, optimizer, max_norm):
    for loss in losses:
        scaler.scale(loss / len(losses)).backward()
        norm = clip(optimizer, max_norm * scaler.get_scale()) / scaler.get_scale()
    scaler.unscale_(optimizer)
    finish(scaler, optimizer)
    return norm


def sums_the_losses(losses, scaler, optimizer, max_norm):
    for loss in losses:
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = clip(optimizer, max_norm)
    finish(scaler, optimizer)
    return norm


def keeps_the_gradients(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    norm = clip(optimizer, max_norm)
    scaler.step(optimizer)
    scaler.update()
    return norm


def leaves_nan(losses, scaler, optimizer, max_norm):
    """Clears the gradients first, so that only what it leaves can tell."""
    optimizer.zero_grad()
    norm = right(losses, scaler, optimizer, max_norm)
    optimizer.param_groups[0]["params"][0].grad = torch.tensor([torch.nan])
    return norm


def steps_past_the_scaler(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    norm = clip(optimizer, max_norm)
    optimizer.step()
    scaler.update()
    optimizer.zero_grad()
    return norm


def never_updates_the_scale(losses, scaler, optimizer, max_norm):
    accumulate(losses, scaler)
    scaler.unscale_(optimizer)
    norm = clip(optimizer, max_norm)
    scaler.step(optimizer)
    optimizer.zero_grad()
    return norm


def returns_what_is_left(losses, scaler, optimizer, max_norm):
    return right(losses, scaler, optimizer, max_norm).clamp(max=max_norm)


def returns_nothing(losses, scaler, optimizer, max_norm):
    right(losses, scaler, optimizer, max_norm)


SOLUTIONS = [right, right_with_if, right_with_torch, unscales_after]


@pytest.mark.parametrize("answer", SOLUTIONS)
def test_solutions_pass(answer, capsys):
    assert check_18_clipped_update(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (stub, "with max_norm=1 the weights moved by (0, 0), not by (0.6, 0.8)"),
        (never_clips, "the weights moved by (3, 4), not by (0.6, 0.8)"),
        (always_scales, "which is short: with max_norm=1 the weights moved by (0.6, 0.8)"),
        (each_tensor_alone, "the weights moved by (1, 1), not by (0.6, 0.8)"),
        (sum_of_norms, "the weights moved by (0.4286, 0.5714), not by (0.6, 0.8)"),
        (by_value, "the weights moved by (1, 1), not by (0.6, 0.8)"),
        (before_unscaling, "not by (0.6, 0.8)"),
        (each_micro_batch, "the weights moved by (0.3728, 0.9279), not by (0.8, 0.6)"),
        (sums_the_losses, "the norm before clipping is 2.5; returned was 5"),
        (keeps_the_gradients, "after an update its gradients are still there"),
        (leaves_nan, "after an update its gradients are still there"),
        (steps_past_the_scaler, "a gradient of (inf, 0), whose step the scaler skips"),
        (never_updates_the_scale, "torch said: unscale_() is being called after step()"),
        (returns_what_is_left, "the norm before clipping is 5; returned was 1"),
        (returns_nothing, "return the norm; returned was None"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_18_clipped_update(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ") and hint in printed, printed


def test_random_state_and_grad_mode_are_untouched():
    state = torch.get_rng_state()
    check_18_clipped_update(right)
    assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled()
