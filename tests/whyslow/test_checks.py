"""Each check: its change takes the fault out of the step, and its judgement follows the figures.

Changes are held by counters, judgements by times that are given, not measured.
"""

import _thread
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from labkit import count
from labkit.busy import cores
from tests.whyslow.parts import looked_at
from tests.whyslow.programs import PROGRAMS
from whyslow import memory, session
from whyslow import phases as phases_of
from whyslow.checks import EXPERIMENTS, compiled, loading, settings, update
from whyslow.checks import beside as around
from whyslow.checks.loading import Parts
from whyslow.clock import saving_of, share_of
from whyslow.events import Listener, listening
from whyslow.experiment import Experiment
from whyslow.findings import Finding
from whyslow.observe import Seen, observe
from whyslow.phases import Phases, Source
from whyslow.remedies import BESIDE
from whyslow.streams import Stream
from whyslow.subject import Subject

# ------------------------------------------------------------------- a change takes the fault out


def flops(step, subject):
    return count(step).flops


def launches(step, subject):
    return count(step).launches


def kept_bytes(step, subject):
    return count(step).saved_bytes


def in_the_other_order(step, subject):
    weights = [each for each in subject.seen.parameters if each.dim() == 4]
    return sum(not each.is_contiguous(memory_format=torch.channels_last) for each in weights)


def threads_away(step, subject):
    return abs(torch.get_num_threads() - cores())


def seen_to_be(name):
    def probe(step, subject):
        found = getattr(observe(step, lambda item: None), name)
        return len(found) if isinstance(found, list) else int(found)

    return probe


# By program: what its fault has more of.
MORE = {
    "anomaly_everywhere": seen_to_be("anomaly"),
    "anomaly_in_the_step": launches,
    "profiled": seen_to_be("profiled"),
    "deterministic": seen_to_be("deterministic"),
    "checkpointed": flops,
    "frozen_in_name": flops,
    "validated_with_gradients": seen_to_be("unused"),
    "full_precision": kept_bytes,
    "loop_optimizer": launches,
    "channels_first": in_the_other_order,
    "oversubscribed": threads_away,
}


@pytest.mark.parametrize("name", MORE)
def test_a_change_takes_the_fault_out_and_puts_it_back(name):
    names = PROGRAMS[name].names
    program = PROGRAMS[name].make(False)
    try:
        subject = looked_at(program)
        every = [each for check in EXPERIMENTS for each in check(subject)]
        tried = next(each for each in every if each.name in names)
        step = subject.serve()
        before = MORE[name](step, subject)
        with tried.change():
            # Once more to warm up: gradients and the optimizer's state may be new.
            (tried.step or step)()
            inside = MORE[name](tried.step or step, subject)
        step()
        after = MORE[name](step, subject)
    finally:
        program.close()
    assert after == before
    assert inside < before


def test_a_larger_batch_holds_the_same_samples_again():
    subject = looked_at(PROGRAMS["tiny_batch"].make(False))
    every = [each for check in EXPERIMENTS for each in check(subject)]
    [larger] = [each for each in every if each.last]
    seen = observe(larger.step, lambda item: None)
    assert seen.samples == larger.samples * subject.seen.samples == 8 * 4


def test_no_larger_batch_is_made_where_memory_is_unknown(monkeypatch):
    subject = subject_of()
    free = 10_000
    monkeypatch.setattr(memory, "free_bytes", lambda device: free)
    for peak, room in ((None, False), (499, True), (501, False)):
        subject.peak = peak
        assert memory.room_for(subject, 8) is room
    free, subject.peak = None, 1
    assert not memory.room_for(subject, 8)


def test_an_experiment_that_cannot_be_made_is_told_and_the_others_are(monkeypatch):
    def full(subject):
        yield Experiment("one", "so")
        raise torch.OutOfMemoryError("CUDA out of memory")

    def other(subject):
        yield Experiment("other", "so")

    full.__module__ = "whyslow.checks.batch"
    monkeypatch.setattr(session, "EXPERIMENTS", (full, other))
    told = session.Session(print, None, 1.0, 60.0, ())
    assert [each.name for each in told._every_experiment()] == ["one", "other"]
    reason = "OutOfMemoryError: CUDA out of memory"
    assert told.unmeasured == {"batch, by experiment": reason}


