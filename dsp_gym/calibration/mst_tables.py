"""Measured throughput (MST) of one query, read from two CSV tables joined on `run_id`.

One table says what each run sustained and on how much memory; the other describes its operators:
number, kind, inputs, ship strategies, parallelism, input rate over source rate and DS2's true
processing rate. The graph is read from the second table, so any query will do. A query that has
both in one table (StreamBed's runs with one task per operator) gives the same file twice.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.errors import ConfigError, did_you_mean

MST_COLUMNS = ("run_id", "query", "slot_memory_mb", "mst_events_per_s")
OPERATOR_COLUMNS = (
    "run_id",
    "query",
    "op_index",
    "operator",
    "inputs",
    "parallelism",
    "input_ratio_to_source",
    "true_rate_per_task_events_per_s",
)


@dataclass(frozen=True, slots=True)
class MeasuredOperator:
    """One vertex of the measured job."""

    name: str  # unique: the operator, with its number where two are alike
    operator: str  # as in the table
    inputs: tuple[int, ...]  # positions of the upstream operators
    ships: tuple[str, ...]  # one per input

    @property
    def is_source(self) -> bool:
        """Reads from no other operator."""
        return not self.inputs


@dataclass(frozen=True, slots=True)
class MstRun:
    """One measured configuration; sequences are by operator."""

    run_id: str
    memory_mib: float  # TaskManager process memory / slots
    slots: int  # asked for, sources left out
    mst_per_s: float
    parallelism: tuple[int, ...]
    input_ratio: tuple[float, ...]  # input rate / source rate
    true_rate_per_s: tuple[float, ...]  # of one task, NaN where not defined


@dataclass(frozen=True, slots=True)
class MstCell:
    """Repeats of one configuration."""

    runs: tuple[MstRun, ...]

    @property
    def memory_mib(self) -> float:
        """Memory per slot."""
        return self.runs[0].memory_mib

    @property
    def parallelism(self) -> tuple[int, ...]:
        """Tasks by operator."""
        return self.runs[0].parallelism

    @property
    def mst_per_s(self) -> float:
        """Median of the repeats."""
        return statistics.median(run.mst_per_s for run in self.runs)


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything the two tables say about one query, aborted runs left out."""

    query: str
    operators: tuple[MeasuredOperator, ...]  # inputs before outputs
    runs: tuple[MstRun, ...]
    suspect_runs: int  # left out

    @property
    def working(self) -> tuple[int, ...]:
        """Positions of the operators that stand in slots that count: all but sources."""
        return tuple(i for i, operator in enumerate(self.operators) if not operator.is_source)


def gather(runs: Sequence[MstRun]) -> list[MstCell]:
    """Gather repeats of the same memory and parallelism.

    Returns:
        Cells, ordered by memory and parallelism.
    """
    found: dict[tuple[float, tuple[int, ...]], list[MstRun]] = {}
    for run in runs:
        found.setdefault((run.memory_mib, run.parallelism), []).append(run)
    return [MstCell(tuple(several)) for _, several in sorted(found.items())]


def read_measurements(mst: Path, operator_rates: Path, query: str) -> Measurements:
    """One query of the two tables.

    Args:
        mst: CSV with `MST_COLUMNS`; `slot_budget` and `suspect` are used where they are there.
        operator_rates: CSV with `OPERATOR_COLUMNS`; `ship` is used where it is there.
        query: value of the column `query`.

    Returns:
        The query's operators and runs.

    Raises:
        ConfigError: A column or the query is missing, a number is none, or the runs of the query
            do not share one graph.
    """
    rows = _of_query(read_rows(mst, MST_COLUMNS), query, mst)
    kept = {row["run_id"]: row for row in rows if row.get("suspect", "0").strip() != "1"}
    suspects = len({row["run_id"] for row in rows}) - len(kept)
    if not kept:
        raise ConfigError(
            f"every run of query '{query}' is marked suspect",
            file=mst,
            remedy="Give at least one run with suspect = 0.",
        )
    described = _of_query(read_rows(operator_rates, OPERATOR_COLUMNS), query, operator_rates)
    by_run: dict[str, list[dict[str, str]]] = {}
    for row in described:
        by_run.setdefault(row["run_id"], []).append(row)
    absent = [run_id for run_id in kept if run_id not in by_run]
    if absent:
        raise ConfigError(
            f"has no operators of run {absent[0]}, which {mst} measures",
            file=operator_rates,
            key="run_id",
            remedy="Give the table of operator rates that belongs to these runs.",
        )
    graph: tuple[MeasuredOperator, ...] | None = None
    runs = []
    for run_id, row in kept.items():
        operators = sorted(by_run[run_id], key=lambda r: _number(r, "op_index", operator_rates))
        found = _graph(operators, operator_rates)
        if graph is not None and found != graph:
            raise ConfigError(
                f"run {run_id} of query '{query}' has another graph than the runs before it",
                file=operator_rates,
                remedy="Give runs of one job, or name the others differently.",
            )
        graph = found
        runs.append(_run(row, operators, graph, mst, operator_rates))
    assert graph is not None  # there is at least one run
    return Measurements(query, graph, tuple(runs), suspects)


