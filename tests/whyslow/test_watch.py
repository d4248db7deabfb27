"""A loop that is watched as it runs: what is a step, what is loading, and what was looked for.

No test asserts a time. Where a share is asserted, what is to be found sleeps, and the rest does
next to nothing.
"""

import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import dataloader as loading

from labkit.restore import preserve_state
from labkit.restore.memory import bytes_of
from whyslow import Diagnosis, diagnose, watch
from whyslow.checks import EXPERIMENTS
from whyslow.events import Listener, listening
from whyslow.observe import observe
from whyslow.watching import WARM_UP

NOTHING = torch.zeros(16)


class Sleeps(nn.Module):
    """As a transform of torchvision: a module."""

    def forward(self, rows):
        time.sleep(0.003)
        return rows


class Rows(Dataset):
    """Rows that a module makes."""

    def __init__(self, count=32, transform=None):
        self.count, self.transform = count, transform or nn.Identity()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(NOTHING), 1


class Quick(Rows):
    """Of another kind."""


def transformed():
    return DataLoader(Rows(transform=Sleeps()), batch_size=4)


def put_together():
    def together(samples):
        return Sleeps()(torch.stack([row for row, _ in samples])), torch.ones(4, dtype=torch.long)

    return DataLoader(Rows(), batch_size=4, collate_fn=together)


