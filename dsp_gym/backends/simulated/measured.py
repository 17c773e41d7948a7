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
from dsp_gym.simulation.state import SEEN, X

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
        self._left_s = np.full(len(jobs), np.nan)  # of the outage, a second ago; NaN: none
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
        """Let the jobs run and measure them as a real collector would.

        Samples are `sample_s` apart, the last one as old as in this interval of the real job.

        Returns:
            The measured outcome, (J,) each.
        """
        age_s = min(round(float(next(self._sampled, 0.0))), seconds - 1)
        begin_s = int(self.jobs.state.tick[0])
        seen = np.empty((len(self.jobs), seconds, len(SEEN)))
        whole = self.jobs.advance(seconds, seen)
        pending, within_s, left_s = seen.transpose(2, 1, 0)  # (seconds, J) each
        up = self._up(left_s)
        ages_s = self._ages_s(begin_s, pending, within_s, left_s)
        late, samples, latency = (np.zeros(len(self.jobs)) for _ in range(3))
        sampled = set(np.cumsum(_steps(seconds - age_s, self._sample_s)).tolist())
        for i in range(seconds):
            self._ages = np.concatenate([self._ages[1:], ages_s[i][None]])
            # After a restart the histograms are new; no record reaches a sink before it.
            self._ages[:, ~up[i]] = 0.0
            if i + 1 in sampled:
                told = self._ages.max(axis=0)
                late += up[i] & (told > self._bound_s)
                latency += np.where(up[i], told, 0.0)
                samples += up[i]
        last = seconds - age_s - 1
        share = late / np.maximum(samples, 1)
        down_s = whole.down_s * self._down_share
        return replace(
            whole,
            slo_s=down_s + share * (whole.seconds - down_s),
            down_s=down_s,
            latency_p95_s=latency / np.maximum(samples, 1),
            pending=pending[last],
            pending_s=pending[last] / self._arrivals_per_s(begin_s + last),
        )

    def _up(self, left_s: Floats) -> Bools:
        """Whether records reached the sinks in each second, (seconds, J)."""
        down = np.isfinite(left_s)
        stops = self.jobs.state.status >= int(Status.RESTARTING)
        return np.asarray(~down & ~np.concatenate([down[1:], stops[None]]))

    def _ages_s(self, begin_s: int, pending: Floats, within_s: Floats, left_s: Floats) -> Floats:
        """Ages of the oldest records that reach the sinks in each second, s, (seconds, J)."""
        now_s = begin_s + 1 + np.arange(len(pending))
        within = np.minimum(now_s, len(self._arrived) - 1)
        rate = self._arrived[within] - self._arrived[within - 1]
        arrived = self._arrived[within] + (now_s - within) * rate
        age_s: Floats = now_s[:, None] - self._when(arrived[:, None] - pending)
        if not self._has_latency:
            return age_s
        # The first record of a second is as old as the last one of the second before.
        oldest_s: Floats = np.maximum(age_s, np.concatenate([self._log_age_s[None], age_s[:-1]]))
        # An outage ends with a second: its backlog would be younger or older than a real one's.
        before_s = np.concatenate([self._left_s[None], left_s[:-1]])
        just_up = np.isfinite(before_s) & np.isnan(left_s)
        oldest_s += np.where(just_up, np.nan_to_num(before_s) + self._shortened_s, 0.0)
        self._log_age_s, self._left_s = age_s[-1], left_s[-1].copy()
        return np.asarray(oldest_s + within_s)

    def _arrivals_per_s(self, second: int) -> Floats:
        """Arrivals in a second; a log without any is measured by a tenth of the job's rate."""
        at = min(second, len(self._arrived) - 2)
        per_s = float(self._arrived[at + 1] - self._arrived[at])
        tables, row = self.topology.tables, self.topology.row
        return np.asarray(np.maximum(per_s, 0.1 * tables.rate_per_s[row]))

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
