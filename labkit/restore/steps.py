"""Training steps leave everything as it was: what they reach is found, kept and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from labkit.restore.bindings import Bindings
from labkit.restore.contents import keeping
from labkit.restore.generators import preserve_rng
from labkit.restore.memory import place_of_copies
from labkit.restore.reach import Reached, reached
from labkit.restore.state import held, put_backs
from labkit.restore.switches import preserve_flags
from labkit.restore.undo import PutBack, call_all, giving_back

# So many names in one sentence.
_SHOWN = 8


class Restoration:
    """What `restoring` keeps. ``changed``, afterwards: variables that the steps had bound anew."""

    def __init__(self, found: Reached, copies: str | None) -> None:
        # What is put back, as it was found.
        self.owners: list[Any] = []
        self._found, self._copies = found, copies
        self._bindings = Bindings(found.cells, found.names, found.objects)
        self._undo: list[list[PutBack]] = [list(map(keeping, found.shallow))]
        # Keeps them alive, so that an id stays its object's own.
        self._known: dict[int, Any] = {}
        self._versions = {name: _versions(tensors) for name, tensors in found.data.items()}

    @property
    def changed(self) -> list[str]:
        return self._bindings.changed

    @property
    def beyond(self) -> str:
        """What the steps reach and cannot be put back, in words; empty if nothing."""
        found = self._found.beyond
        named = [f"{name} ({found[name]})" for name in sorted(found)]
        more = [f"{len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
        return ", ".join(named[:_SHOWN] + more)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not put back, in sentences; of large tensors those that were changed."""
        notes = []
        for name, versions in self._versions.items():
            tensors = self._found.data[name]
            if not self._owns(tensors) and _versions(tensors) != versions:
                notes.append(f"the step changed {name}, which was too large to be put back")
        if self.beyond:
            notes.append(f"the step reaches {self.beyond}: what it changed there was not put back")
        return tuple(notes)

    def keep(self, *objects: Any) -> None:
        """Put these, and all that they hold, back as they are now. TypeError for one without state.

        MemoryError where copies of them do not fit.
        """
        new = tuple(each for each in objects if id(each) not in self._known)
        items = [each for each in held(new) if id(each) not in self._known]
        copies = self._copies or place_of_copies(items)
        undo: list[PutBack] = []
        for item in items:
            undo += put_backs(item, copies)
            self._known[id(item)] = item
        self._undo.append(undo)
        self.owners += new

    def restore_state(self) -> None:
        """The latest first, as it was kept beside what came before."""
        call_all([put_back for undo in reversed(self._undo) for put_back in undo])

    def restore_variables(self) -> None:
        """Variables as before."""
        self._bindings.restore()

    def refuse(self, advice: str) -> None:
        """Raise ValueError for the reader's training where that cannot be put back."""
        for name, trained in self._found.trainings.items():
            if self._owns(trained):
                continue
            kinds = dict.fromkeys(type(each).__name__ for each in trained)
            raise ValueError(
                f"{name} is {self._found.beyond[name]} that trains ({', '.join(list(kinds)[:4])}), "
                "which cannot be put back: give a function that does one step with a model and an "
                f"optimizer of its own{advice}"
            )

    def _owns(self, items: Iterable[Any]) -> bool:
        return all(id(each) in self._known for each in items)


@contextmanager
def restoring(
    *steps: Callable[..., Any],
    also: Iterable[Any] = (),
    copies: str | None = None,
    advice: str = "",
) -> Iterator[Restoration]:
    """Put back what ``steps`` reach, and ``also`` what is listed, whatever the block raises.

    Models, optimizers, schedulers, tensors, arrays, containers, generators, variables and
    attributes that the steps find by closures, globals, arguments and objects of the reader's own
    are as before, bit for bit, and so are torch's switches and the global generators; what is as
    before is not written. `Restoration.notes` names what cannot be put back: iterators that have
    moved on, files, very large arrays. ValueError where that is a training, such as a generator
    that holds a model, unless ``also`` lists what it trains; ``advice`` ends its message.

    ``copies``: the device of copies; None: a tensor's own, or the CPU's memory where an accelerator
    has little left. MemoryError where they do not fit.
    """
    restoration = Restoration(reached(*steps), copies)
    # With-statements, and no ExitStack: of that, an interrupt may leave a part undone.
    with (
        giving_back(restoration.restore_variables),
        preserve_rng(),
        preserve_flags(),
        giving_back(restoration.restore_state),
    ):
        restoration.keep(*also)
        restoration.refuse(advice)
        restoration.keep(*restoration._found.state)
        try:
            yield restoration
        except Exception as error:
            if restoration.beyond:
                error.add_note(f"(what the step reaches is as before, except {restoration.beyond})")
            raise


def _versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    """How often each was changed in place; those of inference mode do not count it."""
    return [each._version for each in tensors if not each.is_inference()]
