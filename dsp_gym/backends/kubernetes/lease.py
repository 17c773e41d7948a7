"""A lease: of several instances one acts.

The client's own elector never steps down while its server hangs, for its calls have no time limit;
two leaders are then possible. Here every call has one, and writers ask again first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

from dsp_gym.backends.documents import Document
from dsp_gym.backends.kubernetes.api import FIELD_MANAGER
from dsp_gym.errors import KubernetesError

__all__ = ["Lease", "LeaseApi"]


class LeaseApi(Protocol):
    """What a lease needs of an API server."""

    def get(self, kind: str, namespace: str, name: str) -> Document:
        """One object.

        Returns:
            The object's document.
        """

    def create(self, kind: str, namespace: str, body: Document) -> Document:
        """A new object.

        Returns:
            The object as the server stored it.
        """

    def replace(self, kind: str, namespace: str, name: str, body: Document) -> Document:
        """An object as a whole, if it still has the version named in it.

        Returns:
            The object as the server stored it, with its new version.
        """


class Lease:
    """A lease of one name, as one holder sees it.

    Clocks of two machines are never compared: another's lease is over when it has not changed for
    its duration by the clock here. One's own counts from before it was asked for.

    Args:
        api: where the lease stands.
        namespace: its namespace.
        name: its name.
        holder: this instance; no other has that word.
        duration_s: how long it holds without being renewed, s.
        clock: seconds that only go forward.
        wall_clock: Unix seconds; written down for people.
    """

    def __init__(
        self,
        api: LeaseApi,
        namespace: str,
        name: str,
        holder: str,
        duration_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._api, self.namespace, self.name = api, namespace, name
        self.holder, self.duration_s = holder, duration_s
        self._clock, self._wall_clock = clock, wall_clock
        self._until_s = float("-inf")  # held until then, unless another instance took it
        self.term = 0
        """How often it was taken by this instance; renewing it is no other term."""
        self._has_term = False  # whether a write that took it was answered
        self._other = ""  # who held it when it was asked for last
        self._seen: tuple[str, float] | None = None  # version of another's lease, first seen when
        self._lock = threading.RLock()  # one renews it, another looks whether it is held

    def try_acquire(self) -> bool:
        """Take the lease if it is free or over, or renew it; whether it is held now.

        Returns:
            True where this instance holds the lease now.

        Raises:
            KubernetesError: The server is out of reach, or refuses; it is not known to be held.
        """
        with self._lock:
            return self._tried()

    def _tried(self) -> bool:
        asked_s, self._other = self._clock(), ""
        try:
            body = self._api.get("Lease", self.namespace, self.name)
        except KubernetesError as error:
            if error.reason != "NotFound":
                raise
            self._has_term = False
            return self._written(asked_s, self._new())
        spec = dict(body.get("spec") or {})
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.holder):
            foreign = _foreign(body)
            self._other = foreign or f"another instance holds the lease '{self.name}': {holder}"
            if foreign or not self._is_over(body, spec):
                self._until_s = float("-inf")
                return False
        self._has_term = self._has_term and holder == self.holder
        return self._written(asked_s, {**body, "spec": self._spec(spec)})

    def taken(self) -> str:
        """Say who holds it instead.

        Returns:
            A sentence about the last attempt to take it that failed.
        """
        return self._other or f"another instance was faster to take the lease '{self.name}'"

    def is_held_now(self, for_s: float = 0.0) -> bool:
        """Whether this instance holds the lease, by a look at the server, and for so much longer.

        Args:
            for_s: longest time that what is to be done under it takes, s.

        Returns:
            True where the server names this instance and the lease lasts `for_s` seconds more;
            False where the server does not answer.
        """
        try:
            body = self._api.get("Lease", self.namespace, self.name)
        except KubernetesError:
            return False
        holder = (body.get("spec") or {}).get("holderIdentity")
        if holder != self.holder:
            self._until_s = float("-inf")
        return self._clock() + for_s < self._until_s

    def release(self) -> None:
        """Give it up, so that another need not wait; a server out of reach lets it run out."""
        self._until_s = float("-inf")
        try:
            body = self._api.get("Lease", self.namespace, self.name)
            spec = dict(body.get("spec") or {})
            if spec.get("holderIdentity") == self.holder:
                body = {**body, "spec": {**spec, "holderIdentity": ""}}
                self._api.replace("Lease", self.namespace, self.name, body)
        except KubernetesError:
            return

    def _is_over(self, body: Document, spec: Document) -> bool:
        """Whether another's lease has not changed for as long as it holds."""
        version = str((body.get("metadata") or {}).get("resourceVersion", ""))
        now_s = self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now_s)
        seconds = _number(spec.get("leaseDurationSeconds")) or self.duration_s
        return now_s - self._seen[1] >= seconds

    def _written(self, asked_s: float, body: Document) -> bool:
        """Write the lease; whether it is held then."""
        self._until_s = float("-inf")
        try:
            if body["metadata"].get("resourceVersion"):
                self._api.replace("Lease", self.namespace, self.name, body)
            else:
                self._api.create("Lease", self.namespace, body)
        except KubernetesError as error:
            if error.reason in ("Conflict", "NotFound"):
                return False  # another was faster
            raise
        self._until_s = asked_s + self.duration_s
        if not self._has_term:
            self.term, self._has_term = self.term + 1, True
        return True

    def _new(self) -> Document:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": self._spec({}),
        }

    def _spec(self, old: Document) -> Document:
        now = datetime.fromtimestamp(self._wall_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        mine = old.get("holderIdentity") == self.holder
        turns = int(_number(old.get("leaseTransitions")))
        return {
            **old,
            "holderIdentity": self.holder,
            "leaseDurationSeconds": max(1, round(self.duration_s)),
            "renewTime": now,
            "acquireTime": old.get("acquireTime", now) if mine else now,
            "leaseTransitions": turns if mine or not old else turns + 1,
        }


def _foreign(body: Document) -> str:
    """Why a lease that somebody holds is none of ours: our kind has never written it."""
    meta = body.get("metadata") or {}
    managers = sorted({str(one.get("manager")) for one in meta.get("managedFields") or ()})
    if not managers or FIELD_MANAGER in managers:
        return ""
    holder = (body.get("spec") or {}).get("holderIdentity")
    return (
        f"the lease '{meta.get('name')}' belongs to something else: {holder}, written by "
        f"{', '.join(managers)}"
    )


def _number(value: object) -> float:
    """A number; 0 for anything else."""
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0
