"""Whether the planted cause is named first, and its remedy gains what was promised. By hand, on a
machine that does nothing else:

    python tests/benchmarks/bench_diagnose.py [NAME ...] [--fresh | --later] [--seconds 20]
        [--keep FILE] [--again] [--beside]

Each program of tests/whyslow/programs.py, then of fresh_programs.py and of
later_programs.py runs in a process of its own: its faulty form is diagnosed. Faulty and mended form
are timed in turn, each in a process that is forked before anything was computed, as a reader would
start them: one that has trained before has memory at hand for which a new one has to ask the
system, page by page.
``--fresh`` and ``--later``: these alone. They are counted for themselves, since the diagnosis was
made without them; it has seen the fresh ones since.
``--keep FILE`` appends each program's result as a line of JSON, and goes on from what the file has
(``--again`` runs the named ones again). ``--beside`` asks, instead, what torch.profiler's table,
gpuprof (where it is installed) and labkit's own with-block put first in the same programs; with the
same FILE, what the diagnosis put first stands beside it.

Wanted: the planted cause first in 22 of 24 and more, nothing in tuned programs, and of what was
promised 0.7 and more gained.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

import whyslow  # noqa: E402
from tests.whyslow.fresh_programs import FRESH, FRESH_TUNED  # noqa: E402
from tests.whyslow.later_programs import LATER, LATER_TUNED  # noqa: E402
from tests.whyslow.parts import Program  # noqa: E402
from tests.whyslow.programs import PROGRAMS, TUNED  # noqa: E402

# A program and its mended form are timed in turn so often, for so many seconds each.
ROUNDS = 3
ROUND_SECONDS = 1.2
# Nothing has been computed when a child is forked: there is no thread that it would lack.
FORK = multiprocessing.get_context("fork")
# Seconds after which a program has failed.
PATIENCE = 400

FAULTY = PROGRAMS | FRESH | LATER
CLEAN = TUNED | FRESH_TUNED | LATER_TUNED
GROUPS = {
    "programs that the diagnosis was made with": (PROGRAMS, TUNED),
    "programs that it has seen since": (FRESH, FRESH_TUNED),
    "programs that it had not seen": (LATER, LATER_TUNED),
}

# What another tool would have to put first, in words that its first line holds: generously, so that
# for all that is wrong with a loader the loader will do.
_LOADER = ("DataLoader", "loader", "Prefetch")
POINTS = {
    "waits for data": _LOADER,
    "loader workers started again every epoch": _LOADER,
    "batch too small for the fixed costs of a step": ("overhead", "Low arithmetic intensity"),
    "optimizer loops over parameters": ("Optimizer.step", "optimizer"),
    "validation with gradients": ("validation", "eval"),
    "memory grows with every step": ("memory", "Memory"),
    "compiled again for other shapes": ("ompil", "dynamo"),
    "profiler left on": ("profiler",),
    "anomaly mode left on": ("anomaly", "isnan"),
    "deterministic algorithms left on": ("deterministic", "fill"),
    "checkpointing that is not needed": ("checkpoint", "recompute"),
    "too many CPU threads": ("thread", "CPU"),
    "too few CPU threads": ("thread", "CPU"),
    "fp32 where 16 bits are faster": ("bf16", "fp32", "float32", "MFU"),
    "images not in channels-last order": ("channels", "layout", "reorder"),
    "work beside forward, backward and update": ("Python overhead",),
}


def main() -> int:
    """Run what is asked for, and print the table of all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--later", action="store_true")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--one", choices=[*FAULTY, *CLEAN], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one(args.one, args.seconds, args.beside)))
        return 0
    unknown = set(args.names) - {*FAULTY, *CLEAN}
    if unknown:
        parser.error(f"unknown program {', '.join(sorted(unknown))}")
    known = _kept(args.keep)
    every = [*LATER, *LATER_TUNED] if args.later or not args.fresh else []
    if not args.later:
        every = [*FRESH, *FRESH_TUNED, *every]
    if not (args.fresh or args.later):
        every = [*PROGRAMS, *TUNED, *every]
    for name in args.names or every:
        if (name, args.beside) in known and not args.again:
            continue
        result = _in_a_process(name, args)
        known[name, args.beside] = result
        print(_line(result), flush=True)
        if args.keep:
            args.keep.parent.mkdir(parents=True, exist_ok=True)
            with args.keep.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
    print(table(list(known.values())))
    return 0


