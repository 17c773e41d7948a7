"""What FlinkDeployments and the Flink under each of them say of the running jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dsp_gym.backends.discovery.found import FoundJob, FoundPlace, Note
from dsp_gym.backends.flink.rest import ENDED, FlinkRest
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import RESOURCE_NAME, KubernetesPlace
from dsp_gym.backends.kubernetes.connection import resources_at
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import FlinkError

REST_OF_RESOURCE = f"http://{RESOURCE_NAME}-rest"
"""The service that the operator makes for a deployment, as a pod of its namespace names it."""

_CPU = re.compile(r"([0-9.]+)(m?)")
_MEMORY = re.compile(r"([0-9.]+)\s*([A-Za-z]*)")
_TO_MIB = {
    "": 2.0**-20, "b": 2.0**-20, "k": 2.0**-10, "kb": 2.0**-10, "ki": 2.0**-10, "m": 1.0, "mb": 1.0,
    "mi": 1.0, "g": 1024.0, "gb": 1024.0, "gi": 1024.0, "t": 2.0**20, "tb": 2.0**20, "ti": 2.0**20,
}  # fmt: skip
"""Flink's units, which the operator takes for Kubernetes' own: all of 1024."""

OfRest = Callable[[FlinkRest, str], FoundJob]
"""Looks at a job by its id."""
OfSeries = Callable[[str], FoundJob]
"""Looks at a job by its id in Prometheus."""


@dataclass(frozen=True, slots=True)
class _Spec:
    """What the spec of a resource says of its TaskManagers; None: nothing."""

    cores: float | None
    memory_mib: float | None
    slots: int | None
    scheduler: str | None


def found_by_kubernetes(
    api: KubernetesApi,
    place: KubernetesPlace,
    by_rest: OfRest,
    by_series: OfSeries | None = None,
) -> tuple[list[FoundJob], list[FlinkError]]:
    """Look at the jobs of the resources that a place names.

    Args:
        api: the server; only lists are asked of it.
        place: the resources; `{name}` in its REST interface stands for the resource's.
        by_rest: looks at a job over Flink's REST interface.
        by_series: looks at one in Prometheus, where Flink is out of reach; None: there is none.

    Returns:
        The jobs, and why others could not be looked at.

    Raises:
        KubernetesError: The server is out of reach, refuses, or has no such resource.
    """
    resources = resources_at(api, place)
    bodies, _ = api.list(
        place.kind, namespace=place.namespace, selector=place.selector, name=place.name
    )
    specs = {str(body["metadata"]["name"]): _spec(body) for body in bodies}
    found, failed = [], []
    for name, resource in sorted(resources.items()):
        rest = FlinkRest(_url(place, name), place.timeout_s, place.rest_account)
        told = specs.get(name, _Spec(None, None, None, None))
        try:
            for job in _jobs(rest, resource, by_rest, by_series):
                found.append(_with_spec(job, resource, told))
        except FlinkError as error:
            failed.append(_of(resource, error))
    return found, failed


def _url(place: KubernetesPlace, name: str) -> str:
    template = place.rest_url or f"{REST_OF_RESOURCE}.{place.namespace}:8081"
    return template.replace(RESOURCE_NAME, name)


def _of(resource: FlinkResource, error: FlinkError) -> FlinkError:
    return FlinkError(
        f"{resource}: {error.message}", api=error.api, reason=error.reason, remedy=error.remedy
    )


def _jobs(
    rest: FlinkRest, resource: FlinkResource, by_rest: OfRest, by_series: OfSeries | None
) -> list[FoundJob]:
    if resource.suspended:
        raise FlinkError("it is suspended, so no job runs", reason="NotFound")
    try:
        if resource.is_session_cluster:
            alive = [job.id for job in rest.jobs() if job.state not in ENDED]
            return [by_rest(rest, job_id) for job_id in alive]
        return [by_rest(rest, _id_of(rest, resource))]
    except FlinkError as error:
        if error.reason not in ("Unreachable", "Timeout"):
            raise
        if by_series is None or resource.job_id is None:
            raise FlinkError(
                error.message,
                reason=error.reason,
                remedy="Say how its REST interface is reached from here, as by kubectl "
                f"port-forward: --flink 'http://127.0.0.1:8081', {RESOURCE_NAME} stands for the "
                "resource's name; or name a Prometheus: --prometheus URL",
            ) from error
    return [by_series(resource.job_id)]


def _id_of(rest: FlinkRest, resource: FlinkResource) -> str:
    """The id in the status, unless the job was submitted again since."""
    alive = [job.id for job in rest.jobs() if job.state not in ENDED]
    if resource.job_id in alive:
        return str(resource.job_id)
    if len(alive) == 1:
        return alive[0]
    raise FlinkError(
        f"{rest.url}: {len(alive)} jobs run there, but none has the id of the resource",
        reason="NotFound",
        remedy=resource.error or "See its lifecycleState: kubectl get flinkdeployment",
    )


def _with_spec(job: FoundJob, resource: FlinkResource, spec: _Spec) -> FoundJob:
    """The job with what its resource knows better, or alone."""
    had = job.place
    place = replace(
        had,
        slots=had.slots or spec.slots,
        cores=spec.cores or had.cores,  # Flink shows cores of the machine where none are given
        memory_mib=had.memory_mib or spec.memory_mib,
    )
    notes = job.notes
    if spec.scheduler is not None and job.scheduler is None:
        notes = tuple(note for note in notes if note.key != "rescale")
    if resource.builtin_autoscaler == "on":
        text = "the operator's own autoscaler scales the job: its parallelism is of this moment"
        notes = (*notes, Note("max_parallelism_per_vertex", text))
    return replace(
        job,
        place=place if place != FoundPlace() else had,
        scheduler=job.scheduler or spec.scheduler,
        seen_at=f"{resource} and {job.seen_at}",
        resource=str(resource),
        notes=notes,
    )


def _spec(body: Mapping[str, Document]) -> _Spec:
    spec = body.get("spec") or {}
    manager = spec.get("taskManager") or {}
    resource = manager.get("resource") or (manager.get("resources") or {}).get("requests") or {}
    flat = FlinkResource.parse(dict(body)).configuration
    slots = flat.get("taskmanager.numberOfTaskSlots", "")
    return _Spec(
        cores=_cores(resource.get("cpu")),
        memory_mib=_mib(resource.get("memory")),
        slots=int(slots) if slots.isdecimal() and int(slots) > 0 else None,
        scheduler=flat.get("jobmanager.scheduler", "default").lower(),
    )


def _cores(value: object) -> float | None:
    found = _CPU.fullmatch(str(value if value is not None else ""))
    if found is None:
        return None
    cores = float(found[1]) * (1e-3 if found[2] else 1.0)
    return cores if cores > 0 else None


def _mib(value: object) -> float | None:
    found = _MEMORY.fullmatch(str(value if value is not None else "").strip())
    if found is None or found[2].lower() not in _TO_MIB:
        return None
    mib = float(found[1]) * _TO_MIB[found[2].lower()]
    return mib if mib > 0 else None
