"""A write rehearsed at the start: an admission policy refuses it before the first decision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.resources import (
    EPOCH,
    KILL_SWITCH,
    VERTICES,
    FlinkResource,
    Stamp,
)
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError

_ATTEMPTS = 3

_TOO_MANY = 1_000_000
"""Tasks of a vertex that no admission policy should let pass."""

_NOBODY = "dry-run"
"""Id of a vertex that no job has."""


def rehearse(
    api: KubernetesApi,
    resource: FlinkResource,
    overrides: Mapping[str, int],
    arguments: Sequence[str] | None = None,
) -> None:
    """Ask the server in a dry run, which changes nothing, whether it would take a write.

    Args:
        api: the server.
        resource: what would be written to.
        overrides: parallelism by vertex id, other than what stands there.
        arguments: the job's own, where they would change, too.

    Raises:
        KubernetesError: The server would refuse the write, or does not answer.
    """

    def written(now: FlinkResource) -> Document:
        patch = _stamped(now, now.patch_for(overrides))
        if arguments is not None:
            patch["spec"]["job"] = {"args": list(arguments)}
        return patch

    error = _refused(api, resource, written)
    if error is not None:
        raise KubernetesError(
            f"{resource}: the API server refuses the write of a decision: {error.message}",
            reason=error.reason,
            remedy="Allow this change in the admission policy"
            + ("." if arguments is None else ", or leave memory alone: memory_route: none."),
        ) from error


def check_policy(api: KubernetesApi, resource: FlinkResource, vertex: str) -> None:
    """Refuse an admission policy that is older than this release, and so lets too much pass.

    Dry runs try what the policy of this release forbids. Where even a foreign option passes there
    is no policy at all, which an account of a person, bound by no policy, passes.

    Args:
        api: the server.
        resource: what would be written to.
        vertex: Flink's id of one of its vertices.

    Raises:
        KubernetesError: The policy lets something pass, or the server does not answer.
    """
    probe = {"dsp-gym.io/probe": "dry-run"}
    option: Document = {"spec": {"flinkConfiguration": probe}}
    if _refused(api, resource, lambda now: _stamped(now, option)) is None:
        return
    tried: dict[str, Callable[[FlinkResource], Document]] = {
        "a label": lambda now: {"metadata": {"labels": probe}},
        f"the annotation {KILL_SWITCH}": lambda now: {
            "metadata": {"annotations": {KILL_SWITCH: "dry-run"}}
        },
        f"{_TOO_MANY:,} tasks": lambda now: _stamped(now, now.patch_for({vertex: _TOO_MANY})),
        "a vertex that nobody listed": lambda now: _stamped(now, now.patch_for({_NOBODY: 1})),
        f"the annotation {VERTICES}": lambda now: {
            "metadata": {"annotations": {VERTICES: f"{_NOBODY}:1-1"}}
        },
        "an epoch far beyond the last": lambda now: {
            "metadata": {"annotations": {EPOCH: str(10**17)}}
        },
    }
    passed = [what for what, patch in tried.items() if _refused(api, resource, patch) is None]
    if passed:
        raise KubernetesError(
            f"{resource}: the admission policy is older than this release: it would let pass "
            f"{', '.join(passed)}",
            reason="Invalid",
            remedy="Apply the one of this release: kubectl apply -k deploy/overlays/active",
        )


def _stamped(now: FlinkResource, patch: Document) -> Document:
    """A patch under a stamp that the resource could bear."""
    stamp = Stamp(max(now.stamp.epoch, 1), now.stamp.holder or "rehearsal", "rehearsal")
    return {**patch, "metadata": {"annotations": stamp.annotations()}}


def _refused(
    api: KubernetesApi, resource: FlinkResource, patch: Callable[[FlinkResource], Document]
) -> KubernetesError | None:
    """The server's refusal of a patch in a dry run; None where it would take it."""
    kind, where = resource.kind, (resource.namespace, resource.name)
    for _ in range(_ATTEMPTS):
        now = FlinkResource.parse({"kind": kind, **api.get(kind, *where)})
        try:
            api.merge_patch(
                kind, *where, patch(now), resource_version=now.resource_version, dry_run=True
            )
        except KubernetesError as error:
            if error.reason == "Conflict":  # the operator writes its status all the time
                continue
            if error.reason not in ("Invalid", "Forbidden"):
                raise
            return error
        return None
    return None
