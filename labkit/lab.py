"""A lab: one function that builds a training step, and the controls that are its keywords.

No widgets here: `labkit.LabPanel` shows a lab.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from labkit import journal
from labkit.alternating import Update, alternate
from labkit.arm import Arm, ArmDied, LocalArm, Peak
from labkit.call import Call, keywords
from labkit.comparing import budget, measuring, patience_of
from labkit.controls import (
    Settings,
    all_controls,
    check_names,
    check_signature,
    check_value,
    difference,
    names,
)
from labkit.device import survive
from labkit.idle import Idle, checked_idle, why_idle
from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.progress import progress
from labkit.racing import RaceResult, race
from labkit.remote import RemoteArm, Workers
from labkit.results import Comparison, Workload
from labkit.scenarios import checked_scenarios, scenario_settings
from labkit.sweep import Progress, Sweep
from labkit.text import format_settings

Make = Callable[..., Workload]
Reason = str | Mapping[Any, str]


class Lab:
    """Compare settings of ``make_workload(**settings) -> Workload``.

    Every control lists its values, the first one the default. Those given by keyword are the
    technique, in which the sides differ: the first value is the baseline's. Those in ``situation``
    are set on both sides alike. ``scenarios`` are named settings, which a panel shows as buttons:
    ``{"small": {"width": 8}}``. ``idle`` says of a control with which settings of the others it
    changes nothing: ``{"prefetch": lambda s: s["workers"] == 0}``. ``race`` has the options of
    `race` for this lab, ``{"target": 0.6, "steps": 400}``; with ``learns`` the technique changes
    what is learned, so that time per step says too little, and a panel opens in Race.

    ``runs_in`` says where each side lives: in the ``"kernel"``; in a ``"process"`` of its own, for
    state that cannot be swapped back; or in `labkit.remote.Workers`. Then ``make_workload`` is the
    name of a function that their script serves, and a control named ``processes`` says how many of
    them take part. ``threads`` is torch's thread count on the CPU (None leaves it). ``seed`` is set
    before each build. ``memory`` measures peak memory, ``counters`` counts what a step does, each
    in a pass of its own. ``unavailable`` maps a control, or some of its values, to the reason why
    this machine cannot show it, as in ``{"pin_memory": "needs CUDA"}`` or
    ``{"precision": {"fp16": "needs CUDA"}}``. ``one_step`` is what results call a call of ``step``
    where it is no training step: ``"epoch"``. TypeError and ValueError for what is no lab.

    >>> import torch
    >>> def make_workload(width):
    ...     weight = torch.randn(width, width)
    ...     return Workload(lambda: weight @ weight)
    >>> lab = Lab(make_workload, width=[8, 512])
    >>> lab.run(width=512, seconds=0.1).speedup < 1
    True
    """

    def __init__(
        self,
        make_workload: Make | str,
        *,
        runs_in: str | Workers = "kernel",
        threads: int | None = 1,
        seed: int = 0,
        memory: bool = True,
        counters: bool = False,
        unavailable: Mapping[str, Reason] | None = None,
        situation: Mapping[str, Iterable[Any]] | None = None,
        scenarios: Mapping[str, Mapping[str, Any]] | None = None,
        idle: Mapping[str, Idle] | None = None,
        race: Mapping[str, Any] | None = None,
        learns: bool = False,
        one_step: str = "step",
        **controls: Iterable[Any],
    ) -> None:
        self.controls = all_controls(controls, situation)
        self.technique, self.situation = tuple(controls), tuple(situation or ())
        check_names(self.controls, (Lab.run, Lab.sweep))
        _check_place(make_workload, runs_in, self.controls)
        _check_type("threads", threads, (int, type(None)))
        _check_type("seed", seed, int)
        _check_type("memory", memory, bool)
        _check_type("counters", counters, bool)
        _check_type("learns", learns, bool)
        _check_type("one_step", one_step, str)
        if not one_step.strip():
            raise ValueError(f"one_step={one_step!r}: give it a name, as in one_step='epoch'")
        self.scenarios = checked_scenarios(scenarios, self.controls)
        self.idle = checked_idle(idle, self.controls)
        self.race_options = _checked_race(race, runs_in)
        if learns and not self.race_options:
            raise ValueError(
                "learns=True: a technique that changes what is learned is judged by a race: "
                'give race={"target": ..., "steps": ...}'
            )
        self.learns = learns
        self.unavailable = dict(unavailable or {})
        if unknown := set(self.unavailable) - set(self.controls):
            raise TypeError(
                f"unavailable names {names(unknown)}; the controls are {names(self.controls)}"
            )
        self.make_workload, self.runs_in = make_workload, runs_in
        self.threads, self.seed = threads, seed
        self.memory, self.counters = memory, counters
        self.one_step = one_step

    def __repr__(self) -> str:
        return f"Lab({self.name}: {format_settings(self.controls)})"

    @property
    def name(self) -> str:
        """The name of its function: how records tell the labs of one notebook apart."""
        if isinstance(self.make_workload, str):
            return self.make_workload
        return getattr(self.make_workload, "__name__", "lab")

    @property
    def defaults(self) -> Settings:
        """The baseline: the first value of each control."""
        return {name: values[0] for name, values in self.controls.items()}

    def why_not(self, name: str, value: Any) -> str | None:
        """Why this machine cannot show ``name=value``, or None when it can.

        A reason for a whole control leaves its first value, the baseline's; a mapping is taken at
        its word for that value too.
        """
        reason = self.unavailable.get(name)
        if isinstance(reason, Mapping):
            return reason.get(value)
        if value == self.controls[name][0]:
            return None
        return reason

    def why_idle(self, name: str, settings: Mapping[str, Any]) -> str | None:
        """Why a control changes nothing with these settings of a side, or None when it does."""
        if name not in self.idle:
            return None
        return why_idle(self.idle[name], self.defaults | dict(settings))

    def sides(
        self,
        scenario: str | None,
        settings: Mapping[str, Any],
        baseline: Mapping[str, Any] | None,
    ) -> tuple[Settings, Settings]:
        """The settings of the baseline and of the candidate, as `run` takes them."""
        chosen = dict(settings)
        if scenario is not None:
            chosen = scenario_settings(self.scenarios, scenario) | chosen
        shared = {name: chosen[name] for name in self.situation if name in chosen}
        return self.settings(shared | dict(baseline or {})), self.settings(chosen)

    def settings(self, changes: Mapping[str, Any] | None) -> Settings:
        """The defaults with ``changes``.

        TypeError for an unknown one, ValueError for what this machine cannot show.
        """
        changes = changes or {}
        if unknown := set(changes) - set(self.controls):
            raise TypeError(
                f"unknown setting {names(unknown)}; "
                f"the settings of this lab are {names(self.controls)}"
            )
        for name, value in changes.items():
            check_value(name, value, self.controls[name])
            if reason := self.why_not(name, value):
                raise ValueError(f"{name}={value!r} cannot run on this machine: {reason}")
        return self.defaults | dict(changes)

    def run(
        self,
        scenario: str | None = None,
        /,
        *,
        baseline: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        patience: float | None = None,
        on_update: Update | None = None,
        on_rough: Update | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> Comparison:
        """Compare the baseline with ``settings``, each built anew; arguments as for `compare`.

        A ``scenario`` is named first, settings change it: ``lab.run("small", amp=True)``. Controls
        of the situation set both sides; ``baseline`` changes the baseline's own settings. Numbers
        may be given that the control does not list; of words and switches only those that it lists.
        An unclear run goes on to ``patience`` times its budget at most. ``on_rough`` receives a
        first number while both sides still warm up, for who watches.
        """
        seconds, patience = budget(seconds), patience_of(patience)
        sides = self.sides(scenario, settings, baseline)
        known = journal.recall(f"run {self.name} {sides!r} for {seconds:g} s, {self._how}")
        if known is not None:
            return self._again(known, *sides)
        arms = self._arms(*sides)
        with self._failures(settings), measuring(self.threads), contextlib.ExitStack() as stack:
            for arm in arms:
                stack.callback(arm.close)
            result = alternate(
                *arms,
                seconds=seconds,
                patience=patience,
                on_update=on_update,
                stop=stop,
                on_rough=on_rough,
            )
            result = replace(result, lab=self.name, one_step=self.one_step)
            if result.stopped:
                return result
            # Peaks are taken with one workload alive; processes wait for their turn.
            for arm in arms:
                arm.release()
            if self.memory:
                result = _with_peaks(result, arms, stop)
            if self.counters or journal.wants_counters():
                result = _with_counters(result, arms)
        journal.keep(result, seed=self.seed, threads=self.threads)
        return result

    def timeline(
        self,
        scenario: str | None = None,
        /,
        *,
        baseline: Mapping[str, Any] | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> MemoryComparison:
        """What is alive when in one step of each side; settings as for `run`.

        A side that ran out of memory, or that ``stop`` has left out, says so.
        """
        arms = self._arms(*self.sides(scenario, settings, baseline))
        with self._failures(settings), measuring(self.threads), contextlib.ExitStack() as stack:
            for arm in arms:
                stack.callback(arm.close)
            lines = [_timeline(arm, stop) for arm in arms]
        return MemoryComparison(lines[0], lines[1], lab=self.name)

    def sweep(
        self,
        control: str,
        scenario: str | None = None,
        /,
        *,
        baseline: Mapping[str, Any] | None = None,
        follow: bool = False,
        seconds: float | None = None,
        on_update: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> Sweep:
        """`run` for each value of one control that this machine can show.

        ``seconds`` is the budget of each. A control of the situation is swept on both sides. With
        ``follow`` so is one of the technique: ``lab.sweep("batch_size", amp=True, follow=True)``
        asks what amp brings at each batch size. ``on_update`` receives a `Progress` between blocks.
        Ends early, with what it has, when stopped.
        """
        values = self._swept(control, settings)
        results: list[Comparison] = []
        shown: dict[str, Any] = {"total": len(values), "desc": f"sweep of {control}"}
        if on_update:
            shown["disable"] = True
        bar = progress(unit="run", **shown)
        with contextlib.closing(bar):
            for index, value in enumerate(values):
                base = dict(baseline or {})
                if follow:
                    base[control] = value
                update = partial(_tell, on_update, index, len(values))
                chosen = settings | {control: value}
                try:
                    result = self.run(
                        scenario,
                        baseline=base,
                        seconds=seconds,
                        on_update=update,
                        stop=stop,
                        **chosen,
                    )
                except KeyboardInterrupt:
                    if not results:
                        raise
                    break
                results.append(result)
                bar.update()
                if result.stopped:
                    break
        return Sweep(control, tuple(results))

    def _swept(self, control: str, settings: Mapping[str, Any]) -> list[Any]:
        """The values that a sweep takes; TypeError when it cannot."""
        if control not in self.controls:
            raise TypeError(
                f"sweep({control!r}): the controls of this lab are {names(self.controls)}"
            )
        if control in settings:
            raise TypeError(
                f"sweep({control!r}) takes each value of {control}; "
                f"{control}={settings[control]!r} is one"
            )
        return [value for value in self.controls[control] if self.why_not(control, value) is None]

    def race(
        self,
        *candidates: Mapping[str, Any],
        baseline: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> RaceResult:
        """Race the baseline against each candidate's settings to a target.

        Options as for `labkit.race`, ``target`` and ``steps`` at least, and those that the lab was
        given as ``race``. The workload needs ``evaluate``:
        ``lab.race({"schedule": "1cycle"}, target=0.5, steps=400, every=20)``. Controls of the
        situation set the baseline too; candidates that set them differently are refused.
        """
        if self.runs_in != "kernel":
            raise ValueError(
                f"runs_in={self.runs_in!r}: races run in the kernel; make a lab without it"
            )
        options = {"threads": self.threads} | self.race_options | options
        _check_race_has_an_end(options)
        base = self.settings(self._shared(candidates) | dict(baseline or {}))
        # The situation is no side's own: it names none.
        own = {name: base[name] for name in self.technique}
        chosen = {difference(self.defaults | own, self.defaults) or "baseline": base}
        for candidate in candidates:
            settings = self.settings(candidate)
            label = difference(settings, base) or "same settings"
            if label in chosen:
                raise ValueError(f"{candidate!r} is in this race already")
            chosen[label] = settings
        makers = {}
        for label, settings in chosen.items():
            makers[label] = partial(self._function(), **settings)
        told = {name: value for name, value in options.items() if name not in _NO_PART_OF_A_RACE}
        target, steps = told.pop("target"), told.pop("steps")
        asked = f"{chosen!r} to {target!r} in {steps} steps, {told!r}"
        known = journal.recall(f"race {self.name} {asked}")
        if known is not None:
            journal.keep(known)
            return known
        with self._failures({}):
            result = race(makers, **options)
        result = replace(result, lab=self.name)
        if not result.stopped:
            journal.keep(result)
        return result

    def _shared(self, candidates: Iterable[Mapping[str, Any]]) -> Settings:
        """What candidates of a race set of the situation: the one baseline has it as well."""
        shared: Settings = {}
        for candidate in candidates:
            for name in self.situation:
                if name not in candidate:
                    continue
                if shared.setdefault(name, candidate[name]) != candidate[name]:
                    raise ValueError(
                        f"{name}={candidate[name]!r}: another candidate has {shared[name]!r}; a "
                        f"race has one baseline, so its candidates share {name}"
                    )
        return shared

    def code(
        self,
        scenario: str | None = None,
        method: str = "run",
        /,
        *,
        sweep: str | None = None,
        follow: bool = False,
        baseline: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        **settings: Any,
    ) -> str:
        """The headless call for these settings, as source; only what differs from the defaults.

        ``method`` is "run", "timeline" or "race"; a race names no scenario. With ``sweep``, a
        control, it is that of `sweep`.
        """
        preset: Settings = {}
        named = scenario is not None and method != "race"
        if named:
            preset = scenario_settings(self.scenarios, scenario)
        call = Call(self.defaults, self.situation, preset)
        given = call.given(settings)
        base = call.baseline(baseline or {}, given)
        arguments = [repr(scenario)] if named else []
        if sweep is not None:
            method = "sweep"
            arguments.insert(0, repr(sweep))
            follow = follow or (sweep in self.situation and sweep not in (baseline or {}))
            arguments += call.sweep(sweep, follow, given, base, baseline or {})
        elif method == "race":
            arguments.append(repr(given))
        else:
            arguments += keywords(given)
        if base:
            arguments.append(f"baseline={base!r}")
        if seconds is not None and method in ("run", "sweep"):
            arguments.append(f"seconds={seconds:g}")
        return f"lab.{method}({', '.join(arguments)})"

    def _arms(self, baseline: Settings, candidate: Settings) -> tuple[Arm, Arm]:
        label = difference(candidate, baseline) or "same settings"
        return self._arm("baseline", baseline), self._arm(label, candidate)

    def _arm(self, label: str, settings: Settings) -> Arm:
        if isinstance(self.runs_in, Workers):
            return RemoteArm(self.name, label, settings, self.seed, self.runs_in)
        make = partial(self._function(), **settings)
        if self.runs_in == "process":
            return RemoteArm(make, label, settings, self.seed)
        return LocalArm(make, label, settings, self.seed)

    @property
    def _how(self) -> str:
        """What a comparison depends on beside its settings and its budget."""
        place = self.runs_in
        if isinstance(place, Workers):
            place = "workers"
        return f"seed {self.seed}, threads {self.threads}, memory {self.memory}, in {place}"

    def _again(self, known: Comparison, *sides: Settings) -> Comparison:
        """A result that an open journal has kept, with the settings as the caller gave them."""
        arms = []
        for arm, settings in zip(known.arms, sides, strict=True):
            arms.append(replace(arm, settings=settings))
        result = replace(known, baseline=arms[0], candidate=arms[1], one_step=self.one_step)
        journal.keep(result, seed=self.seed, threads=self.threads)
        return result

    def _function(self) -> Make:
        assert not isinstance(self.make_workload, str), "a name is for workers only"
        return self.make_workload

    @contextlib.contextmanager
    def _failures(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """A journal holds what went wrong, too."""
        try:
            yield
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            journal.keep(journal.Failure(self.name, dict(settings), reason))
            raise


def _tell(
    on_update: Callable[[Progress], None] | None, index: int, count: int, so_far: Comparison
) -> None:
    """Pass a partial result on, with its position.

    A sweep has one bar for all: its runs show none of their own.
    """
    if on_update is not None:
        on_update(Progress(index, count, so_far))


def _timeline(arm: Arm, stop: threading.Event | None) -> Timeline:
    """One side's memory, with no other side alive."""
    ended = Timeline(arm.label, arm.settings, error="stopped")
    if stop and stop.is_set():
        return ended
    with survive(ArmDied) as outcome, contextlib.closing(arm):
        # The device is known from the first step on.
        arm.start()
        return arm.timeline()
    return replace(ended, error=outcome.error)


