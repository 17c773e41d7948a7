"""StreamBed's measured throughput, read from the data folder."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.errors import ConfigError

__all__ = ["ENOUGH_MIB", "StreambedCell", "StreambedRun", "cells", "read_runs", "read_table"]

ENOUGH_MIB = 2048
"""Memory per slot from which it has no effect on any query."""


@dataclass(frozen=True, slots=True)
class StreambedRun:
    """One measured configuration."""

    query: str
    memory_mib: int
    slots: int
    mst_per_s: float
    parallelism: tuple[int, ...]  # by op_index
    input_ratio: tuple[float, ...]
    true_rate: tuple[float, ...]  # records/s of one task, NaN where not defined


@dataclass(frozen=True, slots=True)
class StreambedCell:
    """Repeats of one (query, memory, slot budget)."""

    query: str
    memory_mib: int
    slots: int
    runs: tuple[StreambedRun, ...]

    @property
    def mst_per_s(self) -> float:
        """Median of the repeats."""
        return statistics.median(run.mst_per_s for run in self.runs)


def read_runs(data: Path) -> list[StreambedRun]:
    """Grid runs of the data folder, without aborted and single-task ones.

    Returns:
        The runs in the file's order; rates in records/s, memory in MB per slot.
    """
    operators: dict[str, list[dict[str, str]]] = {}
    for row in read_table(data / "streambed_operator_rates.csv"):
        operators.setdefault(row["run_id"], []).append(row)
    runs = []
    for row in read_table(data / "streambed_mst.csv"):
        if row["suspect"] == "1" or row["single_task"] == "1":
            continue
        ops = sorted(operators[row["run_id"]], key=lambda op: int(op["op_index"]))
        runs.append(
            StreambedRun(
                row["query"],
                int(row["slot_memory_mb"]),
                int(row["slot_budget"]),
                float(row["mst_events_per_s"]),
                tuple(int(op["parallelism"]) for op in ops),
                tuple(float(op["input_ratio_to_source"]) for op in ops),
                tuple(float(op["true_rate_per_task_events_per_s"] or "nan") for op in ops),
            )
        )
    return runs


def cells(
    runs: Sequence[StreambedRun], query: str, memories: Sequence[int] = ()
) -> list[StreambedCell]:
    """The runs of a query gathered by cell; without memories, those of 2 GB per slot and more.

    Returns:
        Cells sorted by memory, then slots; each holds at least one run.
    """
    keys = sorted({(r.memory_mib, r.slots) for r in runs if r.query == query})
    return [
        StreambedCell(
            query,
            memory,
            slots,
            tuple(r for r in runs if (r.query, r.memory_mib, r.slots) == (query, memory, slots)),
        )
        for memory, slots in keys
        if (memory in memories if memories else memory >= ENOUGH_MIB)
    ]


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of one of its tables, fields as text.

    Returns:
        One mapping per row, from column to text.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}",
            file=path,
            remedy="Name the folder of measured data: --data FOLDER, or DSP_GYM_DATA.",
        ) from error
