"""Whether every record of a real job arrived, counted over its resubmissions.

Sources and sinks of this project count since the first start (`emitted_records_total`,
`received_records_total`), so a record that a rescale lost or doubled shows at the end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dsp_gym.backends.flink.source import SampleSource
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import compile_jobs

_POLL_S = 2.0
_FRESH_S = 20.0


@dataclass(frozen=True, slots=True)
class CountedRecords:
    """What sources emitted and sinks received since the first start."""

    emitted: float
    received: float
    pending: float  # in the log
    expected: float | None  # at the sinks; None: windows make results of them

    @property
    def arrived(self) -> bool:
        """Whether nothing is under way any more: no record is missing, and none came twice."""
        return self.emitted > 0 and self.pending == 0 and self.expected in (None, self.received)


def expected_per_record(spec: JobSpec) -> float | None:
    """Say how many records reach all sinks for each record of the job's only source.

    Returns:
        The product of selectivities along all ways; None where a window, or a share of a record,
        makes it no whole number.
    """
    has_windows = any(v.state is not None and v.state.window is not None for v in spec.vertices)
    kinds = np.array([vertex.kind for vertex in spec.topological_order()])
    total = float(compile_jobs([spec]).ratio[0, kinds == "sink"].sum())
    is_whole = np.count_nonzero(kinds == "source") == 1 and total == round(total)
    return total if is_whole and not has_windows else None


def drained(source: SampleSource, spec: JobSpec, patience_s: float) -> CountedRecords:
    """Wait until a job whose load has ended has worked off everything.

    Args:
        source: The job's samples.
        spec: The job.
        patience_s: Longest wait.

    Returns:
        The last count; `arrived` says whether all of it has.
    """
    until = time.monotonic() + patience_s
    while True:
        time.sleep(_POLL_S)
        found = _counted(source, spec)
        if found.arrived or time.monotonic() > until:
            return found


def _counted(source: SampleSource, spec: JobSpec) -> CountedRecords:
    now_s = time.time()
    newest = source.samples(now_s - _FRESH_S, now_s)

    def total(kind: str, metric: str) -> float:
        return sum(
            float(np.nansum(newest.grid(vertex.name, metric)[2][-1:]))
            for vertex in spec.vertices
            if vertex.kind == kind
        )

    emitted, each = total("source", "emitted_records_total"), expected_per_record(spec)
    return CountedRecords(
        emitted=emitted,
        received=total("sink", "received_records_total"),
        pending=total("source", "pending_records"),
        expected=None if each is None else emitted * each,
    )
