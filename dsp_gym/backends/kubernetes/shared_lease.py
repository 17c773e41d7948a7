"""A lease on Kubernetes for a job that the operator does not know."""

from __future__ import annotations

from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.lease import new_holder


class _OwnedLease(Lease):
    """A lease whose connection ends with it."""

    def release(self) -> None:
        """Give it up, and the connection with it."""
        super().release()
        self._api.close()


def shared_lease(namespace: str, name: str, duration_s: float) -> Lease:
    """Make a lease of the account that the surroundings name.

    Args:
        namespace: where it stands.
        name: its name.
        duration_s: how long it holds without being renewed, s.

    Returns:
        The lease; nothing has been asked of the server yet.

    Raises:
        KubernetesError: Neither a pod's account nor a kubeconfig is found.
    """
    api = KubernetesApi.connect(KubernetesPlace(namespace=namespace, name=name))
    return _OwnedLease(api, namespace, name, new_holder(), duration_s)
