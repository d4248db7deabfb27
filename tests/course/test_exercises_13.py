"""The exercise of notebook 13: one update from micro-batches with different numbers of tokens."""

import pytest
import torch
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

from course.exercises import check_13_one_update


def token_loss(model, inputs, targets, reduction="sum"):
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten(), reduction=reduction)


def count(micro_batches):
    return sum((targets != -100).sum() for _, targets in micro_batches)


def finish(model, optimizer, max_norm):
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    optimizer.zero_grad()


def right(model, optimizer, micro_batches, max_norm):
    tokens = count(micro_batches)
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets) / tokens).backward()
    finish(model, optimizer, max_norm)


def divides_at_the_end(model, optimizer, micro_batches, max_norm):
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        token_loss(model, inputs, targets).backward()
    for parameter in model.parameters():
        parameter.grad /= count(micro_batches)
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()


def empty(model, optimizer, micro_batches, max_norm): ...


def mean_of_means(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets, "mean") / len(micro_batches)).backward()
    finish(model, optimizer, max_norm)


def not_divided(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        token_loss(model, inputs, targets, "mean").backward()
    finish(model, optimizer, max_norm)


def sums(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        token_loss(model, inputs, targets).backward()
    finish(model, optimizer, max_norm)


def counts_padding(model, optimizer, micro_batches, max_norm):
    places = sum(targets.numel() for _, targets in micro_batches)
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets) / places).backward()
    finish(model, optimizer, max_norm)


def forgets_the_others(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        optimizer.zero_grad()
        token_loss(model, inputs, targets, "mean").backward()
    finish(model, optimizer, max_norm)


def weighted_means(model, optimizer, micro_batches, max_norm):
    tokens = count(micro_batches)
    for inputs, targets in micro_batches:
        share = (targets != -100).sum() / tokens
        (token_loss(model, inputs, targets, "mean") * share).backward()
    finish(model, optimizer, max_norm)


def means_by_hand(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        tokens = (targets != -100).sum()
        share = tokens / count(micro_batches)
        (token_loss(model, inputs, targets) / tokens * share).backward()
    finish(model, optimizer, max_norm)


def never_steps(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets) / count(micro_batches)).backward()


def steps_each_time(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets) / count(micro_batches)).backward()
        finish(model, optimizer, max_norm)


def clips_in_the_loop(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets) / count(micro_batches)).backward()
        clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    optimizer.zero_grad()


def never_clips(model, optimizer, micro_batches, max_norm):
    right(model, optimizer, micro_batches, float("inf"))


def keeps_gradients(model, optimizer, micro_batches, max_norm):
    for inputs, targets in micro_batches:
        (token_loss(model, inputs, targets) / count(micro_batches)).backward()
    clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()


def one_backward(model, optimizer, micro_batches, max_norm):
    losses = [token_loss(model, inputs, targets) for inputs, targets in micro_batches]
    (sum(losses) / count(micro_batches)).backward()
    finish(model, optimizer, max_norm)


@pytest.mark.parametrize("answer", [right, divides_at_the_end, weighted_means, means_by_hand])
def test_the_solution_passes(answer, capsys):
    assert check_13_one_update(answer) is True
    assert capsys.readouterr().out.startswith("✓")


@pytest.mark.parametrize("answer", [empty])
def test_an_unsolved_stub_is_told_so(answer, capsys):
    assert check_13_one_update(answer) is False
    assert (
        capsys.readouterr().out
        == "not yet: micro-batches of 18, 3 and 4 tokens: the optimizer made no step\n"
    )


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (mean_of_means, "this is the mean of the means"),
        (not_divided, "these are means that were only added up"),
        (sums, "this is the sum: divide it"),
        (counts_padding, "padding was counted"),
        (forgets_the_others, "the last micro-batch alone"),
        (never_steps, "the optimizer made no step"),
        (steps_each_time, "the optimizer made 3 steps"),
        (clips_in_the_loop, "clip once, behind the last backward()"),
        (never_clips, "clip once, behind the last backward()"),
        (keeps_gradients, "the second update is"),
        (keeps_gradients, "found old gradients"),
        (one_backward, "the right update, but "),
        (one_backward, "times the memory of the largest"),
    ],
)
def test_wrong_updates_fail_and_are_told_why(answer, hint, capsys):
    assert check_13_one_update(answer) is False
    printed = capsys.readouterr().out
    assert printed.startswith("not yet: ")
    assert hint in printed


def test_an_error_of_the_readers_own_code_comes_through():
    def broken(model, optimizer, micro_batches, max_norm):
        return model(micro_batches)

    with pytest.raises(TypeError):
        check_13_one_update(broken)


def test_random_state_and_grad_mode_are_untouched():
    state = torch.get_rng_state()
    check_13_one_update(right)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