def by_a_model():
    class Encoded(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.Sequential(nn.BatchNorm1d(16), Sleeps())

        def forward(self, row):
            return self.parts(row[None])[0].detach()

    return DataLoader(Rows(transform=Encoded().eval()), batch_size=4)


def trained():
    """A model, its optimizer, and a step on a batch."""
    torch.manual_seed(0)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(batch):
        rows, classes = batch
        optimizer.zero_grad()
        F.cross_entropy(model(rows), classes).backward()
        optimizer.step()

    return model, step


def batches(count):
    return [(torch.zeros(4, 16), torch.ones(4, dtype=torch.long)) for _ in range(count)]


def worst(phases):
    return max(phases, key=phases.get)


# ------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize("make", [transformed, put_together, by_a_model])
def test_what_a_module_does_in_the_loader_is_loading(make):
    _, step = trained()
    with watch() as found:
        for batch in make():
            step(batch)
    assert worst(found.diagnosis.phases) == "data"
    assert found.diagnosis[0].notebook == "04_data_loading"


def test_what_a_module_does_in_the_loader_of_the_validation_is_loading():
    model, step = trained()
    with watch() as found:
        for batch in batches(8):
            step(batch)
            with torch.no_grad():
                for rows, _ in DataLoader(Rows(4, Sleeps()), batch_size=4):
                    model(rows)
    assert worst(found.diagnosis.phases) == "data"


def test_modules_of_a_loader_are_no_roots_but_are_put_back():
    loader = DataLoader(Rows(8, nn.Sequential(nn.Unflatten(0, (4, 4)), nn.BatchNorm1d(4))), 4)
    model, step = trained()
    inside = loader.dataset.transform[1]
    before = inside.running_var.clone()

    def loads_itself():
        for rows, classes in loader:
            step((rows.flatten(1), classes))

    kept = []
    seen = observe(loads_itself, kept.append)
    assert seen.roots == [model] and loader.dataset.transform in kept
    assert not torch.equal(inside.running_var, before)
    before = inside.running_var.clone()
    diagnose(loads_itself, seconds=0.5)
    assert torch.equal(inside.running_var, before)


class Loaders(Listener):
    def __init__(self):
        self.events = []

    def loader_begins(self, loader, anew):
        self.events.append((loader, anew))

    def forward_begins(self, root, inputs):
        self.events.append("forward")

    def loader_ends(self):
        self.events.append("end")


def test_a_loader_in_a_loader_is_not_told():
    class Chained(torch.utils.data.IterableDataset):
        def __iter__(self):
            for rows, _ in DataLoader(Rows(2), batch_size=1):
                yield rows[0]

    told, loader = Loaders(), DataLoader(Chained(), batch_size=2)
    started = iter(loader)
    with listening(told):
        next(iter(loader))
        next(started)
        nn.Identity()(NOTHING)
    each = [(loader, True), "end", (loader, False), "end", (None, False), "end"]
    assert told.events == [*each, "forward"]


def test_a_loader_that_fails_ends():
    class Fails(Rows):
        def __getitem__(self, index):
            raise KeyError(index)

    told = Loaders()
    with listening(told), pytest.raises(KeyError):
        next(iter(DataLoader(Fails())))
    assert told.events[-1] == "end"


# ------------------------------------------------------------------------------ several loaders


@pytest.mark.parametrize("kind", [Rows, Quick])
def test_of_two_loaders_the_one_that_was_waited_for_is_described(kind):
    model, step = trained()
    slow = DataLoader(Rows(32, Sleeps()), batch_size=4, shuffle=kind is Rows)
    quick = DataLoader(kind(32), batch_size=4)
    with watch() as found:
        for _ in range(2):
            for batch in slow:
                step(batch)
            with torch.no_grad():
                for rows, _ in quick:
                    model(rows)
    assert found.slowest_loader()[0] is slow
    assert "batch_size=4, num_workers=0" in found.diagnosis[0].how
    assert "DataLoader(Rows," in found.diagnosis[0].how
    assert found.diagnosis[0].name == "slow samples in the dataset"


def test_of_two_loaders_that_are_alike_the_slow_one_is_described():
    model, step = trained()
    slow, quick = DataLoader(Rows(32, Sleeps()), 4), DataLoader(Rows(32), 4)
    with watch() as found:
        for batch in slow:
            step(batch)
        for rows, _ in quick:
            model(rows)
    assert found.slowest_loader()[0] is slow


def test_loaders_made_anew_for_each_epoch_are_one():
    _, step = trained()
    with watch() as found:
        for _ in range(4):
            for batch in DataLoader(Rows(8, Sleeps()), 4, shuffle=True):
                step(batch)
    assert len({kind for step in found.waits for kind in step}) == 1
    assert isinstance(found.slowest_loader()[0].dataset, Rows)


def test_a_loader_that_was_begun_before_is_not_taken_for_another():
    model, step = trained()
    stream = iter(DataLoader(Rows(64, Sleeps()), 4))
    with watch() as found:
        for _ in range(10):
            step(next(stream))
        for rows, _ in DataLoader(Rows(8), 4):
            model(rows)
    assert found.slowest_loader()[0] is None
    assert found.diagnosis[0].name == "waits for data"
    assert "begun before" in found.diagnosis[0].how


# ------------------------------------------------------------------------- a loop that is ended


def hooks():
    """All that watching exchanges."""
    return (
        torch.autograd.backward,
        torch.optim.Optimizer.zero_grad,
        DataLoader.__iter__,
        loading._BaseDataLoaderIter.__next__,
        *modules._global_forward_pre_hooks,
        *modules._global_forward_hooks,
        *optimizers._global_optimizer_pre_hooks,
        *optimizers._global_optimizer_post_hooks,
    )


@pytest.mark.parametrize(
    "kind", [KeyboardInterrupt, ValueError, SystemExit, torch.OutOfMemoryError]
)
def test_a_loop_that_is_interrupted_is_reported_and_the_error_goes_on(kind, capsys):
    _, step = trained()
    before, error = hooks(), kind("stopped")
    with pytest.raises(kind) as raised, watch() as found:
        for number, batch in enumerate(DataLoader(Rows(64, Sleeps()), 4)):
            step(batch)
            if number == 12:
                raise error
    assert raised.value is error and not getattr(error, "__notes__", [])
    assert hooks() == before
    assert found.diagnosis[0].name == "waits for data"
    assert kind.__name__ in found.diagnosis.unmeasured["what makes the loader slow"]
    told = capsys.readouterr()
    assert str(found) in told.err and not told.out
    # The last one did not end.
    assert "one update of SGD; 12 were seen" in told.err


def test_of_a_loop_that_is_interrupted_no_more_batches_are_read(capsys):
    read = []

    class Told(Rows):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    _, step = trained()
    with pytest.raises(KeyboardInterrupt), watch():
        for number, batch in enumerate(DataLoader(Told(64, Sleeps()), 4)):
            step(batch)
            if number == 9:
                raise KeyboardInterrupt
    assert len(read) == 40
    assert "waits for data" in capsys.readouterr().err


def test_what_fails_in_a_report_does_not_hide_the_error(monkeypatch):
    def fails(self, failed=""):
        raise RuntimeError("no more memory")

    monkeypatch.setattr(watch, "_judge", fails)
    error = ValueError("its own")
    with pytest.raises(ValueError, match="its own") as raised, watch():
        raise error
    assert raised.value is error and "no more memory" in error.__notes__[0]


def test_a_loop_that_is_left_early_is_reported():
    _, step = trained()
    watches = []

    def returns():
        with watch() as found:
            watches.append(found)
            for batch in batches(9):
                step(batch)
                if len(found.steps) == 7:
                    return

    returns()
    with watch() as found:
        watches.append(found)
        for number, batch in enumerate(batches(20)):
            step(batch)
            if number == 7:
                break
    for each in watches:
        assert each.diagnosis.step_seconds > 0 and len(each.steps) == 8 - WARM_UP


# ----------------------------------------------------------------------------- what is a step


def by_hand(model, given):
    for rows, classes in given:
        model.zero_grad()
        F.cross_entropy(model(rows), classes).backward()
        for each in model.parameters():
            each.data.add_(each.grad, alpha=-0.1)


def test_no_step_is_seen_where_no_optimizer_is_called():
    model, _ = trained()
    with watch() as found:
        by_hand(model, batches(9))
    told = str(found)
    assert found.steps == [] and found.diagnosis.step_seconds == 0
    assert told.startswith("No training step was seen")
    assert "9 backward passes were seen" in told and "One step takes" not in told


def test_an_update_by_hand_is_a_step_where_a_loader_gives_batches():
    model, _ = trained()
    with watch() as found:
        by_hand(model, DataLoader(Rows(20), 4))
    assert len(found.steps) == 5
    assert "no optimizer's step() was called; 5 were seen" in str(found)


@pytest.mark.parametrize("given", [batches(20), DataLoader(Rows(80), 4)], ids=["list", "loader"])
@pytest.mark.parametrize("critics", [1, 3])
def test_two_optimizers_make_one_step(given, critics):
    one, other = nn.Linear(16, 4), nn.Linear(4, 16)
    both = [torch.optim.Adam(each.parameters()) for each in (one, other)]
    with watch() as found:
        for number, (rows, _) in enumerate(given):
            both[0].zero_grad()
            one(rows).sum().backward()
            one(other(torch.ones(4, 4)).detach()).sum().backward()
            both[0].step()
            if number % critics == 0:
                both[1].zero_grad()
                one(other(torch.ones(4, 4))).sum().backward()
                both[1].step()
    told = str(found)
    assert len(found.steps) == 20 - WARM_UP
    assert "one update of Adam, one of 2 optimizers" in told and "20 were seen" in told
    assert ("with 3.0 backward passes" in told) is (critics == 1)


def test_another_optimizer_for_each_fold_makes_steps_too():
    with watch() as found:
        for _ in range(3):
            _, step = trained()
            for batch in batches(10):
                step(batch)
    # The first update of each is in the last step of the fold before it.
    assert len(found.steps) == 30 - 2 - WARM_UP


def test_a_closure_is_called_within_one_step():
    model = nn.Sequential(nn.Linear(16, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, tolerance_change=0)
    rows, calls = torch.randn(8, 16), []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = model(rows).square().sum()
        loss.backward()
        return loss

    with watch() as found:
        for _ in range(10):
            optimizer.step(closure)
            with torch.no_grad():
                model(rows)
    assert len(found.steps) == 10 - WARM_UP
    passes = f"with {len(calls) / 10:.1f} backward passes"
    assert f"one update of LBFGS, {passes}; 10 were seen" in str(found)
    # What the optimizer does between two passes is its update.
    assert "after backward" not in found.diagnosis.phases


def test_batches_of_one_update_are_one_step():
    model, _ = trained()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch() as found:
        for number, (rows, classes) in enumerate(DataLoader(Rows(96), 4)):
            F.cross_entropy(model(rows), classes).backward()
            if number % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
    assert "with 4.0 backward passes; 6 were seen" in str(found)


def test_a_model_of_functions_has_steps():
    weights = torch.zeros(16, 4, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=0.1)
    with watch() as found:
        for rows, classes in batches(10):
            F.cross_entropy(rows @ weights, classes).backward()
            optimizer.step()
    assert "10 were seen" in str(found)


def test_time_outside_of_steps_is_said():
    model, step = trained()
    with watch() as found:
        for batch in batches(10):
            step(batch)
        time.sleep(0.2)
        with torch.no_grad():
            model(NOTHING)
            time.sleep(0.2)
    assert any("outside of these steps" in note for note in found.diagnosis.counted)


def test_a_few_long_steps_are_told():
    _, step = trained()
    with watch() as found:
        for number, batch in enumerate(batches(30)):
            step(batch)
            if number == 20:
                time.sleep(0.5)
    assert any("more than 10 times the median" in note for note in found.diagnosis.counted)


# ------------------------------------------------------------------------------ nothing found


def test_nothing_found_is_sure_to_cost():
    assert "Nothing found that is sure to cost 3%" in Diagnosis((), 0.1, 1.0).sentence


def test_nothing_found_says_what_was_looked_for():
    _, step = trained()
    with watch() as found:
        for batch in batches(10):
            step(batch)
    watched = Diagnosis((), 0.1, 1.0, looked_for=found.diagnosis.looked_for)
    words = "waits for batches of a DataLoader, compiling again, slow work between backward and"
    assert f"of what was looked for: {words}" in watched.sentence
    assert set(EXPERIMENTS.values()) < set(found.diagnosis.not_looked_for)
    every = Diagnosis((), 0.1, 1.0, not_looked_for=found.diagnosis.not_looked_for).sentence
    assert "Only whyslow.diagnose(step) looks for loops over samples" in every
    assert "precision" in every and "CPU threads" in every


def test_what_was_not_looked_for_in_a_watched_loop_is_not_named():
    model, _ = trained()
    with watch() as found:
        by_hand(model, DataLoader(Rows(20), 4))
    assert "slow work between backward and update" not in found.diagnosis.looked_for


def test_a_diagnosis_says_what_was_looked_for():
    _, step = trained()
    found = diagnose(step, batches(2), seconds=1)
    looked_for = found.looked_for
    assert {"waits for data", "memory grows with every step"} < set(looked_for)
    assert not set(looked_for) & set(found.unmeasured) and not found.not_looked_for
    slept = diagnose(lambda: time.sleep(0.02), seconds=0.5)
    assert "work beside forward, backward and update" not in slept.looked_for
    assert "loops over parameters" not in slept.looked_for


# -------------------------------------------------------------------------------------- sparse

DENSE = torch.eye(8) + torch.ones(8, 8).triu(6)
SPARSE = {
    "coo": DENSE.to_sparse_coo,
    "csr": DENSE.to_sparse_csr,
    "csc": DENSE.to_sparse_csc,
    "bsr": lambda: DENSE.to_sparse_bsr((2, 2)),
    "bsc": lambda: DENSE.to_sparse_bsc((2, 2)),
}


class Graph(nn.Module):
    """A layer of a graph network, which scales its matrix in place."""

    def __init__(self, matrix):
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.register_buffer("matrix", matrix)

    def forward(self, rows, matrix):
        self.matrix.mul_(1.5)
        return torch.sparse.mm(matrix, torch.sparse.mm(self.matrix, self.layer(rows)))


@pytest.mark.parametrize("kind", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_tensors_do_not_end_a_diagnosis_and_are_put_back(kind):
    matrix = SPARSE[kind]()
    model, given = Graph(SPARSE[kind]()), [(matrix, torch.ones(8, 16)) for _ in range(2)]
    optimizer = torch.optim.Adam(model.parameters())

    def step(batch=None):
        matrix.mul_(1.1)
        of_batch, rows = batch or given[0]
        optimizer.zero_grad()
        model(rows, of_batch).square().sum().backward()
        optimizer.step()

    for batches_too in ({}, {"batches": given}):
        assert diagnose(step, **batches_too, seconds=0.5).step_seconds > 0
    assert torch.equal(matrix.to_dense(), DENSE) and torch.equal(model.matrix.to_dense(), DENSE)
    with watch() as found:
        step()
    assert found.diagnosis.step_seconds > 0


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse BS")
def test_a_sparse_tensor_is_put_back_by_its_entries(kind):
    matrix = SPARSE[kind]()
    with preserve_state(matrix):
        matrix.mul_(2)
    assert torch.equal(matrix.to_dense(), DENSE)
    if kind in ("coo", "csr", "csc"):
        with preserve_state(matrix):
            matrix.zero_()
        assert torch.equal(matrix.to_dense(), DENSE) and matrix._nnz() == DENSE.count_nonzero()


@pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant")
def test_the_bytes_of_a_sparse_tensor_are_those_of_its_entries():
    size = 2**20
    entries = torch.arange(4), torch.arange(4)
    coo = torch.sparse_coo_tensor(torch.stack(entries), torch.ones(4), (size, size))
    assert bytes_of(coo) == 4 * 4
    csr = torch.sparse_csr_tensor(torch.zeros(9, dtype=torch.long), [], [], (8, 2**30))
    assert bytes_of(csr) == 0
