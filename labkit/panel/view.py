"""What a panel shows of its runs: the live part of the page, and the outputs of its cell.

While something is timed the browser shares its cores with it. So what is drawn is one SVG made
between two blocks, twice a second at most, and nothing is animated.
"""

from __future__ import annotations

import contextvars
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import anywidget
import ipywidgets as W
import traitlets

from labkit import charts, neighbours, show
from labkit.lab import Lab
from labkit.memory_timeline import MemoryComparison
from labkit.panel import guess
from labkit.panel.guess import MEMORY, RACE, TIME
from labkit.panel.outputs import Outputs
from labkit.panel.run import Found, News, Result, Run, Watcher
from labkit.panel.widgets import BetRow, marked
from labkit.racing import RaceResult, RaceRun
from labkit.results import Comparison
from labkit.show import Markup, element
from labkit.sweep import Progress, Sweep
from labkit.text import format_bytes, format_factor, format_seconds

STATIC = Path(__file__).with_name("static")
# Seconds between two drawings: each takes time from what is measured.
SELDOM = 0.45
# Until it is clear a run goes on, for so many budgets at most.
MOST_BUDGETS = 3

Picture = Callable[[Any], str]

NOTHING_YET = "Stopped before there was anything to compare."
READY = {
    TIME: "Ready: place your bet, then Run.",
    MEMORY: "Ready: place your bet, then Run. It shows what is alive when, in one step.",
    RACE: "Ready: place your bet, then Run. Both sides train to the target.",
}
BEGUN = {
    TIME: "Building and warming up both sides ...",
    MEMORY: "Recording one step of each side ...",
    RACE: "Building both sides ...",
}
RELOADED = "The page was reloaded: run the cell again to have results in the saved notebook."
HISTORY = ("#", "settings", "mode", "factor", "verdict", "interval", "baseline", "candidate")


class Beside(Protocol):
    """A result beside recorded ones."""

    def _repr_html_(self) -> str: ...


class Recorded(Protocol):
    """Recorded runs of other machines."""

    refused: tuple[str, ...]

    @property
    def machines(self) -> tuple[str, ...]: ...

    @property
    def nearest(self) -> str | None: ...

    def on(self, *machines: str) -> Recorded: ...

    def matching(self, own: Any) -> Sequence[tuple[str, Any]]: ...

    def swept(self, own: Any, control: str) -> Sequence[tuple[str, Any]]: ...

    def beside(self, own: Any) -> Beside: ...


class Live(anywidget.AnyWidget):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """The part that ``static/panel.js`` shows.

    ``state`` has the HTML of the latest run, ``status`` a text and its tone, ``notice`` what
    disturbs it, ``history`` a table, ``stale`` whether other settings are chosen by now, ``busy``
    whether Stop is in Run's place.
    """

    _esm = STATIC / "panel.js"
    _css = STATIC / "panel.css"
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


@dataclass(frozen=True)
class Head:
    """A result at a glance: the figure once, large, what it means, a verdict, and a difference."""

    figure: str = ""
    caption: str = ""
    verdict: str = ""
    badge: str = ""
    difference: str = ""

    def html(self, running: bool) -> Markup:
        """As HTML; what goes on may change yet."""
        so_far = " so far" if running and self.verdict else ""
        parts = [element("span", self.figure, kind="speedup")]
        if self.verdict:
            parts.append(show.badge(self.verdict, f"{self.badge or self.verdict}{so_far}"))
        parts.append(element("div", self.caption, kind="caption"))
        parts.append(element("div", self.difference, kind="difference"))
        return show.join(parts)


