"""BIDS2's integer program against every configuration there is."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from baselines.streambed.bids2 import Operator, bids2, fillings, slot_range

GRAPHS = 1000


def graph(rng: np.random.Generator) -> tuple[list[Operator], int]:
    """Two to five vertices, some bounded or idle, and slots that they can fill."""
    operators = []
    for i in range(int(rng.integers(2, 6))):
        least = int(rng.integers(1, 3)) if rng.random() < 0.2 else 1
        most = least + int(rng.integers(0, 4)) if rng.random() < 0.3 else 1000
        ratio = 0.0 if rng.random() < 0.1 else float(10 ** rng.uniform(-3, 1))
        operators.append(Operator(f"v{i}", ratio, float(10 ** rng.uniform(1, 8)), least, most))
    low, high = slot_range(operators)
    return operators, int(rng.integers(low, min(high, low + 7) + 1))


def best_of_all(operators: list[Operator], slots: int) -> float:
    """The largest rate over every way to fill the slots."""
    spare = slots - sum(o.least for o in operators)
    best = 0.0
    for tasks in itertools.product(*(range(o.least, o.least + spare + 1) for o in operators)):
        if sum(tasks) != slots or any(t > o.most for o, t in zip(operators, tasks, strict=True)):
            continue
        carried = [
            t * o.rate_per_task_per_s / o.ratio
            for o, t in zip(operators, tasks, strict=True)
            if o.ratio > 0
        ]
        best = max(best, min(carried, default=0.0))
    return best


@pytest.mark.slow
def test_bids2_equals_brute_force_on_1000_random_small_graphs():
    rng = np.random.default_rng(2024)
    for _ in range(GRAPHS):
        operators, slots = graph(rng)
        found = bids2(operators, slots)
        assert found.rate_per_s == pytest.approx(best_of_all(operators, slots), rel=1e-9)
        assert sum(found.parallelism.values()) == slots
        for operator in operators:
            assert operator.least <= found.parallelism[operator.name] <= operator.most


def test_the_series_of_fillings_has_the_program_s_objective_at_every_number_of_slots():
    rng = np.random.default_rng(7)
    for _ in range(100):
        operators, slots = graph(rng)
        series = {sum(a.parallelism.values()): a for a in fillings(operators, slots)}
        assert series[slots].rate_per_s == pytest.approx(bids2(operators, slots).rate_per_s)


def test_more_slots_never_carry_less():
    rng = np.random.default_rng(8)
    for _ in range(100):
        operators, _ = graph(rng)
        low, high = slot_range(operators)
        rates = [a.rate_per_s for a in fillings(operators, min(high, low + 50))]
        assert rates == sorted(rates)
