"""A real local Flink as a testbed: the job's sources, at rates that are set by resubmission.

A load is fixed when a job is submitted, so each set of phases is a separate submission, from the
savepoint of the one before: state and cache files stay as the warm-up left them. A new epoch clears
the records a source could not emit, as in StreamBed's rate-limited source.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

from baselines.streambed.estimator import ObservedRates, observation_of
from dsp_gym.backends.base import Clock
from dsp_gym.backends.flink.backend import FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rescale.savepoints import Stop
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import WindowConfig

_STOP_S = 120.0
_POLL_S = 0.25
_FETCH_S = 0.5
"""Seconds from a first request, which makes Flink fetch metrics, to the poll that reads them.

All vertices are then read from one fetch. Otherwise the first vertex may come from an older fetch
than the others: an error of 15 % in a rate over ten seconds.
"""
_LEAD_S = 12.0
"""Seconds from writing the load to its start; submissions have taken 3 to 10 s."""


class LiveTestbed:
    """A job on a local cluster; `close` ends it and removes its savepoint.

    Args:
        spec: a job with a `flink` section.
        cluster: the local cluster it runs on.
        clock: returns the time, Unix seconds.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        spec: JobSpec,
        cluster: LocalCluster,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.spec = spec
        self._cluster, self._clock, self._sleep = cluster, clock, sleep
        self._name = f"plan-{spec.job}"
        self._configuration = Configuration.of_spec(spec)
        self._job_id: str | None = None
        self._savepoint: str | None = None

    def deploy(self, configuration: Configuration) -> None:
        self.close()
        self._configuration = configuration

    def probe(self, phases: list[tuple[float, int]], observation_s: int) -> ObservedRates:
        if self._job_id is not None:
            self._stop()
        rest = self._cluster.rest
        epoch_s = self._clock() + _LEAD_S
        arguments = self._load(phases, epoch_s)
        submission = Submission.of_spec(self.spec, arguments, self._name)
        self._job_id = submission.submit(rest, self._configuration, self._savepoint)
        job = FlinkJob(rest, self._name, self.spec)
        source = RestSamples(rest, job, self.spec, clock=self._clock)
        window = WindowConfig(window_s=max(SAMPLE_S, observation_s), stabilization_s=0)
        collector = FlinkCollector(self.spec, job, source, window, Clock(self._clock))
        ran_s = max(self._clock(), epoch_s)
        until_s = ran_s + sum(seconds for _, seconds in phases)
        while (left_s := until_s - self._clock()) > 0:
            self._sleep(max(0.0, _until_next_poll_s(left_s) - _FETCH_S))
            self._check()
            self._sleep(_FETCH_S)
            source.poll()
        snapshot = collector.snapshot()
        if collector.trouble is not None:
            raise FlinkError(
                f"job '{self._name}' could not be observed: {collector.trouble}",
                remedy="See the running jobs: dsp-gym flink status",
            )
        return observation_of(snapshot, read=True)

    def close(self) -> None:
        """Cancel the job and remove its savepoint."""
        rest = self._cluster.rest
        for job in rest.jobs():
            if job.name == self._name and job.state not in ENDED:
                rest.cancel(job.id)
                rest.wait_for(job.id, ENDED, 60.0)
        self._job_id = None
        self._forget()

    def _stop(self) -> None:
        """Stop the job with a savepoint, which replaces the former one."""
        assert self._job_id is not None  # the caller has one
        folder = self._cluster.savepoints
        stop = Stop(self._cluster.rest, self._job_id, str(folder), folder)
        deadline_s = self._clock() + _STOP_S
        while (written := stop.look()) is None:
            if self._clock() > deadline_s:
                raise FlinkError(
                    f"job '{self._name}' wrote no savepoint within {_STOP_S:g} s",
                    remedy="Probe lower rates: a saturated job's barriers queue behind records.",
                )
            self._sleep(_POLL_S)
        self._cluster.rest.wait_for(self._job_id, ENDED, 60.0)
        self._job_id = None
        self._forget()
        self._savepoint = written.location

    def _forget(self) -> None:
        if self._savepoint is not None:
            shutil.rmtree(Path(urlsplit(self._savepoint).path), ignore_errors=True)
            self._savepoint = None

    def _load(self, phases: list[tuple[float, int]], epoch_s: float) -> dict[str, str]:
        rates = np.concatenate([np.full(max(seconds, 0), rate) for rate, seconds in phases])
        folder = self._cluster.home.folder / "loads"
        return load_arguments(rates, folder, int(epoch_s * 1000))

    def _check(self) -> None:
        """Raise for a failed job: its rates say nothing about its configuration."""
        assert self._job_id is not None  # submitted by the caller
        rest = self._cluster.rest
        state, cause = str(rest.job(self._job_id)["state"]), rest.exceptions(self._job_id)
        if state != "RUNNING" or cause is not None:
            raise FlinkError(
                f"job '{self._name}' failed and is {state}: {cause or 'no cause is known'}",
                remedy="See the TaskManager's log: dsp-gym flink status",
            )


def _until_next_poll_s(left_s: float) -> float:
    """Return the seconds to the next poll; polls lie whole samples before the observation's end.

    The observation thus begins with a poll. A rate is counted from the poll before it, which must
    not lie in the cool-down.

    >>> _until_next_poll_s(14.0), _until_next_poll_s(10.25), _until_next_poll_s(0.5)
    (4.0, 5.25, 0.5)
    """
    step_s = left_s % SAMPLE_S
    return step_s if step_s > 1.0 or left_s < SAMPLE_S else step_s + SAMPLE_S


@contextlib.contextmanager
def live_testbed(
    spec: JobSpec, home: Path | None, most_slots: int
) -> Iterator[tuple[LiveTestbed, int]]:
    """Open a testbed on the cluster of a home folder.

    Args:
        spec: The job.
        home: Home folder of the cluster; None: the default one.
        most_slots: Most slots to use.

    Returns:
        The testbed, and the number of slots left for tasks other than sources.

    Raises:
        ConfigError: The job file has no `flink` section.
        FlinkError: No cluster runs there.
    """
    if spec.flink is None:
        raise ConfigError(
            f"the job '{spec.job}' can only be simulated: its file has no 'flink' section",
            remedy="Take a job that has one, such as flink-q11, or --testbed simulated.",
        )
    cluster = LocalCluster.attach(home)
    free = int(cluster.rest.overview()["slots-available"])
    sources = sum(v.parallelism for v in spec.vertices if v.kind == "source")
    testbed = LiveTestbed(spec, cluster)
    try:
        yield testbed, max(1, min(most_slots, free - sources))
    finally:
        testbed.close()
