"""Training steps leave everything as it was: what they reach is found, kept and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from labkit.restore.generators import preserve_rng
from labkit.restore.memory import check_room
from labkit.restore.reach import Inside, Walk
from labkit.restore.state import keeping_state
from labkit.restore.switches import preserve_flags
from labkit.restore.undo import PutBack, call_all, giving_back

# So many names in one sentence.
_SHOWN = 8


class Restoration:
    """What `restoring` keeps, and puts back."""

    def __init__(self) -> None:
        self._walk = Walk()
        self._undo: list[PutBack] = []
        # So many of the items that were found are kept.
        self._kept = 0

    @property
    def items(self) -> tuple[Any, ...]:
        """What is put back, each object by itself."""
        return tuple(self._walk.items)

    @property
    def beyond(self) -> str:
        """What the steps reach and cannot be put back, in words; empty if nothing."""
        found = self._walk.beyond
        named = [f"{name} ({found[name]})" for name in sorted(found)]
        more = [f"{len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
        return ", ".join(named[:_SHOWN] + more)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not put back, in sentences."""
        if not self.beyond:
            return ()
        return (f"the step reaches {self.beyond}: what it changed there was not put back",)

    def keep(self, *objects: Any) -> None:
        """Put these, and all that they hold, back as they are now. TypeError for one without state.

        MemoryError where copies of them do not fit.
        """
        self._walk.own(objects)
        self._remember()

    def follow(self, steps: Inside, advice: str) -> None:
        """As `keep`, of all that the steps reach. ValueError for a training that cannot be kept."""
        listed = set(map(id, self.items))
        self._walk.look(steps)
        for name, trained in self._walk.trainings.items():
            if all(id(each) in listed for each in trained):
                continue
            kinds = dict.fromkeys(type(each).__name__ for each in trained)
            raise ValueError(
                f"{name} is {self._walk.beyond[name]} that trains "
                f"({', '.join(list(kinds)[:4])}), which cannot be put back: give a function that "
                f"does one step with a model and an optimizer of its own{advice}"
            )
        self._remember()

    def restore(self) -> None:
        """The latest first, as it was kept beside what came before; once more does no harm."""
        call_all(self._undo[::-1])

    def _remember(self) -> None:
        """Copy what was found since the last time."""
        items = self._walk.items[self._kept :]
        check_room(items)
        self._undo += map(keeping_state, items)
        self._kept += len(items)


@contextmanager
def preserve_state(*objects: Any) -> Iterator[None]:
    """Put ``objects``, and all that they hold, back as they were, in place and bit for bit.

    Follows what `restoring` follows. Costs one copy of every tensor and array, in the CPU's memory.
    TypeError for an object that holds no state, MemoryError where copies do not fit.
    """
    restoration = Restoration()
    with giving_back(restoration.restore):
        restoration.keep(*objects)
        yield


@contextmanager
def restoring(
    *steps: Callable[..., Any], also: Iterable[Any] = (), advice: str = ""
) -> Iterator[Restoration]:
    """Put back what ``steps`` reach, and ``also`` what is listed, whatever the block raises.

    Models, optimizers, schedulers, tensors, arrays, containers, generators, variables and
    attributes that the steps find by closures, globals, arguments and objects of the reader's own
    are as before, bit for bit, and so are torch's switches and the global generators; what is as
    before is not written. `Restoration.notes` names what cannot be put back: iterators that have
    moved on, files, objects of a library. ValueError where that is a training, such as a generator
    that holds a model, unless ``also`` lists what it trains; ``advice`` ends its message.

    Copies lie in the CPU's memory: MemoryError where they do not fit.
    """
    restoration = Restoration()
    # With-statements, and no ExitStack: of that, an interrupt may leave a part undone.
    with preserve_rng(), preserve_flags(), giving_back(restoration.restore):
        restoration.keep(*also)
        restoration.follow([("step", step) for step in steps], advice)
        try:
            yield restoration
        except Exception as error:
            if restoration.beyond:
                error.add_note(f"(what the step reaches is as before, except {restoration.beyond})")
            raise