# ------------------------------------------------------------------------------------- judgements


def result(ratios, pairs=None):
    side = SimpleNamespace(error=None)
    return SimpleNamespace(
        ratios=ratios,
        pairs=len(ratios) if pairs is None else pairs,
        device="cpu",
        baseline=side,
        candidate=side,
    )


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (result([1.2] * 12), True),
        (result([1.2, 1.25, 1.18, 1.22] * 3), True),
        (result([1.01] * 12), False),
        (result([2.0, 0.6] * 6), False),
        (result([0.8] * 12), False),
        (result([1.2] * 12, pairs=1), False),
    ],
)
def test_only_a_sure_saving_is_named(given, named):
    assert Experiment("it", "so").worth_naming(given) is named


def test_an_experiment_has_a_least_share_of_its_own():
    large = Experiment("it", "so", least=0.3)
    assert not large.worth_naming(result([1.2] * 12)) and large.worth_naming(result([2.0] * 12))


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def phases(**parts):
    found = Phases()
    found.steps = [dict(parts) for _ in range(12)]
    return found


def subject_of(**seen):
    batch = (torch.zeros(8, 4), torch.zeros(8, dtype=torch.int64))
    return Subject(lambda batch: None, [batch], [batch], Seen(roots=[model()], **seen))


def names_and_shares(found):
    return {each.name: each.share for each in found}


@pytest.mark.parametrize(
    ("calls", "before", "wanted"),
    [
        (20, 0.5, {"loop over samples in Python": 0.5}),
        (3, 0.5, {BESIDE: 0.5}),
        (3, 0.01, {}),
    ],
)
def test_what_comes_before_the_model(monkeypatch, calls, before, wanted):
    monkeypatch.setattr(around, "_least", lambda seen: 0.0)
    subject = subject_of(backwards=1, launches={"before": calls})
    found = around.findings(subject, phases(before=before, forward=0.9 - before, update=0.1))
    assert names_and_shares(found) == pytest.approx(wanted)


def test_what_no_step_is_without_is_no_work_beside(monkeypatch):
    subject = subject_of(backwards=1, launches={"before": 3}, lower_precision=True)
    least = around._least(subject.seen)
    assert 0 < least < 1
    measured = phases(before=0.2, forward=0.7, rest=0.1)
    for least, wanted in ((0.1, {BESIDE: 0.2}), (0.25, {})):
        monkeypatch.setattr(around, "_least", lambda seen, least=least: least)
        assert names_and_shares(around.findings(subject, measured)) == pytest.approx(wanted)


def test_a_validation_is_no_work_beside():
    subject = subject_of(backwards=1, unused=[model()])
    assert list(around.findings(subject, phases(forward=0.5, rest=0.5))) == []


class Own(torch.optim.SGD):
    """An optimizer that is not torch's own."""


@pytest.mark.parametrize(
    ("kind", "calls", "wanted"),
    [
        # Four tensors.
        (torch.optim.SGD, {"after backward": 8}, {"gradient clipping in a Python loop": 0.3}),
        (torch.optim.SGD, {"after backward": 7}, {}),
        (torch.optim.SGD, {"update": 40}, {}),
        (Own, {"update": 4}, {"optimizer loops over parameters": 0.1}),
        (Own, {"update": 3}, {}),
        (None, {"after backward": 4}, {"optimizer loops over parameters": 0.3}),
        (None, {"after backward": 3}, {}),
    ],
)
def test_loops_over_parameters(monkeypatch, kind, calls, wanted):
    monkeypatch.setattr(update, "_seconds", lambda work: 0.1)
    subject = subject_of(backwards=1, launches=calls)
    if kind is not None:
        subject.seen.optimizers.append(kind(subject.seen.parameters, lr=0.1))
    measured = phases(forward=0.4, **{"after backward": 0.4, "update": 0.2})
    assert names_and_shares(update.by_hand(subject, measured)) == pytest.approx(wanted)


def test_what_is_as_fast_as_torchs_own_loses_nothing(monkeypatch):
    monkeypatch.setattr(update, "_seconds", lambda work: 0.4)
    subject = subject_of(backwards=1, launches={"after backward": 8})
    subject.seen.optimizers.append(torch.optim.SGD(subject.seen.parameters, lr=0.1))
    [found] = update.by_hand(subject, phases(forward=0.6, **{"after backward": 0.4}))
    assert found.share == 0 and found.interval[0] == 0


