"""How features and actions of a dataset are distributed, and which rows its splits share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.datasets.encoding import Encoding
from dsp_gym.datasets.reader import Dataset

SAMPLED = 100_000
"""Rows of which features are counted, evenly from all."""

BINS = 12

Document = dict[str, Any]


def features_of(dataset: Dataset) -> list[Document]:
    """The distribution of every feature of the observations.

    Returns:
        By feature in the observation's order: name, 5 % and 95 % quantile, median, and the counts
        of twelve bins from the least value to the largest; a vertex's features are those of all
        vertices together.
    """
    every = max(1, dataset.manifest.rows("transitions") // SAMPLED)
    parts = [found[::every] for found, _, _ in _steps(dataset)]
    if not parts:
        return []
    values = _by_feature(np.concatenate(parts), dataset.encoding)
    return [{"name": name, **_spread(column)} for name, column in values]


def actions_of(dataset: Dataset) -> list[Document]:
    """How often each choice was taken.

    Returns:
        By choice: what is decided, name and count; a vertex's choices are those of all vertices.
    """
    encoding = dataset.encoding
    counts: dict[tuple[str, str], int] = {}
    kinds = _choices(encoding)
    for kind, names in kinds:
        counts |= {(kind, name): 0 for name in names}
    for _, action, _ in _steps(dataset):
        for place, (kind, names) in enumerate(kinds):
            taken = action[:, place :: len(kinds)]
            for choice, name in enumerate(names):
                counts[kind, name] += int((taken == choice).sum())
    return [{"kind": kind, "name": name, "count": n} for (kind, name), n in counts.items()]


def shared_rows(dataset: Dataset) -> Document:
    """Rows of validation and test whose observation and action stand in training, too.

    Returns:
        JSON values by name: the rows looked at, and those shared.
    """
    trained, others = [], []
    for observation, action, split in _steps(dataset):
        marks = _marks(observation, action)
        trained.append(marks[split == "train"])
        others.append(marks[np.isin(split, ("validation", "test"))])
    if not others:
        return {"rows": 0, "shared": 0}
    looked = np.concatenate(others)
    return {"rows": len(looked), "shared": int(np.isin(looked, np.concatenate(trained)).sum())}


def _marks(observation: Floats, action: Ints) -> Ints:
    """A number per row that two different rows have in common by chance once in 10^19, (N,)."""
    bits = np.concatenate(
        [np.ascontiguousarray(observation, np.float32).view(np.uint32), action.astype(np.uint32)],
        axis=1,
    )
    weights = np.random.default_rng(0).integers(1, 2**63, bits.shape[1], np.uint64) | np.uint64(1)
    return np.asarray((bits.astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64))


def _steps(dataset: Dataset) -> Iterator[tuple[Floats, Ints, Any]]:
    """Observations (N, size), actions (N, heads) and splits (N,), file by file."""
    for batch in dataset.table("transitions", columns=("observation", "action", "split")):
        if len(batch):
            observation, action = (
                np.asarray(batch.column(name).flatten()).reshape(len(batch), -1)
                for name in ("observation", "action")
            )
            yield observation, action, np.array(batch.column("split").to_pylist(), dtype=object)


def _by_feature(rows: Floats, encoding: Encoding) -> Iterator[tuple[str, Floats]]:
    """Names and values; padding is left out."""
    names, size = encoding.vertex_features, encoding.vertices
    wide = size * len(names)
    if size:
        mask_at = wide + len(encoding.job_features)
        there = rows[:, mask_at : mask_at + size] > 0
        of_vertices = rows[:, :wide].reshape(len(rows), size, len(names))
        for place, name in enumerate(names):
            yield name, of_vertices[:, :, place][there]
    for place, name in enumerate(encoding.job_features):
        yield f"job: {name}" if size else name, rows[:, wide + place]


def _spread(values: Floats) -> Document:
    known = values[np.isfinite(values)].astype(np.float64)
    if not len(known):
        return {"low": None, "middle": None, "high": None, "bins": []}
    low, middle, high = np.quantile(known, (0.05, 0.5, 0.95)).tolist()
    least, most = float(known.min()), float(known.max())
    bins = np.histogram(known, BINS, (least, most if most > least else least + 1.0))[0]
    return {"low": low, "middle": middle, "high": high, "bins": bins.tolist()}


def _choices(encoding: Encoding) -> list[tuple[str, tuple[str, ...]]]:
    if encoding.action == "capacity":
        return [("capacity", ("hold", *(f"x {kappa:g}" for kappa in encoding.kappas)))]
    return [("tasks", encoding.moves), ("memory", encoding.memory_moves)]


TIMED = ("windows", "transitions", "snapshots")
"""Tables with times, the one with most rows first."""

GAP_STEPS = 1.5
"""Steps without a row that are a gap."""

LISTED = 20


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
