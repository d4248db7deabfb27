"""Whether a record shows that its own interval is too narrow.

An interval of one build says nothing of what another build would take. Where the same record timed
an equal side again, the two medians tell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from labkit.results import Comparison, Measurement, same_value


def one_build(result: Comparison, others: Iterable[object]) -> bool:
    """Whether a side of ``result``, timed in one build, was timed again further away than the
    interval reaches: half of its width, as a ratio.
    """
    low, high = result.interval
    if result.build_count > 1 or not low > 0:
        return False
    reach = math.log(high / low) / 2
    again = list(_sides(result, others))
    return any(
        abs(math.log(own.median / side.median)) > reach
        for own in result.arms
        for side in again
        if _equal(own, side)
    )


def _sides(result: Comparison, others: Iterable[object]) -> Iterator[Measurement]:
    """What else the record timed of this lab, on this device."""
    for other in others:
        if not isinstance(other, Comparison) or other is result:
            continue
        if (other.lab, other.device) == (result.lab, result.device):
            yield from (side for side in other.arms if side.times)


def _equal(one: Measurement, other: Measurement) -> bool:
    if one.settings.keys() != other.settings.keys():
        return False
    return all(same_value(value, other.settings[name]) for name, value in one.settings.items())
