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
from labkit.arm import Arm, ArmDied, LocalArm
from labkit.comparing import budget, measuring, patience_of
from labkit.controls import (
    Controls,
    Settings,
    all_controls,
    all_scenarios,
    check_known,
    check_names,
    check_signature,
    check_value,
    difference,
    names,
    scenario_settings,
    sides_of,
)
from labkit.device import survive
from labkit.memory_timeline import MemoryComparison, Timeline
from labkit.progress import progress
from labkit.racing import RaceResult, race
from labkit.remote import RemoteArm, Workers
from labkit.results import Comparison, Workload
from labkit.stages import RECORDING, Halted, OnStage, Stages
from labkit.sweep import Progress, Sweep
from labkit.text import format_settings

Make = Callable[..., Workload]
Reason = str | Mapping[Any, str]


class Lab:
    """Compare settings of ``make_workload(**settings) -> Workload``.

    Each control, given by keyword, lists its values; the first is the baseline's. The sides of a
    comparison differ in these: they are the technique. The options are:

    - ``situation``: controls that are set on both sides alike, name -> values.
    - ``scenarios``: settings with a name, which a panel shows as buttons; under ``"baseline"``
      those of the technique that its baseline has in place of the first values.
    - ``race``: options of `labkit.race` for this lab, ``target`` and ``steps`` at least.
    - ``runs_in``: where the sides live: in the ``"kernel"``; each in a ``"process"`` of its own,
      for state that cannot be swapped back; or in `labkit.remote.Workers`, ``processes`` (a
      control) of them at a time. ``make_workload`` may then be the name of a function that their
      script serves; a function goes there as it is at each run.
    - ``threads``: torch's threads on the CPU; None leaves them as they are.
    - ``seed``: of the random numbers, set before each build.
    - ``memory``: whether to measure peak memory, in bytes, in a pass of its own.
    - ``unavailable``: what this machine cannot show: control -> reason, or -> {value: reason}.

    TypeError for an option of the wrong kind, for a control that ``make_workload`` does not take
    and for a name that is no control's; ValueError for a value that is not listed. Nothing is built
    before it is measured.

    >>> import torch
    >>> from labkit import Lab, Workload
    >>> def make_workload(width, rows):
    ...     weight, inputs = torch.randn(width, width), torch.randn(rows, width)
    ...     return Workload(lambda: inputs @ weight, rows, "rows")
    >>> lab = Lab(make_workload, width=[8, 512], situation={"rows": [64, 256]})
    >>> result = lab.run(width=512, rows=256, seconds=0.1)
    >>> result.candidate.settings
    {'width': 512, 'rows': 256}
    >>> result.speedup < 1
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
        unavailable: Mapping[str, Reason] | None = None,
        situation: Mapping[str, Iterable[Any]] | None = None,
        scenarios: Mapping[str, Mapping[str, Any]] | None = None,
        race: Mapping[str, Any] | None = None,
        **controls: Iterable[Any],
    ) -> None:
        self.controls = all_controls(controls, situation)
        self.technique, self.situation = tuple(controls), tuple(situation or ())
        check_names(self.controls, (Lab.run, Lab.sweep))
        _check_place(make_workload, runs_in, self.controls)
        _check_types(threads=threads, seed=seed, memory=memory)
        self.scenarios = all_scenarios(scenarios or {}, self.controls, self.technique)
        self.race_options = _checked_race(race, runs_in) if race is not None else {}
        self.unavailable = dict(unavailable or {})
        check_known("unavailable names", self.unavailable, self.controls)
        self.make_workload, self.runs_in = make_workload, runs_in
        self.threads, self.seed, self.memory = threads, seed, memory

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

    def offer(self, scenario: str, /, **settings: Any) -> None:
        """Add a scenario, or replace it; what it names is available from now on.

        TypeError or ValueError as for ``scenarios``; nothing has changed then.
        """
        added = all_scenarios({scenario: settings}, self.controls, self.technique)
        reasons = dict(self.unavailable)
        own, candidate = sides_of(settings)
        for name, value in (*own.items(), *candidate.items()):
            why = reasons.get(name)
            if isinstance(why, Mapping):
                reasons[name] = {other: text for other, text in why.items() if other != value}
            elif reason := self.why_not(name, value):
                raise ValueError(f"{name}={value!r} cannot run on this machine: {reason}")
        self.unavailable = reasons
        self.scenarios |= added

    def _sides(
        self,
        scenario: str | None,
        settings: Mapping[str, Any],
        baseline: Mapping[str, Any] | None,
    ) -> tuple[Settings, Settings]:
        """The settings of the baseline and of the candidate, as `run` takes them."""
        own, known = sides_of(scenario_settings(self.scenarios, scenario))
        chosen = known | dict(settings)
        shared = {name: chosen[name] for name in self.situation if name in chosen}
        return self.settings(shared | own | dict(baseline or {})), self.settings(chosen)

    def settings(self, changes: Mapping[str, Any]) -> Settings:
        """The defaults with ``changes``; errors as for `run`."""
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
        on_stage: OnStage | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> Comparison:
        """Compare the baseline with ``settings``, each built anew; arguments as for `compare`.

        A ``scenario`` is named first, settings change it: ``lab.run("small", amp=True)``. Controls
        of the situation set both sides; ``baseline`` changes the baseline's own settings. Numbers
        may be given that the control does not list; of words and switches only those that it lists.
        An unclear run goes on to ``patience`` times its budget at most. ``on_rough`` receives a
        first number while both sides still warm up, ``on_stage`` what is prepared before, for who
        watches.
        """
        seconds, patience = budget(seconds), patience_of(patience)
        with self._arms(self._sides(scenario, settings, baseline), settings) as arms:
            timed = alternate(
                *arms,
                seconds=seconds,
                patience=patience,
                on_update=on_update,
                on_rough=on_rough,
                on_stage=on_stage,
                stop=stop,
            )
            result = replace(timed, lab=self.name)
            if result.stopped:
                return result
            # Peaks are taken with one workload alive; processes wait for their turn.
            for arm in arms:
                arm.release()
            result = self._with_figures(result, arms, stop)
        journal.keep(result, seed=self.seed, threads=self.threads)
        return result

    def _with_figures(
        self, result: Comparison, arms: Iterable[Arm], stop: threading.Event | None
    ) -> Comparison:
        """With peaks and counts of each side that has not ended; an interrupt loses no times."""
        sides = list(result.arms)
        with contextlib.suppress(KeyboardInterrupt):
            for number, arm in enumerate(arms):
                if not sides[number].error:
                    sides[number] = replace(sides[number], **self._figures(arm, stop))
        return replace(result, baseline=sides[0], candidate=sides[1])

    def _figures(self, arm: Arm, stop: threading.Event | None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.memory and not (stop and stop.is_set()):
            with survive(ArmDied):
                found["peak_bytes"], found["reserved_bytes"] = arm.peak()
        if journal.is_open():
            # What cannot be counted says why.
            try:
                found["counters"] = arm.counters()
            except Exception as error:
                found["counters"] = f"{type(error).__name__}: {error}"
        return found

    def timeline(
        self,
        *,
        baseline: Mapping[str, Any] | None = None,
        on_stage: OnStage | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> MemoryComparison:
        """What is alive when in one step of each side; settings as for `run`.

        A side that ran out of memory, or that ``stop`` has left out, says so.
        """
        with self._arms(self._sides(None, settings, baseline), settings) as arms:
            stages = Stages(on_stage, stop)
            before = _timeline(arms[0], stages.of(1, 2))
            after = _timeline(arms[1], stages.of(2, 2))
        return MemoryComparison(before, after, lab=self.name)

    def sweep(
        self,
        control: str,
        /,
        *,
        baseline: Mapping[str, Any] | None = None,
        follow: bool = False,
        seconds: float | None = None,
        on_update: Callable[[Progress], None] | None = None,
        on_stage: OnStage | None = None,
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
        hidden = {"disable": True} if on_update else {}
        bar = progress(total=len(values), desc=f"sweep of {control}", unit="run", **hidden)
        with contextlib.closing(bar):
            for index, value in enumerate(values):
                base = dict(baseline or {})
                if follow:
                    base[control] = value
                update = partial(_tell, on_update, index, len(values))
                chosen = settings | {control: value}
                try:
                    result = self.run(
                        baseline=base,
                        seconds=seconds,
                        on_update=update,
                        on_stage=on_stage,
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
        assert not isinstance(self.make_workload, str), "a name is for workers only"
        makers = {}
        for label, own in self._entries(candidates, baseline).items():
            makers[label] = partial(self.make_workload, **own)
        options = {"threads": self.threads} | self.race_options | options
        with self._failures({}):
            result = replace(race(makers, **options), lab=self.name)
        if not result.stopped:
            journal.keep(result)
        return result

    def _entries(
        self, candidates: Iterable[Mapping[str, Any]], baseline: Mapping[str, Any] | None
    ) -> dict[str, Settings]:
        """The settings of all that race, by their labels, the baseline first."""
        shared: Settings = {}
        for candidate in candidates:
            for name in set(self.situation) & set(candidate):
                if shared.setdefault(name, candidate[name]) != candidate[name]:
                    raise ValueError(
                        f"{name}={candidate[name]!r}: another candidate has {shared[name]!r}; a "
                        f"race has one baseline, so its candidates share {name}"
                    )
        base = self.settings(shared | dict(baseline or {}))
        # The situation is no side's own: it names none.
        own = {name: base[name] for name in self.technique}
        entries = {difference(self.defaults | own, self.defaults) or "baseline": base}
        for candidate in candidates:
            settings = self.settings(candidate)
            label = difference(settings, base) or "same settings"
            if label in entries:
                raise ValueError(f"{candidate!r} is in this race already")
            entries[label] = settings
        return entries

    @contextlib.contextmanager
    def _arms(
        self, sides: tuple[Settings, Settings], settings: Mapping[str, Any]
    ) -> Iterator[tuple[Arm, Arm]]:
        """Both arms, ready to be measured and closed at the end."""
        baseline, candidate = sides
        label = difference(candidate, baseline) or "same settings"
        arms = self._arm("baseline", baseline), self._arm(label, candidate)
        with self._failures(settings), measuring(self.threads), contextlib.ExitStack() as stack:
            for arm in arms:
                stack.callback(arm.close)
            yield arms

    def _arm(self, label: str, settings: Settings) -> Arm:
        make = self.make_workload
        if not isinstance(make, str):
            make = partial(make, **settings)
        if isinstance(self.runs_in, Workers):
            return RemoteArm(make, label, settings, self.seed, self.runs_in)
        assert not isinstance(make, str), "a name is for workers only"
        if self.runs_in == "process":
            return RemoteArm(make, label, settings, self.seed)
        return LocalArm(make, label, settings, self.seed)

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
    """Pass a partial result on, with its position; thus a sweep's runs show no bar of their own."""
    if on_update is not None:
        on_update(Progress(index, count, so_far))


