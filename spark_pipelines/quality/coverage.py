"""Which hours a dataset covers, run by run, where it has gaps, and which rows of splits are near.

Rows are read one file at a time; of a table only its times are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.datasets.reader import Dataset

__all__ = ["coverage_of", "splits_apart"]

TIMED = ("windows", "transitions", "snapshots")
"""Tables with times, the one with most rows first."""

GAP_STEPS = 1.5
"""Steps without a row that are a gap."""

LISTED = 20

Document = dict[str, Any]


def coverage_of(dataset: Dataset) -> Document | None:
    """Hours by job and day, and the gaps within runs.

    Returns:
        JSON values by name: table, step_s, days, gaps (the longest first), gap_count; None where no
        table has times.
    """
    tables = {name for p in dataset.manifest.partitions for name in p.tables}
    table = next((name for name in TIMED if name in tables), None)
    if table is None:
        return None
    runs: dict[tuple[str, str], list[tuple[str, Floats, Ints]]] = {}
    for job, day, run, t_s, split in _runs(dataset, table):
        t_s, rows = np.unique(t_s, return_index=True)
        runs.setdefault((job, run), []).append((day, t_s, split[rows]))
    steps = [np.diff(t_s) for parts in runs.values() for _, t_s, _ in parts]
    step_s = float(np.median(np.concatenate(steps))) if any(map(len, steps)) else 0.0
    days: dict[tuple[str, str], Document] = {}
    gaps: list[Document] = []
    for (job, run), parts in runs.items():
        for day, t_s, _ in parts:
            found = days.setdefault((job, day), _day(job, day))
            found["runs"] += 1
            found["hours"] += len(t_s) * step_s / 3600
        for gap in _gaps(parts, step_s):
            day = next(day for day, t_s, _ in parts if gap[0] in t_s)
            found = days[job, day]
            found["gaps"] += 1
            found["longest_gap_s"] = max(found["longest_gap_s"], gap[1] - gap[0] - step_s)
            gaps.append({"job": job, "run": run, "from_s": gap[0], "to_s": gap[1]})
    gaps.sort(key=lambda gap: gap["from_s"] - gap["to_s"])
    return {
        "table": table,
        "step_s": step_s,
        "runs": len(runs),
        "days": [days[key] for key in sorted(days)],
        "gaps": gaps[:LISTED],
        "gap_count": len(gaps),
    }


def splits_apart(dataset: Dataset, table: str) -> Document:
    """How near rows of two splits come to each other within one run.

    Returns:
        JSON values by name: runs that stand in several splits, and the least seconds between two of
        their rows in different splits; None where no run does.
    """
    runs: dict[tuple[str, str], list[tuple[Floats, Ints]]] = {}
    for job, _, run, t_s, split in _runs(dataset, table):
        runs.setdefault((job, run), []).append((t_s, split))
    several, least = 0, np.inf
    for parts in runs.values():
        t_s, split = (np.concatenate(column) for column in zip(*parts, strict=True))
        known = split >= 0
        order = np.argsort(t_s[known], kind="stable")
        t_s, split = t_s[known][order], split[known][order]
        changes = np.flatnonzero(np.diff(split))
        if len(changes):
            several += 1
            least = min(least, float((t_s[changes + 1] - t_s[changes]).min()))
    return {"runs_in_several": several, "apart_s": float(least) if several else None}


def _day(job: str, day: str) -> Document:
    return {"job": job, "day": day, "runs": 0, "hours": 0.0, "gaps": 0, "longest_gap_s": 0.0}


def _gaps(parts: list[tuple[str, Floats, Ints]], step_s: float) -> list[tuple[float, float]]:
    """Begin and end of every stretch of a run without a row; a boundary of splits is none."""
    t_s = np.concatenate([part[1] for part in parts])
    order = np.argsort(t_s, kind="stable")
    t_s, split = t_s[order], np.concatenate([part[2] for part in parts])[order]
    after = np.flatnonzero((np.diff(t_s) > GAP_STEPS * step_s) & (np.diff(split) == 0))
    return [(float(t_s[k]), float(t_s[k + 1])) for k in after]


def _runs(dataset: Dataset, table: str) -> Iterator[tuple[str, str, str, Floats, Ints]]:
    """Job, day, run, times and splits of the rows of a run in a file; a split of -1 is none."""
    splits = ("train", "validation", "test")
    for batch in dataset.table(
        table, columns=("job", "day", "source", "run", "t_s", "split"), lenient=True
    ):
        if not len(batch):
            continue
        run = batch.column("run").cast("string").dictionary_encode()
        codes = np.asarray(run.indices)
        names = batch.column("split").cast("string").to_pylist()
        split = np.array([splits.index(n) if n in splits else -1 for n in names], np.int64)
        t_s = np.asarray(batch.column("t_s"), np.float64)
        order = np.lexsort((t_s, codes))
        bounds = np.flatnonzero(np.diff(codes[order])) + 1
        job, day = batch.column("job")[0].as_py(), batch.column("day")[0].as_py()
        for part in np.split(order, bounds):
            yield job, day, run.dictionary[int(codes[part[0]])].as_py(), t_s[part], split[part]