def _kept(path: Path | None) -> dict[tuple[str, bool], Any]:
    """Results of earlier runs, by name and kind; what failed is run again."""
    if path is None or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {(line["name"], "beside" in line): line for line in lines if "error" not in line}


def _in_a_process(name: str, args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", name, "--seconds", str(args.seconds)]
    if args.beside:
        command.append("--beside")
    failed = {"name": name, "findings": []}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return failed | {"error": f"no result after {PATIENCE} s"}
    if done.returncode:
        return failed | {"error": (done.stderr.splitlines() or ["no word"])[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def one(name: str, seconds: float, beside: bool) -> dict[str, Any]:
    """Diagnose one program in this process, and time it against its mended form."""
    torch.manual_seed(0)
    make = FAULTY[name].make if name in FAULTY else lambda mended: CLEAN[name]()
    planted = list(FAULTY[name].names) if name in FAULTY else []
    of_memory = planted == ["memory grows with every step"]
    gained = None
    if planted and not (beside or of_memory):
        gained = gain(make)
    program = make(False)
    if beside:
        result = {"name": name, "planted": planted, "beside": others(program)}
        program.close()
        return result
    found = whyslow.diagnose(program.step, program.batches, seconds=seconds)
    result = {
        "name": name,
        "planted": planted,
        "findings": [[each.name, each.share, *each.interval, each.of] for each in found],
        "seconds": found.seconds,
        "step_seconds": found.step_seconds,
        "notes": [*found.notes, *(f"{key}: {why}" for key, why in found.unmeasured.items())],
    }
    program.close()
    if planted:
        result["gain"] = _grows(make) if of_memory else gained
    return result


def gain(make: Any) -> float:
    """The share of the time per sample that the mended form saves; both in turn."""
    shares = []
    for _ in range(ROUNDS):
        faulty, mended = (_in_a_fork(make, form) for form in (False, True))
        shares.append(1 - mended / faulty)
    return statistics.median(shares)


def _in_a_fork(make: Any, mended: bool) -> float:
    """Seconds per sample of one form, in a process that has done nothing else."""
    ours, theirs = FORK.Pipe()

    def run() -> None:
        program = make(mended)
        theirs.send(seconds_per_sample(program))
        program.close()

    process = FORK.Process(target=run)
    process.start()
    theirs.close()
    try:
        seconds: float = ours.recv()
    finally:
        process.join()
    return seconds


def seconds_per_sample(program: Program) -> float:
    """By the clock, data and new epochs included, warm."""
    begin = time.perf_counter()
    steps, started, warm = 0, 0.0, False
    while True:
        for _ in one_epoch(program):
            now = time.perf_counter()
            if not warm and now - begin > ROUND_SECONDS / 3 and steps >= 3:
                warm, started, steps = True, now, 0
                continue
            steps += 1
            if warm and steps >= 4 and now - started > ROUND_SECONDS:
                return (now - started) / steps / program.samples


def one_epoch(program: Program) -> Any:
    """Steps, one after the other."""
    if program.batches is None:
        yield program.step()
        return
    for batch in program.batches:
        yield program.step(batch)


def _grows(make: Any) -> float:
    """The share of the memory that stays after each step which the mended form does not keep."""
    from whyslow.subject import Subject, memory_of

    shares = []
    for mended in (False, True):
        program = make(mended)
        subject = Subject(program.step, program.batches)
        if program.batches is not None:
            subject.keep()
        _, _, share = memory_of(subject.serve(), "cpu")
        shares.append(share)
    return shares[0] - shares[1]


def others(program: Program) -> dict[str, str]:
    """What other tools put first: torch.profiler's table, gpuprof's rules, our own with-block."""
    found = {"torch.profiler": _first_operator(program)}
    with whyslow.watch() as watched:
        _run(program)
    line = watched.report.lines[0]
    found["whyslow.watch"] = f"{line.cause}: {line.source}"
    if find_spec("gpuprof") is not None:
        found["gpuprof"] = _first_insight(program)
    return found


def _run(program: Program, seconds: float = 3.0) -> None:
    """Steps for so many seconds, in epochs."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for _ in one_epoch(program):
            if time.perf_counter() > end:
                break


def _first_operator(program: Program) -> str:
    """The operator with the most time of its own."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU]) as taken:
        _run(program, 1.0)
    rows = sorted(taken.key_averages(), key=lambda row: -row.self_cpu_time_total)
    return rows[0].key if rows else "nothing"


def _first_insight(program: Program) -> str:
    """The first insight of gpuprof, in its own words."""
    import gpuprof
    from gpuprof import insights

    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "gpuprof.db")
        with gpuprof.profile("program", summary=False, db_path=path):
            _run(program)
        with contextlib.closing(sqlite3.connect(path)) as database:
            [[number]] = database.execute("select max(id) from runs").fetchall()
        found = insights.analyze(path, number)["insights"]
    return str(found[0].get("title") or found[0]) if found else "nothing"


def _line(result: dict[str, Any]) -> str:
    if "beside" in result:
        told = "; ".join(f"{tool}: {first}" for tool, first in result["beside"].items())
        return f"{result['name']:32} {told}"
    if "error" in result:
        return f"{result['name']:32} failed: {result['error']}"
    first = "nothing"
    if result["findings"]:
        name, share, low, high, _ = result["findings"][0]
        first = f"{name} {share:.0%} [{low:.0%}, {high:.0%}]"
    right = "ok" if _right(result) else "WRONG"
    gained = f"gain {result['gain']:.0%}" if "gain" in result else ""
    return f"{result['name']:32} {right:5} {first:62} {gained:10} {result['seconds']:.0f} s"


def _right(result: dict[str, Any]) -> bool:
    names = [each[0] for each in result["findings"]]
    if not result.get("planted"):
        return not names and "error" not in result
    return bool(names) and names[0] in result["planted"]


def table(results: list[dict[str, Any]]) -> str:
    """Every program, and the counts; what other tools put first, beside it."""
    lines = []
    for title, (faulty, clean) in GROUPS.items():
        mine = [each for each in results if each["name"] in {*faulty, *clean}]
        alone = [each for each in mine if "beside" not in each]
        beside = [each for each in mine if "beside" in each]
        if alone or beside:
            lines += ["", title]
        if alone:
            lines += _counts(alone, faulty, clean)
        if beside:
            lines += _beside(beside, alone)
    return "\n".join(lines)


def _counts(results: list[dict[str, Any]], faulty: Any, clean: Any) -> list[str]:
    """Each program's line, and how many are right."""
    planted = [each for each in results if each["name"] in faulty]
    tuned = [each for each in results if each["name"] in clean]
    first = [each for each in planted if _right(each)]
    held = [each for each in first if each["gain"] >= 0.7 * each["findings"][0][1]]
    named = [each for each in tuned if not _right(each)]
    return [
        *map(_line, results),
        f"planted cause first: {len(first)} of {len(planted)}",
        f"of these, gain at least 0.7 of what was promised: {len(held)} of {len(first)}",
        f"tuned programs with a finding: {len(named)} of {len(tuned)}",
    ]


def _beside(results: list[dict[str, Any]], alone: list[dict[str, Any]]) -> list[str]:
    """A row a program, with a star where the first line of a tool names what was planted."""
    tools = list(dict.fromkeys(tool for each in results for tool in each["beside"]))
    own = {each["name"]: each for each in alone}
    rows, stars = [], dict.fromkeys(["whyslow.diagnose", *tools] if own else tools, 0)
    for each in results:
        firsts = {tool: _starred(each, text) for tool, text in each["beside"].items()}
        if each["name"] in own:
            names = [finding[0] for finding in own[each["name"]]["findings"]] or ["nothing"]
            firsts = {"whyslow.diagnose": _starred(each, names[0])} | firsts
        for tool, text in firsts.items():
            stars[tool] += text.startswith("*")
        cells = [f"{tool}: {text}" for tool, text in firsts.items()]
        rows.append(f"{each['name']:36} " + " | ".join(cells))
    planted = sum(bool(each["planted"]) for each in results)
    counts = [f"{tool} {count}" for tool, count in stars.items()]
    return [*rows, f"named first, of {planted} planted: " + ", ".join(counts)]


def _starred(result: dict[str, Any], text: str) -> str:
    planted = result["planted"]
    words = [word for name in planted for word in POINTS.get(name, ())]
    return f"*{text}" if text in planted or any(word in text for word in words) else text


if __name__ == "__main__":
    raise SystemExit(main())
