"""`compare` and `measure` leave what the steps reach as it was, whatever shape the training has."""

import copy
import functools
import gc
import pickle
import random
import sys
import threading
import types
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

import labkit
from labkit import Lab, Workload, compare, lr_find, measure
from labkit.restore import memory, reach, restoring
from labkit.restore.generators import rng_state
from labkit.restore.switches import torch_flags
from tests.labkit.kept import Kept

X = torch.linspace(-1, 1, 24).reshape(6, 4)
SECONDS = 0.03


@pytest.fixture(autouse=True)
def alike():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


class Net(nn.Module):
    """A model with buffers, dropout, and a counter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.2))
        self.head = nn.Linear(8, 1)
        self.calls, self.log = 0, [0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.log.append(self.calls)
        return self.head(self.body(x))


class Training:
    """A model, its optimizer, its schedule and a step, which notes in ``ran`` where it began."""

    def __init__(self) -> None:
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.scheduler = LambdaLR(self.optimizer, lambda epoch: 0.99**epoch)
        self.ran = Kept()

    def step(self) -> torch.Tensor:
        self.ran.put(self.model.head.weight.sum().item())
        self.optimizer.zero_grad()
        loss = self.model(X).square().mean()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def trained(self) -> bool:
        """Whether weights differed from step to step."""
        return len(set(self.ran.entries())) > 5


def frozen(value: Any) -> Any:
    """A value whose equality is that of every bit."""
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().tobytes(), value.dtype, frozen(value.grad)
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if isinstance(value, dict):
        return [(str(key), frozen(each)) for key, each in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return [frozen(each) for each in value]
    return value


def everything(training: Training) -> Any:
    model = training.model
    return frozen(
        [
            dict(model.named_parameters()),
            dict(model.named_buffers()),
            [model.calls, model.log, model.training],
            training.optimizer.state_dict(),
            training.scheduler.state_dict(),
        ]
    )


def world() -> Any:
    """The generators and switches of the process."""
    return frozen(rng_state()), torch_flags()


# ------------------------------------------------------------------------------- compare, measure


@pytest.mark.parametrize("warm", [False, True], ids=["fresh", "trained"])
@pytest.mark.parametrize("run", [lambda step: compare(step, step, seconds=SECONDS), measure])
def test_a_step_is_compared_with_itself_and_nothing_is_trained(run, warm) -> None:
    training = Training()
    for _ in range(3 * warm):
        training.step()
    before, around = everything(training), world()
    result = run(training.step) if run is not measure else measure(training.step, seconds=SECONDS)
    assert training.trained() and everything(training) == before and world() == around
    # The log that the test itself keeps.
    assert result.notes == (
        "the step reaches ran (a queue): what it changed there was not put back",
    )


def test_two_steps_that_share_a_model() -> None:
    training = Training()

    def other() -> torch.Tensor:
        with torch.no_grad():
            training.model.head.bias += 1
        return training.step()

    before = everything(training)
    compare(training.step, other, seconds=SECONDS)
    assert training.trained() and everything(training) == before


def test_two_steps_with_variables_of_the_same_names() -> None:
    def made():
        training, count = Training(), 0

        def step() -> torch.Tensor:
            nonlocal count
            count += 1
            return training.step()

        return step, training, lambda: count

    (one, first, of_one), (other, second, of_other) = made(), made()
    before = everything(first), everything(second)
    compare(one, other, seconds=SECONDS)
    assert first.trained() and second.trained() and of_one() == of_other() == 0
    assert (everything(first), everything(second)) == before


def test_without_restore_the_steps_train_on() -> None:
    for run in (compare, measure):
        training = Training()
        before = everything(training)
        steps = [training.step] * (2 if run is compare else 1)
        assert run(*steps, seconds=SECONDS, restore=False).notes == ()
        assert everything(training) != before


def test_a_workload_that_is_given_is_put_back_and_a_lab_s_own_is_not_looked_at(monkeypatch) -> None:
    training = Training()
    before = everything(training)
    measure(Workload(training.step, 6), seconds=SECONDS)
    assert training.trained() and everything(training) == before
    monkeypatch.setattr(reach, "_of_code", None)
    lab = Lab(lambda twice: Workload(lambda: None), twice=[False, True], memory=False)
    assert lab.run(twice=True, seconds=SECONDS).notes == ()


def test_switches_that_a_step_sets_are_as_before() -> None:
    training = Training()

    def step() -> None:
        torch.set_default_dtype(torch.float64)
        torch.autograd.set_detect_anomaly(True)
        torch.set_grad_enabled(False)
        random.random(), np.random.rand(), torch.rand(1)
        training.ran.put(training.ran.qsize())

    before, around = everything(training), world()
    compare(step, step, seconds=SECONDS)
    assert training.trained() and everything(training) == before and world() == around


def test_the_range_test_gives_back_switches_and_generators() -> None:
    training = Training()

    def step() -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
        return torch.rand(())

    around = world()
    lr_find(step, training.model, training.optimizer, steps=11)
    assert world() == around


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
@pytest.mark.parametrize("run", [compare, measure])
def test_a_step_that_ends_in_the_middle(run, error) -> None:
    training = Training()
    calls = Kept()

    def step() -> torch.Tensor:
        calls.put(1)
        if calls.qsize() == 7:
            training.model(X).sum().backward()
            training.optimizer.step()
            raise error("half way")
        return training.step()

    before, around = everything(training), world()
    with pytest.raises(error) as raised:
        run(*[step] * (2 if run is compare else 1), seconds=5)
    assert everything(training) == before and world() == around
    if error is KeyError:
        notes = " ".join(raised.value.__notes__)
        assert "as before, except calls (a queue), ran (a queue)" in notes


def test_an_interrupted_comparison_is_given_and_nothing_is_trained() -> None:
    training = Training()
    begun = Kept()

    def step() -> torch.Tensor:
        if not begun.empty():
            raise KeyboardInterrupt
        return training.step()

    before = everything(training)
    result = compare(step, lambda: None, seconds=60, on_update=begun.put)
    assert result.stopped and everything(training) == before


def test_what_is_noted_is_printed_and_shown() -> None:
    drawn = iter(range(10**9))
    told = "the step reaches drawn (an iterator): what it changed there was not put back"
    result = compare(lambda: next(drawn), lambda: None, seconds=SECONDS)
    assert result.notes == (told,) and str(result).splitlines()[-1] == told
    assert told in result._repr_html_()
    alone = measure(lambda: next(drawn), seconds=SECONDS)
    assert alone.notes == (told,) and str(alone).splitlines()[-1] == told
    assert told in alone._repr_html_()


def test_the_example_of_compare() -> None:
    words = " ".join(compare.__doc__.split())
    assert "as before, bit for bit" in words and "restore=False" in words
    assert "as before afterwards" in " ".join(measure.__doc__.split())


# ----------------------------------------------------------------------------------- refused


def training_as_a_generator(model: nn.Module):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        optimizer.zero_grad()
        loss = model(X).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.detach()


def test_a_training_that_cannot_be_put_back_is_refused_by_name() -> None:
    model = nn.Linear(4, 1)
    losses = training_as_a_generator(model)
    next(losses)
    before = frozen(dict(model.named_parameters()))
    words = (
        r"losses is a generator that trains \(.*SGD.*\).*, or pass restore=False: then the steps"
    )
    for run in (lambda: compare(lambda: next(losses), lambda: None), lambda: measure(losses.send)):
        with pytest.raises(ValueError, match=words.replace("losses", "(losses|self)")):
            run()
    assert frozen(dict(model.named_parameters())) == before
    compare(lambda: next(losses), lambda: None, seconds=SECONDS, restore=False)
    assert frozen(dict(model.named_parameters())) != before


def test_a_generator_that_trains_what_is_listed_is_noted() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def losses():
        while True:
            optimizer.zero_grad()
            loss = model(X).square().mean()
            loss.backward()
            optimizer.step()
            yield loss.detach()

    given = losses()
    before = frozen(dict(model.named_parameters()))
    with restoring(lambda: next(given), also=[model, optimizer]) as restoration:
        next(given)
        assert frozen(dict(model.named_parameters())) != before
    assert frozen(dict(model.named_parameters())) == before
    assert "given (a generator)" in restoration.notes[0]
    with pytest.raises(ValueError, match=r"given is a generator that trains.*also="):
        lr_find(lambda: next(given), nn.Linear(1, 1), torch.optim.SGD([torch.zeros(1)]))


def test_batches_of_a_generator_are_no_training() -> None:
    def endless(rows: torch.Tensor):
        while True:
            yield from rows

    batches, training = endless(X), Training()

    def step() -> torch.Tensor:
        training.ran.put(next(batches).sum().item())
        return training.step()

    before = everything(training)
    assert "batches (a generator)" in measure(step, seconds=SECONDS).notes[0]
    assert everything(training) == before


def test_a_module_without_weights_in_a_generator_is_no_training() -> None:
    teacher, transform = nn.Linear(4, 4).requires_grad_(False), nn.Dropout(0.1)

    def endless():
        while True:
            yield transform(teacher(X))

    batches = endless()
    assert "batches (a generator)" in measure(lambda: next(batches), seconds=SECONDS).notes[0]


def test_a_graph_writes_where_nobody_sees_it(monkeypatch) -> None:
    class Graph:
        def replay(self) -> None:
            X.mul_(1)

    monkeypatch.setattr(reach, "kinds_of_graphs", lambda: [Graph])
    graph = Graph()
    with pytest.raises(ValueError, match="graph is a CUDA graph that trains"):
        measure(lambda: graph.replay(), seconds=SECONDS)


def test_parameters_without_a_shape_are_refused() -> None:
    model = nn.LazyLinear(1)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        measure(lambda: model(X), seconds=SECONDS)
    assert isinstance(model, nn.LazyLinear)


def test_copies_that_do_not_fit_are_refused(monkeypatch) -> None:
    training = Training()
    monkeypatch.setattr(memory, "free_bytes", lambda device: 100)
    with pytest.raises(MemoryError, match=r"takes copies of .* B, and 100 B are free"):
        measure(training.step, seconds=SECONDS)
    assert training.ran.empty()
    measure(training.step, seconds=SECONDS, restore=False)


# ------------------------------------------------------------------------------ shapes of training


def checked(step: Any, training: Training, *others: Any) -> None:
    """``step`` runs and trains, and everything is as before."""
    before = everything(training), frozen(others)
    measure(step, seconds=SECONDS)
    assert training.trained() and (everything(training), frozen(others)) == before


TRAINING = None


def by_a_global() -> torch.Tensor:
    return TRAINING.step()


def by_arguments(training: Training, *, also: Any = None) -> torch.Tensor:
    return training.step()


class Holder:
    """An instance, a class and a slot that hold a training."""

    shared: ClassVar[list[Any]] = []

    def __init__(self, training: Training) -> None:
        self.inner = types.SimpleNamespace(deep={"list": [(training,)]})

    def __call__(self) -> torch.Tensor:
        return self.inner.deep["list"][0][0].step()

    def fit_one(self) -> torch.Tensor:
        return self()

    @classmethod
    def of_class(cls) -> torch.Tensor:
        return cls.shared[0].step()


@dataclass
class Setup:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    training: Training
    steps: int = 0


def test_through_a_global(monkeypatch) -> None:
    monkeypatch.setitem(globals(), "TRAINING", Training())
    checked(by_a_global, TRAINING)


def test_through_a_class_its_instances_and_their_methods() -> None:
    training = Training()
    holder = Holder(training)
    checked(holder, training)
    checked(holder.fit_one, training)
    checked(lambda: holder.fit_one(), training)
    Holder.shared.append(training)
    checked(Holder.of_class, training)
    checked(lambda: Holder.of_class(), training)
    Holder.shared.clear()


def test_through_partials_defaults_and_wrappers() -> None:
    training = Training()
    checked(functools.partial(by_arguments, training), training)
    checked(functools.partial(functools.partial(by_arguments), also=1, training=training), training)
    checked(lambda training=training: training.step(), training)
    checked(functools.lru_cache(maxsize=0)(lambda: training.step()), training)
    checked(torch.enable_grad()(lambda: training.step()), training)
    checked(functools.wraps(by_a_global)(lambda: training.step()), training)


def test_through_lists_in_closures_and_slots() -> None:
    training = Training()
    held = [{"of": (training,)}]
    checked(lambda: held[0]["of"][0].step(), training)
    slotted = Slotted(training)

    def step() -> torch.Tensor:
        slotted.steps += 1
        return slotted.training.step()

    checked(step, training)
    assert slotted.steps == 0


class Meter:
    count, sums = 0, torch.zeros(2)


class Metered(nn.Module):
    """A layer with a plain object, and with a method that is named in a class below its own."""

    def __init__(self) -> None:
        super().__init__()
        self.meter = Meter()

    def note(self) -> None:
        TRAINING.step()

    def forward(self) -> None:
        self.meter.count += 1
        self.meter.sums.add_(1)
        self.note()


class Below(Metered):
    pass


def test_through_what_a_layer_holds_and_calls(monkeypatch) -> None:
    monkeypatch.setitem(globals(), "TRAINING", Training())
    model = nn.Sequential(nn.Sequential(Below()))
    meter = model[0][0].meter

    def step() -> None:
        model[0][0]()

    checked(step, TRAINING, meter.sums)
    assert meter.count == 0 and not meter.sums.any()


def test_through_a_module_of_the_reader_s(monkeypatch) -> None:
    helpers = types.ModuleType("helpers_of_a_reader")
    helpers.inner = types.ModuleType("helpers_of_a_reader.inner")
    helpers.inner.training, helpers.count = Training(), 0
    monkeypatch.setitem(sys.modules, "helpers_of_a_reader", helpers)

    def step() -> torch.Tensor:
        helpers.count += 1
        return helpers.inner.training.step()

    def importing() -> torch.Tensor:
        import helpers_of_a_reader

        helpers_of_a_reader.count += 1
        return helpers_of_a_reader.inner.training.step()

    checked(step, helpers.inner.training)
    checked(importing, helpers.inner.training)
    assert helpers.count == 0


def test_a_dataclass_a_list_of_losses_and_counters() -> None:
    training = Training()
    setup = Setup(training.model, training.optimizer)
    total, history, recent = 0, {"loss": []}, deque(maxlen=3)
    flat, raw = np.zeros(3), bytearray(3)

    def step() -> torch.Tensor:
        nonlocal total
        total += 1
        flat[0], raw[0] = total, 1
        loss = training.step()
        setup.losses.append(loss.item())
        history["loss"].append(loss.item())
        recent.append(loss.item())
        return loss

    checked(step, training, setup.losses, history, recent, flat, bytes(raw))
    assert total == 0 and setup.losses == [] and bytes(raw) == bytes(3)


def test_an_average_of_the_weights() -> None:
    training = Training()
    average = copy.deepcopy(training.model)
    plain = {name: each.clone() for name, each in training.model.state_dict().items()}
    swa = torch.optim.swa_utils.AveragedModel(training.model)

    def step() -> torch.Tensor:
        loss = training.step()
        with torch.no_grad():
            for one, other in zip(average.parameters(), training.model.parameters(), strict=True):
                one.lerp_(other, 0.1)
            for name, each in training.model.named_parameters():
                plain[name].lerp_(each, 0.1)
        swa.update_parameters(training.model)
        return loss

    checked(step, training, list(average.parameters()), plain, swa.state_dict())


def test_a_gradient_scaler_and_an_unlisted_scheduler() -> None:
    training = Training()
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)

    def step() -> torch.Tensor:
        training.ran.put(training.model.head.weight.sum().item())
        loss = training.model(X).square().mean()
        scaler.scale(loss).backward()
        scaler.step(training.optimizer)
        scaler.update()
        training.optimizer.zero_grad()
        training.scheduler.step()
        return loss

    before = pickle.dumps(vars(scaler))
    checked(step, training, scaler.state_dict())
    lr_find(step, training.model, training.optimizer, steps=20)
    assert pickle.dumps(vars(scaler)) == before and training.scheduler.last_epoch == 0


class Lightning(nn.Module):
    """A module that knows its trainer, which knows it; optimizers are the trainer's."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model, self.trainer = model, None

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        self.trainer.global_step += 1
        self.trainer.metrics["seen"] += len(batch)
        return self.model(batch).square().mean()


