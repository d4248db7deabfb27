"""What a panel shows of its runs: the live part of the page, and the outputs of its cell.

While something is timed the browser shares its cores with it. So what is drawn is one SVG made
between two blocks, twice a second at most, and nothing is animated before the run has ended.
"""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anywidget
import ipywidgets as W
import torch
import traitlets

from labkit import show
from labkit.busy import Others
from labkit.device import pick
from labkit.lab import Lab
from labkit.memory_timeline import MemoryComparison
from labkit.panel import guess
from labkit.panel.guess import MEMORY, RACE, TIME
from labkit.panel.outputs import Outputs
from labkit.panel.run import Found, News, Result, Run, Settings, Watcher
from labkit.panel.widgets import BetRow, marked
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison
from labkit.show import Markup, element
from labkit.stages import Stage
from labkit.sweep import Progress, Sweep
from labkit.text import format_steps

STATIC = Path(__file__).with_name("static")
# Seconds between two drawings: each takes time from what is measured.
SELDOM = 0.45
# Seconds between two looks at what other programs take.
LOOK = 1.0

Picture = Callable[[Any], str]
Kind = TypeVar("Kind", Comparison, RaceResult, MemoryComparison, Sweep)

NOTHING_YET = "Stopped before there was anything to compare."
READY = "Ready: place your bet, then Run."
EMPTY = {
    TIME: "Here: the time of a step of both sides, and a dot for each pair of blocks.",
    MEMORY: "Here: the memory that is alive after each operator, in one step of both sides.",
}
OWN = "Here: what your run measured."
BEGUN = "Getting ready"
# Seconds of a stage that are not worth a word where figures are there already.
SHORT = 0.9
RELOADED = "The page was reloaded: run the cell again to have results in the saved notebook."
HISTORY = ("#", "settings", "mode", "factor", "verdict", "baseline → candidate")


class Recorded(Protocol):
    """Recorded runs of other machines; ``beside`` gives a result that shows itself beside them."""

    refused: tuple[str, ...]

    @property
    def machines(self) -> tuple[str, ...]: ...

    @property
    def nearest(self) -> str | None: ...

    def on(self, *machines: str) -> Recorded: ...

    def matching(self, own: Any) -> Sequence[tuple[str, Any]]: ...

    def swept(self, own: Any, control: str) -> Sequence[tuple[str, Any]]: ...

    def beside(self, own: Any) -> Any: ...


