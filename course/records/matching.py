"""Which recorded result answers a question: by its lab, by what its sides have differently and by
what both have, never by its figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from labkit.results import Comparison, same_value

# Any value at all.
ANY = "*"


@dataclass(frozen=True)
class Question:
    """``after``: what the candidate has otherwise than the baseline, all of it; ``before``: what
    the baseline has there; ``at``: what both have. Of ``before`` and ``at`` some may be left out.
    """

    lab: str
    after: Mapping[str, Any]
    before: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, result: Comparison) -> Question:
        """The question that a comparison answers, at any settings of both sides."""
        before, after = _sides(result)
        return cls(result.lab, after, before)

    def fits(self, result: Comparison, *, ignoring: str = "") -> bool:
        """Whether a comparison answers it; what a setting ``ignoring`` is does not matter."""
        before, after = _sides(result)
        names = after.keys() - {ignoring}
        if result.lab != self.lab or names != self.after.keys() - {ignoring}:
            return False
        pairs = ((self.after, after), (self.before, before), (self.at, result.shared))
        for wanted, found in pairs:
            if not holds({name: wanted[name] for name in wanted if name != ignoring}, found):
                return False
        return True


def _sides(result: Comparison) -> tuple[dict[str, Any], dict[str, Any]]:
    """What baseline and candidate have differently."""
    before = {name: pair[0] for name, pair in result.changed.items()}
    after = {name: pair[1] for name, pair in result.changed.items()}
    return before, after


def holds(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether all that is wanted is there, with those values; `ANY` is any."""
    for name, value in wanted.items():
        if name not in found:
            return False
        if value != ANY and not same_value(value, found[name]):
            return False
    return True