def test_compiling_once_is_no_habit():
    [found] = compiled.again([0.5, 0.5], [1.0] * 10)
    assert found.share == pytest.approx(0.1)
    assert not list(compiled.again([1.0], [1.0] * 10))
    assert not list(compiled.again([0.5, 0.5], []))


def test_no_share_is_more_than_all():
    assert share_of([3.0, 6.0] * 6, [1.0] * 12) == (1.0, (1.0, 1.0))


def test_compilations_are_counted():
    program = PROGRAMS["recompiled"].make(False)
    step = Subject(program.step, program.batches).train
    lengths = iter(program.batches)
    step(next(lengths))
    with compiled.watched() as found:
        for _ in range(3):
            step(next(lengths))
    assert len(found) >= 3 and min(found) > 0


WAITED = Stream(waits=[0.02] * 8, works=[0.01] * 8)


def loader(**settings):
    return DataLoader(TensorDataset(torch.zeros(48, 4)), batch_size=8, **settings)


@pytest.mark.parametrize(
    ("parts", "workers", "name", "gone"),
    [
        # The loader alone: each part gives what it takes.
        (Parts(0.005, 0.015), 0, "slow collate function", 0.75),
        (Parts(0.019, 0.001), 0, "slow samples in the dataset", 0.95),
        # Beside workers that no other number helps: no more than the part takes.
        (Parts(0.03, 0.001), 1, "slow samples in the dataset", 1),
        (Parts(0.001, 0.03), 1, "slow collate function", 1),
        (Parts(0.005, 0.001), 1, "slow samples in the dataset", 0.25),
        (Parts(0.0001, 0.0005), 1, "slow collate function", 0.025),
        (None, 1, "waits for data", 1),
    ],
)
def test_what_a_wait_is_due_to(monkeypatch, parts, workers, name, gone):
    monkeypatch.setattr(loading, "parts_of", lambda given: parts)
    monkeypatch.setattr(loading, "_tried", lambda *given: None)
    subject = Subject(print, loader(num_workers=workers))
    found = loading.cause(subject, Source.of(subject.loader), WAITED, (0.67, (0.6, 0.7)))
    assert found.name == name
    assert (found.share, *found.interval) == pytest.approx((gone * 0.67, gone * 0.6, gone * 0.7))


def given_streams(monkeypatch, waits):
    """Streams of these waits, by the number of workers; what was asked for."""
    asked = []

    def stream(step, another, seconds):
        asked.append(another.num_workers)
        return Stream(waits=[waits[another.num_workers]] * 8, works=[0.01] * 8)

    monkeypatch.setattr(loading, "stream", stream)
    return asked


@pytest.mark.parametrize(
    ("wait", "share"), [(0.02, None), (0.0185, None), (0.005, 0.5), (0.0, 2 / 3)]
)
def test_one_more_worker_is_promised_what_it_gave(monkeypatch, wait, share):
    asked = given_streams(monkeypatch, {2: wait})
    monkeypatch.setattr(loading, "cores", lambda: 2)
    monkeypatch.setattr(loading, "parts_of", lambda given: Parts(0.03, 0.001))
    subject = Subject(print, loader(num_workers=1))
    named = loading.cause(subject, Source.of(subject.loader), WAITED, (0.67, (0.6, 0.7)))
    assert asked == [2]
    assert (named.name == "too few loader workers") == (share is not None)
    assert share is None or named.share == pytest.approx(share)


@pytest.mark.parametrize(("wait", "share"), [(0.02, None), (0.0195, None), (0.002, 0.6)])
def test_workers_that_hand_over_slower_than_a_batch_is_made(monkeypatch, wait, share):
    asked = given_streams(monkeypatch, {0: wait, 1: 0.02})
    monkeypatch.setattr(loading, "parts_of", lambda given: Parts(0.0005, 0.001))
    subject = Subject(print, loader(num_workers=1))
    named = loading.cause(subject, Source.of(subject.loader), WAITED, (0.67, (0.6, 0.7)))
    assert asked == [1, 0]
    assert (named.name == "loader workers that cost more than they save") == (share is not None)
    assert share is None or (
        named.share == pytest.approx(share) and "num_workers=0" in named.remedy
    )
    # Else no more is promised than the collate function takes.
    assert share is not None or named.share == pytest.approx(0.67 * 0.001 / 0.02)


