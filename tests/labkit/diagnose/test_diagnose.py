"""The diagnosis: it leaves everything as it was, tells what fails, and finds what is gross.

No test asserts a time. A planted fault that is measured is several times the rest of its step.
"""

import json
import random
import re
import time

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import labkit
from labkit.diagnose import Diagnosis, Finding
from labkit.diagnose.findings import ranked
from labkit.preserve import rng_state
from labkit.switches import torch_flags
from tests.labkit.diagnose.programs import PROGRAMS, TUNED

SHORT = 1.5


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.Linear(32, 4))


def batches(count=4, samples=8):
    return [(torch.randn(samples, 16), torch.randint(4, (samples,))) for _ in range(count)]


def trained_by(model, optimizer):
    def step(batch):
        inputs, targets = batch
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def plain(item):
    """State as something that can be compared."""
    if isinstance(item, torch.Tensor):
        return item.tolist()
    if isinstance(item, np.ndarray):
        return item.tolist()
    if isinstance(item, dict):
        return {str(key): plain(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [plain(each) for each in item]
    return repr(item)


# ------------------------------------------------------------------------------- as it was before


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_it_leaves_everything_as_it_was(kind):
    model = small()
    optimizer = kind(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    train = trained_by(model, optimizer)
    losses = []
    data = batches()

    def step(batch):
        losses.append(train(batch).item())
        schedule.step()
        random.random()
        np.random.rand()

    step(data[0])
    loader = DataLoader(data, batch_size=None, shuffle=True, generator=torch.Generator())

    def everything():
        return plain(
            [
                model.state_dict(),
                optimizer.state_dict(),
                schedule.state_dict(),
                [each.grad for each in model.parameters()],
                [each.requires_grad for each in model.parameters()],
                losses,
                data,
                loader.generator.get_state(),
                rng_state(),
                torch_flags(),
                model.training,
                sorted(vars(model)),
                sorted(vars(optimizer)),
            ]
        )

    before = everything()
    patched = torch.autograd.backward, torch.Tensor.zero_, torch.zeros_like, open, torch.save
    found = labkit.diagnose(step, loader, seconds=SHORT)
    assert isinstance(found, Diagnosis)
    assert everything() == before
    now = torch.autograd.backward, torch.Tensor.zero_, torch.zeros_like, open, torch.save
    assert all(one is other for one, other in zip(now, patched, strict=True))
    assert "forward" not in vars(model) and "zero_" not in vars(torch.Tensor)


def test_switches_of_the_step_are_as_before():
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        model = small()
        before = torch_flags()
        labkit.diagnose(
            trained_by(model, torch.optim.SGD(model.parameters())), batches(), seconds=1
        )
        assert torch_flags() == before
    finally:
        torch.autograd.set_detect_anomaly(False)
        torch.use_deterministic_algorithms(False)


def test_variables_that_the_step_binds_anew_are_as_before_and_told():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))
    total = torch.zeros(())
    count = 0

    def step(batch):
        nonlocal total, count
        total = total + train(batch)
        count += 1

    kept = total
    found = labkit.diagnose(step, batches(), seconds=SHORT)
    assert total is kept and count == 0
    assert any("count" in note and "total" in note for note in found.notes)


counted = 0


def test_globals_and_attributes_are_as_before_and_told():
    class Trainer:
        def __init__(self):
            self.model = small()
            self.train = trained_by(self.model, torch.optim.SGD(self.model.parameters()))
            self.steps = 0

        def step(self, batch):
            global counted
            counted += 1
            self.steps += 1
            self.train(batch)

    trainer = Trainer()
    before = plain(trainer.model.state_dict())
    found = labkit.diagnose(trainer.step, batches(), seconds=SHORT)
    assert (counted, trainer.steps) == (0, 0)
    assert plain(trainer.model.state_dict()) == before
    assert any("counted" in note and "steps" in note for note in found.notes)


def test_a_step_that_writes_into_its_batches_is_given_copies():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))
    data = batches()

    def step(batch):
        train((batch[0].mul_(2), batch[1]))

    before = plain(data)
    found = labkit.diagnose(step, data, seconds=SHORT)
    assert any("writes into its batches" in note for note in found.notes)
    assert plain(data) == before


def test_files_are_told(tmp_path):
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))

    def step(batch):
        train(batch)
        (tmp_path / "log.txt").open("a").close()
        torch.save(model.state_dict(), str(tmp_path / "model.pt"))

    found = labkit.diagnose(step, batches(), seconds=SHORT)
    told = " ".join(found.notes)
    assert "log.txt" in told and "model.pt" in told


# ------------------------------------------------------------------------------------ what fails


