"""The optimal dynamic program, as its paper has it: thirty lines, one byte at a time, slow.

Beaumont, Eyraud-Dubois, Hermann, Joly, Shilova 2019, "Optimal checkpointing for heterogeneous
chains", arXiv:1911.13214; their tool is called rotor. `sublinear.searches.optimal` fills the same
table by rows.
"""

from __future__ import annotations

import math
from functools import cache

from sublinear.chain import Chain
from sublinear.searches.needs import needs_of, options_of


def fastest(chain: Chain, memory: int, *, menu: bool = False) -> float:
    """The least seconds of a step in ``memory`` bytes; infinite where no plan fits.

    Exact, in time that grows with memory times the cube of the number of blocks: for small chains.
    """
    needs = needs_of(chain, menu=menu)

    @cache
    def seconds(first: int, last: int, free: int) -> float:
        """Of blocks first..last, the end of a checkpoint or of the step, in so many bytes."""
        if first > last:
            return 0.0
        whole = last == needs.n - 1
        behind = 0 if whole else int(needs.behind[last])
        best = math.inf
        for option in range(options_of(needs, first, last)):
            need = max(behind + needs.forward[first][option], needs.backward[first][option])
            if first == last and not whole:
                need = needs.last_one[first]
            if need <= free:
                rest = seconds(first + 1, last, free - needs.saved[first][option])
                best = min(best, needs.seconds[first][option] + rest)
        for end in range(first, last):
            if behind + needs.bare[first, end] <= free:
                bare = needs.elapsed[end + 1] - needs.elapsed[first]
                again = seconds(first, end, free - int(needs.mark[first]))
                rest = seconds(end + 1, last, free - int(needs.held[first, end]))
                best = min(best, bare + again + rest)
        return best

    return float(seconds(0, needs.n - 1, memory - needs.base)) + chain.extra_seconds