def _run(
    row: Mapping[str, str],
    operators: Sequence[Mapping[str, str]],
    graph: Sequence[MeasuredOperator],
    mst: Path,
    operator_rates: Path,
) -> MstRun:
    parallelism = tuple(int(_positive(op, "parallelism", operator_rates)) for op in operators)
    used = sum(p for p, o in zip(parallelism, graph, strict=True) if not o.is_source)
    return MstRun(
        row["run_id"],
        _positive(row, "slot_memory_mb", mst),
        int(_positive(row, "slot_budget", mst)) if row.get("slot_budget") else used,
        _positive(row, "mst_events_per_s", mst),
        parallelism,
        tuple(_number(op, "input_ratio_to_source", operator_rates) for op in operators),
        tuple(_rate(op, operator_rates) for op in operators),
    )


def _graph(rows: Sequence[Mapping[str, str]], file: Path) -> tuple[MeasuredOperator, ...]:
    position = {row["op_index"].strip(): i for i, row in enumerate(rows)}
    if len(position) < len(rows):
        raise ConfigError(
            f"run {rows[0]['run_id']} has two operators of one number", file=file, key="op_index"
        )
    kinds = [row["operator"].strip() for row in rows]
    found = []
    for i, row in enumerate(rows):
        upstream = row["inputs"].split()
        for name in upstream:
            if position.get(name, i) >= i:
                raise ConfigError(
                    f"operator {row['op_index']} reads from operator {name}, which does not "
                    "stand before it",
                    file=file,
                    key="inputs",
                    remedy="Number operators in topological order.",
                )
        name = kinds[i] if kinds.count(kinds[i]) == 1 else f"{kinds[i]}_{row['op_index'].strip()}"
        inputs = tuple(position[u] for u in upstream)
        found.append(MeasuredOperator(name, kinds[i], inputs, _ships(row, kinds[i], len(inputs))))
    return tuple(found)


def _ships(row: Mapping[str, str], operator: str, inputs: int) -> tuple[str, ...]:
    """As given, one for all inputs or one each; without the column, keyed operators hash."""
    given = tuple(ship.upper() for ship in (row.get("ship") or "").split())
    if not given:
        keyed = any(word in operator for word in ("agg", "join", "window", "rank"))
        given = ("HASH" if keyed else "REBALANCE",)
    return given if len(given) == inputs else given[:1] * inputs


def _of_query(rows: list[dict[str, str]], query: str, file: Path) -> list[dict[str, str]]:
    known = sorted({row["query"] for row in rows})
    if query not in known:
        raise ConfigError(
            f"has no query '{query}'",
            file=file,
            key="query",
            remedy=did_you_mean(query, known) or f"It has: {', '.join(known)}.",
        )
    return [row for row in rows if row["query"] == query]


def _rate(row: Mapping[str, str], file: Path) -> float:
    """NaN where it is not defined: empty, or 0 for a task that was never busy."""
    if not row["true_rate_per_task_events_per_s"].strip():
        return math.nan
    rate = _number(row, "true_rate_per_task_events_per_s", file)
    return rate if rate > 0 else math.nan


def _positive(row: Mapping[str, str], column: str, file: Path) -> float:
    value = _number(row, column, file)
    if value <= 0:
        raise ConfigError(
            f"run {row['run_id']}: must be above 0", file=file, key=column, value=row[column]
        )
    return value


def _number(row: Mapping[str, str], column: str, file: Path) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(
            f"run {row['run_id']}: is not a number", file=file, key=column, value=row[column]
        )
    return value
