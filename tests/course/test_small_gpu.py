"""A card smaller than the one at hand, and the largest batch that fits on it."""

import pytest
import torch

from course.small_gpu import SmallGpu, Trial, emulate_small_gpu, search_batch, try_batch
from labkit import Workload


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 64, 100, 1000])
def test_the_largest_batch_is_found_in_few_probes(limit: int) -> None:
    asked: list[int] = []

    def trial(batch: int) -> Trial:
        asked.append(batch)
        return Trial(batch, batch <= limit, 10 * batch, 16 * batch)

    found = search_batch(trial)
    assert (
        found.best is not None
        and found.best.batch_size == limit
        and found.best.allocated == 10 * limit
    )
    assert len(asked) == len(set(asked)) <= 2 * limit.bit_length() + 1
    assert f"batch {limit}" in str(found) and "measured" in str(found)


def test_no_batch_and_every_batch() -> None:
    nothing = search_batch(lambda batch: Trial(batch, False))
    assert nothing.best is None and "no batch fits" in str(nothing) and len(nothing.trials) == 1
    everything = search_batch(
        lambda batch: Trial(batch, True), start=3, limit=100, source="predicted"
    )
    assert (
        everything.best is not None
        and everything.best.batch_size == 100
        and "predicted" in str(everything)
    )
    with pytest.raises(ValueError, match=r"start=5, limit=3"):
        search_batch(lambda batch: Trial(batch, True), start=5, limit=3)


def make(batch_size: int) -> Workload:
    """A step that runs out of memory above 1 sample."""
    weight = torch.zeros(1000, requires_grad=True)

    def step() -> torch.Tensor:
        if batch_size > 1:
            raise torch.OutOfMemoryError(f"pretends that {batch_size} samples are too many")
        (weight * torch.ones(batch_size, 1000)).sum().backward()
        return torch.zeros(())

    return Workload(step, batch_size)


def test_each_probe_has_a_process_of_its_own() -> None:
    found = search_batch(lambda batch: try_batch(make, batch, None), limit=2)
    assert [(trial.batch_size, trial.fits) for trial in found.trials] == [(1, True), (2, False)]
    assert (
        found.best is not None
        and found.best.allocated is not None
        and found.best.allocated >= 2 * 4000
    )


def test_a_probe_that_is_wrong_otherwise_is_no_answer() -> None:
    def broken(batch_size: int) -> Workload:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        try_batch(broken, 1, None)


def test_cards() -> None:
    card = SmallGpu(16)
    assert card.limit_bytes == int(15.5 * 2**30) and "16 GiB, 0.5 GiB of it assumed" in str(card)
    with pytest.raises(ValueError, match=r"gib=0\.25"):
        SmallGpu(0.25)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="needs a CUDA device"):
            emulate_small_gpu(16)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_emulated_card_is_as_small_as_it_says() -> None:
    def fill(batch_size: int) -> Workload:
        def step() -> torch.Tensor:
            # 192 MiB each, of half a GiB. On a rehearsed card that is the host's memory.
            return torch.empty(batch_size * 48 * 2**20, device="cuda").sum()

        return Workload(step, batch_size)

    found = search_batch(lambda batch: try_batch(fill, batch, SmallGpu(1.0)), limit=4)
    assert found.best is not None and found.best.batch_size == 2
