"""The exercise of notebook 14: accumulate gradients with one exchange between the processes."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from course.exercises import check_14_one_reduction


def solution(model, micro_batches):
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()


def test_the_solution_passes_and_leaves_no_process_group(capsys):
    state = torch.get_rng_state()
    assert check_14_one_reduction(solution) is True
    assert capsys.readouterr().out.startswith("✓ the right gradient")
    assert not dist.is_initialized()
    assert torch.equal(state, torch.get_rng_state())


def empty(model, micro_batches): ...


def every_time(model, micro_batches):
    for inputs, targets in micro_batches:
        (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()


def backward_only(model, micro_batches):
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        loss = F.mse_loss(model(inputs), targets) / len(micro_batches)
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            loss.backward()


def never(model, micro_batches):
    with model.no_sync():
        every_time(model, micro_batches)


def sums(model, micro_batches):
    for number, (inputs, targets) in enumerate(micro_batches, start=1):
        with model.no_sync() if number < len(micro_batches) else nullcontext():
            F.mse_loss(model(inputs), targets).backward()


def all_at_once(model, micro_batches):
    sum(
        F.mse_loss(model(inputs), targets) / len(micro_batches) for inputs, targets in micro_batches
    ).backward()


def first_only(model, micro_batches):
    solution(model, micro_batches[:1])


def not_for_one(model, micro_batches):
    with model.no_sync():
        for inputs, targets in micro_batches[:-1] or micro_batches:
            (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()
    if len(micro_batches) > 1:
        inputs, targets = micro_batches[-1]
        (F.mse_loss(model(inputs), targets) / len(micro_batches)).backward()


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (empty, "after 4 micro-batches there are no gradients: call backward() for each"),
        (every_time, "4 micro-batches: 4 exchanges, one is enough."),
        (
            backward_only,
            "4 micro-batches: 4 exchanges, one is enough. DDP decides in the forward pass",
        ),
        (
            never,
            "4 micro-batches: the gradients were never exchanged; "
            "the last must run without no_sync()",
        ),
        (sums, "4 micro-batches: the gradient is 4 times too large; divide each loss"),
        (
            all_at_once,
            "4 micro-batches: 4 graphs at once; call backward() for each before the next",
        ),
        (first_only, "4 micro-batches: this is not the gradient of the mean loss over all of them"),
        (not_for_one, "1 micro-batch: the gradients were never exchanged"),
    ],
)
def test_wrong_answers_fail_and_are_told_why(answer, hint, capsys):
    assert check_14_one_reduction(answer) is False
    assert capsys.readouterr().out.startswith(f"not yet: {hint}")
    assert not dist.is_initialized()


def test_an_error_in_the_answer_is_raised_and_the_group_ends():
    with pytest.raises(ZeroDivisionError):
        check_14_one_reduction(lambda model, micro_batches: 1 // 0)
    assert not dist.is_initialized()


def test_a_process_group_of_the_reader_s_is_used_and_left_alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert check_14_one_reduction(solution) is True
        assert dist.is_initialized()
    finally:
        dist.destroy_process_group()