@pytest.mark.parametrize("workers", [0, 2])
def test_no_more_workers_than_cores_are_advised(monkeypatch, workers):
    asked = given_streams(monkeypatch, {2: 0.0, 3: 0.0})
    monkeypatch.setattr(loading, "cores", lambda: max(1, workers))
    monkeypatch.setattr(loading, "parts_of", lambda given: Parts(0.03, 0.001))
    subject = Subject(print, loader(num_workers=workers))
    named = loading.cause(subject, Source.of(subject.loader), WAITED, (0.67, (0.6, 0.7)))
    assert (asked, named.name) == ([], "slow samples in the dataset")
    assert f"num_workers={max(1, workers)}" in named.remedy


@pytest.mark.parametrize(
    ("before", "after", "share", "sure"),
    [
        ([2.0] * 8, [1.0] * 8, 0.5, True),
        ([2.0] * 30, [1.9] * 30, 0.05, True),
        ([1.0, 3.0] * 4, [1.9] * 8, 0.05, False),
        ([2.0], [1.0], 0.5, False),
        ([], [1.0], 0.0, False),
    ],
)
def test_what_is_saved_between_two_streams(before, after, share, sure):
    saved, (low, high) = saving_of(before, after)
    assert saved == pytest.approx(share) and low <= saved <= high
    assert (low > 0) is sure


@pytest.mark.parametrize(
    ("settings", "start", "share"),
    [
        ({"num_workers": 1}, 0.50, 0.59 / (0.59 + 6 * 0.02)),
        ({"num_workers": 1}, 0.01, 0.10 / (0.10 + 6 * 0.02)),
        ({"num_workers": 1, "persistent_workers": True}, 0.50, None),
        ({}, 0.50, None),
    ],
)
def test_workers_that_are_started_again(settings, start, share):
    stream = Stream([0.01] * 20, [0.01] * 20, starts=[start] * 5, ends=[0.1] * 5)
    found = loading._restarts(Subject(print, loader(**settings)), stream)
    assert (found and found.share) == (share and pytest.approx(share))


@pytest.mark.parametrize("keeps", [False, True])
def test_what_stays_in_memory(keeps):
    kept = []

    def step():
        made = torch.ones(1000)
        if keeps:
            kept.append(made)

    use = memory.use_of(step, "cpu")
    assert use.stays == (4000 if keeps else 0)
    found = [(each.share, each.of) for each in memory.findings(use)]
    assert found == ([(1.0, "memory")] if keeps else [])


def test_a_larger_batch_is_not_praised_for_what_has_a_remedy_of_its_own():
    found = Finding("it", 0.5, (0.4, 0.6), "so", "do\nthis")
    less = session._less(found, 0.3)
    assert (less.share, *less.interval) == pytest.approx((0.2, 0.1, 0.3))
    scaled = session._scaled(found, 0.5)
    assert (scaled.share, *scaled.interval) == pytest.approx((0.25, 0.2, 0.3))


def test_a_profiler_that_runs_already_does_not_record():
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        torch.ones(3).cumsum(0)
        with settings.not_profiled():
            torch.ones(3).cumprod(0)
        torch.ones(3).cummax(0)
    names = {each.name for each in taken.events()}
    assert {"aten::cumsum", "aten::cummax"} <= names and "aten::cumprod" not in names


@pytest.mark.parametrize("kind", [profile, torch.autograd.profiler.profile])
def test_no_profiler_begins(kind):
    with settings.not_profiled(), kind():
        assert not torch.autograd._profiler_enabled()
    with kind() as taken:
        torch.ones(3).cumsum(0)
    assert "aten::cumsum" in [each.key for each in taken.key_averages()]


# --------------------------------------------------------------------------------- whose step it is


class Told(Listener):
    """Writes down what it is told."""

    def __init__(self):
        self.events = []

    def begins(self, what, item, values):
        self.events.append(what)

    def ends(self, what, item, values):
        self.events.append(f"{what} end")


