"""The order under a budget, what it rests on, and the plan of a loan."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from course.cli import main
from course.notebook_files import long_notebooks, long_path
from course.records import estimate, jobs, loan, store
from course.records.estimate import Expected, gpu_estimates, gpus_needed, only_on_a_gpu
from course.records.jobs import Job, fits, left_in_words
from course.records.loan import CARRIED, Load, Loan, carried_text
from course.records.notebook_hash import notebook_hash
from course.records.store import Record
from course.records.travel import Place
from course.records.unfinished import Unfinished

CPU = {"gpu": None, "cpu": {"model": "CPU", "cores": 2}, "torch": "2.11.0", "labkit": "0.1.0"}
GPU = CPU | {"gpu": {"name": "NVIDIA H100", "count": 1}}
# What someone who had read all notebooks would record on one GPU, most wanted first.
BY_HAND = ("10", "06", "08", "09", "22")


def record(name="10_x", *, seconds=100.0, machine="h100", card=GPU, failed=None, code="0" * 16):
    when = datetime(2026, 11, 22, tzinfo=UTC)
    about = (seconds, "0.1.0", card, {}, {}, ())
    return Record(machine, name, code, when, *about, failed=failed)


def place(tmp_path):
    return Place(tmp_path, Unfinished(tmp_path / "r.partial"), lambda: None)


def planned(tmp_path, card=GPU, notebooks=(), **about):
    """Numbers of the notebooks in their order."""
    found = jobs.jobs(jobs.find(notebooks), place(tmp_path), card, **about)
    return [job.name[:2] for job in found]


def job(name, seconds):
    return Job(Path(f"{name}.ipynb"), None, Expected(seconds, "estimated"))


# ------------------------------------------------------------------------------------ what it takes


def test_every_estimate_is_of_a_notebook_and_says_how_it_was_made():
    names = {path.stem for path in long_notebooks()}
    assert gpu_estimates().keys() <= names
    for name, line in gpu_estimates().items():
        assert 0 < line.seconds < 600 and line.of and line.gpus in (1, 2), name


@pytest.mark.parametrize(
    "line", ["seconds = 9", "of = 'x'", "seconds = 0\nof = 'x'", "seconds = 9\nof = 'x'\ngpu = 2"]
)
def test_a_wrong_estimate_is_named(tmp_path, monkeypatch, line):
    (tmp_path / "t.toml").write_text(f"[06_x]\n{line}\n")
    monkeypatch.setattr(estimate, "TABLE", tmp_path / "t.toml")
    with pytest.raises(ValueError, match=r"t\.toml, 06_x: "):
        estimate.gpu_estimates.__wrapped__()


def test_what_was_measured_replaces_the_estimate(monkeypatch):
    known = [record(machine="cpu", card=CPU, seconds=900)]
    monkeypatch.setattr(estimate, "read_all", lambda name: (known, []))
    name = "10_host_device_transfers"
    assert estimate.expected(name, None, gpu=True).source == "estimated"
    # A CPU's time says nothing of a GPU, and the other way round.
    assert estimate.expected(name, None, gpu=False).seconds == 900
    known += [record(seconds=70), record(seconds=80), record(seconds=999, failed="no")]
    assert estimate.expected(name, None, gpu=True).seconds == 80
    assert estimate.expected(name, record(seconds=60), gpu=True).seconds == 60


def test_what_is_kept_shortens_the_rest():
    whole = Expected(300, "estimated")
    assert whole.without(0) is whole
    assert whole.without(100).seconds == 200
    assert whole.without(1000).seconds == estimate.LEAST_SECONDS
    assert Expected(10, "estimated").without(5).seconds == 10


# ------------------------------------------------------------------------------------ the order


def test_on_a_gpu_the_most_claims_that_only_a_gpu_answers_come_first(tmp_path):
    order = planned(tmp_path)
    assert order[0] == "10"
    assert {*order[:8]} >= {*BY_HAND}
    claims = dict(zip(order, map(claims_of, order), strict=True))
    alone = [claims[number][0] > 0 for number in order]
    assert alone == sorted(alone, reverse=True)
    # And those with none that a GPU judges are last.
    assert not any(sum(claims[number]) for number in order[-5:])


def claims_of(number):
    [name] = [path.stem for path in long_notebooks() if path.stem.startswith(number)]
    return only_on_a_gpu(name)


def test_on_a_cpu_the_order_is_the_course_s(tmp_path):
    assert planned(tmp_path, CPU) == [path.stem[:2] for path in long_notebooks()]


def test_two_gpus_are_needed_for_processes_that_exchange_gradients(tmp_path, capsys):
    assert gpus_needed("14_distributed_data_parallel") == 2
    assert "14" not in planned(tmp_path)
    assert "14_distributed_data_parallel: left out, it needs 2 GPUs" in capsys.readouterr().out
    two = GPU | {"gpu": {"name": "X", "count": 2}}
    assert "14" in planned(tmp_path, two) and "14" in planned(tmp_path, CPU)


def test_named_notebooks_keep_their_order_even_those_left_out_else(tmp_path):
    named = [Path("14_distributed_data_parallel"), Path("22_compile_and_cuda_graphs")]
    named.append(Path("10_host_device_transfers"))
    assert planned(tmp_path, notebooks=named, named=True) == ["14", "22", "10"]


def test_what_is_recorded_is_passed_over_and_what_was_begun_comes_first(tmp_path, monkeypatch):
    name = "10_host_device_transfers"
    done = record(name, code=notebook_hash(long_path(name)))
    monkeypatch.setattr(jobs, "old_record", lambda path: done if path.stem == name else None)
    assert "10" not in planned(tmp_path)
    assert "10" in planned(tmp_path, again=True)
    line = type("Line", (), {"seconds": 350.0})
    kept = {"22_compile_and_cuda_graphs": [line]}
    monkeypatch.setattr(Unfinished, "kept", lambda self, name, code: kept.get(name, []))
    assert planned(tmp_path)[0] == "22"


# ------------------------------------------------------------------------------------ the plan


def test_each_command_is_filled_in_order_with_what_fits():
    waiting = [job("a", 300), job("b", 300), job("c", 200), job("d", 530), job("e", 50)]
    filled, left = Loan(2).fill(waiting)
    names = [[each.name for each in command] for command in filled]
    assert names == [["a", "c"], ["b", "e"]]
    assert [each.name for each in left] == ["d"]
    assert Loan(3).fill(waiting)[1] == []


def test_what_fits_no_command_begins_alone():
    long = job("long", 2000)
    assert fits(long, 570, 570, first=True) and not fits(long, 570, 570, first=False)
    assert not fits(job("a", 500), 400, 570, first=True)
    filled, left = Loan(1).fill([job("a", 100), long])
    assert [each.name for each in filled[0]] == ["a"] and left == [long]


@pytest.mark.parametrize(
    ("about", "told"),
    [
        ({"commands": 0}, "commands=0"),
        ({"minutes": 1}, "minutes=1: use more than 1.2"),
        ({"minutes": math.nan}, "minutes=nan"),
        ({"minutes": math.inf}, "minutes=inf"),
    ],
)
def test_a_loan_that_is_none_is_named(about, told):
    with pytest.raises(ValueError, match=told):
        Loan(**about)


def test_what_does_not_fit_is_said_and_the_rest_is_carried():
    found = [Load("files", 4 * 2**20), Load("wheels", 58 * 2**20), Load("texts", 2**18)]
    text = carried_text([*found, Load("images", 18 * 2**20), Load("none: get them", None)])
    assert "DOES NOT FIT: images" in text and "none: get them" in text
    assert "62.2 MiB" in text and "64.0 MiB" in text
    assert CARRIED == 64 * 2**20


def test_what_is_left_is_said_with_its_time():
    text = left_in_words([job("10_a", 200), job("22_b", 400)])
    assert text == "left: 2 notebooks, about 10 min: 10_a 200 s, 22_b 400 s"
    assert left_in_words([]) == "nothing is left to record"
    assert max(map(len, left_in_words([job("a" * 30, 9)] * 20).splitlines())) <= 100


def test_the_plan_of_a_loan_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(loan, "copies", lambda name: [])
    out = tmp_path / "r.zip"
    assert main(["record", "--plan", "--out", str(out), "--wheels", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "A loan of 3 commands of 10 minutes on an assumed GPU of 80 GB" in text
    for number in (1, 2, 3):
        assert f"command {number}: " in text
    commands = text[: text.index("left: ")]
    # In thirty minutes: the transfers, mixed precision, the optimizers; and one of the long two.
    assert all(f"  {number}_" in commands for number in ("10", "06", "08"))
    assert "  09_" in commands or "  22_" in commands
    assert "14_distributed_data_parallel: left out" in text
    assert "tracked files" in text and "wheels: none in" in text and "cifar10: no copy" in text
    assert "--budget-minutes 9.5 --out records.zip" in text
    assert list(tmp_path.iterdir()) == []


def test_a_plan_for_a_machine_of_which_there_are_records(tmp_path, capsys):
    known = {path.parent.name for path in store.reference_folder().glob("*/*.json")}
    assert main(["record", "--plan", "--machine", "no-such"]) == 1
    said = capsys.readouterr().err
    assert "machine='no-such': no records of it" in said and all(name in said for name in known)
    assert main(["record", "--plan", "--gpu-memory", "-1"]) == 1
    assert "gpu_memory=-1.0" in capsys.readouterr().err
    assert main(["record", "--plan", "--from", "x.zip"]) == 1
    assert "a plan writes nothing" in capsys.readouterr().err


def test_the_plan_keeps_to_named_notebooks(capsys):
    command = ["record", "--plan", "--commands", "1", "--minutes", "5", "00_start_here"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "command 1: 45 of 230 s" in text and "nothing is left to record" in text
    assert "course record 00_start_here --budget-minutes 4.5" in text