def test_what_the_first_step_raises_comes_through_and_nothing_is_changed():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train = trained_by(model, optimizer)
    before = plain(model.state_dict())

    def broken(batch):
        train(batch)
        raise KeyError("no such column")

    with pytest.raises(KeyError, match="no such column") as error:
        labkit.diagnose(broken, batches(), seconds=SHORT)
    assert "while diagnosing 'broken'" in "".join(error.value.__notes__)
    assert plain(model.state_dict()) == before
    assert not nn.modules.module._global_forward_hooks


def test_a_step_that_hangs_is_ended_with_a_clear_word():
    def hangs(batch):
        while True:
            time.sleep(0.01)

    with pytest.raises(TimeoutError, match=r"the first step took longer than 0.5 s.*patience=1"):
        labkit.diagnose(hangs, batches(), patience=0.5)


def test_a_loader_that_hangs_is_ended_with_a_clear_word():
    class Hangs(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, index):
            time.sleep(60)

    with pytest.raises(TimeoutError, match="loading the first batches"):
        labkit.diagnose(lambda batch: None, DataLoader(Hangs(), num_workers=1), patience=1)


def test_an_experiment_that_the_step_does_not_bear_is_told():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))

    def step(batch):
        if len(batch[0]) != 8:
            raise RuntimeError("eight and no more")
        train(batch)

    found = labkit.diagnose(step, batches(), seconds=8)
    reason = found.unmeasured["batch too small for the fixed costs of a step"]
    assert reason == "RuntimeError: eight and no more"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((3,), TypeError, "step=3 cannot be called"),
        ((lambda: None, batches(1)), TypeError, r"called as step\(batch\)"),
        ((lambda batch: None,), TypeError, r"called as step\(\)"),
        ((lambda batch: None, 3), TypeError, "batches=3 has no batches"),
        ((lambda batch: None, iter(batches(1))), TypeError, "can be read only once"),
        ((lambda batch: None, []), ValueError, "is empty"),
    ],
)
def test_bad_input_is_named(arguments, error, words):
    with pytest.raises(error, match=words):
        labkit.diagnose(*arguments)


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"seconds": -1.0}, {"patience": 0}])
def test_bad_budgets_are_named(wrong):
    with pytest.raises(ValueError, match=re.escape(next(iter(wrong)))):
        labkit.diagnose(lambda: None, **wrong)


# --------------------------------------------------------------------------------- what is found

# By how they act: each is many times its step, or exact.
GROSS = ["slow_collate", "losses_with_graphs", "tiny_batch", "profiled"]


@pytest.mark.parametrize("name", GROSS)
def test_gross_faults_are_named(name):
    torch.manual_seed(0)
    program = PROGRAMS[name].make(False)
    try:
        found = labkit.diagnose(program.step, program.batches, seconds=12)
    finally:
        program.close()
    # Beside other tests waiting threads are a fault of their own, and may come first.
    assert {each.name for each in found.findings} & {*PROGRAMS[name].names}, str(found)


def test_a_slow_dataset_is_told_from_a_slow_collate_function():
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            time.sleep(0.005)
            return torch.zeros(16), 1

    model = small()
    step = trained_by(model, torch.optim.SGD(model.parameters()))
    found = labkit.diagnose(step, DataLoader(Slow(), batch_size=8), seconds=3)
    assert found[0].name == "slow samples in the dataset"
    assert found[0].notebook == "04_data_loading"
    assert len(found[0].remedy.splitlines()) == 2
    low, high = found[0].interval
    assert 0 < low <= found[0].share <= high <= 1


def test_nothing_is_found_where_nothing_takes_time():
    found = labkit.diagnose(lambda: time.sleep(0.02), seconds=1)
    assert len(found) == 0
    assert "Nothing found" in str(found) and "Nothing found" in found._repr_html_()


def test_what_a_step_uses_is_seen():
    from labkit.diagnose.observe import count_operators, observe

    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters())
    batch = batches(1)[0]
    known = []
    seen = observe(lambda: trained_by(model, optimizer)(batch), known.append)
    assert seen.roots == [model] and seen.optimizers == [optimizer]
    assert known == [model, optimizer]
    assert seen.biased == [model[0]]
    assert (seen.backwards, seen.zeroed, seen.accumulated) == (1, 0, 0)
    assert not (seen.anomaly or seen.profiled or seen.deterministic or seen.recomputed)
    count_operators(lambda: trained_by(model, optimizer)(batch), seen)
    assert seen.launches["forward"] > 0 and seen.launches["backward"] > 0