def _with_peaks(
    result: Comparison, arms: Iterable[Arm], stop: threading.Event | None
) -> Comparison:
    """The peak memory of each side, as far as it can be had: nothing may lose the times."""
    peaks: list[Peak | tuple[None, None]] = []
    for arm, timed in zip(arms, result.arms, strict=True):
        peaks.append((None, None))
        if timed.error or (stop and stop.is_set()):
            continue
        try:
            with survive(ArmDied):
                peaks[-1] = arm.peak()
        except KeyboardInterrupt:
            return result
    return result.with_peaks(*peaks)


def _with_counters(result: Comparison, arms: Iterable[Arm]) -> Comparison:
    """What a step of each side does, or why it cannot be counted: nothing may lose the times."""
    counted = []
    for arm, timed in zip(arms, result.arms, strict=True):
        if timed.error:
            counted.append(timed)
            continue
        try:
            counters = arm.counters()
        except KeyboardInterrupt:
            return result
        except Exception as error:
            counters = f"{type(error).__name__}: {error}"
        counted.append(replace(timed, counters=counters))
    return replace(result, baseline=counted[0], candidate=counted[1])


# What does not change how a race goes.
_NO_PART_OF_A_RACE = ("on_update", "on_point", "stop")


def _checked_race(options: Mapping[str, Any] | None, runs_in: object) -> dict[str, Any]:
    """What was given as ``race``: TypeError for options that `race` does not take, or too few."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(
            f"race={options!r}: give a dict of options of lab.race, as in "
            'race={"target": 0.6, "steps": 400}'
        )
    accepted = set(inspect.signature(race).parameters) - {"arms", *_NO_PART_OF_A_RACE}
    if unknown := set(options) - accepted:
        raise TypeError(f"race has no option {names(unknown)}; its options are {names(accepted)}")
    _check_race_has_an_end(options)
    if runs_in != "kernel":
        raise ValueError(
            f"race={dict(options)!r}: races run in the kernel, not runs_in={runs_in!r}"
        )
    return dict(options)


def _check_race_has_an_end(options: Mapping[str, Any]) -> None:
    if missing := {"target", "steps"} - set(options):
        raise TypeError(
            f"race needs {names(missing)}: the metric to reach and the most steps to try, as in "
            "target=0.6, steps=400"
        )


def _check_type(name: str, value: object, kinds: type | tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        raise TypeError(
            f"{name}={value!r}: {name} is an argument of Lab; give a control another name"
        )


def _check_place(
    make_workload: object, runs_in: object, controls: Mapping[str, tuple[Any, ...]]
) -> None:
    """Fail where the lab is made, and not at its first run."""
    if isinstance(runs_in, Workers):
        script = runs_in.script.name
        if not isinstance(make_workload, str):
            raise TypeError(
                f"Lab({make_workload!r}, runs_in=Workers(...)): the function lives in the workers: "
                f"give the name of one that {script} serves"
            )
        if "processes" not in controls:
            raise TypeError("a lab in workers needs a control named 'processes': processes=[1, 2]")
        return
    if runs_in not in ("kernel", "process"):
        raise ValueError(f"runs_in={runs_in!r}: use 'kernel', 'process' or Workers(...)")
    if not callable(make_workload):
        raise TypeError(
            f"Lab({make_workload!r}): the first argument is a function that returns a Workload"
        )
    check_signature(make_workload, controls)