class Strategy:
    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizers = [optimizer]


class Trainer:
    def __init__(self, module: Lightning, optimizer: torch.optim.Optimizer, ran: Any) -> None:
        self.module, self.strategy, self.ran = module, Strategy(optimizer), ran
        self.global_step, self.metrics = 0, {"seen": torch.zeros(())}
        module.__dict__["trainer"] = self

    def advance(self) -> torch.Tensor:
        self.ran.put(self.module.model.head.weight.sum().item())
        [optimizer] = self.strategy._optimizers
        optimizer.zero_grad()
        loss = self.module.training_step(X)
        loss.backward()
        optimizer.step()
        return loss.detach()


@pytest.mark.parametrize("by", ["trainer", "module"])
def test_a_trainer_and_a_module_that_know_each_other(by: str) -> None:
    training = Training()
    module = Lightning(training.model)
    trainer = Trainer(module, training.optimizer, training.ran)
    step = trainer.advance
    if by == "module":
        step = lambda: module.trainer.advance()  # noqa: E731
    checked(step, training, trainer.metrics)
    assert trainer.global_step == 0 and trainer.metrics["seen"] == 0


def test_a_model_whose_config_refuses_to_be_changed_keeps_it() -> None:
    class Config(OrderedDict[str, Any]):
        def _refuse(self, *args: Any) -> None:
            raise TypeError("frozen")

        __delitem__ = setdefault = pop = update = popitem = _refuse  # type: ignore[assignment]

        def clear(self) -> None:
            raise AssertionError("cleared")

    training = Training()
    training.model.config = Config(width=64)
    checked(training.step, training, dict(training.model.config))
    assert dict(training.model.config) == {"width": 64}


