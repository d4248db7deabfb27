"""Each check: its change takes the fault out of the step, and its judgement follows the figures.

Changes are held by counters, judgements by times that are given, not measured.
"""

import gc
import math
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from labkit import count
from labkit.busy import cores
from labkit.restore import preserve_flags
from tests.whyslow.parts import looked_at
from tests.whyslow.programs import PROGRAMS
from whyslow import experiments, loading, remedies, session
from whyslow import subject as of_subject
from whyslow.experiment import Experiment
from whyslow.experiments import EXPERIMENTS
from whyslow.findings import Finding
from whyslow.loading import Stream, end_workers, own_loader, stream
from whyslow.remedies import BESIDE, LOOP
from whyslow.report import Report
from whyslow.shares import BLOCK, Tally, saving_of, share_of
from whyslow.stacks import COMPILING, FORWARD, LOADING, LOGGING, UPDATE, Place
from whyslow.subject import Seen, Subject
from whyslow.watching import Watch

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


def graphs(step, subject):
    outputs = []
    hook = subject.seen.roots[0].register_forward_hook(lambda _, __, found: outputs.append(found))
    step()
    hook.remove()
    return sum(each.requires_grad for each in outputs)


def seen_to_be(name):
    def probe(step, subject):
        return int(getattr(of_subject.observe(step, lambda item: None), name))

    return probe


