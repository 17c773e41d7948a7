"""What is wrong with recorded runs, each named with what to do about it.

Values that cannot be, counters that are not numbers and anything below zero, are taken out before a
run is measured, so that one bad scrape spoils no rate; everything else only makes a sentence.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dsp_gym.calibration.observations import (
    LEAST_STEADY_S,
    SETTLED_S,
    MeasuredRun,
    SteadyPart,
)
from dsp_gym.job.memory import LEAST_ROCKSDB_MIB
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import Samples


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one run or several."""

    kind: str  # unsteady, silent, capped, repeated, starved, invalid; of a history: gaps, ...
    runs: tuple[str, ...]  # none: it is about all of them
    text: str  # what is wrong, and what to do

    @property
    def sentence(self) -> str:
        """The runs, what is wrong with them and what to do."""
        if not self.runs:
            return self.text
        shown = ", ".join(self.runs[:5])
        more = f" and {len(self.runs) - 5} more" if len(self.runs) > 5 else ""
        return f"{shown}{more}: {self.text}"


def cleaned(run: MeasuredRun) -> tuple[MeasuredRun, Problem | None]:
    """Take out values that cannot be.

    Returns:
        The run, and what was taken out of it; None where nothing was.
    """
    samples = run.samples
    if not len(samples):
        return run, None
    value = samples.value
    counts = np.char.endswith(samples.metric, "_total")
    bad = (value < 0) | np.isinf(value) | (np.isnan(value) & counts)
    if not bad.any():
        return run, None
    where = Counter(zip(samples.vertex[bad].tolist(), samples.metric[bad].tolist(), strict=True))
    (vertex, metric), _ = where.most_common(1)[0]
    kept = Samples(
        samples.t_s[~bad],
        samples.vertex[~bad],
        samples.subtask[~bad],
        samples.metric[~bad],
        value[~bad],
    )
    found = Problem(
        "invalid",
        (run.name,),
        f"{int(bad.sum())} of {len(samples)} values are negative or no number, most of them "
        f"'{metric}' of '{vertex}'; they are left out. See what exported them",
    )
    return dataclasses.replace(run, samples=kept), found


def problems_of(
    spec: JobSpec, runs: Sequence[MeasuredRun], seen: Sequence[SteadyPart]
) -> list[Problem]:
    """What a reader must know of the runs of a calibration.

    Args:
        spec: the job.
        runs: its runs, cleaned.
        seen: their steady parts.

    Returns:
        One problem per kind; empty where there is none.
    """
    whole = [run for run in runs if run.complete]
    measured = {o.run for o in seen}
    silent = tuple(run.name for run in whole if run.name not in measured)
    found = []
    if silent:
        least_s = SETTLED_S + LEAST_STEADY_S
        found.append(
            Problem(
                "silent",
                silent,
                "they show no rate: no load was offered, their sources did not report what they "
                f"emitted, or they are shorter than {least_s:g} s; record them again, saturated",
            )
        )
    return [*found, *_of_parts(seen), *_starved(spec, seen)]


def repeated(fitted: Sequence[SteadyPart]) -> list[Problem]:
    """Whether several fitted runs are all of one configuration.

    Args:
        fitted: the parts that are fitted.

    Returns:
        At most one problem; none where there is a single run.
    """
    names = tuple(dict.fromkeys(o.run for o in fitted))
    if len({o.configuration for o in fitted}) > 1 or len(names) < 2:
        return []
    return [
        Problem(
            "repeated",
            names,
            "they are runs of one configuration: they show how much it scatters, not what tasks or "
            "memory change. Record one with other tasks, and one with other memory",
        )
    ]


def _of_parts(seen: Sequence[SteadyPart]) -> list[Problem]:
    found = []
    unsteady = [o for o in seen if o.is_unsteady]
    if unsteady:
        worst = max(unsteady, key=lambda o: o.uncertainty)
        found.append(
            Problem(
                "unsteady",
                tuple(dict.fromkeys(o.run for o in unsteady)),
                f"never became steady (the rate of {worst.run} is uncertain by "
                f"{100 * worst.uncertainty:.0f} %); they count for next to nothing. Record them "
                "longer, and nothing else beside them",
            )
        )
    capped = tuple(dict.fromkeys(o.run for o in seen if o.capped))
    if capped:
        found.append(
            Problem(
                "capped",
                capped,
                "the source emitted less than it was asked to though nothing held it back: its own "
                "cap, not the job's capacity. They count as runs at that rate; ask for less, or "
                "give the source more tasks",
            )
        )
    return found


def _starved(spec: JobSpec, seen: Sequence[SteadyPart]) -> list[Problem]:
    stateful = [v.name for v in spec.vertices if v.state is not None and v.state.writes > 0]
    least: dict[str, float] = {}
    for o in seen:
        for name in stateful:
            mib = o.managed_mib(name, spec.memory.base_mib)
            if mib < LEAST_ROCKSDB_MIB:
                least[o.run] = min(mib, least.get(o.run, mib))
    if not least:
        return []
    return [
        Problem(
            "starved",
            tuple(least),
            f"{min(least.values()):g} MiB per task is below the {LEAST_ROCKSDB_MIB:.1f} MiB that "
            "RocksDB's MemTables need (Flink warns that they are flushed constantly); what they "
            "show does not carry over to more memory. Record with 32 MiB or more",
        )
    ]