class View(Watcher):
    """Shows the runs of one panel, and keeps their results."""

    def __init__(
        self, lab: Lab, bets: BetRow, recorded: Recorded | None, picture: Picture | None
    ) -> None:
        self.result: Result = None
        self.history: list[Comparison | RaceResult | MemoryComparison] = []
        self.live = Live()
        self.outputs = Outputs()
        self.machines = None if recorded is None else machine_menu(recorded)
        self._lab, self._bets, self._recorded, self._picture = lab, bets, recorded, picture
        self._mode = TIME
        # What each mode showed last.
        self._states: dict[str, dict[str, Any]] = {}
        self._number = 0
        self._settled: Comparison | None = None
        self._race = RaceResult((), math.nan, "", True)
        self._drawn = self._asked = -math.inf

    def context(self) -> contextvars.Context:
        """That of the cell which shows the panel."""
        return self.live.context.copy()

    def say(self, text: str, tone: str = "") -> None:
        """Set the status line."""
        self.live.status = (text, tone)

    def show_mode(self, mode: str) -> None:
        """Show what this mode found last, or its empty place."""
        self._mode = mode
        self.live.state = self._states.get(mode, self._empty(mode)) | {"run": self._number}
        self.say("" if mode in self._states else READY[mode])

    def _empty(self, mode: str) -> dict[str, Any]:
        """The place of a result that is not there yet: of its height, with what is known."""
        head, picture = Head(), Markup()
        if mode == RACE:
            empty = self._no_runs()
            sign = "at least" if empty.higher_is_better else "at most"
            steps = self._lab.race_options["steps"]
            words = f"to {empty.metric} of {sign} {empty.target:g}, in at most {steps} steps"
            head, picture = Head("Race", words), charts.race(empty)
        return {"mode": mode, "head": head.html(False), "picture": picture}

    def _no_runs(self) -> RaceResult:
        """The race before its first run."""
        options = self._lab.race_options
        higher = options.get("higher_is_better", True)
        return RaceResult((), options["target"], options.get("metric", "metric"), higher)

    # ----------------------------------------------------------------------------- while it runs

    def begun(self, run: Run) -> None:
        """The run is about to start."""
        self._number = run.number
        self._settled, self._drawn = None, -math.inf
        if run.mode == RACE:
            self._race = self._no_runs()
        self._put(run, self._empty(run.mode) | {"left": "", "progress": 0.0}, running=True)
        self._look_around()
        self.live.busy = True
        self.say(BEGUN[run.mode])

    def show(self, run: Run, news: News) -> None:
        """Draw a partial result, unless the last drawing was just now."""
        self._look_around()
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
        """The run has ended."""
        self.live.busy = False
        self._put(run, {}, running=False)

    def _put(self, run: Run, state: dict[str, Any], *, running: bool) -> None:
        """Change what the run's mode shows; another mode may be seen by now."""
        before = {} if "head" in state else self._states.get(run.mode, {})
        fixed = {"mode": run.mode, "run": run.number, "running": running}
        self._states[run.mode] = before | state | fixed
        if run.mode == self._mode:
            self.live.state = self._states[run.mode]

    def _look_around(self) -> None:
        """Say who else measures on this machine; asked once a second at most."""
        now = time.monotonic()
        if now - self._asked < 1:
            return
        self._asked = now
        text = neighbours.told() or (RELOADED if self.outputs.lost else "")
        if text != self.live.notice:
            self.live.notice = text

    def _take_times(self, run: Run, news: Progress) -> None:
        """Note the newest build that counts, and say where a sweep is."""
        if run.position is None or run.position.index != news.index:
            self._settled, self._drawn = None, -math.inf
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
        whole = run.budget if seconds < run.budget else MOST_BUDGETS * run.budget
        left = f"{max(0.0, whole - seconds):.0f} s left"
        if seconds >= run.budget:
            left = f"not clear yet, at most {left}"
        part = min(1.0, seconds / whole)
        return {
            "head": head_of(told, run).html(True),
            "picture": self._drawing(run, told),
            "progress": (news.index + part) / news.count,
            "left": left,
        }

    def _racing(self, run: Run, news: News) -> dict[str, Any]:
        """A race: the runs that are finished, and the one that is not."""
        going = news if isinstance(news, RaceRun) else None
        seeds = self._lab.race_options.get("seeds") or 1
        done = float(len(self._race.runs))
        if going is not None:
            if not run.stop.is_set():
                self.say(f"Training {going.arm}, seed {going.seed}")
            if going.curve:
                done += going.curve[-1][0] / self._lab.race_options["steps"]
        head = head_of(self._race, run)
        return {
            "head": head.html(True),
            "picture": charts.race(self._race, going=going, recorded=self._beside(self._race)),
            "progress": min(1.0, done / (2 * seeds)),
            "left": "",
        }

    # ------------------------------------------------------------------------------ when it ends

    def finish(self, run: Run, result: Found) -> str:
        """Show and publish what the run returned; what the status line says."""
        self.result = result
        kept = _worth_keeping(run, result)
        if kept is None:
            return NOTHING_YET
        self.history += kept if isinstance(kept, Sweep) else [kept]
        head = head_of(kept, run)
        told = self._bets.reveal(run, kept)
        drawing = self._drawing(run, kept)
        picture = Markup(self._picture(kept)) if self._picture else drawing
        sure = show.join([_certainty(kept), drawing if self._picture else ""])
        words = [element("p", told, kind="told") if told else "", show.sentence(kept.sentence)]
        state = {
            "head": head.html(False),
            "verdict": head.verdict,
            "picture": picture,
            "words": show.join(words),
            "sure": sure,
            "progress": 1.0,
            "left": "",
        }
        self._put(run, state, running=True)
        self.live.history = _history(self.history)
        self._publish(kept)
        word = "Stopped" if getattr(kept, "stopped", False) or run.stop.is_set() else "Done"
        return f"{word}: {head.badge or head.verdict}, {head.figure}"

    def _publish(self, kept: Found) -> None:
        """The result as an output of the cell that shows the panel."""
        markup, text = kept._repr_html_(), str(kept)
        if self._picture:
            markup = f"{self._picture(kept)}{markup}"
        picked = self._picked()
        if picked and not isinstance(kept, MemoryComparison):
            beside = picked.beside(kept)
            markup, text = f"{markup}{beside._repr_html_()}", f"{text}\n\n{beside}"
        self.outputs.publish(markup, text)

    def _drawing(self, run: Run, result: Found) -> Markup:
        """The picture of a result."""
        if isinstance(result, Comparison):
            recorded, factor = self._beside(result), self._bets.factor_on(run)
            return charts.comparison(result, recorded=recorded, guess=factor)
        if isinstance(result, Sweep):
            picked = self._picked()
            recorded = picked.swept(result, result.control) if picked else ()
            return charts.sweep(result, result.control, recorded=recorded)
        if isinstance(result, RaceResult):
            return charts.race(result, recorded=self._beside(result))
        return charts.memory(result)

    def _picked(self) -> Recorded | None:
        """The recorded runs of the machines that the menu shows; None for no machine."""
        if self._recorded and self.machines is not None and self.machines.value:
            return self._recorded.on(*self.machines.value)
        return None

    def _beside(self, own: Comparison | RaceResult) -> Sequence[tuple[str, Any]]:
        """What the picked machines recorded for the same question."""
        picked = self._picked()
        if picked is None or (isinstance(own, RaceResult) and len(own.arms) < 2):
            return ()
        # A partial result does not know its lab.
        return picked.matching(replace(own, lab=self._lab.name))

    def machine_row(self) -> list[W.Widget]:
        """The menu of recorded machines, and why there is less in it than one might expect."""
        if self._recorded is None or self.machines is None:
            return []
        reasons = []
        if not self._recorded.machines:
            reasons = list(self._recorded.refused) or ["not recorded yet"]
        return [W.Label("Recorded runs of"), self.machines, *map(W.Label, reasons)]