# By program: what its fault has more of.
MORE = {
    "anomaly_everywhere": seen_to_be("anomaly"),
    "anomaly_in_the_step": launches,
    "profiled": seen_to_be("profiled"),
    "deterministic": lambda step, subject: torch.are_deterministic_algorithms_enabled(),
    "checkpointed": flops,
    "validated_with_gradients": graphs,
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
    [larger] = experiments.larger_batch(subject)
    rows = []
    subject.seen.roots[0].register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    larger.step()
    assert rows == [8 * 4] and larger.samples == 8


def test_no_larger_batch_is_made_where_memory_is_unknown(monkeypatch):
    subject = Subject(print)
    free = 10_000
    monkeypatch.setattr(of_subject, "free_bytes", lambda device: free)
    for peak, room in ((None, False), (499, True), (501, False)):
        subject.peak = peak
        assert subject.has_room(8) is room
    free, subject.peak = None, 1
    assert not subject.has_room(8)


def test_an_experiment_that_cannot_be_made_is_told_and_the_others_are():
    def full(subject):
        yield Experiment("one", "so")
        raise torch.OutOfMemoryError("CUDA out of memory")

    def other(subject):
        yield Experiment("other", "so")

    told = session.Session(print)
    assert [each.name for each in told._every_experiment((full, other))] == ["one", "other"]
    reason = "OutOfMemoryError: CUDA out of memory"
    assert told.checked == {"full, by experiment": reason}


# ------------------------------------------------------------------------------------- judgements


def result(ratios, pairs=None):
    side = SimpleNamespace(error=None)
    return SimpleNamespace(
        ratios=ratios,
        pairs=len(ratios) if pairs is None else pairs,
        error=None,
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


@pytest.mark.parametrize("few", [False, True])
def test_a_training_that_diverges_when_it_is_repeated_is_timed_all_the_same(few):
    losses = iter([torch.tensor(1.0)] * 4)
    step = lambda: next(losses, torch.tensor(float("nan")))  # noqa: E731
    one = Experiment("it", "so")
    found = one.run(step, 0.1, pairs=6 if few else 0)
    assert found.pairs > 1 and math.isnan(float(step()))


def test_a_change_that_breaks_the_first_step_is_refused():
    broken = Experiment("it", "so", step=lambda: torch.tensor(float("nan")))
    with pytest.raises(FloatingPointError, match="of 'it' returned nan"):
        broken.run(lambda: torch.tensor(1.0), 0.1)


def test_the_looks_end_with_who_wanted_them():
    """As after an interrupt before the block has begun: its thread keeps the sampler alive."""
    watch = Watch(show=False).start()
    thread = watch._thread
    assert thread.is_alive()
    del watch
    gc.collect()
    thread.join(5)
    assert not thread.is_alive()


def model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def counts(losses):
    return [loss for loss in losses if loss]


def updates(weights):
    with torch.no_grad():
        for weight in weights:
            weight.sub_(0.1 * weight.grad)


def line_of(function):
    """Its body, as the innermost own line of a stack."""
    code = function.__code__
    last = max(line for _, _, line in code.co_lines() if line)
    return Place(code.co_filename, last, code.co_name)


UPDATES, COUNTS = map(line_of, (updates, counts))


def told_of(shares, **seen):
    """A session that has seen each of these stacks take its share of the time."""
    told, tally = session.Session(lambda: None), Tally()
    told.subject.seen = Seen(roots=[model()], **seen)
    for block in range(12):
        for stack, share in shares.items():
            tally.add(stack, block * BLOCK, share * BLOCK)
    told.report = Report(tally)
    return told


def names_and_shares(found):
    return {each.name: each.share for each in found}


@pytest.mark.parametrize("stack", [(COUNTS,), (LOGGING,)])
@pytest.mark.parametrize(("share", "wanted"), [(0.5, {BESIDE: 0.5}), (0.01, {}), (0.07, {})])
def test_work_around_the_training(stack, share, wanted):
    # What torch's own optimizers take is no work of the reader's.
    told = told_of({stack: share, (FORWARD,): 0.9 - share, (COUNTS, UPDATE): 0.1})
    assert names_and_shares(told._own_work()) == pytest.approx(wanted)


def test_waits_for_data_are_no_part_of_the_step_itself():
    told = told_of({(COUNTS,): 0.2, (FORWARD,): 0.2, (LOADING,): 0.6})
    assert names_and_shares(told._own_work()) == pytest.approx({BESIDE: 0.5})


def test_a_validation_is_no_work_beside():
    told = told_of({(FORWARD,): 0.5, (COUNTS,): 0.5}, unused=[model()])
    assert not list(told._own_work())


class Own(torch.optim.SGD):
    """An optimizer that is not torch's own."""


@pytest.mark.parametrize(
    ("kind", "name"),
    [(torch.optim.SGD, BESIDE), (Own, LOOP), (None, LOOP)],
)
def test_updates_by_hand(kind, name):
    # As an average of weights beside an optimizer of torch's.
    optimizers = [kind(model().parameters(), lr=0.1)] if kind else []
    told = told_of({(UPDATES,): 0.4, (FORWARD,): 0.6}, optimizers=optimizers)
    assert names_and_shares(told._own_work()) == pytest.approx({name: 0.4})


@pytest.mark.parametrize(
    ("name", "finding"),
    [("clipped_by_hand", BESIDE), ("optimizer_by_hand", LOOP), ("flipped_one_by_one", BESIDE)],
)
def test_loops_in_python_are_seen_in_their_lines(monkeypatch, name, finding):
    monkeypatch.setattr(session, "LITTLE", 0.0)
    beside_it = []
    for mended in (False, True):
        program = PROGRAMS[name].make(mended)
        told = session.Session(program.step, program.batches)
        # Beside other programs, threads that wait for each other make small operators slow ones.
        with preserve_flags():
            torch.set_num_threads(1)
            told.subject.seen = of_subject.observe(
                told.subject.serve(program.batches), lambda item: None
            )
            with Watch(show=False) as watch:
                stream(told.subject.train, program.batches, 1.0)
            told.report = watch.report
        found = names_and_shares(told._own_work())
        # Beside the rest of the step, which is the same in both.
        beside_it.append(found.get(finding, 0.0) / (1 - found.get(finding, 0.0)))
    assert beside_it[0] > 0.05 and beside_it[0] > 3 * beside_it[1]


def test_compiling_has_its_share():
    told = told_of({(COMPILING,): 0.1, (FORWARD,): 0.9})
    found = told._by_lines(remedies.RECOMPILED, (COMPILING,), "so")
    assert found.share == pytest.approx(0.1)


def test_no_share_is_more_than_all():
    assert share_of([3.0, 6.0] * 6, [1.0] * 12) == (1.0, (1.0, 1.0))


def test_compilations_are_counted():
    program = PROGRAMS["recompiled"].make(False)
    step = Subject(program.step, program.batches).train
    lengths = iter(program.batches)
    step(next(lengths))
    before = experiments.compilations()
    for _ in range(3):
        step(next(lengths))
    assert experiments.compilations() - before >= 3


WAITED = Stream(waits=[0.02] * 8, works=[0.01] * 8)
WAITING = pytest.approx(2 / 3)


@contextmanager
def nothing_may_fail(name):
    yield


def loader(**settings):
    return DataLoader(TensorDataset(torch.zeros(48, 4)), batch_size=8, **settings)


def given_streams(monkeypatch, waits, alone):
    """Streams of these waits, by the number of workers, and what a batch takes ``alone``; what was
    asked for.
    """
    asked = []

    def stream(step, another, seconds):
        asked.append(another.num_workers)
        return Stream(waits=[waits[another.num_workers]] * 8, works=[0.01] * 8)

    monkeypatch.setattr(loading, "stream", stream)
    monkeypatch.setattr(loading, "seconds_of", lambda given: alone)
    return asked


@pytest.mark.parametrize(
    ("alone", "other", "wait", "saves"),
    [
        *[(0.031, 2, 0.02, ""), (0.031, 2, 0.0185, "")],
        *[(0.031, 2, 0.005, "50%"), (0.031, 2, 0.0, "67%")],
        # Workers that hand over slower than a batch is made.
        *[(0.0015, 0, 0.02, ""), (0.0015, 0, 0.0195, ""), (0.0015, 0, 0.002, "60%")],
    ],
)
def test_another_number_of_workers_is_promised_what_it_gave(monkeypatch, alone, other, wait, saves):
    asked = given_streams(monkeypatch, {other: wait}, alone)
    monkeypatch.setattr(loading, "cores", lambda: 2)
    named = loading.finding(print, loader(num_workers=1), WAITED, nothing_may_fail)
    # What all of the waits are, and what of it was tried.
    assert (asked, named.name, named.share) == ([other], "waits for data", WAITING)
    assert f"num_workers={other}" in named.remedy and "instead of 1" in named.remedy
    assert (f"saves {saves} of" if saves else "saves little or nothing") in named.remedy


@pytest.mark.parametrize(
    ("settings", "dataset"),
    [({}, None), ({"num_workers": 2}, None), ({"num_workers": 1}, "stream")],
)
def test_no_other_number_of_workers_is_tried(monkeypatch, settings, dataset):
    asked = given_streams(monkeypatch, {2: 0.0, 3: 0.0}, 0.031)
    count = max(1, settings.get("num_workers", 0))
    for module in (loading, remedies):
        monkeypatch.setattr(module, "cores", lambda: count)
    # Without workers, without a core for one more, and of samples that are read only once.
    data = loader(**settings) if dataset is None else DataLoader(Streamed(), 8, **settings)
    named = loading.finding(print, data, WAITED, nothing_may_fail)
    assert (asked, named.name, named.share) == ([], "waits for data", WAITING)
    assert f"num_workers={count + 1}" not in named.remedy


def test_a_batch_is_timed_without_workers():
    class Slow(Dataset):
        def __len__(self):
            return 8

        def __getitem__(self, index):
            time.sleep(0.01)
            return torch.zeros(1)

    other = loading.with_workers(DataLoader(Slow(), batch_size=2, num_workers=2), 0)
    assert 0.02 <= loading.seconds_of(other) < 0.2


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
        ({"num_workers": 1}, 0.60, 0.59 / (0.59 + 6 * 0.02)),
        ({"num_workers": 1}, 0.11, 0.10 / (0.10 + 6 * 0.02)),
        ({"num_workers": 1, "persistent_workers": True}, 0.60, None),
        ({}, 0.60, None),
    ],
)
def test_workers_that_are_started_again(settings, start, share):
    found = loading._restarts(loader(**settings), Stream([0.01] * 20, [0.01] * 20, [start] * 5))
    assert (found and found.share) == (share and pytest.approx(share))


