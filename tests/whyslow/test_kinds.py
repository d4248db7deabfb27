"""Steps of all kinds are diagnosed without a crash, and leave their state bit by bit as before."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import whyslow
from whyslow.loading import stream
from whyslow.stacks import BACKWARD, FORWARD, OWN, UPDATE
from whyslow.subject import observe

KINDS = {}


def kind(make):
    """Add a step with all that it trains."""
    KINDS[make.__name__] = make
    return make


def small(inputs=8, outputs=4):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


@kind
def graph_of_sparse_tensors():
    """A layer of a graph network, with neighbours as a sparse matrix."""
    model = small()
    optimizer = torch.optim.Adam(model.parameters())
    links = (torch.eye(32) + torch.ones(32, 32).triu(29)).to_sparse()
    nodes, classes = torch.randn(32, 8), torch.randint(4, (32,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(torch.sparse.mm(links, nodes)), classes).backward()
        optimizer.step()

    return step, [model, optimizer, links, nodes]


@kind
def rows_of_an_embedding():
    """Gradients that are sparse."""
    table = nn.EmbeddingBag(100, 8, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    words = torch.randint(100, (4, 5))

    def step():
        table(words).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, [table, optimizer]


@kind
def closure_of_lbfgs():
    """The optimizer calls the forward and the backward pass, several times."""
    model = small().double()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    inputs = torch.randn(16, 8, dtype=torch.double)

    def closure():
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        return loss

    def step():
        return optimizer.step(closure)

    step()
    return step, [model, optimizer]


@kind
def two_optimizers():
    """A generator against a critic."""
    maker, critic = small(4, 8), small(8, 1)
    rules = [torch.optim.Adam(each.parameters(), foreach=False) for each in (maker, critic)]
    real = torch.randn(16, 8)

    def step():
        fake = maker(torch.randn(16, 4))
        rules[1].zero_grad()
        (critic(fake.detach()).mean() - critic(real).mean()).backward()
        rules[1].step()
        rules[0].zero_grad()
        (-critic(fake).mean()).backward()
        rules[0].step()

    step()
    return step, [maker, critic, *rules]


@kind
def no_optimizer():
    """The update is a loop of one's own."""
    model = small()
    inputs, classes = torch.randn(16, 8), torch.randint(4, (16,))

    def step():
        model.zero_grad()
        F.cross_entropy(model(inputs), classes).backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad

    return step, [model]


@kind
def no_module():
    """Tensors and functions alone."""
    weights = torch.randn(8, 4, requires_grad=True)
    inputs = torch.randn(16, 8)
    optimizer = torch.optim.SGD([weights], lr=0.1)

    def step():
        (inputs @ weights).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step, [weights, optimizer]


def state_of(trained):
    """All tensors and numbers, as something that can be compared bit by bit."""
    found = []
    for item in trained:
        values = item.state_dict() if hasattr(item, "state_dict") else {"": item}
        leaves, _ = torch.utils._pytree.tree_flatten(values)
        leaves += [each.grad for each in item.parameters()] if isinstance(item, nn.Module) else []
        for leaf in leaves:
            dense = leaf.detach().to_dense() if isinstance(leaf, torch.Tensor) else leaf
            found.append(dense.numpy().tobytes() if isinstance(dense, torch.Tensor) else dense)
    return [repr(each) for each in (*found, torch.random.get_rng_state().numpy().tobytes())]


@pytest.mark.parametrize("name", KINDS)
def test_a_step_of_any_kind_is_as_before(name):
    torch.manual_seed(0)
    step, trained = KINDS[name]()
    before = state_of(trained)
    found = whyslow.diagnose(step, seconds=0.5)
    assert state_of(trained) == before
    assert sum(found.phases.values()) == pytest.approx(1)
    # The same step still works, and changes something.
    step()
    assert state_of(trained) != before


@pytest.mark.parametrize(
    ("name", "phases"),
    [
        ("closure_of_lbfgs", {FORWARD, BACKWARD, UPDATE}),
        ("two_optimizers", {FORWARD, BACKWARD, UPDATE}),
        ("no_module", {FORWARD, BACKWARD, UPDATE}),
        ("no_optimizer", {FORWARD, BACKWARD, UPDATE}),
    ],
)
def test_the_phases_of_each_kind(name, phases):
    step, _ = KINDS[name]()
    step()
    found = {}
    for _ in range(10):
        # Beside other programs there are few looks in a moment.
        with whyslow.watch(show=False) as watch:
            stream(lambda batch: step(), None, 0.5)
        found = watch.report.causes | found
        if phases <= found.keys():
            break
    assert phases <= found.keys()
    seen = observe(step, lambda item: None)
    assert len(seen.optimizers) == {"two_optimizers": 2, "no_optimizer": 0}.get(name, 1)
    if name == "closure_of_lbfgs":
        # Between two passes of the closure the optimizer works, not the rest of the step.
        assert found.get(OWN, 0.0) < 0.5 * found[UPDATE]
