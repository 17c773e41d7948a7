"""BIDS2, bounded-inverse DS2: the configuration that carries the most on a number of slots.

StreamBed, section 5, equations 1 to 4, as the integer program the paper solves:

    max s    with    s * ratio_i <= p_i * rate_i    and    sum p_i = slots,    p_i whole

Slots are those of tasks other than sources, which are never the limit; sinks are counted.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.errors import ConfigError, MissingExtraError


@dataclass(frozen=True, slots=True)
class Operator:
    """One vertex other than a source, as the program sees it."""

    name: str
    ratio: float  # r_i: its input rate over the rate of all sources
    rate_per_task_per_s: float  # o_i: true processing rate of one task
    least: int = 1  # tasks
    most: int = 1_000_000  # tasks: key groups, quota; `least` where it is fixed

    def carries_per_s(self, tasks: int) -> float:
        """Compute the source rate that a number of tasks carries (equations 2 and 3).

        Returns:
            Records/s over all sources; infinite where no records arrive.
        """
        return math.inf if self.ratio <= 0 else tasks * self.rate_per_task_per_s / self.ratio


@dataclass(frozen=True, slots=True)
class Allocation:
    """Tasks by vertex, and the source rate that they carry by the linear model."""

    parallelism: dict[str, int]
    rate_per_s: float  # the program's objective s


def bids2(operators: Sequence[Operator], slots: int) -> Allocation:
    """Find the best configuration of an exact number of slots.

    Many configurations share the best objective: only the vertices that limit it matter. Remaining
    slots go, one by one, to the vertex that would limit next.

    Returns:
        Tasks by vertex, and the source rate they carry.

    Raises:
        ConfigError: The graph cannot be placed on so many slots, or a rate is not known.
        MissingExtraError: SciPy is not installed.
    """
    low, high = slot_range(operators)
    if slots < low:
        needs = ", ".join(f"{o.name} {o.least}" for o in operators)
        raise ConfigError(
            f"the graph needs at least {low} slots ({needs}; sources left out), {low - slots} more "
            "than there are",
            key="slots",
            value=slots,
            remedy=f"Give {low} slots or more.",
        )
    if slots > high:
        takes = ", ".join(f"{o.name} {o.most}" for o in operators)
        raise ConfigError(
            f"the graph can take at most {high} slots ({takes}), {slots - high} fewer than there "
            "are to fill: the integer program has no solution",
            key="slots",
            value=slots,
            remedy="Give fewer slots, or raise max_parallelism_per_vertex and the vertices' "
            "max_parallelism in the job file.",
        )
    _check_rates(operators)
    rate = _solve(operators, slots)
    fewest = [_fewest(operator, rate) for operator in operators]
    parallelism = list(_filled(operators, fewest, slots))[-1]
    return _allocation(operators, parallelism)


def slot_range(operators: Sequence[Operator]) -> tuple[int, int]:
    """Count the slots that the graph can fill.

    Returns:
        Fewest and most.
    """
    return sum(o.least for o in operators), sum(o.most for o in operators)


def fillings(operators: Sequence[Operator], high: int) -> Iterator[Allocation]:
    """Find the best configuration of every number of slots from the fewest to `high`.

    For a linear model each further slot is best given to the vertex that limits, so the whole
    series costs one pass. `bids2` solves the program; this is for tables of many of its solutions.

    Returns:
        An iterator over allocations, in increasing numbers of slots.
    """
    _check_rates(operators)
    for tasks in _filled(operators, [o.least for o in operators], high):
        yield _allocation(operators, tasks)


def _solve(operators: Sequence[Operator], slots: int) -> float:
    """Compute the program's objective.

    Rates are divided by the bound of its relaxation (every vertex busy all the time), so that the
    solver's tolerances mean the same for 1 and for 1e9 records/s.
    """
    try:
        from scipy.optimize import Bounds, LinearConstraint, milp
    except ModuleNotFoundError:
        raise MissingExtraError("plan", "BIDS2's integer program") from None
    loaded = [o for o in operators if o.ratio > 0]
    if not loaded:
        return 0.0
    work_s = [o.ratio / o.rate_per_task_per_s for o in loaded]  # of one source record
    scale = slots / sum(work_s)
    n = len(operators)
    demand = np.zeros((len(loaded), n + 1))  # p_1 .. p_n, s
    for row, (operator, seconds) in enumerate(zip(loaded, work_s, strict=True)):
        demand[row, operators.index(operator)] = -1.0
        demand[row, n] = seconds * scale
    # milp minimizes, so the objective is -s; the last variable is s, the others are tasks.
    result = milp(
        c=np.append(np.zeros(n), -1.0),
        constraints=[
            LinearConstraint(demand, -np.inf, 0.0),
            LinearConstraint(np.append(np.ones(n), 0.0), slots, slots),
        ],
        bounds=Bounds(
            np.append([o.least for o in operators], 0.0),
            np.append([min(o.most, slots) for o in operators], 1.0),
        ),
        integrality=np.append(np.ones(n), 0.0),
        options={"mip_rel_gap": 0.0},
    )
    if result.x is None:
        raise ConfigError(
            f"BIDS2's integer program has no solution: {result.message}",
            key="slots",
            value=slots,
            remedy="Check the measured rates and the vertices' bounds.",
        )
    # The solver's s has a tolerance: the rate is computed from the whole tasks.
    tasks = np.rint(result.x[:n]).astype(int).tolist()
    return _carried(operators, tasks)


def _filled(operators: Sequence[Operator], start: Sequence[int], slots: int) -> Iterator[list[int]]:
    """Iterate over tasks for each number of slots; each further slot goes where it limits."""
    tasks = list(start)
    queue = [(o.carries_per_s(t), i) for i, (o, t) in enumerate(zip(operators, tasks, strict=True))]
    heapq.heapify(queue)
    yield list(tasks)
    for _ in range(slots - sum(tasks)):
        while queue and tasks[queue[0][1]] >= operators[queue[0][1]].most:
            heapq.heappop(queue)  # it can take no more
        if not queue:
            return
        _, i = heapq.heappop(queue)
        tasks[i] += 1
        heapq.heappush(queue, (operators[i].carries_per_s(tasks[i]), i))
        yield list(tasks)


def _fewest(operator: Operator, rate_per_s: float) -> int:
    """Return the fewest tasks that carry a rate; a rate that one task carries exactly takes one."""
    if operator.ratio <= 0:
        return operator.least
    tasks = rate_per_s * operator.ratio / operator.rate_per_task_per_s
    return max(operator.least, math.ceil(tasks * (1 - 1e-9)))


def _allocation(operators: Sequence[Operator], tasks: Sequence[int]) -> Allocation:
    named = {o.name: t for o, t in zip(operators, tasks, strict=True)}
    return Allocation(named, _carried(operators, tasks))


def _carried(operators: Sequence[Operator], tasks: Sequence[int]) -> float:
    rates = [o.carries_per_s(t) for o, t in zip(operators, tasks, strict=True)]
    return min((rate for rate in rates if math.isfinite(rate)), default=0.0)


def _check_rates(operators: Sequence[Operator]) -> None:
    for o in operators:
        known = math.isfinite(o.ratio) and o.ratio >= 0
        if known and o.ratio > 0:
            known = math.isfinite(o.rate_per_task_per_s) and o.rate_per_task_per_s > 0
        if not known:
            raise ConfigError(
                f"vertex '{o.name}' has no measured rate (input ratio {o.ratio:g}, "
                f"{o.rate_per_task_per_s:g} records/s per task): the integer program has no "
                "solution",
                remedy="Measure the single-task configuration for longer, at a higher rate.",
            )
