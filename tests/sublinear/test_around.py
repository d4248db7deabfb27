"""What stands around a planned model: sharding, torch.func; and spectral norm beside it."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from test_safe import Layers, rows, same, trained
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import parametrizations

from labkit.device import seed_all
from sublinear.fit import fit


@pytest.fixture
def one_process(tmp_path):
    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_sharded_model_is_refused_and_a_planned_one_can_be_sharded(one_process) -> None:
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    with pytest.raises(ValueError, match="hooks"):
        fit(fully_shard(Layers(), mesh=mesh), rows(), max_overhead=100.0, repeats=1)
    seed_all(3)
    plain = Layers()
    plain(rows()).square().mean().backward()
    seed_all(3)
    fitted = fit(Layers(), rows(), method="every", repeats=1)
    sharded = fully_shard(fitted.model, mesh=mesh)
    sharded(rows()).square().mean().backward()
    for one, two in zip(plain.parameters(), sharded.parameters(), strict=True):
        if one.grad is None:
            assert two.grad is None
        else:
            assert torch.equal(one.grad, two.grad.full_tensor())


def test_per_sample_gradients_run_without_the_plan_and_leave_the_model_alone() -> None:
    seed_all(3)
    plain = Layers()
    seed_all(3)
    planned = fit(Layers(), rows(), method="every", repeats=1).model
    parameters = {name: value.detach() for name, value in planned.named_parameters()}

    def gradients(model: nn.Module) -> dict[str, Tensor]:
        def loss(values: dict[str, Tensor], x: Tensor) -> Tensor:
            return torch.func.functional_call(model, values, (x,)).square().mean()

        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
        return each(parameters, rows())

    expected, found = gradients(plain), gradients(planned)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert same(trained(plain, (rows(),)), trained(planned, (rows(),)))


class Discriminator(nn.Module):
    """Spectral norm, whose power iteration may not run twice, only in what is not planned."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.head = parametrizations.spectral_norm(nn.Linear(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x)


class Wrapped(Discriminator):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(6, 6), nn.ReLU()) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_spectral_norm_beside_the_planned_modules() -> None:
    seed_all(3)
    plain = Discriminator()
    seed_all(3)
    fitted = fit(Discriminator(), rows(), method="every", repeats=1)
    assert same(trained(plain, (rows(),)), trained(fitted.model, (rows(),)))
    seed_all(3)
    plain = Wrapped()
    seed_all(3)
    chosen = [f"layers.{number}" for number in range(4)]
    fitted = fit(Wrapped(), rows(), modules=chosen, method="every", repeats=1)
    assert fitted.proof
    assert same(trained(plain, (rows(),)), trained(fitted.model, (rows(),)))
