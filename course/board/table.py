"""What the recorded speedruns found, as a part of ``RESULTS.md``."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from course.board.record import HELPFUL
from course.board.recorded import FORWARD, LEFT_OUT, Effect, Machine, Training
from course.switches import IN_THE_WAY
from course.written import markdown
from labkit.text import format_factor

HEAD = """## The speedrun

`course/speedrun.py` trains until {target:.0%} of unseen images are right: with nothing switched on,
and with all switches that help. *Forward* is what a switch brought on top of those above it,
*left out* what it brings to all the others; 1.25x is a quarter more speed. Intervals are of 95 %.
What changes only when and how something is computed was timed in turn; what changes learning was
trained to the end, on all seeds. With `learning_rate_schedules` a training ends with its cycle,
{cycle} epochs: there a target that is *reached only with* a switch was out of reach without it."""


def speedrun_table(machines: Sequence[Machine]) -> str:
    """The whole and each switch, of each machine with both ends; empty where there is none."""
    parts: list[str] = []
    for machine in machines:
        if not (machine.of() and machine.of(*HELPFUL)):
            continue
        if not parts:
            parts.append(HEAD.format(**machine.task))
        parts += [_whole(machine), markdown([["switch", FORWARD, LEFT_OUT], *_rows(machine)])]
    return "\n\n".join(parts) + "\n" * bool(parts)


def _whole(machine: Machine) -> str:
    slow, fast = machine.of(), machine.of(*HELPFUL)
    found = format_factor(machine.seconds() / machine.seconds(*HELPFUL))
    mean, low, high = machine.race((), HELPFUL).speedup("on")
    ratios = f"{format_factor(mean)}x [{format_factor(low)}, {format_factor(high)}]"
    return (
        f"**{machine.name}**, {machine.date}, torch {machine.torch}: {_told(slow)} with nothing "
        f"on, {_told(fast)} with {len(HELPFUL)} switches. Medians of {len(fast)} seeds: {found}x; "
        f"mean of the ratios, seed by seed: {ratios}."
    )


def _told(runs: Sequence[Training]) -> str:
    seconds = sorted(run.seconds for run in runs)
    epochs = median(run.epochs for run in runs)
    return f"{median(seconds):.0f} s ({seconds[0]:.0f} to {seconds[-1]:.0f}; {epochs:g} epochs)"


def _rows(machine: Machine) -> list[list[str]]:
    known = {(effect.switch, effect.how): effect for effect in machine.effects}
    rows = []
    for switch in HELPFUL:
        cells = [_cell(known.get((switch, how))) for how in (FORWARD, LEFT_OUT)]
        rows.append([f"`{switch}`", *cells])
    for (switch, _), effect in known.items():
        if switch not in HELPFUL:
            other = IN_THE_WAY.get(switch)
            but = f" but `{other}`" if other else ""
            rows.append([f"`{switch}`, added to all{but}", _cell(effect), ""])
    return rows


def _cell(effect: Effect | None) -> str:
    return "not recorded yet" if effect is None else str(effect)