@pytest.mark.parametrize(
    ("start", "wait", "name", "share"),
    [
        (0.5, 0.01, "loader workers started again every epoch", 0.49 / (0.49 + 6 * 0.02)),
        # Of all the time, the starts among it.
        (0.05, 0.03, "waits for data", 1 - 30 * 0.01 / (5 * 0.05 + 25 * 0.03 + 30 * 0.01)),
    ],
)
def test_the_larger_one_of_starts_and_other_waits_is_named(monkeypatch, start, wait, name, share):
    monkeypatch.setattr(loading, "_tried", lambda *given: "")
    waits = [start, *[wait] * 5] * 5
    streamed = Stream(waits, [0.01] * 30, [start] * 5)
    told = session.Session(print, loader(num_workers=1))
    found = told._waits(streamed)
    assert (found.name, found.share) == (name, pytest.approx(share))
    # Both are waits.
    assert told.waiting == pytest.approx(sum(waits) / sum(streamed.wholes))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_more_workers_than_cores_are_advised(monkeypatch, workers, count):
    monkeypatch.setattr(remedies, "cores", lambda: count)
    advised = remedies.loader(workers)
    assert [f"num_workers={number}" in advised for number in range(count + 1, 9)] == [False] * (
        8 - count
    )
    assert ("num_workers=" in advised) is (count > 1 or workers > 0)


class Restarted:
    """A loader of four batches, which takes its time before the first one of each pass."""

    num_workers = 0

    def __iter__(self):
        time.sleep(0.02)
        yield from range(4)


def test_workers_that_are_started_again_are_waited_for():
    found = stream(lambda batch: None, Restarted(), 0.1)
    # What is loaded before the first step says nothing of the next ones.
    starts = [wait >= 0.02 for wait in found.waits]
    assert starts[:7] == [False, False, False, True, False, False, False]
    assert len(found.starts) >= 2 and min(found.starts) >= 0.02