def machine_menu(recorded: Recorded) -> W.Dropdown:
    """The recorded machines, each and all: the value is a tuple of their names."""
    machines = recorded.machines
    shown = tuple(name for name in machines if name == recorded.nearest)
    options: list[tuple[str, tuple[str, ...]]] = [("no other machine", ())]
    for name in machines:
        options.append((name, (name,)))
    if len(machines) > 1:
        options.append(("all of them", machines))
    return marked(W.Dropdown(options=options, value=shown), "beside")


def _worth_keeping(run: Run, result: Found) -> Any:
    """The result without comparisons that have nothing; None where nothing is left."""
    if isinstance(result, MemoryComparison):
        return None if run.stop.is_set() else result
    if isinstance(result, RaceResult):
        return result if result.arms else None
    if isinstance(result, Comparison):
        return result if _says_something(result) else None
    kept = tuple(each for each in result if _says_something(each))
    return Sweep(result.control, kept) if kept else None


def _says_something(result: Comparison) -> bool:
    return bool(result.ratios) or any(side.error for side in result.arms)


def head_of(result: Found, run: Run) -> Head:
    """A result at a glance."""
    if isinstance(result, Sweep):
        last = head_of(result[-1], run)
        value = result[-1].candidate.settings[result.control]
        return replace(last, caption=f"{last.caption}, at {result.control} {value}")
    if isinstance(result, RaceResult):
        return _race_head(result)
    if isinstance(result, MemoryComparison):
        return _memory_head(result)
    return _times_head(result)


