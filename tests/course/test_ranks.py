"""Processes that train together: shares, gradients, and what is noted of a step."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd import DeviceType
from torch.nn.parallel import DistributedDataParallel

from course import data, ranks
from course.measured.exchanges import BACKWARD, EXCHANGE, STEP, Exchanges, Noted, spans, watch
from course.measured.ranks import draw, in_words, name_of, of
from course.ranks.networks import networks
from labkit import Lab, Workload

pytestmark = pytest.mark.usefixtures("forked_python")
NETWORKS = networks(4, 32, tiny=3)
BATCH = 32
SETTINGS = {"processes": 2, "cpu_threads": "1", "exchange": "DDP"}


def gradients(folder: Path, processes: int, cpu_threads: str, exchange: str, model: str):
    """A workload whose step writes this rank's gradients."""
    group = ranks.group(processes, cpu_threads)
    x, y = ranks.share(BATCH, processes)
    torch.manual_seed(0)
    net = NETWORKS[model]()
    if exchange == "DDP" and processes > 1:
        net = DistributedDataParallel(net, process_group=group)

    def step():
        ranks.backward(net, x, y, cpu_threads)
        if exchange == "by hand":
            for parameter in net.parameters():
                dist.all_reduce(parameter.grad, group=group)
                parameter.grad /= processes
        found = [parameter.grad.clone() for parameter in net.parameters()]
        torch.save(found, folder / f"{processes}-{dist.get_rank()}-{cpu_threads}-{exchange}.pt")
        net.zero_grad()

    return Workload(step, len(y), "images")


@pytest.mark.parametrize("model", NETWORKS)
def test_the_gradients_are_those_of_the_whole_batch(tmp_path: Path, model: str) -> None:
    """With two processes, by DDP and by hand, and with two Python threads."""
    workers = ranks.start()
    lab = Lab(
        partial(gradients, tmp_path),
        runs_in=workers,
        memory=False,
        processes=[1, 2],
        cpu_threads=list(ranks.THREADS),
        exchange=["DDP", "by hand", "none"],
        model=[model],
    )
    try:
        for exchange in ("DDP", "by hand", "none"):
            lab.run(processes=2, exchange=exchange, seconds=0.05)
        lab.run(cpu_threads=ranks.COPIES, seconds=0.05)
        assert workers.ask("number") == [0, 1]
    finally:
        workers.close()
    pixels, labels = data.cifar10(size=BATCH)
    torch.manual_seed(0)
    net = NETWORKS[model]()
    F.cross_entropy(net((pixels.float() / 255 - 0.47) / 0.25), labels).backward()
    whole = [parameter.grad for parameter in net.parameters()]

    def found(name: str) -> list[torch.Tensor]:
        return torch.load(tmp_path / f"{name}.pt")

    one = ["1-0-1-DDP", f"1-0-{ranks.COPIES}-DDP"]
    for name in (*one, *(f"2-{rank}-1-{how}" for rank in (0, 1) for how in ("DDP", "by hand"))):
        torch.testing.assert_close(found(name), whole, rtol=1e-3, atol=1e-5)
    # Without exchange each has those of its own share.
    first, second = (found(f"2-{rank}-1-none") for rank in (0, 1))
    assert not torch.allclose(first[-1], second[-1])
    torch.testing.assert_close(
        [(a + b) / 2 for a, b in zip(first, second, strict=True)], whole, rtol=1e-3, atol=1e-5
    )


def test_what_cannot_be_dealt_or_used_is_refused() -> None:
    with pytest.raises(ValueError, match="batch=15: use a multiple of 2"):
        ranks.share(15, 2)
    with pytest.raises(ValueError, match="threads='3': use '1', '2 per operator', '2 in Python'"):
        ranks.group(1, "3")


def test_one_core_and_one_gpu_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(ranks, "abilities", lambda: SimpleNamespace(cores=1))
    assert "one core for two processes: they take turns" in ranks.in_words()
    monkeypatch.setattr(ranks, "abilities", lambda: SimpleNamespace(cores=6))
    assert ranks.in_words() == "Two processes on the CPU, which has 6 cores for them."
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert ranks.in_words().startswith("One GPU has no partner: two processes on the CPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert ranks.in_words() == "Two processes, a GPU each." and ranks.gpus() == 2


# ------------------------------------------------------------------------------ what is noted


def event(name: str, begin: float, end: float, device: DeviceType = DeviceType.CPU):
    """As the profiler has it, in microseconds."""
    return SimpleNamespace(
        name=name, device_type=device, time_range=SimpleNamespace(start=begin, end=end)
    )


def test_a_step_s_parts_are_read_from_the_profiler() -> None:
    events = [
        event("aten::mm", 0, 5),
        event(STEP, 100, 1100),
        event(f"{BACKWARD}B", 700, 900),
        event(f"{BACKWARD}A", 500, 700),
        event(EXCHANGE[0], 650, 950),
    ]
    noted = spans(events)
    assert noted == Noted(((4e-4, 6e-4), (6e-4, 8e-4)), ((5.5e-4, 8.5e-4),), 1e-3)
    assert (noted.forward, noted.computed) == (4e-4, 8e-4)
    assert in_words(noted) == "1 exchange, 300 µs in all; 50.0 µs waited for"
    with pytest.raises(ValueError, match="1 events, and none of them is 'one step of a rank'"):
        spans(events[:1])
    gpu = [
        *events,
        event("gemm", 300, 600, DeviceType.CUDA),
        event("ncclDevKernel_AllReduce_Sum", 500, 800, DeviceType.CUDA),
    ]
    assert spans(gpu).backward == ((2e-4, 5e-4),) and spans(gpu).exchange == ((4e-4, 7e-4),)


def test_a_step_of_this_process_is_watched_once() -> None:
    net, steps = torch.nn.Linear(4, 4), []

    def make(width: int) -> Workload:
        def step() -> None:
            steps.append(width)
            net(torch.ones(2, 4)).sum().backward()

        return Workload(step)

    exchanges = Exchanges()
    workload = exchanges.noted(make)(width=3)
    assert exchanges.of({"width": 3}) is None
    workload.step()
    assert len(steps) == 3
    workload.step()
    assert len(steps) == 4
    noted = exchanges.of({"width": 3})
    assert noted is not None and noted.exchange == () and noted.forward > 0
    assert noted.computed <= noted.seconds
    returned, again = watch(lambda: 7)
    assert returned == 7 and again.backward == ()


def test_the_picture_has_the_words_of_the_bets(tmp_path: Path) -> None:
    for changes, name in (
        ({}, "two processes, DDP"),
        ({"exchange": "none"}, "two processes, no exchange"),
        ({"processes": 1}, "one process"),
        ({"processes": 1, "cpu_threads": ranks.COPIES}, "one process, two Python threads"),
        ({"processes": 1, "cpu_threads": ranks.OPERATORS}, "one process, two operator threads"),
    ):
        assert name_of(SETTINGS | changes) == name
    noted = Noted(((4e-3, 6e-3), (6e-3, 8e-3)), ((5e-3, 9e-3),), 1e-2)
    drawn = draw([("one process", Noted((), (), 2e-2)), ("two processes, DDP", noted)])
    assert "two processes, DDP" in drawn and "nothing is exchanged" in drawn
    # A bar of each kind: of the exchange, one while it computes and one behind.
    for kind, count in (("band candidate", 3), ("fill candidate", 3), ("fill arm3", 2)):
        classes = " ".join(f"k-{word}" for word in kind.split())
        assert drawn.count(f'class="{classes}"') == count, kind
    assert of(Exchanges())("no comparison") == ""
