"""From a configuration to the backend of a running job; errors come before the first decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.base import Actuator, Clock, OnEvent, Platform, ignored
from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.file_lease import FileLease
from dsp_gym.backends.flink.backend import FlinkBackend, FlinkCollector
from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.flink.rescale.finisher import Finisher, StepJournal
from dsp_gym.backends.flink.rescale.in_place import AdaptiveActuator
from dsp_gym.backends.flink.rescale.justin import JustinActuator
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator
from dsp_gym.backends.flink.rescale.worker import OneJobActuator
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.rest_samples import RestSamples
from dsp_gym.backends.flink.source import RealJob, SampleSource
from dsp_gym.backends.flink.submission import levels_of_slots, running_levels
from dsp_gym.backends.flink.versions import Way, check_version
from dsp_gym.backends.interference import Interference
from dsp_gym.backends.lease import RenewedLease
from dsp_gym.errors import FlinkError
from dsp_gym.job.deployment import found_in_place, kept_memory
from dsp_gym.job.placement import slots_of
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.records.rescales import submitted_ids


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster that answers."""

    config: PlaceConfig
    rest: FlinkRest
    prometheus_url: str | None
    savepoints: str | None
    cluster: LocalCluster | None  # None: one that is not ours


def reach(config: PlaceConfig) -> Place:
    """Reach the cluster of a configuration.

    Returns:
        The cluster, which has answered.

    Raises:
        FlinkError: The cluster does not answer, or runs a Flink that cannot be watched.
    """
    cluster = None
    prometheus_url, savepoints = config.prometheus_url, config.savepoints
    if config.rest_url is None:
        cluster = LocalCluster.attach(config.home)
        url = cluster.rest_url
        prometheus_url = prometheus_url or cluster.prometheus_url
        savepoints = savepoints or str(cluster.savepoints)
    else:
        url = config.rest_url
    rest = FlinkRest(url, config.timeout_s, config.rest_account)
    check_version(rest)
    return Place(config, rest, prometheus_url, savepoints, cluster)


class _Cluster(Platform):
    """What a Flink cluster says: how many slots a job may use, and who has changed it."""

    def __init__(self, rest: FlinkRest, spec: JobSpec, actuator: OneJobActuator | None) -> None:
        self._rest, self._spec, self._actuator = rest, spec, actuator
        self.leadership = None if actuator is None else actuator.lease

    def interference(self) -> Interference | None:
        return None if self._actuator is None else self._actuator.interference()

    def slots(self, running: Mapping[str, int]) -> int | None:
        return slots_within_reach(self._rest, self._spec, running)


def connect(
    place: Place,
    spec: JobSpec,
    job_name: str,
    window: WindowConfig,
    *,
    apply: bool,
    on_event: OnEvent = ignored,
    clock: Clock | None = None,
    journal: StepJournal | None = None,
) -> FlinkBackend:
    """A running job as a backend.

    Args:
        place: the cluster.
        spec: the job's file.
        job_name: its name in Flink, or as Flink's Prometheus reporter writes it.
        window: the metrics window, over which samples are averaged.
        apply: False: the backend has no actuator, so nothing can be asked of the job.
        on_event: receives every step of the actuator.
        clock: Unix seconds, and how it waits.
        journal: where those steps are written, so that a second process can finish a resubmission
            that this one leaves undone by dying; None: nowhere.

    Returns:
        The backend; close it to wait for a rescale under way.

    Raises:
        FlinkError: There is no such job, or several, or its file is that of another job, or its
            metrics cannot be had.
    """
    clock = clock or Clock()
    if apply:
        check_version(place.rest, _WAYS[place.config.actuator])
    own_id = place.config.job_id
    submitted = () if own_id is None or journal is None else submitted_ids(journal.folder)
    if apply:  # what acts knows the job by its name alone, as Flink has it
        job_name = place.rest.find_job(job_name).name
    job_id = FlinkJob(place.rest, job_name, spec, own_id, submitted).job_id
    if place.config.actuator == "adaptive":  # policies know memory and rescales as they are there
        spec = found_in_place(spec, running_levels(place.rest, job_id, spec))
    elif place.config.program is not None:  # whose slots have the memory that they have
        spec = kept_memory(spec, levels_of_slots(spec))
    job = FlinkJob(place.rest, job_name, spec, own_id, submitted)
    job.vertex_ids(job.job_id)  # a file of another job is refused
    source = _source(place, job, spec, window)
    now_s = clock.now()
    source.poll()
    seen = source.samples(now_s - window.window_s, now_s)  # fails if Prometheus is down
    if len(seen) == 0 and place.config.metrics == "prometheus":
        instead = ", or read metrics over REST: metrics: rest"
        refuse_silence(place.prometheus_url, job, window, now_s, or_else=instead)
    actuator = _actuator(place, job_name, spec, on_event, journal) if apply else None
    collector = FlinkCollector(spec, job, source, window, clock, is_rescaling(actuator))
    return FlinkBackend(collector, actuator, clock, _Cluster(place.rest, spec, actuator))


