"""Keeps a lease in a thread, so that of several instances the same one keeps acting."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.errors import KubernetesError

__all__ = ["LeaseKeeper"]

_LOG = logging.getLogger(__name__)


class LeaseKeeper:
    """Asks for a lease three times per duration until it is closed; then it is given up.

    Args:
        lease: held by this instance or another.
        began: called in the thread at the begin of each term of this instance, and again where it
            raises a KubernetesError.
    """

    def __init__(self, lease: Lease, began: Callable[[], None]) -> None:
        self.trouble: str | None = None
        self.term = 0
        """The term whose begin was told; the lease's own, once that is done."""
        self._lease, self._began = lease, began
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease-{lease.name}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and give the lease up."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()  # each call has its time limit
        self._lease.release()

    def _keep(self) -> None:
        while not self._closing.is_set():
            try:
                if self._lease.try_acquire() and self.term != (term := self._lease.term):
                    self._began()
                    self.term = term
                self.trouble = None
            except KubernetesError as error:
                if self.trouble is None:
                    _LOG.warning("lease %s: %s", self._lease.name, error)
                self.trouble = str(error)
            self._closing.wait(self._lease.duration_s / 3)
