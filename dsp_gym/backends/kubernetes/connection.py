"""From a place on Kubernetes to a job that can be watched and scaled; what is wrong is said before.

Shadow mode is read-only by construction: an account that could write is refused.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dsp_gym.backends.flink.collector import LiveCollector
from dsp_gym.backends.flink.live_jobs import ClosableActuator, LiveJobs
from dsp_gym.backends.flink.rescale.dry_run import DryRunActuator
from dsp_gym.backends.flink.rescale.worker import ignored
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.silence import refuse_silence
from dsp_gym.backends.kubernetes.access import missing_rights, prove_read_only
from dsp_gym.backends.kubernetes.actuator import KubernetesActuator
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.collector import KubernetesJob, KubernetesSamples
from dsp_gym.backends.kubernetes.config import RESOURCE_NAME, KubernetesPlace
from dsp_gym.backends.kubernetes.job_arguments import levels_in, with_levels
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.rehearsal import rehearse
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.backends.kubernetes.running import RunningVertices
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.errors import FlinkError, KubernetesError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.window import WindowConfig

__all__ = [
    "Followed",
    "KubernetesJobs",
    "check_read_only",
    "follow",
    "resources_at",
    "watched_on_kubernetes",
]

_LEASE_RIGHTS = ("get", "create", "update")


@dataclass(frozen=True, slots=True)
class Followed:
    """An API server and a watcher of resources there, which the loops of several jobs may share."""

    api: KubernetesApi
    watcher: Watcher
    only: str | None  # name of the one resource that is watched; None: whatever the place names

    def resource(self, name: str) -> FlinkResource:
        """One of the resources, as it was told last.

        Raises:
            KubernetesError: There is none of that name.
        """
        known = self.watcher.resources()
        if name not in known:
            raise KubernetesError(
                f"there is no resource '{name}' there",
                reason="NotFound",
                remedy=did_you_mean(name, known),
            )
        return known[name]

    def close(self) -> None:
        """End the watcher and the connections."""
        self.watcher.close()
        self.api.close()


class KubernetesJobs(LiveJobs):
    """A job of the operator as the loop's two ends.

    Args:
        followed: the server and its watcher.
        closes: whether they are closed with this.
        job: the job under the resource.
        samples: its metrics.
        **ends: as for `LiveJobs`.
    """

    def __init__(
        self,
        followed: Followed,
        job: KubernetesJob,
        samples: KubernetesSamples,
        *,
        closes: bool,
        **ends: Any,
    ) -> None:
        super().__init__(source=samples, **ends)
        self.api, self.watcher, self.job = followed.api, followed.watcher, job
        self._followed, self._closes, self._samples = followed, closes, samples

    @property
    def resource(self) -> FlinkResource | None:
        """The resource as it was told last; None where there is none now."""
        return self.watcher.resources().get(self.job.name)

    def stopped(self) -> str | None:
        """Why nothing may be written to the resource for now; None where something may."""
        resource = self.resource
        return "the resource is not there" if resource is None else resource.reason_not_to_act()

    def advice(self) -> Mapping[str, int] | None:
        """What the built-in autoscaler asks for, by vertex; None where it is off or silent."""
        resource = self.resource
        if resource is None or resource.builtin_autoscaler == "off":
            return None
        now_s = self._clock()
        try:
            ids = self.job.look().ids
            by_id = self._samples.advice(resource.namespace, resource.name, now_s - 60, now_s)
        except FlinkError:
            return None
        found = {name: by_id[vertex_id] for name, vertex_id in ids.items() if vertex_id in by_id}
        return found or None

    def close(self) -> None:
        """Wait for what is under way; the job is left running."""
        try:
            super().close()
        finally:
            if self._closes:
                self._followed.close()


def resources_at(api: KubernetesApi, place: KubernetesPlace) -> dict[str, FlinkResource]:
    """The resources a place names, by name.

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
    names = sorted(str(item["metadata"]["name"]) for item in others)
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


def check_read_only(api: KubernetesApi, namespace: str) -> None:
    """Refuse an account that could write.

    Raises:
        KubernetesError: It could, or the server does not say.
    """
    allowed = prove_read_only(api, namespace)
    if allowed:
        raise KubernetesError(
            f"the account may write in namespace '{namespace}': {', '.join(allowed)}; in shadow "
            "mode it must only read",
            reason="Invalid",
            remedy="Take the service account of the shadow manifests, which may get, list and "
            "watch.",
        )


def follow(
    place: KubernetesPlace,
    *,
    apply: bool,
    must_only_read: bool | None = None,
    every: bool = False,
    name: str | None = None,
) -> Followed:
    """The server of a place, if the account has the rights it needs, and a watcher of resources.

    Args:
        place: the resources.
        apply: whether they are to be written to.
        must_only_read: whether an account that could write is refused; default: unless `apply`.
        every: watch all resources of the place, those to come included; else one.
        name: which one of several; default: the only one of the place.

    Raises:
        KubernetesError: The server is out of reach, refuses, or has no such resource.
        FlinkError: The place names no Prometheus.
    """
    api = KubernetesApi.connect(place)
    try:
        _check_rights(api, place, apply=apply)
        found = resources_at(api, place)
        only = None if every else _only(found, place, name)
        if must_only_read if must_only_read is not None else not apply:
            check_read_only(api, place.namespace)
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
    return Followed(api, watcher, only)