def test_a_scripted_model() -> None:
    with pytest.warns(FutureWarning, match="deprecated"):
        model = torch.jit.script(nn.Linear(4, 1))
    seen = Kept()

    def step() -> None:
        loss = model(X).square().mean()
        seen.put(loss.item())
        with torch.no_grad():
            for each in model.parameters():
                each.mul_(0.99)

    before = frozen(dict(model.named_parameters()))
    measure(step, seconds=SECONDS)
    assert len(set(seen.entries())) > 5 and frozen(dict(model.named_parameters())) == before


def test_weights_of_ones_own_that_are_bound_anew() -> None:
    weights = {"w": torch.ones(4, requires_grad=True)}
    bias = torch.zeros(())
    first = weights["w"]

    def step() -> torch.Tensor:
        nonlocal bias
        loss = (X @ weights["w"] + bias).square().mean()
        (slope,) = torch.autograd.grad(loss, weights["w"])
        weights["w"] = (weights["w"] - 0.1 * slope).detach().requires_grad_()
        bias = bias + 1
        return loss.detach()

    measure(step, seconds=SECONDS)
    assert weights["w"] is first and torch.equal(first, torch.ones(4)) and bias == 0


# ------------------------------------------------------------------------------------ what is data


def test_a_container_of_many_entries_is_filled_as_before() -> None:
    many, model = list(range(20_000)), nn.Linear(1, 1)
    many.append(model)
    first = many[0]

    def step() -> None:
        many[0] = object()
        many.append(1)
        with torch.no_grad():
            model.weight += 1

    before = model.weight.item()
    measure(step, seconds=SECONDS)
    assert many[0] is first and len(many) == 20_001 and model.weight.item() == before


