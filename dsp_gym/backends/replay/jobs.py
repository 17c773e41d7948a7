"""A recorded run as a backend: it shows the recorded snapshots and cannot be changed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dsp_gym.backends.base import Actuator, Backend, Collector
from dsp_gym.errors import DspGymError, MetricsError
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.outcome import measured_outcome
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import FRESH_S, Observed, WindowConfig, snapshot_of
from dsp_gym.records.recording import Run

_CHANGES = ("running", "stopped", "failure")
"""Events after which the job is in another state."""


class ReplayJobs(Backend):
    """One recorded run; the clock is the recording's.

    There is no actuator: snapshots and outcomes are those of the recorded configurations.

    Args:
        run: the run.
        window: the metrics window, over which samples are averaged.
        start_s: seconds after the job ran at which the replay begins.
    """

    trouble: DspGymError | None = None
    age_s: float = 0.0
    arrivals: Sequence[tuple[float, float]] = ()

    def __init__(self, run: Run, window: WindowConfig | None = None, start_s: float = 0.0) -> None:
        if math.isnan(run.t_running_s):
            raise MetricsError(
                f"run '{run.name}' never ran, so there is nothing to replay",
                remedy="Choose a complete run of the recording.",
            )
        self.run = run
        self.topology = Topology.of([run.spec])
        self.window = window or WindowConfig()
        self._start_s = run.t_running_s + start_s
        # What `snapshot_of` looks at, and no more: a recording may hold a month.
        self._back_s = max(self.window.window_s + 2 * SAMPLE_S, FRESH_S)
        self._samples = run.passing(self._back_s)
        # Its last event is the recorder ending it: that is no outage of the job.
        self._events = [e for e in run.events if run.t_running_s < e.t_s < run.t_end_s]
        self.t_s = self._start_s

    def reset(self) -> None:
        """Start over."""
        self.t_s = self._start_s

    @property
    def collector(self) -> Collector:
        """This object."""
        return self

    @property
    def actuator(self) -> Actuator | None:
        """None: a recording cannot be changed."""
        return None

    @property
    def is_over(self) -> bool:
        """Whether the recording has no more to show."""
        return self.t_s >= self.run.t_end_s

    def snapshot(self) -> MetricsSnapshot:
        """Look at the recorded job at this time.

        Returns:
            Metrics and recorded configuration, (1,) and (1, V).
        """
        samples = self._samples.between(self.t_s - self._back_s, self.t_s)
        return snapshot_of(self.topology, [self.observed(self.t_s)], [samples], self.window)

    def close(self) -> None:
        """Nothing is held outside this process."""

    def now_s(self) -> float:
        """Seconds on the recording's clock.

        Returns:
            Seconds since the recording began.
        """
        return self.t_s

    def advance(self, seconds: int) -> Outcome:
        """Read on, at most to the end of the run.

        Returns:
            What happened in the interval, each value (1,).
        """
        since_s = self.t_s
        self.t_s = min(since_s + seconds, self.run.t_end_s)
        events = [e for e in self._events if since_s < e.t_s <= self.t_s]
        changed_s = [event.t_s for event in events if event.kind in _CHANGES]
        history = [self.observed(since_s)]
        for at_s in changed_s:  # a state holds until an event: it is looked at before and after
            history += [self.observed(at_s, before=True), self.observed(at_s)]
        history.append(self.observed(self.t_s))
        samples = self._samples.between(since_s - 2 * SAMPLE_S, self.t_s)
        return measured_outcome(
            self.run.spec,
            samples,
            history,
            since_s,
            self.t_s,
            rescales=sum(event.kind == "rescale_asked" for event in events),
        )

    def observed(self, t_s: float, *, before: bool = False) -> Observed:
        """Tell how the recorded job stood at a time.

        Args:
            t_s: seconds on the recording's clock.
            before: leave out what happened right then.

        Returns:
            Its status, since when it ran, its configuration and the length of its last outage.
        """
        status, since_s, outage_s = Status.RUNNING, self.run.t_running_s, math.nan
        down_s = since_s
        for event in self._events:
            if event.t_s > t_s or (before and event.t_s == t_s):
                break
            if event.kind == "failure":
                status, down_s = Status.FAILED, event.t_s
            elif event.kind == "stopped":
                status, down_s = Status.RESTARTING, event.t_s
            elif event.kind == "running":
                if status != Status.RUNNING:
                    outage_s = event.t_s - down_s
                status, since_s = Status.RUNNING, event.t_s
        configuration = self.run.configuration_at(math.nextafter(t_s, 0.0) if before else t_s)
        return Observed(
            t_s=t_s,
            status=status,
            running_since_s=since_s,
            parallelism=configuration.parallelism,
            memory_level=configuration.memory_level,
            outage_s=outage_s,
        )