class Live(W.Widget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """What `Place` shows.

    ``state`` has the HTML of the latest run, ``status`` a text and its tone, ``notice`` what
    disturbs it, ``history`` a table, ``stale`` whether other settings are chosen by now, ``busy``
    whether Stop is in Run's place.
    """

    state = traitlets.Dict().tag(sync=True)
    status = traitlets.Tuple(("", "")).tag(sync=True)
    notice = traitlets.Unicode().tag(sync=True)
    history = traitlets.Unicode().tag(sync=True)
    code = traitlets.Unicode().tag(sync=True)
    stale = traitlets.Bool().tag(sync=True)
    busy = traitlets.Bool().tag(sync=True)

    def __init__(self) -> None:
        self.context = contextvars.copy_context()
        super().__init__()

    def _send(self, *arguments: Any, **options: Any) -> None:
        """Send in the name of the cell, whichever thread this is.

        A kernel with subshells takes what a page sends to a widget to the subshell that the widget
        last answered to. That one is gone after a reload of the page; a cell's own, the main shell,
        is not.
        """
        self.context.copy().run(super()._send, *arguments, **options)


class Place(anywidget.AnyWidget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """The part of the page where ``static/panel.js`` shows a `Live`.

    Nothing is sent to it: an anywidget whose module took two seconds to load, as on a busy page,
    drops all of it for good.
    """

    _esm = STATIC / "panel.js"
    _css = STATIC / "panel.css"
    children = traitlets.Tuple().tag(sync=True, **W.widget_serialization)


class View(Watcher):
    """Shows the runs of one panel, and keeps their results."""

    def __init__(
        self, lab: Lab, bets: BetRow, recorded: Recorded | None, picture: Picture | None
    ) -> None:
        self.result: Result = None
        self.history: list[Comparison | RaceResult | MemoryComparison] = []
        self.live = Live()
        self.place = Place(children=(self.live,))
        self.outputs = Outputs()
        self.machines = machine_menu(recorded) if recorded else []
        self._lab, self._bets, self._recorded, self._picture = lab, bets, recorded, picture
        self._mode = TIME
        # The run that each mode shows, and in which a scenario found something last in a mode.
        self._runs: dict[str, Run] = {}
        self._kept: dict[tuple[str, str], Run] = {}
        self._number = 0
        self._settled: Comparison | None = None
        self._race = RaceResult((), math.nan, "", True)
        # The clock at the first news of a race, and how many runs there were of it by then.
        self._first = math.nan, 0.0
        self._drawn = -math.inf
        self._others, self._asked = Others(), 0.0
        # What others recorded for the question of now; None until it was looked for.
        self._found: Sequence[tuple[str, Any]] | None = None

    def context(self) -> contextvars.Context:
        return self.live.context.copy()

    def say(self, text: str, tone: str = "") -> None:
        self.live.status = (text, tone)

    def show_mode(self, mode: str) -> None:
        """Show what this mode found last, or its empty place."""
        self._mode = mode
        run = self._runs.get(mode)
        self._display(run.shown if run else self._empty(mode))
        self.say("" if run else READY)

    def shown(self, mode: str) -> Run | None:
        """The run whose result a mode shows, or that goes on in it."""
        return self._runs.get(mode)

    def recall(self, mode: str, scenario: str | None, sides: tuple[Settings, Settings]) -> None:
        """Show again what a scenario found in a mode, where it ran with these settings."""
        run = self._kept.get((mode, scenario or ""))
        if run is None or run.sides != sides or run is self._runs.get(mode):
            return
        self._runs[mode] = run
        self._display(run.shown)
        self.say("")

    def forget(self, scenario: str) -> None:
        """Let what a scenario found not be shown again: another one has its name."""
        for mode in (TIME, MEMORY, RACE):
            self._kept.pop((mode, scenario), None)

    def _empty(self, mode: str) -> dict[str, Any]:
        """The place of a result that is not there yet: of its height, with what is known."""
        if mode != RACE:
            words = OWN if self._picture else EMPTY[mode]
            return {"mode": mode, "head": "", "picture": element("p", words, kind="hint")}
        empty = self._no_runs()
        words = f"Race to {empty.aim}, in at most {self._lab.race_options['steps']} steps"
        head = element("div", words, kind="caption")
        return {"mode": mode, "head": head, "picture": empty.picture()}

    def _no_runs(self) -> RaceResult:
        """The race before its first run."""
        options = self._lab.race_options
        higher = options.get("higher_is_better", True)
        return RaceResult((), options["target"], options.get("metric", "metric"), higher)

    # ----------------------------------------------------------------------------- while it runs

    def begun(self, run: Run) -> None:
        self._number = run.number
        self._runs[run.mode] = run
        self._settled, self._found, self._drawn = None, None, -math.inf
        if run.mode == RACE:
            self._race, self._first = self._no_runs(), (math.nan, 0.0)
        self._put(run, self._empty(run.mode) | {"left": "", "progress": 0.0}, running=True)
        self._others, self._asked = Others(), time.monotonic()
        self.live.busy, self.live.stale = True, False
        self._bets.watch(run)
        self.say(BEGUN)

    def prepares(self, run: Run, stage: Stage, seconds: float) -> None:
        """Say what keeps the figures away, and for how long already."""
        self._look_around(run)
        if run.position is not None and seconds < SHORT:
            return
        if not run.stop.is_set():
            self.say(stage.words)
        self._put(run, {"left": f"{seconds:.0f} s so far"}, running=True)

    def show(self, run: Run, news: News) -> None:
        """Draw a partial result, unless the last drawing was just now."""
        self._look_around(run)
        if isinstance(news, Progress):
            self._take_times(run, news)
        elif isinstance(news, RaceResult):
            self._race = news
        now = time.monotonic()
        if now - self._drawn < SELDOM:
            return
        self._drawn = now
        state = self._times(run, news) if isinstance(news, Progress) else self._racing(run, news)
        self._put(run, state, running=True)

    def over(self, run: Run) -> None:
        self.live.busy = False
        self._bets.watch(None)
        # One that found nothing leaves nothing.
        found = "sure" in run.shown
        if found and run.scenario and not run.swept:
            self._kept[run.mode, run.scenario] = run
        nothing = self._empty(run.mode) | {"left": "", "notice": ""}
        self._put(run, {} if found else nothing, running=False)

    def _put(self, run: Run, state: dict[str, Any], *, running: bool) -> None:
        """Change what a run shows; another mode or scenario may be seen by now."""
        run.shown |= state | {"mode": run.mode, "running": running}
        if self._runs.get(run.mode) is run and run.mode == self._mode:
            self._display(run.shown)

    def _display(self, state: dict[str, Any]) -> None:
        """Show a state; what disturbed its run stands beside it."""
        notice = f"{state.get('notice', '')} {RELOADED if self.outputs.lost else ''}".strip()
        if notice != self.live.notice:
            self.live.notice = notice
        shown = {name: value for name, value in state.items() if name != "notice"}
        self.live.state = shown | {"run": self._number}

    def _look_around(self, run: Run) -> None:
        """Say how busy others keep this machine, where that disturbs what is measured."""
        now = time.monotonic()
        if run.mode == MEMORY or now - self._asked < LOOK:
            return
        self._asked = now
        if busy := self._others.notice(self._lab.threads or torch.get_num_threads()):
            self._put(run, {"notice": busy}, running=True)

    def _take_times(self, run: Run, news: Progress) -> None:
        """Note the newest build that counts, and say where a sweep is."""
        if run.position is None or run.position.index != news.index:
            self._settled, self._found, self._drawn = None, None, -math.inf
        text = "Measuring"
        if run.swept is not None:
            value = news.partial.candidate.settings[run.swept]
            text = f"Sweeping {run.swept}: {value}, {news.index + 1} of {news.count}"
        if not run.stop.is_set():
            self.say(text)
        if news.partial.settled:
            self._settled = news.partial

    def _times(self, run: Run, news: Progress) -> dict[str, Any]:
        """A partial comparison: that of the newest build which counts like the others."""
        told, seconds = self._settled or news.partial, news.partial.seconds
        limit = max(run.budget, news.partial.limit)
        ahead, left = limit - seconds, "the last pair"
        if ahead >= 0.5:
            unclear = "not clear yet, at most " if limit > run.budget else ""
            left = f"{unclear}{ahead:.0f} s left"
        part = min(1.0, seconds / run.budget)
        return {
            "head": head_of(named(run, told), running=True),
            "picture": self._drawing(run, told),
            "progress": (news.index + part) / news.count,
            "left": left,
        }

    def _racing(self, run: Run, news: News) -> dict[str, Any]:
        """A race: the runs that are finished, and the one that is not."""
        race, going = named(run, self._race), None
        if isinstance(news, RaceRun):
            going = named_run(run, self._race, news)
        count = 2 * (self._lab.race_options.get("seeds") or pick(cpu=5, test=2))
        done = float(len(self._race.runs))
        if going is not None:
            if not run.stop.is_set():
                self.say(f"Training {going.arm}, seed {going.seed}")
            if going.curve:
                done += going.curve[-1][0] / self._lab.race_options["steps"]
        return {
            "head": head_of(race, running=True),
            "picture": race.picture(self._beside(self._race), going),
            "progress": min(1.0, done / count),
            "left": self._left(done, count),
        }

    def _left(self, done: float, count: int) -> str:
        """How long a race still takes, by what its runs have taken so far.

        "at most" while a side has not finished a run: it may take fewer steps than it may.
        """
        now, (first, before) = time.monotonic(), self._first
        if math.isnan(first):
            self._first = now, done
        if math.isnan(first) or not done > before:
            return ""
        words = "about" if len(self._race.arms) == 2 else "at most"
        return f"{words} {(now - first) / (done - before) * (count - done):.0f} s left"

    # ------------------------------------------------------------------------------ when it ends

    def finish(self, run: Run, result: Found) -> str:
        """Show and publish what the run returned; what the status line says."""
        self.result = result
        kept = _worth_keeping(run, result)
        if kept is None:
            return NOTHING_YET
        self.history += kept if isinstance(kept, Sweep) else [kept]
        disturbed = bool(run.shown.get("notice"))
        told = self._bets.reveal(run, kept, disturbed=disturbed)
        doubted = disturbed and not guess.stands(kept)
        drawing, called = self._drawing(run, kept), named(run, kept)
        own = Markup()
        if self._picture and not isinstance(kept, Sweep):
            own = Markup(self._picture(called) or "")
        state = {
            "head": show.join([head_of(called, doubted=doubted), told]),
            "verdict": "unclear" if doubted else tone_of(kept),
            "picture": own or drawing,
            "sure": show.join([grounds_of(called), drawing if own else ""]),
            "progress": 1.0,
            "left": "",
        }
        self._put(run, state, running=True)
        rows = [history_row(number, each) for number, each in enumerate(self.history, 1)]
        self.live.history = show.table([HISTORY, *reversed(rows)])
        self._publish(kept, called, own)
        word = "Stopped" if run.stop.is_set() else "Done"
        return f"{word}: {called.sentence}"

    def _publish(self, kept: Found, called: Found, own: str) -> None:
        """The result as an output of the cell that shows the panel; ``called`` names its sides."""
        markup, text = f"{own}{called._repr_html_()}", str(called)
        picked = self._picked()
        if picked and not isinstance(kept, MemoryComparison):
            beside = picked.beside(kept)
            markup, text = f"{markup}{beside._repr_html_()}", f"{text}\n\n{beside}"
        self.outputs.publish(markup, text)

    def _drawing(self, run: Run, result: Found) -> Markup:
        """The picture of a result."""
        if isinstance(result, Comparison):
            bet = self._bets.placed_on(run)
            guessed = bet if isinstance(bet, float) else None
            return named(run, result).picture(self._beside(result), guessed)
        if isinstance(result, Sweep):
            picked = self._picked()
            recorded = picked.swept(result, result.control) if picked else ()
            return result.picture(recorded)
        if isinstance(result, RaceResult):
            return named(run, result).picture(self._beside(result))
        return named(run, result).picture()

    def _picked(self) -> Recorded | None:
        """The recorded runs of the machines that the menu shows; None for no machine."""
        if self._recorded and (names := self.machines[0].value):
            return self._recorded.on(*names)
        return None

    def _beside(self, own: Comparison | RaceResult) -> Sequence[tuple[str, Any]]:
        """What the picked machines recorded for the same question; looked for once."""
        if isinstance(own, RaceResult) and len(own.arms) < 2:
            return ()
        if self._found is None:
            picked = self._picked()
            # A partial result does not know its lab.
            named = replace(own, lab=self._lab.name)
            self._found = picked.matching(named) if picked else ()
        return self._found


def machine_menu(recorded: Recorded) -> list[W.Widget]:
    """The recorded machines, each and all, and why there are fewer than one might expect.

    The menu's value is a tuple of their names.
    """
    machines = recorded.machines
    options: list[tuple[str, tuple[str, ...]]] = [("no other machine", ())]
    options += [(name, (name,)) for name in machines]
    if len(machines) > 1:
        options.append(("all of them", machines))
    shown = tuple(name for name in machines if name == recorded.nearest)
    reasons = () if machines else recorded.refused or ("not recorded yet",)
    return [marked(W.Dropdown(options=options, value=shown), "beside"), *map(W.Label, reasons)]


def named(run: Run, result: Kind) -> Kind:
    """A result with its sides called as the bet calls them; as it is where that names none."""
    if run.names is None or isinstance(result, Sweep):
        return result
    return result.called(*run.names)


def named_run(run: Run, race: RaceResult, going: RaceRun) -> RaceRun:
    """The training that goes on in a race, of which so much is there, under its side's name."""
    arms = list(dict.fromkeys([*race.arms, going.arm]))
    if run.names is None:
        return going
    return replace(going, arm=run.names[arms.index(going.arm)])


def _worth_keeping(run: Run, result: Found) -> Any:
    """The result without comparisons that have nothing; None where nothing is left."""
    if isinstance(result, Sweep):
        kept = tuple(each for each in result if each.ratios or each.error)
        return Sweep(result.control, kept) if kept else None
    if isinstance(result, MemoryComparison):
        return None if run.stop.is_set() else result
    if isinstance(result, RaceResult):
        return result if result.arms else None
    return result if result.ratios or result.error else None


def tone_of(result: Found) -> str:
    """The verdict that colours a result; less memory has the colour of "faster"."""
    if isinstance(result, MemoryComparison):
        tones = {"less memory": "faster", "more memory": "slower", "same memory": "same"}
        return tones.get(result.headline[0], "unclear")
    if isinstance(result, RaceResult):
        return result.verdict(result.arms[1]) if len(result.arms) > 1 else ""
    return result.tone if isinstance(result, Comparison) else ""


def head_of(result: Found, running: bool = False, doubted: bool = False) -> Markup:
    """A result at a glance: the factor once, large, its verdict, and what it means in lines.

    ``doubted``: other programs may have made the difference.
    """
    words, figure, tone = "", "", tone_of(result)
    if not isinstance(result, Sweep):
        words, figure = result.headline
    if doubted:
        words, tone = f"{words}, disturbed", "unclear"
    parts = []
    if figure:
        parts.append(element("span", figure, kind="speedup" + (" long" if len(figure) > 8 else "")))
    if tone:
        stopped = isinstance(result, RaceResult) and result.stopped
        parts.append(show.badge(tone, f"{words} so far" if running or stopped else words))
    parts += [element("div", line, kind="caption") for line in _captions(result, figure)]
    return show.join(parts)


def _captions(result: Found, figure: str) -> list[str]:
    """What stands below the figure."""
    if not figure:
        return [result.sentence]
    if isinstance(result, Comparison):
        return [line.strip() for line in result.remark.split(";") if line.strip()]
    if isinstance(result, MemoryComparison):
        before, after = (side.peak_text for side in result.arms)
        return ["of the memory of the baseline", f"{after} instead of {before}"]
    assert isinstance(result, RaceResult)
    candidate = result.arms[1]
    if result.told_by(candidate) == "counts":
        names = result.arms if result.labels else ("the baseline", "The candidate")
        found = f"{names[1]} reached it {result.counts(candidate, names[0])}."
        steps = [result.median(arm, "steps") for arm in (candidate, result.arms[0])]
        if all(map(math.isfinite, steps)):
            median, other = map(format_steps, steps)
            found += f" Steps, in the median: {median} against {other}."
        return [f"target: {result.aim}", found]
    return [f"as fast to {result.aim}"]


def grounds_of(result: Found) -> Markup:
    """What is behind "How sure?"."""
    lines = () if isinstance(result, MemoryComparison) else result.details
    return show.join([*map(show.note, lines), show.table(result.rows)])


def history_row(number: int, found: Comparison | RaceResult | MemoryComparison) -> list[str]:
    """Number, what differed and what was shared, the mode, and the figures."""
    verdict, factor = found.headline
    if isinstance(found, RaceResult):
        mode, sides = RACE, [found.arrival(arm) for arm in found.arms[:2]]
    elif isinstance(found, MemoryComparison):
        mode, sides = MEMORY, [side.peak_text for side in found.arms]
    else:
        mode, sides = TIME, [bar.text for bar in found.speed_bars]
    return [str(number), _settings_of(found), mode, factor or "–", verdict, " → ".join(sides)]


def _settings_of(found: Comparison | RaceResult | MemoryComparison) -> str:
    """What differed, and what both sides shared."""
    if isinstance(found, RaceResult):
        return ", ".join(found.arms[1:]) or "only the baseline"
    differ = [f"{name}: {before} → {after}" for name, (before, after) in found.changed.items()]
    shared = [f"{name} {value}" for name, value in found.shared.items()]
    return "; ".join(filter(None, [", ".join(differ) or "same settings", ", ".join(shared)]))
