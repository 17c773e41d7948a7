"""The model's job, measured as a real one is.

The simulation says how long a record that arrives now will wait. A sink measures how old the
records are that reach it now, and its histogram remembers them for a while: after a backlog is
worked off the job looks late some seconds longer. The prediction therefore is of the sinks'
measurements.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.backends.base import SelfContained
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.job.tables import SOURCE
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.simulation.rescaling import begin_outage
from dsp_gym.simulation.state import X

__all__ = ["MeasuredJobs"]


REMEMBERED_S = 10
"""Seconds that the histogram of a measuring sink covers (LatencyHistogram of the Flink jobs)."""

HALF_S = 0.5
"""The simulation ends an outage with the second in which it is over: half a second late."""


class MeasuredJobs(SelfContained):
    """Simulated jobs under one load, sampled as real ones are.

    Args:
        jobs: started; all under the same rates.
        ages_s: of the newest sample at the end of each interval; then 0.
        has_latency: whether sinks report latencies; otherwise only the log's age is known.
        down_share: which part of its outages the job is down, the rest being its savepoints; None:
            outages are measured without savepoints.
        remembers_s: seconds that the histograms of sinks cover.
        sample_s: seconds between samples.
        shortened_s: by how much the outages of the jobs are too short, as HALF_S says; with a
            `down_share` they are shortened here.
    """

    def __init__(
        self,
        jobs: SimulatedJobs,
        *,
        ages_s: Iterable[float] = (),
        has_latency: bool = True,
        down_share: float | None = None,
        remembers_s: int = REMEMBERED_S,
        sample_s: int = SAMPLE_S,
        shortened_s: float = 0.0,
    ) -> None:
        self.jobs, self.topology = jobs, jobs.topology
        self._sources = np.flatnonzero(jobs.topology.tables.kind[jobs.topology.row[0]] == SOURCE)
        self._arrived = self._seconds = np.empty(0)
        self._count(jobs.rates[0])
        self._sampled = iter(ages_s)
        self._bound_s = float(jobs.topology.spec(0).slo.latency_s)
        if down_share is not None:
            outages = jobs.topology.tables.outage_s
            outages[:] = np.maximum(outages - HALF_S, 0.0)
        self._shortened_s = shortened_s if down_share is None else HALF_S
        self._has_latency, self._stops_are_known = has_latency, down_share is not None
        self._down_share = 1.0 if down_share is None else down_share
        self._outage_is_known = np.zeros(len(jobs.topology.tables.outage_s), np.bool_)
        self._outage_s = np.full(len(jobs), np.nan)  # of the rescale under way; NaN: none
        self._log_age_s = np.zeros(len(jobs))  # a second ago
        self._sample_s, self._remembers_s = sample_s, remembers_s
        kept = remembers_s if has_latency else 1
        self._ages: Floats = np.zeros((kept, len(jobs)))

    def snapshot(self) -> MetricsSnapshot:
        """The simulated jobs' metrics, (J, V).

        Returns:
            The snapshot after the last second simulated.
        """
        return self.jobs.snapshot()

    def apply(self, guarded: GuardedDecision) -> None:
        """Start rescaling the jobs whose configuration should change."""
        ran = self.jobs.state.status == int(Status.RUNNING)
        self.jobs.apply(guarded)
        if self._stops_are_known:
            self._stop(ran & (self.jobs.state.status == int(Status.SAVEPOINTING)))

    def status(self) -> Ints:
        """State of the last request of each job.

        Returns:
            (J,) codes of a request's state, as every actuator's `status` gives them.
        """
        return self.jobs.status()

    def take(self, outage_s: float | None, k: int = 0) -> None:
        """Set the duration of the next rescales of the jobs of one job file.

        Args:
            outage_s: seconds, the savepoint with them; None: they take as long as those before.
            k: number of the job file in the topology.
        """
        self._outage_is_known[k] = outage_s is not None
        if outage_s is not None:
            self.jobs.topology.tables.outage_s[k] = max(0.0, outage_s - HALF_S)

    def offer(self, per_s: Floats) -> None:
        """Replace the rates of all jobs, (T,) records/s; those of seconds gone by must be equal."""
        self.jobs.offer(per_s)
        self._count(per_s)

    def _count(self, per_s: Floats) -> None:
        self._arrived = np.concatenate([[0.0], np.cumsum(per_s)])  # until each second
        self._seconds = np.arange(len(self._arrived), dtype=np.float64)

    def _stop(self, stopping: Bools) -> None:
        """Stops the sources at once; the records in the buffers get through before the job ends.

        A savepoint's barriers wait behind these records, so it takes that much longer.
        """
        tables, state, row = self.topology.tables, self.jobs.state, self.topology.row
        waits_s = np.where(self._outage_is_known[row], 0.0, self._within_s())
        state.vertex[stopping, :, X.queue] = 0.0
        for j in np.flatnonzero(stopping).tolist():
            begin_outage(tables, state, row[j], j, self.jobs.parameters)
            state.phase_left_s[j] += waits_s[j]

    def advance(self, seconds: int) -> Outcome:
        """Lets the jobs run and measures them as a real collector would.

        Samples are `sample_s` apart, the last one as old as in this interval of the real job.

        Returns:
            The measured outcome, (J,) each.
        """
        age_s = min(round(float(next(self._sampled, 0.0))), seconds - 1)
        late, samples, latency = (np.zeros(len(self.jobs)) for _ in range(3))
        parts = []
        for step_s in _steps(seconds - age_s, self._sample_s):
            parts += self._remembered(step_s)
            up, told = self._is_up(), self._ages.max(axis=0)
            late += up & (told > self._bound_s)
            latency += np.where(up, told, 0.0)
            samples += up
        pending, pending_s = parts[-1].pending, parts[-1].pending_s
        whole = Outcome.joined(parts + self._remembered(age_s))
        share = late / np.maximum(samples, 1)
        down_s = whole.down_s * self._down_share
        return replace(
            whole,
            slo_s=down_s + share * (whole.seconds - down_s),
            down_s=down_s,
            latency_p95_s=latency / np.maximum(samples, 1),
            pending=pending,
            pending_s=pending_s,
        )

    def _remembered(self, seconds: int) -> list[Outcome]:
        """Lets the jobs run, and remembers the ages of the records that reached the sinks.

        Second by second: whether others of the batch are in an outage changes nothing for a job.
        """
        parts, state = [], self.jobs.state
        for _ in range(seconds):
            begun = (state.status >= int(Status.RESTARTING)) & (state.outage_begun == state.tick)
            self._outage_s[begun] = state.phase_left_s[begun] + self._shortened_s
            parts.append(self.jobs.advance(1))
            ages = np.concatenate([self._ages[1:], self._age_s()[None]])
            # After a restart the histograms are new; no record reaches a sink before it.
            self._ages = np.where(self._is_up(), ages, 0.0)
        return parts

    def _is_up(self) -> Bools:
        """Whether records reached the sinks in the last second, (J,)."""
        state = self.jobs.state
        return np.asarray(
            (state.status < int(Status.RESTARTING)) & (state.tick > state.running_since)
        )

    def _age_s(self) -> Floats:
        """Age of the oldest records that reach the sinks in this second, s, (J,)."""
        state = self.jobs.state
        pending = state.vertex[:, self._sources, X.pending].sum(axis=1)
        now_s = int(state.tick[0])
        within = min(now_s, len(self._arrived) - 1)
        rate = self._arrived[within] - self._arrived[within - 1]
        arrived = self._arrived[within] + (now_s - within) * rate
        age_s: Floats = now_s - self._when(arrived - pending)
        if not self._has_latency:
            return age_s
        # The first record of a second is as old as the last one of the second before.
        oldest_s = np.maximum(age_s, self._log_age_s)
        # An outage ends with a second: its backlog would be younger or older than a real one's.
        just_up = state.tick == state.running_since + 1
        oldest_s = oldest_s + np.where(just_up, np.nan_to_num(self._outage_s - state.outage_s), 0.0)
        self._outage_s[just_up] = np.nan
        self._log_age_s = age_s
        return oldest_s + self._within_s()

    def _within_s(self) -> Floats:
        """How long records are on their way from the sources to the sinks, s, (J,)."""
        wait_s = self.jobs.state.vertex[:, :, X.wait_s]
        return np.asarray(wait_s.max(axis=1) - wait_s[:, self._sources].max(axis=1))

    def _when(self, count: Floats) -> Floats:
        """Time when that many records had arrived, s; before time 0 at the first rate."""
        before = count / max(self._arrived[1], 1e-9)
        return np.asarray(
            np.where(count < 0, before, np.interp(count, self._arrived, self._seconds))
        )


def _steps(seconds: int, sample_s: int) -> list[int]:
    """Whole steps of a sample each, a shorter one first."""
    short = seconds % sample_s
    return [short] * (short > 0) + [sample_s] * (seconds // sample_s)
