"""A real Flink job as a backend: time passes by waiting, metrics say what happened."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.base import Actuator, Backend, Clock, Platform
from dsp_gym.backends.flink.source import RealJob, SampleSource
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.outcome import arrivals_of, measured_outcome, observed_in
from dsp_gym.metrics.samples import SAMPLE_S, Samples
from dsp_gym.metrics.window import Observed, WindowConfig, snapshot_of

_LATE_S = 3 * SAMPLE_S
"""A job that has run so much longer than its stabilization should have been sampled."""

_BEFORE_S = 150.0
"""How long before an interval its first counts are looked for: two scrapes a minute apart, and more
where one was missed."""

_STANDS_S = 1.0
"""How long the look that ends an interval stands for the snapshot of the next decision."""


class Look(NamedTuple):
    """One look at the job: its snapshot, and the samples that it was made from."""

    snapshot: MetricsSnapshot
    samples: Samples
    failure: FlinkError | None  # why there are no samples


class FlinkCollector:
    """A collector for a batch of one real job.

    Nothing old is shown as new: while metrics or Flink itself are out of reach, the metrics window
    is empty, its metrics are unknown, and `trouble` says why. It asks again at the next snapshot.

    The look that ends an interval serves the snapshot right after it, too, so that an interval
    costs one look.

    Args:
        spec: the job file.
        job: the job it describes.
        source: where its samples come from.
        window: the metrics window, over which samples are averaged.
        clock: Unix seconds.
        is_rescaling: whether an actuator has stopped the job and is about to submit it again.
    """

    def __init__(
        self,
        spec: JobSpec,
        job: RealJob,
        source: SampleSource,
        window: WindowConfig,
        clock: Clock | None = None,
        is_rescaling: Callable[[], bool] = lambda: False,
    ) -> None:
        self.spec, self.source = spec, source
        self.topology = Topology.of([spec])
        self.trouble: FlinkError | None = None
        self.age_s = float("nan")
        self.arrivals: list[tuple[float, float]] = []
        self.is_gone = False
        """Whether the job had failed, or was gone, at the last look."""
        self._job, self._window, self._is_rescaling = job, window, is_rescaling
        self._clock = clock or Clock()
        self._since_s, self._began_s = self._clock.now(), self._clock.elapsed()
        self._history: list[Observed] = []
        self._ahead: tuple[MetricsSnapshot, float] | None = None  # and when it was had

    def snapshot(self) -> MetricsSnapshot:
        """Look at the job, unless the end of an interval has just done so.

        Returns:
            Metrics and running configuration, (1,) and (1, V).

        Raises:
            FlinkError: Several jobs bear the job's name.
        """
        ahead, self._ahead = self._ahead, None
        if ahead is not None and self._clock.elapsed() - ahead[1] <= _STANDS_S:
            return ahead[0]
        return self._looked(self._clock.now()).snapshot

    def poll(self) -> None:
        """Let a source that keeps no history take a sample."""
        self.source.poll()

    def interval(self, rescales: int) -> Outcome:
        """Look at the job at the end of an interval, which began with the last call.

        Args:
            rescales: how many were asked for in it.

        Returns:
            What happened in it, told from metrics, each value (1,).

        Raises:
            FlinkError: The metrics of that time cannot be had, or several jobs bear the name.
        """
        since_s, self._since_s = self._since_s, self._clock.now()
        began_s, self._began_s = self._began_s, self._clock.elapsed()
        until_s = self._since_s
        if until_s <= since_s:  # the wall clock was set back meanwhile
            since_s = until_s - max(self._began_s - began_s, float(SAMPLE_S))
            self._history = [replace(state, t_s=since_s) for state in self._history[-1:]]
        history, self._history = self._history, self._history[-1:]
        look = self._looked(until_s, since_s - _BEFORE_S)
        self._ahead = look.snapshot, self._clock.elapsed()
        if look.failure is not None:
            raise look.failure
        history = [*history, self._history[-1]]
        self.arrivals = arrivals_of(self.spec, look.samples, since_s, until_s, history)
        return measured_outcome(
            self.spec, look.samples, history, since_s, until_s, rescales=rescales
        )

    def look(self, now_s: float, since_s: float | None = None) -> Look:
        """Ask Flink for the job's state, and the source once for its samples.

        Args:
            now_s: Unix seconds.
            since_s: samples are needed from then on; None: those of the metrics window.

        Returns:
            Snapshot of the job, (1,) and (1, V), and the samples it was made from.

        Raises:
            FlinkError: Several jobs bear the job's name.
        """
        observed = self._job.observe(now_s)
        self.trouble = self._job.trouble
        if observed.status == Status.FAILED and self._is_rescaling():
            # Between its stop and its resubmission no job bears the name; it is not lost.
            observed = replace(observed, status=Status.RESTARTING)
        runs = observed.status in (Status.RUNNING, Status.SAVEPOINTING)
        window_s = observed.t_s - self._window.window_s - 2 * SAMPLE_S
        samples, failure = Samples.of([]), None
        if runs or since_s is not None:
            from_s = window_s if since_s is None else min(since_s, window_s)
            try:
                samples = self.source.samples(from_s, observed.t_s)
            except FlinkError as error:
                failure = error
                self.trouble = error if runs else self.trouble
        recent = samples.between(window_s, observed.t_s) if runs else Samples.of([])
        self.age_s = _age_s(observed, recent) if len(recent) else float("nan")
        snapshot = snapshot_of(self.topology, [observed], [recent], self._window)
        if self.trouble is None and snapshot.window_fill[0] == 0:
            self.trouble = self._silence(observed, recent)
        return Look(snapshot, samples, failure)

    def close(self) -> None:
        """Nothing is held but HTTP connections, which end by themselves."""

    def _looked(self, now_s: float, since_s: float | None = None) -> Look:
        """A look that is remembered as part of the interval's history."""
        look = self.look(now_s, since_s)
        self.is_gone = bool(look.snapshot.status[0] == Status.FAILED)
        self._history.append(observed_in(look.snapshot))
        return look

    def _silence(self, observed: Observed, samples: Samples) -> FlinkError | None:
        """Why the window of a job that has run long enough is empty."""
        ran_s = observed.t_s - observed.running_since_s
        is_running = observed.status in (Status.RUNNING, Status.SAVEPOINTING)
        if not is_running or ran_s < self._window.stabilization_s + _LATE_S:
            return None
        names = self.topology.names(0)
        seen = {name: _subtasks(samples, name) for name in names}
        silent = [n for n in names if seen[n] < observed.parallelism[n]]
        if not silent:
            age_s = _age_s(observed, samples)
            said = f"no fresh metrics: the newest are {age_s:.0f} s old"
            if age_s <= self._window.window_s:  # a rate takes two
                said = (
                    f"fewer than two samples in the last {self._window.window_s} s; "
                    f"the newest is {age_s:.0f} s old"
                )
            return FlinkError(said, api="prometheus", reason="NoMetrics")
        return FlinkError(
            f"no metrics from {observed.parallelism[silent[0]] - seen[silent[0]]} of "
            f"{observed.parallelism[silent[0]]} subtasks of vertex {silent[0]!r} in the last "
            f"{self._window.window_s} s; is every TaskManager sampled?",
            api="prometheus",
            reason="NoMetrics",
        )


