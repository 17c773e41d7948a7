"""How features and actions of a dataset are distributed, and which rows its splits share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.datasets.encoding import Encoding
from dsp_gym.datasets.reader import Dataset

__all__ = ["actions_of", "features_of", "shared_rows"]

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
