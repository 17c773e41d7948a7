"""From a place on Kubernetes to the backend of a job; every error comes before the first decision.

Shadow mode is read-only by construction: an account that could write is refused.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping

from dsp_gym.backends.base import Actuator, Clock, OnEvent, ignored
from dsp_gym.backends.flink.backend import FlinkBackend, FlinkCollector
from dsp_gym.backends.flink.connection import is_rescaling, refuse_silence
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.kubernetes.access import (
    RightsWatch,
    check_read_only,
    hint,
    missing_rights,
    rules_of,
)
from dsp_gym.backends.kubernetes.actuator import KubernetesActuator, Pace
from dsp_gym.backends.kubernetes.admission import list_text, listed_vertices
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.collector import KubernetesJob, KubernetesSamples, RunningVertices
from dsp_gym.backends.kubernetes.config import RESOURCE_NAME, KubernetesPlace
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import levels_in, levels_shown, with_levels
from dsp_gym.backends.kubernetes.platform import Followed, ResourcePlatform
from dsp_gym.backends.kubernetes.rehearsal import check_policy, rehearse
from dsp_gym.backends.kubernetes.resources import VERTICES, FlinkResource
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.backends.lease import new_holder
from dsp_gym.errors import FlinkError, KubernetesError, did_you_mean
from dsp_gym.job.deployment import kept_memory
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.window import WindowConfig

__all__ = [
    "Followed",
    "KubernetesBackend",
    "connect",
    "follow",
    "resources_at",
]


class KubernetesBackend(FlinkBackend):
    """A job of the operator as a backend.

    Args:
        collector: watches the job.
        actuator: writes to its resource; None: nothing can be asked of it.
        clock: Unix seconds, and how it waits.
        platform: the resource.
        owned: the server and its watcher, if they are closed with this backend.
    """

    platform: ResourcePlatform

    def __init__(
        self,
        collector: FlinkCollector,
        actuator: Actuator | None,
        clock: Clock,
        platform: ResourcePlatform,
        owned: Followed | None,
    ) -> None:
        super().__init__(collector, actuator, clock, platform)
        self._owned = owned

    def close(self) -> None:
        """Wait for the request under way; the job is left running."""
        try:
            super().close()
        finally:
            if self._owned is not None:
                self._owned.close()


def resources_at(api: KubernetesApi, place: KubernetesPlace) -> dict[str, FlinkResource]:
    """List the resources a place names.

    Returns:
        The resources by name.

    Raises:
        KubernetesError: The server is out of reach or refuses, or there is none.
    """
    items, _ = api.list(
        place.kind, namespace=place.namespace, selector=place.selector, name=place.name
    )
    found = [FlinkResource.parse({"kind": place.kind, **item}) for item in items]
    if found:
        return {one.name: one for one in found}
    others, _ = api.list(place.kind, namespace=place.namespace)
    names = sorted(FlinkResource.parse(item).name for item in others)
    what = f"no {place.kind} " + (
        f"'{place.name}'" if place.name else f"with the labels {place.selector}"
    )
    remedy = (
        did_you_mean(place.name, names)
        if place.name and names
        else f"There are: {', '.join(names)}."
        if names
        else f"There is none at all; is '{place.namespace}' the namespace, and {api.url} the "
        "server?"
    )
    raise KubernetesError(
        f"namespace '{place.namespace}' has {what}", reason="NotFound", remedy=remedy
    )


def follow(
    place: KubernetesPlace,
    *,
    apply: bool,
    must_only_read: bool | None = None,
    every: bool = False,
) -> Followed:
    """Connect to the server of a place, check the account's rights, and watch resources.

    Args:
        place: the resources.
        apply: whether they are to be written to.
        must_only_read: whether an account that could write is refused; default: unless `apply`.
        every: watch all resources of the place, those to come included; else the only one.

    Returns:
        The server and its watcher; close it when it is no longer needed.

    Raises:
        KubernetesError: The server is out of reach, refuses, or has no such resource.
        FlinkError: The place names no Prometheus.
    """
    api = KubernetesApi.connect(place)
    proves = must_only_read if must_only_read is not None else not apply
    try:
        _check_rights(api, place, apply=apply)
        found = resources_at(api, place)
        only = None if every else _only(found, place)
        proof = None
        if proves:
            proof = check_read_only(api, place.namespace, place.kind, list(found))
        if place.prometheus_url is None:
            raise FlinkError(
                f"no Prometheus is known for {found[only] if only else place.selector}",
                key="prometheus_url",
                remedy="Name the one that scrapes the TaskManagers.",
            )
        watcher = Watcher(
            api,
            place.kind,
            place.namespace,
            place.selector if only is None else None,
            name=only,
            watch_s=place.watch_s,
        )
        watcher.wait(api.timeout_s)
    except BaseException:
        api.close()
        raise

    def prove() -> None:
        check_read_only(api, place.namespace, place.kind, list(watcher.resources()))

    rights = RightsWatch(prove) if proves else None
    return Followed(api, watcher, place.namespace, only, rights, proof)


def connect(
    place: KubernetesPlace,
    spec: JobSpec,
    window: WindowConfig,
    *,
    apply: bool,
    must_only_read: bool | None = None,
    followed: Followed | None = None,
    on_event: OnEvent = ignored,
    clock: Clock | None = None,
    interval_s: float = math.inf,
) -> KubernetesBackend:
    """A job of the operator as a backend.

    Args:
        place: the resource; `{name}` in its REST interface stands for the resource's.
        spec: the job's file.
        window: the metrics window, over which samples are averaged.
        apply: False: the backend has no actuator, so nothing can be asked of the job.
        must_only_read: whether an account that could write is refused; default: unless `apply`.
        followed: a server whose rights were checked, shared with other jobs; None: its own.
        on_event: receives every step of the actuator.
        clock: Unix seconds, and how it waits.
        interval_s: how old a decision may be when it is written, s.

    Returns:
        The backend; close it to wait for a change under way.

    Raises:
        KubernetesError: The server is out of reach, refuses, or has no such resource.
        FlinkError: The metrics of the job cannot be had, or its file is that of another job.
    """
    at = followed or follow(place, apply=apply, must_only_read=must_only_read)
    clock = clock or Clock()
    try:
        resource = at.resource(at.only or place.name or "")
        if apply:
            _refuse_unchangeable(resource)
        if place.memory_route == "none":
            levels = levels_shown(resource.effective_arguments, spec)
            spec = kept_memory(spec, levels or Configuration.of_spec(spec).memory_level)
        job, samples = _observed(at, place, resource, spec, clock)
        now_s = clock.now()
        seen = samples.samples(now_s - window.window_s, now_s)  # fails if Prometheus is down
        if resource.job_state == "RUNNING":
            runs = job.look()  # a file of another job is refused
            if apply and resource.reason_not_to_write() is None:
                _rehearse(at.api, place, resource, spec, runs)
            if len(seen) == 0:
                refuse_silence(place.prometheus_url, job, window, now_s)
        actuator, lease = None, None
        if apply:
            lease = _lease(at.api, place, resource)
            with contextlib.suppress(KubernetesError):  # it is tried again all the time
                lease.try_acquire()  # so that the first decision knows whether it may act
            pace = Pace(interval_s=interval_s)
            actuator = KubernetesActuator(
                at.api, place, resource.name, spec, job.look, lease, pace=pace, on_event=on_event
            )
    except BaseException:
        if followed is None:
            at.close()
        raise
    collector = FlinkCollector(spec, job, samples, window, clock, is_rescaling(actuator))
    found = (lambda: None) if actuator is None else actuator.interference
    platform = ResourcePlatform(at, job, samples, clock, lease, found)
    return KubernetesBackend(collector, actuator, clock, platform, at if followed is None else None)


def _observed(
    at: Followed, place: KubernetesPlace, resource: FlinkResource, spec: JobSpec, clock: Clock
) -> tuple[KubernetesJob, KubernetesSamples]:
    """The job of a resource, and the samples of its tasks, from which it knows what runs."""
    rest = None
    if place.rest_url is not None:
        url = place.rest_url.replace(RESOURCE_NAME, resource.name)
        rest = FlinkRest(url, place.timeout_s, place.rest_account)
    stale_s = 2.0 * place.watch_s + at.api.timeout_s
    job = KubernetesJob(at.watcher, resource.name, spec, rest, stale_s=stale_s, clock=clock.now)
    assert place.prometheus_url is not None  # `follow` has seen to it
    samples = KubernetesSamples(
        place.prometheus_url,
        job,
        spec,
        timeout_s=place.timeout_s,
        access=place.prometheus_account,
        labels=Labels.parse(place.labels),
    )
    job.tasks = samples
    return job, samples


def _check_rights(api: KubernetesApi, place: KubernetesPlace, *, apply: bool) -> None:
    """Refuse an account that may not do what is to be done."""
    missing = missing_rights(api, place.kind, place.namespace, name=place.name)
    if apply:
        missing += missing_rights(api, place.kind, place.namespace, "patch", name=place.name)
        where = place.lease_namespace or place.namespace
        lease = place.lease or (place.name and f"dsp-gym-{place.name}")
        lacks = missing_rights(api, "Lease", where, "get", name=lease)
        lacks += missing_rights(api, "Lease", where, "create")  # never granted by name
        lacks += missing_rights(api, "Lease", where, "update", name=lease)
        missing += [f"{verb} Lease" for verb in lacks]
    if missing:
        raise KubernetesError(
            f"the account may not {', '.join(missing)} {place.kind} in namespace "
            f"'{place.namespace}'",
            reason="Forbidden",
            remedy="Bind the role of the manifests to it, or name another kubeconfig or context."
            + _hint(api, place.namespace),
        )


def _hint(api: KubernetesApi, namespace: str) -> str:
    try:
        return hint(rules_of(api, namespace).listed)
    except KubernetesError:
        return ""


def _only(found: Mapping[str, FlinkResource], place: KubernetesPlace) -> str:
    """The name of the one resource that is meant."""
    if len(found) > 1:
        raise KubernetesError(
            f"the labels {place.selector} match {len(found)} resources: {', '.join(sorted(found))}",
            reason="Invalid",
            remedy="Name one; `dsp-gym shadow` watches all of them.",
        )
    return next(iter(found))


def _refuse_unchangeable(resource: FlinkResource) -> None:
    """Refuse to act on a resource whose spec rules it out; a pause of an operator's passes."""
    is_lossy = resource.upgrade_mode == "stateless"
    if resource.is_session_cluster or is_lossy:
        raise KubernetesError(
            f"{resource} cannot be acted on: {resource.reason_not_to_write()}",
            reason="Invalid",
            remedy="Set spec.job.upgradeMode: last-state or savepoint, or leave out --apply."
            if is_lossy and not resource.is_session_cluster
            else "Name its FlinkSessionJobs (kind: FlinkSessionJob), or leave out --apply.",
        )


