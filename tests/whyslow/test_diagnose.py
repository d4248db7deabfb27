"""The diagnosis: it leaves everything as it was, tells what fails, and finds what is gross.

No test asserts a time. A planted fault that is measured is several times the rest of its step.
"""

import functools
import json
import os
import random
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import whyslow
from labkit.restore import preserve_flags, restoring
from labkit.restore.generators import rng_state
from labkit.restore.switches import torch_flags
from tests.whyslow.parts import full, looked_at, trainer
from tests.whyslow.programs import PROGRAMS, TUNED
from whyslow import Diagnosis, Finding
from whyslow.findings import ranked

ROOT = Path(__file__).resolve().parents[2]
# Seconds of budget: enough for every kind of experiment, and for some.
LONG, SHORT = 1.5, 0.5


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.5), nn.Linear(32, 4))


def batches(count=4, samples=8):
    return [(torch.randn(samples, 16), torch.randint(4, (samples,))) for _ in range(count)]


trained_by = functools.partial(trainer, precision=full)


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
    found = whyslow.diagnose(step, loader, seconds=LONG)
    assert isinstance(found, Diagnosis)
    assert everything() == before
    now = torch.autograd.backward, torch.Tensor.zero_, torch.zeros_like, open, torch.save
    assert all(one is other for one, other in zip(now, patched, strict=True))
    assert "forward" not in vars(model) and "zero_" not in vars(torch.Tensor)


