"""Recordings of simulated jobs: the same files as of a real one, and the truth beside them.

A vertex of the model stands for its subtasks; they are written one by one, the hottest first, so
that readers treat both kinds of recording alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.samples import SAMPLE_S, Row, Samples
from dsp_gym.records.manifest import Event, RecordedLoad, RunRecord
from dsp_gym.records.writer import EndedRun, RecordingWriter
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.simulation.state import TRACE, S, X

PART_S = 3600
"""Seconds of a run whose samples are held at a time."""


class SimulatedRecording:
    """Records runs of one simulated job, one after the other on one clock.

    Args:
        folder: an empty or new one.
        spec: the job.
        options: of the simulation; every second is kept whatever it says.
    """

    def __init__(
        self, folder: str | Path, spec: JobSpec, options: SimulationOptions | None = None
    ) -> None:
        self.spec = spec
        self.options = (options or SimulationOptions()).model_copy(update={"trace": True})
        environment = {"simulation": self.options.model_dump(mode="json")}
        self.writer = RecordingWriter.create(folder, spec, environment)
        self._now_s = 0.0

    def add(
        self,
        name: str,
        configuration: Configuration,
        load: RecordedLoad,
        seconds: int,
        *,
        seed: int = 0,
        repeat: int = 0,
    ) -> RunRecord:
        """Run the job in a configuration under a load, and record it.

        Returns:
            The run's record in the manifest.
        """
        jobs = SimulatedJobs(Topology.of([self.spec]), self.options)
        names = jobs.topology.names(0)
        start = {
            "parallelism": np.array([[configuration.parallelism[n] for n in names]]),
            "memory_level": np.array([[configuration.memory_level[n] for n in names]]),
        }
        rates = np.array([[load.rate_at(float(t)) for t in range(seconds)]])
        jobs.reset(np.array([seed]), rates, **start)
        began_s = self._now_s
        shifted = (
            replace(samples, t_s=samples.t_s + began_s)
            for samples in _in_parts(jobs, seconds, PART_S)
        )
        trace = jobs.trace[0]  # filled while the samples are written
        truth = {
            "t_s": began_s + np.arange(seconds),
            "rate_per_s": trace[:, TRACE.rate],
            "processed": trace[:, TRACE.processed],
            "latency_s": trace[:, TRACE.latency],
            "pending": trace[:, TRACE.pending],
        }
        body = {
            "parallelism": dict(configuration.parallelism),
            "memory_level": dict(configuration.memory_level),
        }
        self._now_s += seconds
        run = EndedRun(
            name=name,
            configuration=configuration,
            load=load,
            t_begin_s=began_s,
            t_load_s=began_s,
            t_running_s=began_s,
            t_end_s=self._now_s,
            repeat=repeat,
            seed=seed,
        )
        began = Event(t_s=began_s, run=name, kind="running", body=body)
        return self.writer.add(run, shifted, [began], truth)


def simulated_samples(jobs: SimulatedJobs, seconds: int) -> Samples:
    """Let one simulated job run, and sample it every 5 s as a collector samples a real one.

    A job that is down reports nothing, and its counters start from zero when it is back.

    Returns:
        The samples of that time, on the job's clock.
    """
    return next(_in_parts(jobs, seconds, seconds))


def _in_parts(jobs: SimulatedJobs, seconds: int, part_s: int) -> Iterator[Samples]:
    """`simulated_samples` in parts of `part_s` seconds; the job runs as they are taken."""
    rows: list[Row] = []
    cumulated: dict[tuple[str, str], float] = {}
    for taken_s in range(0, seconds - seconds % SAMPLE_S, SAMPLE_S):
        if rows and taken_s % part_s == 0:
            yield Samples.of(rows)
            rows.clear()
        since_s, taken = _newest(jobs)
        jobs.advance(SAMPLE_S)
        if _newest(jobs) == (since_s, taken):
            continue  # down
        if _newest(jobs)[0] != since_s:
            cumulated.clear()
        rows.extend(_sampled(jobs, cumulated))
    jobs.advance(seconds % SAMPLE_S)
    yield Samples.of(rows)


def _newest(jobs: SimulatedJobs) -> tuple[float, int]:
    """Since when the first job runs, in s, and how many samples were taken since."""
    return float(jobs.state.running_since[0]), int(jobs.state.samples_taken[0])


def _sampled(jobs: SimulatedJobs, cumulated: dict[tuple[str, str], float]) -> list[Row]:
    """What the first job shows now; busy times are added up in `cumulated`."""
    state, spec = jobs.state, jobs.topology.spec(0)
    taken, ring = int(state.samples_taken[0]), state.samples.shape[1]
    if taken == 0 or not state.sample_known[0, (taken - 1) % ring]:
        return []  # not back for long enough, or the sample was lost
    t_s, rows = float(state.tick[0]), []
    base = state.samples[0, (taken - 2) % ring] if taken > 1 else np.zeros_like(state.samples[0, 0])
    for column, vertex in enumerate(spec.topological_order()):
        x = state.vertex[0, column]
        tasks = int(state.parallelism[0, column])
        newest = state.samples[0, (taken - 1) % ring, column]
        busy, back = float(newest[S.raw_busy]), float(newest[S.raw_back])
        shares = {"busy": busy, "backpressured": back, "idle": max(0.0, 1.0 - busy - back)}
        for name, share in shares.items():
            key = (vertex.name, name)
            cumulated[key] = cumulated.get(key, 0.0) + 1000.0 * SAMPLE_S * share
        weights = _weights(tasks, float(x[X.hot]))
        summed = _summed(vertex.kind, vertex.state is not None, x)
        for subtask, weight in enumerate(weights):
            part = {name: value * weight / tasks for name, value in summed.items()}
            for name in shares:
                hot = weight if name == "busy" else 1.0
                part[f"{name}_ms_total"] = cumulated[vertex.name, name] * hot
            rows += [(t_s, vertex.name, subtask, name, value) for name, value in part.items()]
        once = {}
        if vertex.state is not None:
            latency = newest - base[column]  # the ring holds sums
            for way, at, times in (
                ("read", S.read_s, vertex.state.reads),
                ("write", S.write_s, vertex.state.writes),
            ):
                if times > 0:
                    once[f"state_{way}_latency_p50_ms"] = 1000.0 * float(latency[at])
        if vertex.kind == "sink":
            once["latency_p95_ms"] = 1000.0 * float(state.latency_samples[0, (taken - 1) % ring])
        rows += [(t_s, vertex.name, 0, k, v) for k, v in once.items()]
    return rows


def _weights(tasks: int, hot: float) -> list[float]:
    """Load of each subtask over the mean: the first is the hottest, the others share the rest."""
    if tasks == 1:
        return [1.0]
    first = min(hot, float(tasks)) if hot > 0 else 1.0
    return [first] + [(tasks - first) / (tasks - 1)] * (tasks - 1)


def _summed(kind: str, stateful: bool, x: Floats) -> Mapping[str, float]:
    """Counters and gauges of the whole vertex."""
    found = {
        "records_in_total": 0.0 if kind == "source" else float(x[X.records_in]),
        "records_out_total": float(x[X.records_out]),
    }
    if kind == "source":
        found["pending_records"] = float(x[X.pending])
        found["emitted_records_total"] = float(x[X.records_out] + x[X.past_out])
    if stateful:
        found["cache_hits_total"] = float(x[X.hits])
        found["cache_misses_total"] = float(x[X.misses])
        found["state_bytes"] = float(x[X.state]) * 2**20
    return found