def _rehearse(
    api: KubernetesApi,
    place: KubernetesPlace,
    resource: FlinkResource,
    spec: JobSpec,
    runs: RunningVertices,
) -> None:
    """Refuse to act where the server would not let pass what that writes."""
    arguments = None
    levels = levels_in(resource.job_arguments, spec)
    if place.memory_route != "none" and levels is not None:
        others = {name: 1 if level == 0 else 0 for name, level in levels.items()}
        arguments = with_levels(resource.job_arguments, others, spec)
    rehearse(api, resource, _other_tasks(resource, spec, runs), arguments)
    check_policy(api, resource, next(iter(runs.by_id)))


def _other_tasks(resource: FlinkResource, spec: JobSpec, runs: RunningVertices) -> dict[str, int]:
    """Tasks by vertex id that the owner of the job allows, other than the running ones if it can.

    Raises:
        KubernetesError: The owner has not listed every vertex.
    """
    listed = {one.vertex: one for one in listed_vertices(resource.annotations)}
    lacks = [name for name, vertex in runs.ids.items() if vertex not in listed]
    if lacks:
        most = {
            v.name: min(v.max_parallelism, spec.max_parallelism_per_vertex) for v in spec.vertices
        }
        text = list_text({vertex: (1, most[name]) for name, vertex in runs.ids.items()})
        raise KubernetesError(
            f"{resource}: its annotation {VERTICES} does not list {', '.join(lacks)}",
            reason="Invalid",
            remedy="Let the owner of the job say what may be rescaled, and how far, e.g.: kubectl "
            f"annotate --overwrite --namespace {resource.namespace} {resource.kind.lower()} "
            f"{resource.name} {VERTICES}={text}",
        )
    found = {}
    for vertex, tasks in runs.by_id.items():
        least, most_of = listed[vertex].least, listed[vertex].most
        found[vertex] = tasks + 1 if tasks < most_of else max(least, min(most_of, tasks - 1))
    return found


def _lease(api: KubernetesApi, place: KubernetesPlace, resource: FlinkResource) -> Lease:
    """What an instance must hold to act on the resource."""
    return Lease(
        api,
        place.lease_namespace or place.namespace,
        place.lease or f"dsp-gym-{resource.name}",
        new_holder(),
        place.lease_s,
    )