class Rolled(torch.utils.data.Dataset):
    """Rows that are augmented by a generator of the dataset's own."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((16,), self.rng.random(), dtype=torch.float32), index % 4


def test_random_generators_of_ones_own_are_as_before():
    own, rng = torch.Generator(), random.Random(0)
    dataset = Rolled()
    sampler = torch.utils.data.RandomSampler(dataset, generator=own)
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))

    def step(batch):
        rng.random()
        train(batch)

    def states():
        return plain([own.get_state(), rng.getstate(), dataset.rng.bit_generator.state])

    before = states()
    whyslow.diagnose(step, DataLoader(dataset, batch_size=8, sampler=sampler), seconds=SHORT)
    assert states() == before


class Marks:
    """A count that nobody puts back: classes are not looked into."""

    count = 0


@pytest.mark.parametrize("at", [1, 2, 8, 30, 60])
def test_an_interrupt_at_any_time_leaves_everything_as_it_was(at):
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    train = trained_by(model, optimizer)
    data = batches()
    Marks.count = 0

    def step(batch):
        train(batch)
        Marks.count += 1
        if Marks.count == at:
            raise KeyboardInterrupt

    def everything():
        patched = torch.autograd.backward, torch.Tensor.zero_, torch.zeros_like, open, torch.save
        states = [model.state_dict(), optimizer.state_dict(), rng_state(), torch_flags(), patched]
        return plain([*states, sorted(vars(model)), sorted(vars(optimizer)), model[0].bias])

    before = everything()
    # Long enough for the last of these steps on a slow machine: the interrupt ends it.
    with pytest.raises(KeyboardInterrupt):
        whyslow.diagnose(step, data, seconds=60)
    assert everything() == before
    assert not nn.modules.module._global_forward_hooks


def test_the_workers_of_a_loader_that_is_in_use_live_on():
    loader = DataLoader(Rolled(), batch_size=8, num_workers=1, persistent_workers=True)
    model = small()
    step = trained_by(model, torch.optim.SGD(model.parameters()))
    batch = next(iter(loader))
    own = loader._iterator
    step(batch)
    try:
        whyslow.diagnose(step, loader, seconds=1)
        assert loader._iterator is own
        assert all(worker.is_alive() for worker in own._workers)
    finally:
        own._shutdown_workers()


def test_one_more_worker_changes_nothing_else_of_a_loader():
    from whyslow.loading import with_workers

    loader = DataLoader(
        Rolled(),
        batch_size=8,
        num_workers=1,
        persistent_workers=True,
        prefetch_factor=3,
        in_order=False,
        drop_last=True,
        timeout=7,
        generator=torch.Generator(),
    )
    another = with_workers(loader, 2)
    before, after = dict(vars(loader)), dict(vars(another))
    assert (before.pop("num_workers"), after.pop("num_workers")) == (1, 2)
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    # Without any, nobody can be waited for in vain.
    alone = dict(vars(with_workers(loader, 0)))
    assert (before.pop("timeout"), alone.pop("timeout"), alone.pop("num_workers")) == (7, 0, 0)
    assert all(before[name] is alone[name] for name in before)
    assert len(list(with_workers(loader, 0))) == len(loader)


def test_switches_of_the_step_are_as_before():
    torch.autograd.set_detect_anomaly(True)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        model = small()
        before = torch_flags()
        whyslow.diagnose(
            trained_by(model, torch.optim.SGD(model.parameters())), batches(), seconds=1
        )
        assert torch_flags() == before
    finally:
        torch.autograd.set_detect_anomaly(False)
        torch.use_deterministic_algorithms(False)


def test_variables_that_the_step_binds_anew_are_as_before():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))
    total = torch.zeros(())
    count = 0

    def step(batch):
        nonlocal total, count
        total = total + train(batch)
        count += 1

    kept = total
    whyslow.diagnose(step, batches(), seconds=SHORT)
    assert total is kept and count == 0


counted = 0


def test_globals_and_attributes_are_as_before():
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
    whyslow.diagnose(trainer.step, batches(), seconds=SHORT)
    assert (counted, trainer.steps) == (0, 0)
    assert plain(trainer.model.state_dict()) == before


def test_arrays_sets_and_keyword_defaults_are_as_before():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))
    counts, labels, history = np.zeros(3), {-1}, []

    def step(batch, *, log=history):
        counts[0] += 1
        labels.update(batch[1].tolist())
        log.append(train(batch))

    found = whyslow.diagnose(step, batches(), seconds=SHORT)
    assert (counts.tolist(), labels, history) == ([0, 0, 0], {-1}, [])
    assert not any("not put back" in note for note in found.notes)


def test_what_containers_hold_is_as_before():
    class Meter:
        def __init__(self):
            self.count, self.sums = 0, torch.zeros(2)

        def add(self):
            self.count += 1
            self.sums += 1

    train = trained_by(model := small(), torch.optim.SGD(model.parameters()))
    meters, hooks, called = [Meter()], {"deep": [({"later": Meter()},)]}, 0

    def hook():
        nonlocal called
        called += 1

    hooks["called"] = [hook]

    def step(batch):
        train(batch)
        for meter in (*meters, hooks["deep"][0][0]["later"]):
            meter.add()
        for each in hooks["called"]:
            each()

    whyslow.diagnose(step, batches(), seconds=SHORT)
    later = hooks["deep"][0][0]["later"]
    found = [(each.count, each.sums.tolist()) for each in (meters[0], later)]
    assert found == [(0, [0, 0])] * 2 and called == 0


@dataclass(slots=True)
class Slots:
    """No dictionary holds its attributes."""

    steps: int = 0


@dataclass(slots=True, frozen=True)
class Fixed:
    """Nobody binds these anew."""

    rate: float = 0.1


@pytest.mark.parametrize("fails", [False, True])
def test_what_cannot_be_put_back_is_named(tmp_path, fails):
    table = np.zeros(2)
    drawn, raw, streams = iter(range(10**9)), bytearray(2), (iter("ab"),)
    replay = dict.fromkeys(range(20_000))
    own, fixed = Slots(), Fixed()

    def step():
        table[0] += 1
        own.steps += fixed.rate > 0
        raw[0], replay[0] = 1, next(drawn) + len(streams)
        print(end="", file=log)
        if fails:
            raise KeyError("no")

    names = "drawn (an iterator), log (a file), streams[0] (an iterator)"
    with (tmp_path / "log").open("w") as log:
        if fails:
            with pytest.raises(KeyError) as error:
                whyslow.diagnose(step, seconds=0.1)
            told, whose = error.value.__notes__
            wanted = f"(what the step reaches is as before, except {names})"
            assert whose == "(while diagnosing 'step')"
        else:
            notes = whyslow.diagnose(step, seconds=0.1).notes
            [told] = [note for note in notes if "not put back" in note]
            wanted = f"the step reaches {names}: what it changed there was not put back"
    assert (told, table.tolist()) == (wanted, [0, 0])
    assert (own.steps, raw, set(replay.values())) == (0, bytearray(2), {None})


def test_a_step_that_writes_into_its_batches_is_given_copies():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))
    data = batches()

    def step(batch):
        train((batch[0].mul_(2), batch[1]))

    before = plain(data)
    found = whyslow.diagnose(step, data, seconds=SHORT)
    assert any("writes into its batches" in note for note in found.notes)
    assert plain(data) == before


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
        whyslow.diagnose(broken, batches(), seconds=SHORT)
    assert "while diagnosing 'broken'" in "".join(error.value.__notes__)
    assert plain(model.state_dict()) == before
    assert not nn.modules.module._global_forward_hooks


def test_an_experiment_that_the_step_does_not_bear_is_told():
    model = small()
    train = trained_by(model, torch.optim.SGD(model.parameters()))

    def refuses(layer, inputs):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("fp32 and no less")

    model[0].register_forward_pre_hook(refuses)

    # Beside other programs, threads that wait for each other make a small step a slow one.
    with preserve_flags():
        torch.set_num_threads(1)
        found = whyslow.diagnose(train, batches(), seconds=LONG)
    reason = found.unmeasured["fp32 where 16 bits are faster"]
    assert reason == "RuntimeError: fp32 and no less"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((3,), TypeError, "step=3 cannot be called"),
        ((lambda: None, batches(1)), TypeError, "takes 0 positional arguments but 1 was given"),
        ((lambda batch: None,), TypeError, "missing 1 required positional argument: 'batch'"),
        ((lambda batch: None, 3), TypeError, "'int' object is not iterable"),
        ((lambda batch: None, iter(batches(1))), TypeError, "can be read only once"),
        ((lambda batch: None, []), ValueError, "is empty"),
    ],
)
def test_bad_input_is_named(arguments, error, words):
    with pytest.raises(error, match=words):
        whyslow.diagnose(*arguments)


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"seconds": -1.0}])
def test_bad_budgets_are_named(wrong):
    with pytest.raises(ValueError, match=re.escape(next(iter(wrong)))):
        whyslow.diagnose(lambda: None, **wrong)


# --------------------------------------------------------------------------------- what is found

# By how they act: each is many times its step, or exact.
GROSS = ["slow_collate", "losses_with_graphs", "tiny_batch", "profiled"]


@pytest.mark.usefixtures("forked_python")
def test_gross_faults_are_named_first():
    # In a process of their own: threads that an earlier test has left waiting take no core from it.
    done = subprocess.run(
        [sys.executable, "-m", "tests.whyslow.named", *GROSS],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name, line in zip(GROSS, done.stdout.splitlines(), strict=True):
        told = json.loads(line)
        assert told["names"], told["text"]
        assert told["names"][0] in PROGRAMS[name].names, told["text"]


def test_much_validation_is_told_with_its_line_and_is_no_finding():
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(256, 64)

    def step():
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(inputs)
            time.sleep(0.01)  # validates

    found = whyslow.diagnose(step, seconds=LONG)
    [note] = [each for each in found.notes if each.startswith("validation is ")]
    assert "time.sleep(0.01)  # validates: less often, or on a part, may do" in note
    assert not any("validation" in each.name for each in found)


def test_a_step_of_a_batch_without_batches_is_told_what_it_needs():
    with pytest.raises(TypeError, match="missing 1 required") as error:
        whyslow.diagnose(lambda batch: None)
    assert "needs batches=loader" in error.value.__notes__[0]
    with pytest.raises(ValueError, match="mine") as error:
        whyslow.diagnose(fails)
    assert error.value.__notes__ == ["(while diagnosing 'fails')"]


def fails():
    raise ValueError("mine")


def test_on_a_busy_machine_no_number_of_threads_is_named(monkeypatch):
    from labkit.busy import Others
    from whyslow import experiments

    # The experiment itself finds a great gain: one more thread does without the sleep.
    slow = [True]

    @contextmanager
    def without():
        slow[0] = False
        yield
        slow[0] = True

    more = torch.get_num_threads() + 1
    monkeypatch.setattr(experiments, "switched", lambda *given: without())
    monkeypatch.setattr(experiments, "cores", lambda: more)

    def step():
        time.sleep(0.02 * slow[0])

    named = {}
    for others in (0.0, 64.0):
        monkeypatch.setattr(Others, "taken", lambda self, taken=others: taken)
        named[others] = whyslow.diagnose(step, seconds=LONG)
    assert named[0.0][0].name == "too few CPU threads"
    assert len(named[64.0]) == 0
    assert "other programs took" in named[64.0].unmeasured["too few CPU threads"]
    assert any("other programs took" in note for note in named[64.0].notes)


def test_a_slow_dataset_is_told_from_a_slow_collate_function():
    class Slow(torch.utils.data.Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            time.sleep(0.005)
            return torch.zeros(16), 1

    model = small()
    step = trained_by(model, torch.optim.SGD(model.parameters()))
    found = whyslow.diagnose(step, DataLoader(Slow(), batch_size=8), seconds=2)
    assert found[0].name == "waits for data" and "time.sleep(0.005)" in found[0].where
    assert len(found[0].remedy.splitlines()) == 2
    low, high = found[0].interval
    assert 0 < low <= found[0].share <= high <= 1


def test_a_loader_of_ones_own_is_no_work_beside_the_training():
    class Made:
        def __iter__(self):
            for batch in batches():
                time.sleep(0.02)  # made by hand
                yield batch

    found = whyslow.diagnose(trained_by(small(), None), Made(), seconds=1)
    assert found[0].name == "waits for data" and "made by hand" in found[0].where
    assert "work beside forward, backward and update" not in [each.name for each in found]


def test_who_calls_a_diagnosis_is_no_part_of_it():
    # Without a line of the reader's in the step itself.
    step = functools.partial(nn.functional.softmax, torch.randn(1000, 1000), 1)
    with torch.no_grad():
        phases = whyslow.diagnose(step, seconds=SHORT).phases
    assert max(phases, key=phases.get) == "forward" and "validation" not in phases


def test_nothing_is_found_where_nothing_takes_time():
    found = whyslow.diagnose(lambda: time.sleep(0.02), seconds=1)
    assert len(found) == 0
    assert "Nothing found" in str(found) and "Nothing found" in found._repr_html_()


def test_what_a_step_uses_is_seen():
    from whyslow.subject import observe

    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters())
    batch = batches(1)[0]
    known = []
    seen = observe(lambda: trained_by(model, optimizer)(batch), known.append)
    assert seen.roots == [model] and seen.optimizers == [optimizer]
    assert known == [model, optimizer]
    assert not (seen.anomaly or seen.profiled or seen.recomputed)


# These are found by the clock or by counting bytes; the benchmark holds them.
BY_CLOCK = {
    *("slow_collate", "augmented_by_sample", "one_worker_too_few", "restarted_loader"),
    "worker_for_nothing",
    *("metrics_in_python", "recompiled", "losses_with_graphs", "validation_losses_with_graphs"),
    *("clipped_by_hand", "optimizer_by_hand", "flipped_one_by_one", "collate_and_loop"),
    # Tried where nothing else is found, whatever the size of the batch.
    *("tiny_batch", "tiny_batch_of_images"),
}


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name not in BY_CLOCK])
def test_each_planted_fault_is_tried_and_not_its_mended_form(name):
    assert applies(name, mended=False)
    assert not applies(name, mended=True)


def applies(name, mended):
    from whyslow.experiments import EXPERIMENTS

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
    return Finding(name, share, interval, "by hand", "do this;\nand that.", of)


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


def test_only_a_larger_batch_changes_what_is_learned_and_says_so():
    from whyslow.remedies import BATCH, REMEDIES

    saying = [name for name, text in REMEDIES.items() if "changes what is learned" in text]
    assert saying == [BATCH]


def test_a_diagnosis_reads_well():
    found = Diagnosis((finding("<b>"),), 0.1, 20.0, {"forward": 0.7}, ("a note",), {"x": "why"})
    text = str(found)
    assert "1. <b>: 50% of the time [40%, 60%]" in text
    assert "do this;\n    and that." in text and "notebook" not in text
    assert "Note: a note." in text and "Not measured: x (why)." in text
    page = found._repr_html_()
    assert "&lt;b&gt;" in page and "<b>:" not in page
    assert [each.name for each in found] == ["<b>"] and len(found) == 1


def test_tensors_in_datasets_are_not_copied():
    data = torch.zeros(3)
    loader = DataLoader(TensorDataset(data))

    def step():
        return loader

    with restoring(step) as restoration:
        assert not any(each is data for each in restoration.items)


def test_findings_are_plain_values():
    assert json.dumps(finding().__dict__)
