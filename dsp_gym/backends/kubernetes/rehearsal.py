"""A write rehearsed at the start: an admission policy refuses it before the first decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsp_gym.backends.kubernetes.fence import PatchApi
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.errors import KubernetesError

__all__ = ["rehearse"]

_ATTEMPTS = 3


def rehearse(
    api: PatchApi,
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
    kind, where = resource.kind, (resource.namespace, resource.name)
    for _ in range(_ATTEMPTS):
        now = FlinkResource.parse({"kind": kind, **api.get(kind, *where)})
        patch = now.patch_for(overrides)
        if arguments is not None:
            patch["spec"]["job"] = {"args": list(arguments)}
        try:
            api.merge_patch(
                kind, *where, patch, resource_version=now.resource_version, dry_run=True
            )
        except KubernetesError as error:
            if error.reason == "Conflict":  # the operator writes its status all the time
                continue
            if error.reason not in ("Invalid", "Forbidden"):
                raise
            raise KubernetesError(
                f"{resource}: what acting writes would be refused: {error.message}",
                reason=error.reason,
                remedy="Let the admission policy pass it"
                + ("." if arguments is None else ", or leave memory alone: memory_route: none."),
            ) from error
        return
