"""One job on a real Flink, from its submission to its last record, as validations run it.

Sources and sinks of this project count since the first start (`emitted_records_total`,
`received_records_total`), so a record that a rescale lost or doubled shows at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.source import SampleSource
from dsp_gym.backends.flink.submission import Submission
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.turn import Turn
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import compile_jobs
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.window import WindowConfig

WINDOW = WindowConfig(window_s=25, stabilization_s=10)
"""Of jobs that are decided on several times a minute."""

_POLL_S = 2.0
_FRESH_S = 20.0


def one_task_each(spec: JobSpec) -> Configuration:
    """One task per vertex; level 0 where there is state.

    Returns:
        The configuration; the level of a vertex without state is -1.
    """
    return Configuration(
        {v.name: 1 for v in spec.vertices},
        {v.name: 0 if v.state is not None else -1 for v in spec.vertices},
    )


@contextmanager
def submitted(
    rest: FlinkRest,
    spec: JobSpec,
    name: str,
    arguments: Mapping[str, str],
    configuration: Configuration,
) -> Iterator[str]:
    """Submit a job; it is cancelled when the block ends, whatever submissions followed.

    Args:
        rest: The cluster.
        spec: The job.
        name: Its name in Flink.
        arguments: Of its program: the load, and what differs from the job file.
        configuration: What it starts with.

    Yields:
        Flink's id of it.
    """
    job_id = Submission.of_spec(spec, arguments, name).submit(rest, configuration)
    try:
        yield job_id
    finally:
        rest.cancel(rest.find_job(name).id)


def constant_load(rate_per_s: float, **more: str) -> dict[str, str]:
    """Write a load of one rate as arguments of a job's program; it begins now.

    Returns:
        The arguments, and those given beside them.
    """
    return {"rate": f"{rate_per_s:.10g}", "epoch-ms": str(round(time.time() * 1000)), **more}


def wait_until(when_s: float) -> None:
    """Sleep until a moment, Unix seconds, unless it has passed."""
    time.sleep(max(0.0, when_s - time.time()))


def on_the_beat(run: JobAutoscaler, epoch_s: float, seconds: int) -> Iterator[Turn]:
    """Decide in step with a load, so that decisions of all runs see the same seconds of it.

    Args:
        run: Decides.
        epoch_s: When the load begins, Unix seconds.
        seconds: How long it lasts.

    Yields:
        Each decision when its interval has passed.
    """
    wait_until(epoch_s)
    run.backend.advance(0)  # what came before the load is nobody's
    for after_s in range(run.interval_s, seconds + 1, run.interval_s):
        decided = run.decide()
        wait_until(epoch_s + after_s)
        yield run.finish(decided)


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
