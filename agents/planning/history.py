"""The past of a job, from a dataset: minutes of its load, and the speed of its vertices."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.planning.load import level_of
from agents.planning.recall import OUTGROWN
from agents.planning.value import MINUTE
from dsp_gym.arrays import Floats
from dsp_gym.datasets.reader import Dataset
from dsp_gym.datasets.transitions import snapshots_of
from dsp_gym.errors import DatasetError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.sizing.arrivals import Arrivals
from dsp_gym.sizing.prior import Prior
from dsp_gym.sizing.service import ServiceModel, SizingConfig

_COLUMNS = ("source", "job", "run", "step", "snapshot")

_LONGEST_GAP = 10
"""Minutes without a measurement after which a new load starts."""


class Past(NamedTuple):
    """Facts from a job's past."""

    loads: tuple[Floats, ...]  # each (n,) means of a minute, as multiples of a reference
    service: dict[str, Floats]  # as `ServiceModel.learned` returns it
    vertices: tuple[str, ...]  # in topological order


def pasts(
    folder: str | Path, specs: list[JobSpec], sizing: SizingConfig, *, filed: bool
) -> dict[str, Past]:
    """Read the past of an experiment's jobs, as far as a dataset contains it.

    Args:
        folder: The dataset.
        specs: The job files.
        sizing: Settings of learning times per record.
        filed: Whether times per record start from the job files.

    Returns:
        The past of each job in the dataset.

    Raises:
        DatasetError: It has none of the jobs, or no snapshots.
        PolicyError: A job has another graph now.
    """
    dataset = Dataset.open(folder)
    found = {}
    for spec in specs:
        if spec.job not in dataset.specs:
            continue
        then = Topology.of([dataset.specs[spec.job]])
        of_file = Prior.of_files(then, [spec])  # refuses another graph
        prior = of_file if filed else Prior.none(then)
        runs = list(_runs(dataset, spec.job, then))
        if runs:
            found[spec.job] = watched(runs, then, prior, sizing)
    if not found:
        raise DatasetError(
            f"it has no snapshots of {', '.join(spec.job for spec in specs)}",
            file=folder,
            key="agent.history.dataset",
            remedy=f"It has {', '.join(dataset.specs) or 'no job'}; build it with `snapshots` "
            "among its tables.",
        )
    return found


def watched(
    runs: list[MetricsSnapshot], jobs: Topology, prior: Prior, sizing: SizingConfig
) -> Past:
    """Replay a job's past through the estimators of the policy.

    Args:
        runs: Snapshots of its runs, each in order of time, a row per snapshot.
        jobs: Topology of this job alone.
        prior: Prior that its times per record are ratios to.
        sizing: Settings of learning them.

    Returns:
        Its load per minute, and the times per record of its vertices.
    """
    model, reference = ServiceModel(sizing), float(jobs.tables.rate_per_s[0])
    model.reset(jobs, prior)
    loads: list[Floats] = []
    for run in runs:
        arrivals, rates = Arrivals(), np.full(len(run), np.nan)
        arrivals.reset(jobs)
        for i in range(len(run)):
            now = run.take(np.array([i]))
            rates[i] = arrivals.observe(now)[0]
            model.observe(now)
        loads += _by_minute(run.t_s, rates)
    # As in the policy: a level beyond OUTGROWN doubles the reference.
    highest = max((level_of(load[:i]) for load in loads for i in range(1, len(load))), default=0.0)
    while highest > OUTGROWN * reference:
        reference *= 2.0
    return Past(tuple(load / reference for load in loads), model.learned(0), jobs.names(0))


def _runs(dataset: Dataset, job: str, jobs: Topology) -> Iterator[MetricsSnapshot]:
    """Yield the snapshots of a job, run by run."""
    import pyarrow

    batches = list(dataset.table("snapshots", columns=_COLUMNS, lenient=True))
    if not batches:
        return
    table = pyarrow.Table.from_batches(batches)
    table = table.filter(pyarrow.compute.equal(table["job"], job))
    table = table.filter(pyarrow.compute.is_valid(table["snapshot"]))
    table = table.sort_by([(key, "ascending") for key in ("source", "run", "step")])
    names = list(zip(table["source"].to_pylist(), table["run"].to_pylist(), strict=True))
    # A new run starts wherever (source, run) changes; the rows are sorted by both.
    starts = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    for first, last in zip(starts, [*starts[1:], len(names)], strict=True):
        yield snapshots_of(table.slice(first, last - first), jobs)


def _by_minute(t_s: Floats, rates: Floats) -> list[Floats]:
    """Cut the arrivals between snapshots into minutes.

    Args:
        t_s: (n,) times of the snapshots in seconds.
        rates: (n,) arrivals since the previous snapshot, records/s; NaN: unknown.

    Returns:
        Loads without gaps, each (minutes,).
    """
    begun = t_s[0] if len(t_s) else 0.0
    filled = np.full(int((t_s[-1] - begun) / MINUTE) if len(t_s) else 0, np.nan)
    for i in range(1, len(t_s)):
        first, last = (round((t_s[k] - begun) / MINUTE) for k in (i - 1, i))
        filled[first:last] = rates[i]
    known = np.flatnonzero(~np.isnan(filled))
    if not len(known):
        return []
    cuts = np.flatnonzero(np.diff(known) > _LONGEST_GAP) + 1
    pieces = np.split(known, cuts)
    spans = [np.arange(piece[0], piece[-1] + 1) for piece in pieces]
    # Gaps of up to `_LONGEST_GAP` minutes are interpolated, longer ones split the load.
    return [np.interp(span, known, filled[known]) for span in spans if len(span) > 1]
