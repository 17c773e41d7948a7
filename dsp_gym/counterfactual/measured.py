"""The model's job as the metrics of a real one would tell of it.

The simulation says how long a record that arrives now will wait. A sink measures how old the
records are that reach it now, and its histogram remembers them for a while: after a backlog is
worked off the job looks late some seconds longer. What is predicted of a real job is what would
have been measured of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.simulation.options import SAMPLE_S
from dsp_gym.simulation.simulated import SimulatedJobs
from dsp_gym.simulation.state import X_PENDING, X_WAIT

__all__ = ["MeasuredJobs"]

Floats = NDArray[np.float64]

REMEMBERED_S = 10
"""How long the histogram of a measuring sink remembers (LatencyHistogram of the Flink jobs)."""


class MeasuredJobs:
    """Simulated jobs under one load, sampled every 5 s as real ones are.

    Args:
        jobs: started; all under the same rates.
        ages_s: of the newest sample at the end of each interval; then 0.
        has_latency: whether sinks tell latencies; otherwise only the log's age is known.
        stops_are_known: whether the job's outages hold the time of its savepoints.
    """

    def __init__(
        self,
        jobs: SimulatedJobs,
        *,
        ages_s: Iterable[float] = (),
        has_latency: bool = True,
        stops_are_known: bool = False,
    ) -> None:
        self.jobs, self.topology = jobs, jobs.topology
        self._sources = np.flatnonzero(jobs.topology.tables.kind[jobs.topology.row[0]] == SOURCE)
        self._arrived = np.concatenate([[0.0], np.cumsum(jobs.rates[0])])  # until each second
        self._seconds = np.arange(len(self._arrived), dtype=np.float64)
        self._sampled = iter(ages_s)
        self._bound_s = float(jobs.topology.spec(0).slo.latency_s)
        self._has_latency, self._stops_are_known = has_latency, stops_are_known
        kept = REMEMBERED_S // SAMPLE_S + 1 if has_latency else 1
        self._ages: Floats = np.zeros((kept, len(jobs)))

    def snapshot(self) -> MetricsSnapshot:
        """What is seen now."""
        return self.jobs.snapshot()

    def apply(self, guarded: GuardedDecision) -> None:
        """Start rescaling the jobs whose configuration should change."""
        ran = self.jobs.state.status == int(Status.RUNNING)
        self.jobs.apply(guarded)
        if self._stops_are_known:
            state = self.jobs.state
            stopping = ran & (state.status == int(Status.SAVEPOINTING))
            state.phase_left_s[stopping] = 0.0

    def take(self, outage_s: float) -> None:
        """Let the next rescales take so long."""
        self.jobs.topology.tables.outage_s[:] = outage_s

    def advance(self, seconds: int) -> Outcome:
        """Let the jobs run; returns what would be measured of it.

        Samples are 5 s apart, the last one as old as it was in this interval of the real job.
        """
        age_s = min(round(float(next(self._sampled, 0.0))), seconds - 1)
        late, samples, latency = (np.zeros(len(self.jobs)) for _ in range(3))
        parts = []
        for step_s in _steps(seconds - age_s):
            parts.append(self.jobs.advance(step_s))
            up = self.jobs.state.status < int(Status.RESTARTING)
            self._ages = np.concatenate([self._ages[1:], [self._age_s()]])
            told = self._ages.max(axis=0)
            late += up & (told > self._bound_s)
            latency += np.where(up, told, 0.0)
            samples += up
        pending, pending_s = parts[-1].pending, parts[-1].pending_s
        whole = _joined([*parts, self.jobs.advance(age_s)] if age_s else parts)
        share = late / np.maximum(samples, 1)
        return replace(
            whole,
            slo_s=whole.down_s + share * (whole.seconds - whole.down_s),
            latency_p95_s=latency / np.maximum(samples, 1),
            pending=pending,
            pending_s=pending_s,
        )

    def _age_s(self) -> Floats:
        """How old the records are that reach the sinks now, s, (J,)."""
        state = self.jobs.state
        log = state.vertex[:, self._sources]
        pending = log[:, :, X_PENDING].sum(axis=1)
        now_s = int(state.tick[0])
        within = min(now_s, len(self._arrived) - 1)
        rate = self._arrived[within] - self._arrived[within - 1]
        arrived = self._arrived[within] + (now_s - within) * rate
        age_s: Floats = now_s - self._when(arrived - pending)
        if not self._has_latency:
            return age_s
        within_s: Floats = state.latency_s - log[:, :, X_WAIT].max(axis=1)
        return np.asarray(age_s + np.maximum(0.0, within_s))

    def _when(self, count: Floats) -> Floats:
        """When that many records had arrived, s; before time 0 they came at the first rate."""
        before = count / max(self._arrived[1], 1e-9)
        return np.asarray(
            np.where(count < 0, before, np.interp(count, self._arrived, self._seconds))
        )


def _steps(seconds: int) -> list[int]:
    """Whole steps of a sample each, a shorter one first."""
    short = seconds % SAMPLE_S
    return [short] * (short > 0) + [SAMPLE_S] * (seconds // SAMPLE_S)


def _joined(parts: list[Outcome]) -> Outcome:
    """One outcome of several in a row."""
    found = {f.name: np.sum([getattr(p, f.name) for p in parts], axis=0) for f in fields(Outcome)}
    found["latency_max_s"] = np.max([p.latency_max_s for p in parts], axis=0)
    return Outcome(**found)