@pytest.mark.parametrize("lives_on", [False, True])
def test_workers_that_were_started_for_one_pass_end_with_it(lives_on):
    others = set(multiprocessing.active_children())
    given = own_loader(loader(num_workers=1, persistent_workers=lives_on))
    # Whatever a collection of garbage would end later, and would wait for.
    gc.disable()
    try:
        Subject(print, given).keep()
        stream(lambda batch: None, given, 0.01)
        left = set(multiprocessing.active_children()) - others
        assert len(left) == lives_on
    finally:
        gc.enable()
        end_workers(given)
    assert not set(multiprocessing.active_children()) - others


@pytest.mark.parametrize("keeps", [False, True])
def test_what_stays_in_memory(keeps):
    kept = []

    def step():
        made = torch.ones(1000)
        if keeps:
            kept.append(made)

    assert of_subject.memory_of(step, "cpu")[1] == (4000 if keeps else 0)
    told = session.Session(step)
    told.subject.step_seconds = 0.0
    told._count()
    [grows] = told.found
    assert (grows.name, grows.share, grows.of) == (remedies.GROWTH, float(keeps), "memory")


def test_a_share_of_the_step_is_told_of_the_step_with_its_wait():
    told = session.Session(print)
    told.waiting = 0.5
    scaled = told._placed(Finding("it", 0.5, (0.4, 0.6), "so", "do\nthis"), ())
    assert (scaled.share, *scaled.interval) == pytest.approx((0.25, 0.2, 0.3))


def test_a_profiler_that_runs_already_does_not_record():
    with profile(activities=[ProfilerActivity.CPU]) as taken:
        torch.ones(3).cumsum(0)
        with experiments.not_profiled():
            torch.ones(3).cumprod(0)
        torch.ones(3).cummax(0)
    names = {each.name for each in taken.events()}
    assert {"aten::cumsum", "aten::cummax"} <= names and "aten::cumprod" not in names


@pytest.mark.parametrize("kind", [profile, torch.autograd.profiler.profile])
def test_no_profiler_begins(kind):
    with experiments.not_profiled(), kind():
        assert not torch.autograd._profiler_enabled()
    with kind() as taken:
        torch.ones(3).cumsum(0)
    assert "aten::cumsum" in [each.key for each in taken.key_averages()]


# --------------------------------------------------------------------------------- whose step it is


def by_the_program(work):
    """In a thread of the program's own."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(work).result()


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

    told = Seen()
    with of_subject._listening(told):
        by_the_program(step)
        assert (told.roots, told.optimizers) == ([], [])
        step()
    assert (told.roots, len(told.optimizers)) == ([weights], 1)


@pytest.mark.parametrize(("runs", "told_of"), [(lambda work: work(), 1), (by_the_program, 0)])
def test_an_update_within_the_backward_pass_is_told(runs, told_of):
    weights, update = own_update()
    weights[0].weight.register_post_accumulate_grad_hook(lambda parameter: runs(update))
    told = Seen()
    with of_subject._listening(told):
        weights(torch.ones(2, 4)).sum().backward()
    assert len(told.optimizers) == told_of


# --------------------------------------------------------------------------- waits for the device


def noted(monkeypatch, module):
    """What is done, in order, of steps, waits for the device and looks at the clock."""
    done = []
    monkeypatch.setattr(module, "synchronize", lambda: done.append("wait"))
    clock = SimpleNamespace(perf_counter=lambda: float(done.append("clock") or 0))
    monkeypatch.setattr(module, "time", clock)
    return done


def test_a_step_is_timed_after_the_one_before_and_to_its_end(monkeypatch):
    done = noted(monkeypatch, of_subject)
    of_subject.observe(lambda: done.append("step"), lambda item: None)
    assert done == ["wait", "clock", "step", "wait", "clock"]


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


@pytest.mark.parametrize(
    ("dataset", "workers", "failed"),
    [(Streamed(), 0, False), (Streamed(), 1, False), (Opened(), 0, False), (Opened(), 1, True)],
)
def test_waits_are_found_of_a_loader_of_any_kind(dataset, workers, failed):
    loader = DataLoader(dataset, batch_size=8, num_workers=workers)
    told = session.Session(print, loader)
    found = told._waits(WAITED)
    assert (found.name, found.share) == ("waits for data", pytest.approx(2 / 3))
    reason = {loading.CAUSE: "RuntimeError: worker_init_fn was not called"}
    assert told.checked == {"waits for data": ""} | (reason if failed else {})