def test_a_container_of_many_objects_is_filled_as_before_and_named(monkeypatch) -> None:
    monkeypatch.setattr(reach, "MOST_ENTRIES", 3)
    model = nn.Linear(1, 1)
    samples = [(torch.zeros(1), each) for each in range(4)] + [model]

    def step() -> None:
        samples.append(None)
        with torch.no_grad():
            model.weight += 1

    before = model.weight.item()
    notes = measure(step, seconds=SECONDS).notes
    assert "samples (a container of many objects)" in notes[0]
    assert len(samples) == 5 and model.weight.item() == before


def test_tensors_of_inference_mode_and_graphs_of_before_still_work() -> None:
    with torch.inference_mode():
        fixed = torch.ones(3)
    weight = torch.ones(3, requires_grad=True)
    mask = torch.ones(3)
    loss = (weight * mask).sum()
    measure(lambda: (fixed + mask).sum(), seconds=SECONDS)
    loss.backward()
    assert torch.equal(weight.grad, mask) and fixed.is_inference()


def test_what_belongs_to_other_threads_is_left_alone() -> None:
    stop = threading.Event()
    measure(lambda: stop.set(), seconds=SECONDS)
    assert stop.is_set()


def test_an_object_of_a_library_is_named_and_left_alone() -> None:
    from tqdm import tqdm

    with tqdm(disable=True) as bar:

        def step() -> None:
            bar.n += 1

        notes = measure(step, seconds=SECONDS).notes
        assert "bar (a tqdm of tqdm)" in notes[0] and bar.n > 5


