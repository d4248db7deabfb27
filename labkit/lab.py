"""A lab: one function that builds a training step, and the controls that are its keywords. No widgets here."""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from labkit import journal
from labkit.arms import ArmDied, LocalArm
from labkit.device import is_out_of_memory
from labkit.measure import Update, alternate, budget, measuring
from labkit.progress import progress
from labkit.race import RaceResult, race
from labkit.results import Comparison, changed, same_value
from labkit.sweep import Progress, Sweep
from labkit.text import format_settings

Reason = str | Mapping[Any, str]


class Lab:
    """Compare settings of ``make_workload(**settings) -> Workload``; every control lists its values, the first one the
    baseline.

    Parameters: ``isolate`` gives each arm a process of its own; ``threads`` is torch's thread count on the CPU (None
    leaves it); ``seed`` is set before each build; ``memory`` measures peak memory in a pass of its own; ``unavailable``
    maps a control, or some of its values, to the reason why this machine cannot show it: ``{"pin_memory": "needs
    CUDA"}`` or ``{"precision": {"fp16": "needs CUDA"}}``.
    """

    def __init__(
        self,
        make_workload: Callable[..., Any],
        *,
        isolate: bool = False,
        threads: int | None = 1,
        seed: int = 0,
        memory: bool = True,
        unavailable: Mapping[str, Reason] | None = None,
        **controls: Iterable[Any],
    ) -> None:
        if not callable(make_workload):
            raise TypeError(
                f"Lab({make_workload!r}): the first argument is a function that returns a Workload"
            )
        self.controls = {name: _values(name, values) for name, values in controls.items()}
        _check_signature(make_workload, self.controls)
        for name, value, kind in (
            ("isolate", isolate, bool),
            ("memory", memory, bool),
            ("seed", seed, int),
        ):
            if not isinstance(value, kind):
                raise TypeError(
                    f"{name}={value!r}: {name} is an argument of Lab; give a control another name"
                )
        if threads is not None and not isinstance(threads, int):
            raise TypeError(
                f"threads={threads!r}: threads is an argument of Lab; give a control another name"
            )
        self.unavailable = {} if unavailable is None else dict(unavailable)
        if unknown := set(self.unavailable) - set(self.controls):
            raise TypeError(
                f"unavailable names {_list(unknown)}; the controls are {_list(self.controls)}"
            )
        self.make_workload = make_workload
        self.isolate, self.threads, self.seed, self.memory = isolate, threads, seed, memory

    @property
    def name(self) -> str:
        """The name of its function: how records tell the labs of one notebook apart."""
        return getattr(self.make_workload, "__name__", "lab")

    @property
    def defaults(self) -> dict[str, Any]:
        """The baseline: the first value of each control."""
        return {name: values[0] for name, values in self.controls.items()}

    def why_not(self, name: str, value: Any) -> str | None:
        """Why this machine cannot show ``name=value``, or None when it can. The baseline always can be shown."""
        reason = self.unavailable.get(name)
        if isinstance(reason, Mapping):
            return reason.get(value)
        return None if value == self.controls[name][0] else reason

    def settings(self, changes: Mapping[str, Any] | None) -> dict[str, Any]:
        """The defaults with ``changes``. TypeError for an unknown one, ValueError for what this machine cannot show."""
        changes = changes or {}
        if unknown := set(changes) - set(self.controls):
            raise TypeError(
                f"unknown setting {_list(unknown)}; the settings of this lab are {_list(self.controls)}"
            )
        for name, value in changes.items():
            _check_value(name, value, self.controls[name])
            if reason := self.why_not(name, value):
                raise ValueError(f"{name}={value!r} cannot run on this machine: {reason}")
        return self.defaults | dict(changes)

    def run(
        self,
        *,
        baseline: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        on_update: Update | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> Comparison:
        """Compare the baseline with ``settings``, each rebuilt and seeded anew; arguments as for `compare`.

        Numbers may be given that the control does not list; of words and switches only those that it lists.
        ``baseline`` changes the baseline's own settings.
        """
        seconds = budget(seconds)
        arms = self._arms(self.settings(baseline), self.settings(settings))
        with self._failures(settings), measuring(self.threads), contextlib.ExitStack() as stack:
            for arm in arms:
                stack.callback(arm.close)
            result = alternate(*arms, seconds=seconds, on_update=on_update, stop=stop)
            result = replace(result, lab=self.name)
            for arm in arms:
                arm.close()
            if result.stopped:
                return result
            if self.memory:
                result = self._with_peaks(result, arms, stop)
            if journal.is_open():
                result = self._with_counters(result, arms)
        journal.keep(result, seed=self.seed, threads=self.threads)
        return result

    def sweep(
        self,
        control: str,
        *,
        baseline: Mapping[str, Any] | None = None,
        follow: bool = False,
        seconds: float | None = None,
        on_update: Callable[[Progress], None] | None = None,
        stop: threading.Event | None = None,
        **settings: Any,
    ) -> Sweep:
        """`run` for each value of one control that this machine can show; ``seconds`` is the budget of each.

        With ``follow`` the baseline takes the swept value as well: ``lab.sweep("batch_size", amp=True, follow=True)``
        asks what amp brings at each batch size. ``on_update`` receives a `Progress` between blocks. Ends early, with
        what it has, when stopped.
        """
        if control not in self.controls:
            raise TypeError(
                f"sweep({control!r}): the controls of this lab are {_list(self.controls)}"
            )
        if control in settings:
            raise TypeError(
                f"sweep({control!r}) takes each value of {control}; {control}={settings[control]!r} is one"
            )
        values = [value for value in self.controls[control] if self.why_not(control, value) is None]
        results: list[Comparison] = []
        bar = progress(
            total=len(values),
            desc=f"sweep of {control}",
            unit="run",
            **({"disable": True} if on_update else {}),
        )
        with contextlib.closing(bar):
            for index, value in enumerate(values):
                base = dict(baseline or {})
                if follow:
                    base[control] = value
                update = partial(_tell, on_update, index, len(values))
                chosen = settings | {control: value}
                try:
                    results.append(
                        self.run(
                            baseline=base, seconds=seconds, on_update=update, stop=stop, **chosen
                        )
                    )
                except KeyboardInterrupt:
                    if not results:
                        raise
                    break
                bar.update()
                if results[-1].stopped:
                    break
        return Sweep(control, tuple(results))

    def race(
        self,
        *candidates: Mapping[str, Any],
        baseline: Mapping[str, Any] | None = None,
        target: float,
        steps: int,
        **options: Any,
    ) -> RaceResult:
        """Race the baseline against each candidate's settings to ``target``; options as for `labkit.race`.

        The workload needs ``evaluate``. ``lab.race({"schedule": "1cycle"}, target=0.5, steps=400, every=20)``.
        """
        if self.isolate:
            raise ValueError("isolate=True: races run in this process; make a lab without it")
        base = self.settings(baseline)
        arms = {_difference(base, self.defaults) or "baseline": base}
        for candidate in candidates:
            chosen = self.settings(candidate)
            label = _difference(chosen, base) or "same settings"
            if label in arms:
                raise ValueError(f"{candidate!r} is in this race already")
            arms[label] = chosen
        makers = {label: partial(self.make_workload, **chosen) for label, chosen in arms.items()}
        with self._failures({}):
            result = race(
                makers, target=target, steps=steps, **({"threads": self.threads} | options)
            )
        result = replace(result, lab=self.name)
        if not result.stopped:
            journal.keep(result)
        return result

    def code(
        self,
        *,
        sweep: str | None = None,
        follow: bool = False,
        baseline: Mapping[str, Any] | None = None,
        seconds: float | None = None,
        **settings: Any,
    ) -> str:
        """The headless call for these settings, as source text; only what differs from the defaults."""
        arguments = [] if sweep is None else [repr(sweep)]
        changes = {
            name: value
            for name, value in settings.items()
            if not same_value(value, self.defaults[name]) and name != sweep
        }
        arguments += [f"{name}={value!r}" for name, value in changes.items()]
        base = {
            name: value
            for name, value in (baseline or {}).items()
            if not same_value(value, self.defaults[name])
        }
        if sweep is not None and follow:
            base.pop(sweep, None)
            arguments.append("follow=True")
        if base:
            arguments.append(f"baseline={base!r}")
        if seconds is not None:
            arguments.append(f"seconds={seconds:g}")
        return f"lab.{'run' if sweep is None else 'sweep'}({', '.join(arguments)})"

    def _arms(self, baseline: dict[str, Any], candidate: dict[str, Any]) -> list[Any]:
        label = _difference(candidate, baseline) or "same settings"
        return [self._arm("baseline", baseline), self._arm(label, candidate)]

    def _arm(self, label: str, settings: dict[str, Any]) -> Any:
        kind: Any = LocalArm
        if self.isolate:
            from labkit.isolate import ProcessArm as kind
        return kind(partial(self.make_workload, **settings), label, settings, self.seed)

    def _with_peaks(
        self, result: Comparison, arms: list[Any], stop: threading.Event | None
    ) -> Comparison:
        """The peak memory of each arm, as far as it can be had: the times are there, and nothing may lose them."""
        peaks: list[tuple[int | None, int | None]] = []
        for arm, timed in zip(arms, result.arms, strict=True):
            measured: tuple[int | None, int | None] = (None, None)
            if not timed.error and not (stop and stop.is_set()):
                try:
                    measured = arm.peak()
                except KeyboardInterrupt:
                    return result
                except (ArmDied, MemoryError, RuntimeError) as error:
                    if not isinstance(error, ArmDied) and not is_out_of_memory(error):
                        raise
            peaks.append(measured)
        return result.with_peaks(*peaks)

    def _with_counters(self, result: Comparison, arms: list[Any]) -> Comparison:
        counted = []
        for arm, timed in zip(arms, result.arms, strict=True):
            try:
                counted.append(timed if timed.error else replace(timed, counters=arm.counters()))
            except Exception as error:  # the times are there, and nothing may lose them
                counted.append(replace(timed, counters=f"{type(error).__name__}: {error}"))
        return replace(result, baseline=counted[0], candidate=counted[1])

    @contextlib.contextmanager
    def _failures(self, settings: Mapping[str, Any]) -> Iterator[None]:
        """A record holds what went wrong, too."""
        try:
            yield
        except Exception as error:
            journal.keep(
                journal.Failure(self.name, dict(settings), f"{type(error).__name__}: {error}")
            )
            raise


def _tell(
    on_update: Callable[[Progress], None] | None, index: int, count: int, so_far: Comparison
) -> None:
    """Pass a partial result on, with its position. A sweep has one bar: its runs show none of their own."""
    if on_update is not None:
        on_update(Progress(index, count, so_far))


def _difference(settings: Mapping[str, Any], from_these: Mapping[str, Any]) -> str:
    return format_settings(
        {name: after for name, (_, after) in changed(from_these, settings).items()}
    )


def _values(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(
            f"{name}={values!r}: list the control's values, the baseline first, as in {name}=[{values!r}]"
        )
    listed = tuple(values)
    if not listed:
        raise ValueError(f"{name}=[]: a control needs at least one value, the baseline")
    return listed


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_value(name: str, value: Any, listed: tuple[Any, ...]) -> None:
    """Other numbers than those listed are welcome where numbers are; of words and switches only those listed."""
    numbers = any(map(_is_number, listed))
    if any(type(value) is type(other) and value == other for other in listed) or (
        numbers and _is_number(value)
    ):
        return
    if isinstance(value, bool | str) or _is_number(value):
        raise ValueError(
            f"{name}={value!r}: use {', '.join(map(repr, listed))}{', or another number' * numbers}"
        )


def _check_signature(make_workload: Callable[..., Any], controls: Mapping[str, Any]) -> None:
    """Fail where the lab is made, not at the first run, when its controls are not the keywords of ``make_workload``."""
    taken = {
        name for method in (Lab.run, Lab.sweep) for name in inspect.signature(method).parameters
    }
    if reserved := set(controls) & taken:
        raise TypeError(
            f"a control cannot be named {_list(reserved)}: lab.run or lab.sweep has such an argument"
        )
    try:
        inspect.signature(make_workload).bind(**controls)
    except TypeError as error:
        wants = inspect.signature(make_workload)
        raise TypeError(
            f"make_workload{wants} cannot be called with the controls {_list(controls)}: {error}"
        ) from None


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in sorted(names)) or "none"