def is_rescaling(actuator: Actuator | None) -> Callable[[], bool]:
    """How a collector learns that its job is being rescaled.

    Returns:
        A function that is true while the actuator has a request under way.
    """
    return lambda: actuator is not None and bool(actuator.status()[0] == ActuatorStatus.PENDING)


def _source(place: Place, job: FlinkJob, spec: JobSpec, window: WindowConfig) -> SampleSource:
    if place.config.metrics == "rest":
        keep_s = 2.0 * (window.window_s + window.stabilization_s)
        return RestSamples(place.rest, job, spec, keep_s=keep_s)
    if place.prometheus_url is None:
        raise FlinkError(
            f"no Prometheus is known for {place.rest.url}",
            api="prometheus",
            key="prometheus_url",
            remedy="Name one, start the cluster with one, or read metrics over REST: metrics: rest",
        )
    from dsp_gym.backends.flink.prometheus import PrometheusSamples

    return PrometheusSamples(
        place.prometheus_url,
        job,
        spec,
        timeout_s=place.config.timeout_s,
        access=place.config.prometheus_account,
        labels=Labels.parse(place.config.labels),
    )


_WAYS: Mapping[str, Way] = {"adaptive": "in_place", "resubmit": "redeploy", "justin": "memory"}
"""What must have been tested for an actuator."""


def _actuator(
    place: Place, job_name: str, spec: JobSpec, on_event: OnEvent, journal: StepJournal | None
) -> OneJobActuator:
    """An actuator of a job that can be acted on, under the lease of the place if it has one."""
    lease = lease_of(place.config, job_name)
    try:
        if lease is not None:
            lease.try_acquire()  # so that the first decision knows whether it may act
        actuator = _made(place, job_name, spec, on_event, lease, journal)
    except BaseException:
        if lease is not None:
            lease.release()
        raise
    try:
        actuator.check_ready()
    except BaseException:
        actuator.close()
        raise
    return actuator


def _made(
    place: Place,
    job_name: str,
    spec: JobSpec,
    on_event: OnEvent,
    lease: RenewedLease | None,
    journal: StepJournal | None,
) -> OneJobActuator:
    timeout_s, rest = place.config.rescale_timeout_s, place.rest
    if place.config.actuator != "resubmit":
        in_place = {"adaptive": AdaptiveActuator, "justin": JustinActuator}[place.config.actuator]
        return in_place(rest, job_name, spec, timeout_s=timeout_s, on_event=on_event, lease=lease)
    if place.savepoints is None:
        raise FlinkError(
            "rescaling by resubmission needs a folder for savepoints",
            key="savepoints",
            remedy="Name one that the cluster can write to.",
        )
    actuator = ResubmitActuator(
        rest,
        job_name,
        spec,
        place.savepoints,
        timeout_s=timeout_s,
        on_event=on_event,
        lease=lease,
        own=place.config.program,
    )
    if journal is not None:
        own = place.config.program
        actuator.finisher = Finisher(journal, rest, job_name, spec, timeout_s, own)
    return actuator


def lease_of(config: PlaceConfig, job_name: str) -> RenewedLease | None:
    """Make the lease that a configuration names.

    Args:
        config: the place of the job.
        job_name: its name in Flink; processes that name it so share the lease.

    Returns:
        The lease, which nobody has been asked for yet; None where the configuration names none.

    Raises:
        KubernetesError: It is kept on Kubernetes, and no account is known.
    """
    if config.lease is None:
        return None
    scheme, _, rest = config.lease.partition("://")
    if scheme == "kubernetes":
        from dsp_gym.backends.kubernetes.shared_lease import shared_lease

        namespace, name = (part for part in rest.split("/") if part)
        return shared_lease(namespace, name, config.lease_s)
    return FileLease(Path(rest or config.lease), job_name, config.lease_s)


def slots_within_reach(rest: FlinkRest, spec: JobSpec, parallelism: Mapping[str, int]) -> int:
    """Count the slots that are free and those that the job holds.

    Returns:
        Task slots.
    """
    held = slots_of(parallelism, shared=spec.slot_sharing)
    return rest.free_slots() + held


SILENT_S = 30.0
"""A job sampled for the first time later than this, after a whole window, is not scraped."""


def refuse_silence(
    prometheus_url: str | None,
    job: RealJob,
    window: WindowConfig,
    now_s: float,
    *,
    or_else: str = "",
) -> None:
    """Refuse a job without samples that has run long enough to be sampled.

    Args:
        prometheus_url: where its samples were looked for.
        job: the job.
        window: the metrics window, over which samples are averaged.
        now_s: Unix seconds.
        or_else: what can be done but to name another Prometheus.

    Raises:
        FlinkError: The job runs for longer than a window and half a minute, without any sample.
    """
    observed = job.observe(now_s)
    ran_s = now_s - observed.running_since_s
    if observed.status == Status.RUNNING and ran_s > window.window_s + SILENT_S:
        raise FlinkError(
            f"{prometheus_url}: Prometheus has no metrics of job {job.name!r}, which has run "
            f"for {ran_s:.0f} s",
            api="prometheus",
            reason="NoMetrics",
            key="prometheus_url",
            remedy=f"Name the Prometheus that scrapes its TaskManagers{or_else}.",
        )