def _times_head(run: Comparison) -> Head:
    figure, caption = f"{format_factor(run.speedup)}×", "as fast as the baseline"
    return Head(figure, caption, run.verdict, run.conclusion, difference(run))


def difference(run: Comparison) -> str:
    """What the candidate saves of a step: ``saves 0.30 of 41.0 ms a step``."""
    before, after = run.baseline.median, run.candidate.median
    if not run.ratios or run.baseline.samples != run.candidate.samples:
        return ""
    verb = "saves" if after <= before else "costs"
    ending = "of" if after <= before else "on top of"
    return f"{verb} {format_seconds(abs(before - after))} {ending} {format_seconds(before)} a step"


def _memory_head(found: MemoryComparison) -> Head:
    before, after = found.baseline.peak, found.candidate.peak
    verdict = guess.memory_verdict(before, after)
    badges = {"same": "same memory", "faster": "less memory", "slower": "more memory"}
    badge = badges.get(verdict, "no tensors")
    if before is None or after is None:
        badge = "not countable"
    figure, caption = f"{format_factor(found.ratio)}×", "the memory of the baseline"
    if found.why_no_factor:
        figure, caption = found.candidate.peak_text, f"instead of {found.baseline.peak_text}"
    saved = ""
    if before and after and before != after:
        verb = "saves" if after < before else "costs"
        ending = "of" if after < before else "on top of"
        saved = f"{verb} {format_bytes(abs(before - after))} {ending} {format_bytes(before)}"
    return Head(figure, caption, verdict, badge, saved)


def _race_head(result: RaceResult) -> Head:
    sign = "at least" if result.higher_is_better else "at most"
    aim = f"{result.metric} of {sign} {result.target:g}"
    if len(result.arms) < 2:
        return Head("Race", f"to {aim}")
    baseline, candidate = result.arms[:2]
    tallies = f"reached by {result.tally(candidate)} seeds, baseline {result.tally(baseline)}"
    figure, caption = f"{format_factor(result.speedup(candidate)[0])}×", f"as fast to {aim}"
    if result.told_by(candidate) != "times":
        figure, caption = result.tally(candidate), f"seeds reached {aim}"
        tallies = f"of the baseline {result.tally(baseline)}"
    return Head(figure, caption, result.verdict(candidate), difference=tallies)


def _certainty(result: Found) -> Markup:
    """What is behind "How sure?"."""
    return Markup(result.details)


def _history(results: Sequence[Comparison | RaceResult | MemoryComparison]) -> str:
    rows = [history_row(number, each) for number, each in enumerate(results, 1)]
    return show.table([HISTORY, *reversed(rows)])


def history_row(number: int, found: Comparison | RaceResult | MemoryComparison) -> list[str]:
    """Number, what differed and what was shared, the mode, and the figures."""
    if isinstance(found, RaceResult):
        return _race_row(number, found)
    differ = [f"{name}: {before} → {after}" for name, (before, after) in found.changed.items()]
    shared = [f"{name} {value}" for name, value in found.shared.items()]
    settings = "; ".join(filter(None, [", ".join(differ) or "same settings", ", ".join(shared)]))
    if isinstance(found, MemoryComparison):
        head = _memory_head(found)
        factor = "–" if found.why_no_factor else head.figure
        peaks = [side.peak_text for side in found.arms]
        return [str(number), settings, MEMORY, factor, head.badge, "–", *peaks]
    figures = [f"{format_factor(found.speedup)}×", found.conclusion, _ends(*found.interval)]
    medians = [side.error or format_seconds(side.median) for side in found.arms]
    return [str(number), settings, TIME, *figures, *medians]


def _race_row(number: int, found: RaceResult) -> list[str]:
    head = _race_head(found)
    settings = ", ".join(found.arms[1:]) or "only the baseline"
    medians = [format_seconds(found.median(arm)) for arm in found.arms[:2]]
    medians += ["–"] * (2 - len(medians))
    ends = "–"
    if len(found.arms) > 1:
        ends = _ends(*found.speedup(found.arms[1])[1:])
    return [str(number), settings, RACE, head.figure, head.verdict or "–", ends, *medians]


def _ends(low: float, high: float) -> str:
    if not math.isfinite(low) or not math.isfinite(high):
        return "–"
    return f"{format_factor(low)} – {format_factor(high)}"
