"""plan and largest_batch: the constraint is kept, and what cannot be is refused in plain words."""

import pytest
from small_chains import random_chain

import course.searches  # noqa: F401  # adds its methods to the planner's
from sublinear.plan import keep_all, simulate
from sublinear.planner import BUDGETED, METHODS, largest_batch, plan

CHAIN = random_chain(24, seed=7, menu=3)
PLAIN = simulate(CHAIN, keep_all(CHAIN))


def costs_of(found, chain=CHAIN):
    return simulate(chain, found)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_plan_under_its_own_name(method):
    found = plan(CHAIN, method=method)
    assert (found.method, len(found)) == (method, len(CHAIN))
    found.check(CHAIN)


@pytest.mark.parametrize("method", BUDGETED)
def test_a_budget_is_kept_and_used(method):
    lowest = costs_of(plan(CHAIN, method=method))
    costs = [
        costs_of(plan(CHAIN, budget=share * PLAIN.peak_bytes // 10, method=method))
        for share in (5, 7, 9)
    ]
    for share, cost in zip((5, 7, 9), costs, strict=True):
        assert lowest.peak_bytes <= cost.peak_bytes <= share * PLAIN.peak_bytes // 10
    assert (
        lowest.seconds >= costs[0].seconds >= costs[1].seconds >= costs[2].seconds >= PLAIN.seconds
    )
    assert costs[2].seconds < lowest.seconds


def test_with_enough_memory_nothing_is_checkpointed():
    assert plan(CHAIN, budget=PLAIN.peak_bytes).nodes == keep_all(CHAIN).nodes
    assert plan(CHAIN, budget=PLAIN.peak_bytes - 1).nodes != keep_all(CHAIN).nodes


@pytest.mark.parametrize("method", BUDGETED)
def test_an_overhead_is_kept_and_used(method):
    peaks = []
    for overhead in (0.0, 0.05, 0.15, 0.3):
        costs = costs_of(plan(CHAIN, max_overhead=overhead, method=method))
        assert costs.seconds <= PLAIN.seconds * (1 + overhead) * (1 + 1e-9)
        peaks.append(costs.peak_bytes)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < 0.6 * peaks[0]


@pytest.mark.parametrize("limit", [{"budget": PLAIN.peak_bytes // 2}, {"max_overhead": 0.1}])
def test_more_freedom_is_never_worse(limit):
    flat, nested, menu = (costs_of(plan(CHAIN, method=method, **limit)) for method in BUDGETED)
    # 1 %: tables of different plans round sizes differently
    if "budget" in limit:
        assert nested.seconds <= flat.seconds and menu.seconds <= 1.01 * nested.seconds
    else:
        assert nested.peak_bytes <= flat.peak_bytes and menu.peak_bytes <= 1.01 * nested.peak_bytes


def test_another_batch_size_is_planned_for():
    double = CHAIN.at_batch(64)
    found = plan(CHAIN, budget=PLAIN.peak_bytes, batch_size=64)
    assert costs_of(found, double).peak_bytes <= PLAIN.peak_bytes
    assert found == plan(double, budget=PLAIN.peak_bytes)


def test_a_budget_below_the_floor_names_the_floor_and_its_block():
    floor = costs_of(plan(CHAIN, method="optimal"))
    name = CHAIN.blocks[floor.bottleneck.block].name
    size = rf"{floor.peak_bytes} bytes \(.* MiB\)"
    message = rf"floor of method 'optimal' is {size}, set by the .* of block .* \('{name}'\)"
    with pytest.raises(ValueError, match=message):
        plan(CHAIN, budget=floor.peak_bytes - 1, method="optimal")
    assert (
        costs_of(plan(CHAIN, budget=floor.peak_bytes, method="optimal")).peak_bytes
        == floor.peak_bytes
    )


@pytest.mark.parametrize("method", [name for name in METHODS if name not in BUDGETED])
def test_a_method_that_minds_no_budget_is_refused_with_its_peak(method):
    peak = costs_of(plan(CHAIN, method=method)).peak_bytes
    assert plan(CHAIN, budget=peak, method=method) == METHODS[method](CHAIN)
    with pytest.raises(
        ValueError,
        match=rf"'{method}' minds no budget, and its peak is {peak} bytes.*floor of method 'menu'",
    ):
        plan(CHAIN, budget=peak - 1, method=method)


def test_a_method_that_minds_no_overhead_is_refused_with_its_own():
    extra = costs_of(plan(CHAIN, method="every")).seconds / PLAIN.seconds - 1
    assert plan(CHAIN, max_overhead=extra + 1e-6, method="every").method == "every"
    with pytest.raises(
        ValueError, match=f"'every' minds no such limit, and its step takes {extra:.3f} more"
    ):
        plan(CHAIN, max_overhead=0.1, method="every")


@pytest.mark.parametrize("method", ["none", "sqrt", "single-level", "menu"])
def test_the_largest_batch_is_the_largest(method):
    budget = 2 * PLAIN.peak_bytes
    best = largest_batch(CHAIN, budget, method=method)
    assert (
        costs_of(
            plan(CHAIN, batch_size=best, budget=budget, method=method), CHAIN.at_batch(best)
        ).peak_bytes
        <= budget
    )
    with pytest.raises(ValueError, match="budget="):
        plan(CHAIN, batch_size=best + 1, budget=budget, method=method)


def test_the_largest_batch_within_an_overhead_lies_between():
    plain, free = (
        largest_batch(CHAIN, PLAIN.peak_bytes, method=method) for method in ("none", "menu")
    )
    within = largest_batch(CHAIN, PLAIN.peak_bytes, max_overhead=0.1)
    assert plain == 32
    assert plain < within < free
    scaled = CHAIN.at_batch(within)
    costs = costs_of(plan(CHAIN, budget=PLAIN.peak_bytes, batch_size=within), scaled)
    assert costs.seconds <= 1.1 * costs_of(keep_all(CHAIN), scaled).seconds * (1 + 1e-9)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: plan(CHAIN, budget=1, max_overhead=0.1), ValueError, "give one of them"),
        (
            lambda: plan(CHAIN, method="best"),
            ValueError,
            r"method='best': choose one of 'none', 'every', .*'menu'",
        ),
        (lambda: plan(CHAIN, budget="8 GiB"), TypeError, r"budget='8 GiB': use a number"),
        (
            lambda: plan(CHAIN, max_overhead=-0.1),
            ValueError,
            r"max_overhead=-0.1: use a finite number, 0 or more",
        ),
        (lambda: plan(CHAIN, budget=float("nan")), ValueError, r"budget=nan"),
        (lambda: plan(CHAIN, batch_size=0), ValueError, r"batch_size=0"),
        (lambda: plan("model"), TypeError, r"chain='model': plan takes a Chain"),
        (
            lambda: largest_batch(CHAIN, 1000),
            ValueError,
            r"budget=1000 bytes .* is too small for 1 samples: the floor",
        ),
        (lambda: largest_batch(CHAIN, 1000, method="none"), ValueError, r"'none' minds no budget"),
        (
            lambda: largest_batch(CHAIN, 10**12, max_overhead=0.01, method="every"),
            ValueError,
            r"not even one sample is as fast",
        ),
    ],
)
def test_bad_input_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
