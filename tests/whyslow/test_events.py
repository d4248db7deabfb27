"""What is told of a step: loaders and their modules, and steps on sparse tensors."""

import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from labkit.restore import preserve_state
from labkit.restore.memory import bytes_of
from whyslow import Diagnosis, diagnose
from whyslow.subject import observe

NOTHING = torch.zeros(16)


class Rows(Dataset):
    """Rows that a module makes."""

    def __init__(self, count=32, transform=None):
        self.count, self.transform = count, transform or nn.Identity()

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.transform(NOTHING), 1


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


def roots_of(step):
    return observe(step, lambda item: None).roots


def test_modules_of_a_loader_in_a_loader_are_no_roots():
    class Chained(torch.utils.data.IterableDataset):
        def __iter__(self):
            for rows, _ in DataLoader(Rows(2), batch_size=1):
                yield rows[0]

    loader, own = DataLoader(Chained(), batch_size=2), nn.Identity()
    started = iter(loader)

    def step():
        next(iter(loader))
        next(started)
        own(NOTHING)

    assert roots_of(step) == [own]


def test_a_loader_that_fails_ends():
    class Fails(Rows):
        def __getitem__(self, index):
            raise KeyError(index)

    own = nn.Identity()

    def step():
        with pytest.raises(KeyError):
            next(iter(DataLoader(Fails())))
        own(NOTHING)

    assert roots_of(step) == [own]


def test_nothing_found_is_sure_to_cost():
    assert "Nothing found that is sure to cost 3%" in Diagnosis((), 0.1, 1.0).sentence


def test_a_diagnosis_says_what_was_looked_for():
    _, step = trained()
    found = diagnose(step, batches(2), seconds=1)
    looked_for = found.looked_for
    assert {"waits for data", "memory grows with every step"} < set(looked_for)
    assert not set(looked_for) & set(found.unmeasured)
    slept = diagnose(lambda: time.sleep(0.02), seconds=0.5)
    assert "work beside forward, backward and update" not in slept.looked_for
    assert "loops over parameters" not in slept.looked_for


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


@pytest.mark.parametrize("kind", SPARSE)
@pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse BS")
def test_a_sparse_tensor_is_put_back_by_its_entries(kind):
    matrix = SPARSE[kind]()
    with preserve_state(matrix):
        matrix.mul_(2)
    assert torch.equal(matrix.to_dense(), DENSE)
    if kind == "coo":
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