class Lent:
    """As a library's trainer."""

    def __init__(self, training: Training) -> None:
        self.steps, self.model, self.optimizer = 0, training.model, training.optimizer
        self.scheduler, self.log = training.scheduler, training.ran

    def advance(self) -> None:
        self.steps += 1
        self.log.put(self.model.head.weight.sum().item())
        self.model(X).square().mean().backward()
        self.optimizer.step()
        self.scheduler.step()


def test_what_a_trainer_of_a_library_trains_is_put_back(monkeypatch) -> None:
    library = types.ModuleType("trainers")
    library.__file__ = "/lib/site-packages/trainers.py"
    monkeypatch.setitem(sys.modules, "trainers", library)
    monkeypatch.setattr(Lent, "__module__", "trainers")
    training = Training()
    trainer, before = Lent(training), everything(training)
    notes = measure(lambda: trainer.advance(), seconds=SECONDS).notes
    assert training.trained() and everything(training) == before
    assert "trainer (a Lent of trainers)" in notes[0] and trainer.steps > 5


def test_nothing_is_kept_afterwards() -> None:
    training = Training()
    gc.collect()
    before = sum(isinstance(each, torch.Tensor) for each in gc.get_objects())
    measure(training.step, seconds=SECONDS)
    gc.collect()
    assert sum(isinstance(each, torch.Tensor) for each in gc.get_objects()) <= before
    assert labkit.compare is compare