# These are found by the clock or by counting bytes; the benchmark holds them.
BY_CLOCK = {
    *("slow_collate", "augmented_by_sample", "one_worker_too_few", "restarted_loader"),
    *("metrics_in_python", "recompiled", "losses_with_graphs", "validation_losses_with_graphs"),
    *("clipped_by_hand", "optimizer_by_hand", "flipped_one_by_one", "collate_and_loop"),
    # Tried for every batch, whatever its size.
    *("tiny_batch", "tiny_batch_of_images"),
}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in BY_CLOCK])
def test_each_planted_fault_is_tried_and_not_its_mended_form(name):
    assert applies(name, mended=False)
    assert not applies(name, mended=True)


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("clipped_by_hand", "after backward"),
        ("optimizer_by_hand", "after backward"),
        ("flipped_one_by_one", "before"),
    ],
)
def test_loops_in_python_call_many_operators(name, phase):
    counted = []
    for mended in (False, True):
        subject = looked_at(PROGRAMS[name].make(mended))
        counted.append(subject.seen.launches.get(phase, 0))
    least = len(subject.seen.parameters) if phase != "before" else 512
    assert counted[0] >= 2 * least and counted[0] > 3 * counted[1]


def looked_at(program):
    from labkit.diagnose.observe import count_operators, observe
    from labkit.diagnose.subject import Subject

    subject = Subject(program.step, program.batches)
    if program.batches is not None:
        subject.keep(program.batches)
    step = subject.serve()
    step()
    subject.seen = observe(step, lambda item: None)
    count_operators(step, subject.seen)
    return subject


def applies(name, mended):
    from labkit.diagnose.checks import EXPERIMENTS

    program = PROGRAMS[name].make(mended)
    try:
        subject = looked_at(program)
        names = {each.name for check in EXPERIMENTS for each in check(subject)}
        return bool(names & set(PROGRAMS[name].names))
    finally:
        program.close()


def test_there_are_enough_programs():
    assert len(PROGRAMS) >= 24 and len(TUNED) >= 5


# ---------------------------------------------------------------------------------- what is shown


def finding(name="one", share=0.5, interval=(0.4, 0.6), of="time"):
    return Finding(name, share, interval, "by hand", "do this;\nand that.", "04_data_loading", of)


def test_findings_are_ranked():
    found = ranked(
        [
            finding("small", 0.1, (0.05, 0.15)),
            finding("unsure", 0.5, (0.0, 0.9)),
            finding("large", 0.4, (0.3, 0.5)),
            finding("large", 0.3, (0.2, 0.4)),
            finding("grows", 0.2, (0.2, 0.2), "memory"),
        ]
    )
    assert [each.name for each in found] == ["grows", "large", "small"]
    assert found[1].share == 0.4


def test_a_diagnosis_reads_well():
    found = Diagnosis((finding("<b>"),), 0.1, 20.0, {"forward": 0.7}, ("a note",), {"x": "why"})
    text = str(found)
    assert "1. <b>: 50% of the time [40%, 60%]" in text
    assert "do this;\n    and that." in text and "notebook: 04_data_loading" in text
    assert "Note: a note." in text and "Not measured: x (why)." in text
    page = found._repr_html_()
    assert "&lt;b&gt;" in page and "<b>:" not in page and "04_data_loading" in page
    assert found[0].speedup == pytest.approx(2.0)
    assert [each.name for each in found] == ["<b>"] and len(found) == 1


# ----------------------------------------------------------------------------------- a with-block


def test_a_loop_is_watched_as_it_runs():
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 80

        def __getitem__(self, index):
            time.sleep(0.005)
            return torch.zeros(16), 1

    model = small()
    step = trained_by(model, torch.optim.SGD(model.parameters()))
    weights = plain(model.state_dict())
    with labkit.diagnose.watch() as found:
        for batch in DataLoader(Slow(), batch_size=8):
            step(batch)
    assert plain(model.state_dict()) != weights
    assert found.diagnosis[0].name == "slow samples in the dataset"
    assert len(found.steps) == 8
    assert "slow samples" in str(found) and "slow samples" in found._repr_html_()


def test_a_watched_loop_that_fails_fails_and_leaves_nothing():
    backward, ask = torch.autograd.backward, DataLoader.__iter__
    with pytest.raises(KeyError), labkit.diagnose.watch() as found:
        raise KeyError("no")
    assert torch.autograd.backward is backward and DataLoader.__iter__ is ask
    with pytest.raises(RuntimeError, match="still runs, or failed"):
        _ = found.diagnosis


def test_what_a_watched_loop_has_on_is_noted():
    model = small()
    step = trained_by(model, torch.optim.SGD(model.parameters()))
    with torch.autograd.set_detect_anomaly(True), labkit.diagnose.watch() as found:
        for batch in batches(9):
            step(batch)
    assert any("anomaly mode is on" in note for note in found.diagnosis.notes)


def test_tensors_in_datasets_are_not_copied():
    from labkit.diagnose.reach import MOST_BYTES, reached

    data = torch.zeros(MOST_BYTES // 4 + 1)
    held = TensorDataset(data)
    loader = DataLoader(held)

    def step():
        return data, loader

    found = reached(step)
    assert found.state == [] and found.data["data"] is data and found.loaders == [loader]


def test_findings_are_plain_values():
    assert json.dumps(finding().__dict__)