BACKWARD = ["forward", "forward end", "backward", "backward end"]
UPDATE = ["update", "update end", "zeroing", "zeroing end"]


def beside(work):
    """In a thread of the program's own."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


def by_autograd(work):
    """In a thread that Python has not started, as on an accelerator the hooks of gradients are."""
    done = threading.Event()

    def works():
        work()
        done.set()

    _thread.start_new_thread(works, ())
    assert done.wait(60)


def own_update():
    weights = model()
    optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)

    def update():
        optimizer.step()
        optimizer.zero_grad()

    return weights, update


def test_another_threads_steps_are_not_told():
    weights, update = own_update()

    def step():
        weights(torch.ones(2, 4)).sum().backward()
        update()

    told = Told()
    with listening(told):
        beside(step)
        by_autograd(update)
        assert told.events == []
        step()
    assert told.events == BACKWARD + UPDATE


def test_another_threads_batches_are_not_told():
    told = Phases()
    own = loader()
    with listening(told):
        beside(lambda: list(loader()))
        told.begin()
        list(own)
        told.end()
    assert told.slowest_loader().dataset is own.dataset


@pytest.mark.parametrize(
    ("runs", "told_of"),
    [(by_autograd, UPDATE), (lambda work: work(), UPDATE), (beside, [])],
)
def test_an_update_within_the_backward_pass_is_told(runs, told_of):
    weights, update = own_update()
    weights[0].weight.register_post_accumulate_grad_hook(lambda parameter: runs(update))
    told = Told()
    with listening(told):
        weights(torch.ones(2, 4)).sum().backward()
    assert told.events == [*BACKWARD[:3], *told_of, BACKWARD[3]]


# ------------------------------------------------------------------------ arguments given by name


def test_a_step_may_save_and_open_by_name(tmp_path):
    def step():
        torch.save(obj=[1], f=str(tmp_path / "saved"))
        with open(mode="w", file=tmp_path / "opened"):
            pass

    seen = observe(step, lambda item: None)
    assert [Path(each).name for each in seen.written] == ["saved", "opened"]
    assert torch.load(tmp_path / "saved") == [1]


# --------------------------------------------------------------------------- waits for the device


def noted(monkeypatch, module):
    """What is done, in order, of steps, waits for the device and looks at the clock."""
    done = []
    monkeypatch.setattr(module, "synchronize", lambda: done.append("wait"))
    clock = SimpleNamespace(perf_counter=lambda: float(done.append("clock") or 0))
    monkeypatch.setattr(module, "time", clock)
    return done


def test_a_step_is_timed_after_the_one_before_and_to_its_end(monkeypatch):
    done = noted(monkeypatch, phases_of)
    observe(lambda: done.append("step"), lambda item: None)
    assert done == ["wait", "clock", "step", "wait", "clock", "clock"]


# ------------------------------------------------------------------------- loaders of other kinds


class Streamed(IterableDataset):
    """It has no samples by number."""

    def __iter__(self):
        yield from torch.zeros(48, 4)


class Opened(Dataset):
    """It reads only what its worker has opened."""

    def __len__(self):
        return 48

    def __getitem__(self, index):
        raise RuntimeError("worker_init_fn was not called")


def test_a_stream_without_numbers_has_no_parts():
    streamed = DataLoader(Streamed(), batch_size=8)
    assert loading.parts_of(Source.of(streamed)) is None
    named = loading.cause(Subject(print, streamed), Source.of(streamed), WAITED, (0.67, (0.6, 0.7)))
    assert named.name == "waits for data"


@pytest.mark.parametrize(("dataset", "failed"), [(Streamed(), False), (Opened(), True)])
def test_waits_are_found_where_their_cause_is_not(dataset, failed):
    told = session.Session(print, DataLoader(dataset, batch_size=8), 1.0, 60.0, ())
    source = Source.of(told.subject.loader)
    [found] = loading.findings(told.subject, WAITED, source, told._may_fail)
    assert (found.name, found.share) == ("waits for data", pytest.approx(2 / 3))
    reason = {loading.CAUSE: "RuntimeError: worker_init_fn was not called"}
    assert told.unmeasured == (reason if failed else {})
