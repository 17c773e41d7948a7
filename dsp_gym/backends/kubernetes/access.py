"""The proof, by the server's own word, that an account can only read."""

from __future__ import annotations

from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.errors import KubernetesError

__all__ = ["READS", "WRITES", "missing_rights", "prove_read_only"]

READS = ("get", "list", "watch")
WRITES = ("create", "update", "patch", "delete", "deletecollection")
_KINDS = ("FlinkDeployment", "FlinkSessionJob")


def prove_read_only(api: KubernetesApi, namespace: str) -> list[str]:
    """Ask the server which writes the account may make.

    Returns:
        Verbs and kinds, such as `patch FlinkDeployment`; empty if it can only read.

    Raises:
        KubernetesError: The server does not say, which proves nothing.
    """
    return [
        f"{verb} {kind}" for kind in _KINDS for verb in WRITES if api.may(verb, kind, namespace)
    ]


def missing_rights(api: KubernetesApi, kind: str, namespace: str, *verbs: str) -> list[str]:
    """Ask the server for rights that the account lacks.

    Returns:
        The missing ones of the verbs asked for.

    Raises:
        KubernetesError: The server does not say.
    """
    wanted = verbs or READS
    try:
        return [verb for verb in wanted if not api.may(verb, kind, namespace)]
    except KubernetesError as error:
        if error.reason == "Unauthorized":
            return list(wanted)
        raise
