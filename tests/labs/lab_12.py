"""12, sublinear memory: what shows that the technique acts, and answers to the exercise."""

from itertools import combinations
from typing import Any

import torch

from course import exercises
from course.exercises.front_12 import piece_peaks
from labkit import MemoryMeter, count, seed_all
from tests.labs import nothing

CHECK = exercises.check_12_best_cuts


def alive(names: dict[str, Any]) -> None:
    found = {}
    for method in ("keep all", "√n", "exact cuts"):
        seed_all(0)
        settings = names["lab"].settings({"method": method, "network": "transformer"})
        step = names["make_workload"](**settings).step
        step()
        with MemoryMeter(saved=False) as memory:
            step()
        found[method] = count(step).flops, memory.peak
    plain, exact = found["keep all"], found["exact cuts"]
    # A second forward pass of all pieces but the last.
    assert 1 < exact[0] / plain[0] < 4 / 3
    assert exact[1] <= found["√n"][1] < 0.9 * plain[1]
    gradients = [gradients_of(names, method) for method in ("keep all", "exact cuts")]
    assert gradients[0] and all(map(torch.equal, *gradients))


def gradients_of(names: dict[str, Any], method: str) -> list[torch.Tensor]:
    """Of one backward pass, from the same weights."""
    seed_all(0)
    settings = names["lab"].settings({"method": method, "network": "ResNet"})
    of = [settings[name] for name in ("activation", "network", "batch_size")]
    net, x, y = names["tables"].new(*of)
    plan = names["plan_of"](names["tables"].chain(*of), method, settings["budget"])
    model = names["sublinear"].apply(net, plan)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    return [weight.grad for weight in net.parameters() if weight.grad is not None]


def best_cuts(saved: list[int], outputs: list[int], last_waits: bool = False) -> list[int]:
    n = len(saved)
    rest, following = [0] * (n + 1), [n] * n
    for s in reversed(range(n)):
        needs = {}
        for t in range(s + 1, n + 1):
            after = outputs[t - 1] + rest[t] if t < n or last_waits else 0
            needs[t] = max(sum(saved[s:t]), after)
        following[s] = min(needs, key=lambda t: needs[t])
        rest[s] = needs[following[s]]
    cuts = [following[0]]
    while cuts[-1] < n:
        cuts.append(following[cuts[-1]])
    return cuts[:-1]


def all_ways(saved: list[int], outputs: list[int]) -> list[int]:
    n = len(saved)
    ways = (cuts for number in range(n) for cuts in combinations(range(1, n), number))
    return list(min(ways, key=lambda cuts: max(piece_peaks(saved, outputs, cuts))))


def equal_pieces(saved: list[int], outputs: list[int]) -> list[int]:
    n = len(saved)
    ways = [[n * piece // pieces for piece in range(1, pieces)] for pieces in range(1, n + 1)]
    return min(ways, key=lambda cuts: max(piece_peaks(saved, outputs, cuts)))


def threshold(saved: list[int], outputs: list[int]) -> list[int]:
    """Greedy: the best of all thresholds."""
    ways = []
    for limit in range(sum(saved) + 1):
        cuts, inside = [], 0
        for block, size in enumerate(saved[:-1], 1):
            inside += size
            if inside > limit:
                cuts.append(block)
                inside = 0
        ways.append(cuts)
    return min(ways, key=lambda cuts: max(piece_peaks(saved, outputs, cuts)))


def without_outputs(saved: list[int], outputs: list[int]) -> list[int]:
    return best_cuts(saved, [0] * len(saved))


def reversed_outputs(saved: list[int], outputs: list[int]) -> list[int]:
    """Off by one: the output of the block behind the cut is held."""
    return best_cuts(saved, [*outputs[1:], 0])


def last_piece_waits(saved: list[int], outputs: list[int]) -> list[int]:
    return best_cuts(saved, outputs, last_waits=True)


def cuts_at_the_begin(saved: list[int], outputs: list[int]) -> list[int]:
    return [0, *best_cuts(saved, outputs)]


def cuts_at_the_end(saved: list[int], outputs: list[int]) -> list[int]:
    return [*best_cuts(saved, outputs), len(saved)]


def from_the_end(saved: list[int], outputs: list[int]) -> list[int]:
    return best_cuts(saved, outputs)[::-1]


def cuts_twice(saved: list[int], outputs: list[int]) -> list[int]:
    return 2 * best_cuts(saved, outputs)


def last_blocks(saved: list[int], outputs: list[int]) -> list[int]:
    """Off by one: the numbers of the blocks behind which the cuts lie."""
    return [cut - 1 for cut in best_cuts(saved, outputs)]


def the_peak(saved: list[int], outputs: list[int]) -> int:
    return max(piece_peaks(saved, outputs, best_cuts(saved, outputs)))


def fractions(saved: list[int], outputs: list[int]) -> list[float]:
    return [float(cut) for cut in best_cuts(saved, outputs)]


FOUR = "saved=[4, 4, 4, 4], outputs=[1, 1, 1, 1]: "
SIX = f"saved={[6] * 9}, outputs={[2] * 9}: your cuts "
RIGHT = best_cuts
WRONG = (
    (equal_pieces, SIX + "[1, 3, 5, 7] need 20, in piece 5 of 5; 16 is possible"),
    (threshold, SIX + "[2, 4, 6, 8] need 18, in piece 4 of 5; 16 is possible"),
    (without_outputs, SIX + "[1, 2, 3, 4, 5, 6, 7, 8] need 22, in piece 9 of 9; 16 is possible"),
    (
        reversed_outputs,
        "saved=[9, 1, 1, 1, 9, 1], outputs=[1, 8, 8, 8, 1, 1]: your cuts [4, 5] need 17",
    ),
    (last_piece_waits, "saved=[1, 2, 3, 4, 5], outputs=[9, 9, 9, 9, 9]: your cuts [] need 15"),
    (all_ways, "right; but 21 blocks took"),
    (cuts_at_the_begin, FOUR + "[0, 1, 2, 3] has a cut outside of 1 to 3"),
    (cuts_at_the_end, FOUR + "[1, 2, 3, 4] has a cut outside of 1 to 3"),
    (from_the_end, FOUR + "[3, 2, 1] is not in ascending order, each cut once"),
    (cuts_twice, FOUR + "[1, 2, 3, 1, 2, 3] is not in ascending order"),
    (last_blocks, FOUR + "[0, 1, 2] has a cut outside of 1 to 3"),
    (the_peak, FOUR + "return a list of cuts; returned was 7"),
    (fractions, FOUR + "a cut is a whole number"),
    (nothing, FOUR + "return a list of cuts; returned was None"),
)