def _subtasks(samples: Samples, vertex: str) -> int:
    return len(samples.grid(vertex, "records_out_total")[1])


def _age_s(observed: Observed, samples: Samples) -> float:
    return float(observed.t_s - samples.t_s[-1]) if len(samples) else np.inf


class FlinkBackend(Backend):
    """One real job, advanced by waiting.

    Args:
        collector: watches the job.
        actuator: scales it; None: nothing can be asked of it.
        clock: Unix seconds, and how it waits.
        platform: what the job's surroundings say.
    """

    def __init__(
        self,
        collector: FlinkCollector,
        actuator: Actuator | None,
        clock: Clock | None = None,
        platform: Platform | None = None,
    ) -> None:
        self._collector = collector
        self._actuator = None if actuator is None else _Counted(actuator)
        self.clock = clock or Clock()
        self.platform = platform or Platform()

    @property
    def collector(self) -> FlinkCollector:
        """Shows the job."""
        return self._collector

    @property
    def actuator(self) -> Actuator | None:
        """Scales the job; None in shadow mode."""
        return self._actuator

    @property
    def folded(self) -> Collection[str]:
        """Labels of series that were left out as copies of others."""
        return self._collector.source.folded

    @property
    def is_lost(self) -> bool:
        """Whether the job had failed, or was gone, at the last look."""
        return self._collector.is_gone

    def now_s(self) -> float:
        """Unix seconds.

        Returns:
            Time of the backend's clock, s since the epoch.
        """
        return self.clock.now()

    def elapsed_s(self) -> float:
        """Seconds that only go forward.

        Returns:
            Seconds since an arbitrary moment.
        """
        return self.clock.elapsed()

    def advance(self, seconds: int) -> Outcome:
        """Wait that long, sampling every 5 s.

        Returns:
            What happened since the last call, told from metrics, each value (1,).

        Raises:
            FlinkError: The metrics of that time cannot be had, or several jobs bear the name.
        """
        until_s = self.clock.elapsed() + seconds
        while (left_s := until_s - self.clock.elapsed()) > 0 and not self.clock.stop.is_set():
            self.clock.wait(min(float(SAMPLE_S), left_s))
            self._collector.poll()
        rescales = 0 if self._actuator is None else self._actuator.taken()
        return self._collector.interval(rescales)


class _Counted:
    """An actuator that counts the rescales asked of it."""

    def __init__(self, actuator: Actuator) -> None:
        self._actuator, self._asked = actuator, 0

    def taken(self) -> int:
        """How many were asked for since the last call."""
        asked, self._asked = self._asked, 0
        return asked

    def apply(self, guarded: GuardedDecision) -> None:
        was_pending = self._actuator.status()[0] == ActuatorStatus.PENDING
        self._actuator.apply(guarded)
        is_pending = self._actuator.status()[0] == ActuatorStatus.PENDING
        self._asked += bool(is_pending and not was_pending)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        self._actuator.roll_back(before, reason)
        self._asked += 1

    def status(self) -> Ints:
        return self._actuator.status()

    def close(self) -> None:
        self._actuator.close()