def _timeline(arm: Arm, stages: Stages) -> Timeline:
    """One side's memory, with no other side alive."""
    ended = Timeline(arm.label, arm.settings, error="stopped")
    try:
        with survive(ArmDied) as outcome, contextlib.closing(arm):
            # The device is known from the first step on.
            arm.start(stages)
            stages.enter(RECORDING)
            return arm.timeline()
    except Halted:
        return ended
    return replace(ended, error=outcome.error)


def _checked_race(options: Mapping[str, Any], runs_in: object) -> dict[str, Any]:
    """What was given as ``race``: TypeError for options that `race` does not take, or too few."""
    try:
        inspect.signature(race).bind({}, **options)
    except TypeError as error:
        raise TypeError(
            f"race={options!r}: {error}; give options of labkit.race, as in "
            'race={"target": 0.6, "steps": 400}'
        ) from None
    if runs_in != "kernel":
        raise ValueError(
            f"race={dict(options)!r}: races run in the kernel, not runs_in={runs_in!r}"
        )
    return dict(options)


def _check_types(**options: object) -> None:
    kinds = {"threads": int | None, "seed": int, "memory": bool}
    for name, value in options.items():
        if not isinstance(value, kinds[name]):
            raise TypeError(
                f"{name}={value!r}: {name} is an argument of Lab; give a control another name"
            )


def _check_place(make_workload: object, runs_in: object, controls: Controls) -> None:
    """Fail where the lab is made, and not at its first run."""
    if isinstance(runs_in, Workers):
        if "processes" not in controls:
            raise TypeError("a lab in workers needs a control named 'processes': processes=[1, 2]")
        if isinstance(make_workload, str):
            return
    elif runs_in not in ("kernel", "process"):
        raise ValueError(f"runs_in={runs_in!r}: use 'kernel', 'process' or Workers(...)")
    if not callable(make_workload):
        raise TypeError(
            f"Lab({make_workload!r}): the first argument is a function that returns a Workload, "
            "or with runs_in=Workers(...) the name of one that their script serves"
        )
    check_signature(make_workload, controls)