def watched_on_kubernetes(
    place: KubernetesPlace,
    spec: JobSpec,
    window: WindowConfig,
    *,
    apply: bool,
    must_only_read: bool | None = None,
    name: str | None = None,
    followed: Followed | None = None,
    on_event: Callable[[str, dict[str, Any]], None] = ignored,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] | None = None,
    stop: threading.Event | None = None,
) -> KubernetesJobs:
    """A job of the operator as the loop's two ends.

    Args:
        place: the resource; `{name}` in its REST interface stands for the resource's.
        spec: the job's file.
        window: over which samples metrics are averaged.
        apply: False: decisions are noted and nothing is asked of the job.
        must_only_read: whether an account that could write is refused; default: unless `apply`.
        name: which of several resources; default: the only one of the place.
        followed: a server whose rights were checked, shared with other jobs; None: one of its own.
        on_event: told of every step of the actuator.
        clock: Unix seconds.
        sleep: waits that many seconds; None: until then, or until `stop` is set.
        stop: set by whoever wants no further waiting.

    Raises:
        KubernetesError: The server is out of reach, refuses, or has no such resource.
        FlinkError: The metrics of the job cannot be had, or its file is that of another job.
    """
    at = followed or follow(place, apply=apply, must_only_read=must_only_read, name=name)
    try:
        resource = at.resource(at.only or name or place.name or "")
        rest = None
        if place.rest_url is not None:
            rest = FlinkRest(place.rest_url.replace(RESOURCE_NAME, resource.name), place.timeout_s)
        job = KubernetesJob(
            at.watcher,
            resource.name,
            spec,
            rest,
            stale_s=2.0 * place.watch_s + at.api.timeout_s,
            clock=clock,
        )
        assert place.prometheus_url is not None  # `follow` has seen to it
        samples = KubernetesSamples(place.prometheus_url, job, spec, timeout_s=place.timeout_s)
        job.tasks = samples
        now_s = clock()
        seen = samples.samples(now_s - window.window_s, now_s)  # a Prometheus that is down is said
        if resource.job_state == "RUNNING":
            runs = job.look()  # a file of another job is refused
            if apply and resource.reason_not_to_write() is None:
                _rehearse(at.api, place, resource, spec, runs)
            if len(seen) == 0:
                refuse_silence(place.prometheus_url, job, window, now_s)
        actuator = _actuator(at.api, place, resource, spec, job, on_event, apply=apply)
    except BaseException:
        if followed is None:
            at.close()
        raise
    return KubernetesJobs(
        at,
        job,
        samples,
        closes=followed is None,
        collector=LiveCollector(spec, job, samples, window, clock),
        actuator=actuator,
        spec=spec,
        clock=clock,
        sleep=sleep,
        stop=stop,
    )


def _check_rights(api: KubernetesApi, place: KubernetesPlace, *, apply: bool) -> None:
    """Refuse an account that may not do what is to be done."""
    missing = missing_rights(api, place.kind, place.namespace)
    if apply:
        missing += missing_rights(api, place.kind, place.namespace, "patch")
        where = place.lease_namespace or place.namespace
        missing += [f"{v} Lease" for v in missing_rights(api, "Lease", where, *_LEASE_RIGHTS)]
    if missing:
        raise KubernetesError(
            f"the account may not {', '.join(missing)} {place.kind} in namespace "
            f"'{place.namespace}'",
            reason="Forbidden",
            remedy="Bind the role of the manifests to it, or name another kubeconfig or context.",
        )


def _only(found: Mapping[str, FlinkResource], place: KubernetesPlace, name: str | None) -> str:
    """The one resource that is meant."""
    if name is None and len(found) > 1:
        raise KubernetesError(
            f"the labels {place.selector} are those of {len(found)} resources: "
            f"{', '.join(sorted(found))}",
            reason="Invalid",
            remedy="Name one; `dsp-gym shadow` watches all of them.",
        )
    if name is not None and name not in found:
        raise KubernetesError(
            f"there is no {place.kind} '{name}' there",
            reason="NotFound",
            remedy=did_you_mean(name, found),
        )
    return name if name is not None else next(iter(found))


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
    rehearse(api, resource, {i: tasks + 1 for i, tasks in runs.by_id.items()}, arguments)


def _actuator(
    api: KubernetesApi,
    place: KubernetesPlace,
    resource: FlinkResource,
    spec: JobSpec,
    job: KubernetesJob,
    on_event: Callable[[str, dict[str, Any]], None],
    *,
    apply: bool,
) -> ClosableActuator:
    if not apply:
        return DryRunActuator(spec, on_event=on_event)
    holder = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
    lease = Lease(
        api,
        place.lease_namespace or place.namespace,
        place.lease or f"dsp-gym-{resource.name}",
        holder,
        place.lease_s,
    )
    return KubernetesActuator(api, place, resource.name, spec, job.look, lease, on_event=on_event)
