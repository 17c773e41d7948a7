"""A lease: of several instances one acts.

The client's own elector never steps down while its server hangs, for its calls have no time limit;
two leaders are then possible. Here every call has one, and writers ask again first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from dsp_gym.backends.kubernetes.api import FIELD_MANAGER, KubernetesApi
from dsp_gym.backends.lease import OwnLease
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError

MEMORY = "dsp-gym.io/memory"
"""Annotation of a lease with what its holder leaves to the next one."""

_MOST = 2**31
"""Above what a lease's numbers can be."""


class Lease(OwnLease):
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
        api: KubernetesApi,
        namespace: str,
        name: str,
        holder: str,
        duration_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, holder, duration_s, clock, wall_clock)
        self._api, self.namespace = api, namespace
        self._has_term = False  # whether a write that took it was answered
        self._seen: tuple[str, float] | None = None  # version of another's lease, first seen when

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
            self._has_term, self.inherited = False, None
            return self._written(asked_s, self._new())
        spec = _object(body.get("spec"))
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.holder):
            foreign = _foreign(body)
            self.memory = None  # older than what its holder remembers
            self._other = foreign or f"another instance holds the lease '{self.name}': {holder}"
            if foreign or not self._is_over(body, spec):
                self._until_s = float("-inf")
                return False
        self._has_term = self._has_term and holder == self.holder
        if not self._has_term:
            self.memory, self.inherited = None, _memory(body)
        return self._written(asked_s, {**body, "spec": self._spec(spec)})

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
        holder = _object(body.get("spec")).get("holderIdentity")
        if holder != self.holder:
            self._until_s = float("-inf")
        return self._clock() + for_s < self._until_s

    def release(self) -> None:
        """Give it up, so that another need not wait; a server out of reach lets it run out."""
        self._until_s = float("-inf")
        try:
            body = self._api.get("Lease", self.namespace, self.name)
            spec = _object(body.get("spec"))
            if spec.get("holderIdentity") == self.holder:
                body = {**body, "spec": {**spec, "holderIdentity": ""}}
                self._api.replace("Lease", self.namespace, self.name, body)
        except KubernetesError:
            return

    def _is_over(self, body: Document, spec: Document) -> bool:
        """Whether another's lease has not changed for as long as it holds."""
        version = str(_object(body.get("metadata")).get("resourceVersion", ""))
        now_s = self._clock()
        if self._seen is None or self._seen[0] != version:
            self._seen = (version, now_s)
        seconds = _number(spec.get("leaseDurationSeconds")) or self.duration_s
        return now_s - self._seen[1] >= seconds

    def _written(self, asked_s: float, body: Document) -> bool:
        """Write the lease; whether it is held then.

        A renewal takes nothing away before its answer: nobody else may take the lease until it has
        not changed for as long as it holds.
        """
        if not self._has_term:
            self._until_s = float("-inf")
        if self.memory is not None:
            meta = _object(body.get("metadata"))
            notes = {**_object(meta.get("annotations")), MEMORY: self.memory}
            body = {**body, "metadata": {**meta, "annotations": notes}}
        try:
            if _object(body.get("metadata")).get("resourceVersion"):
                self._api.replace("Lease", self.namespace, self.name, body)
            else:
                self._api.create("Lease", self.namespace, body)
        except KubernetesError as error:
            if error.reason in ("Conflict", "NotFound"):
                self._until_s = float("-inf")
                return False  # another was faster
            raise
        if not self._has_term:  # before it is seen to be held: who acts asks for the term
            self.term, self._has_term = self.term + 1, True
        self._until_s = asked_s + self.duration_s
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
    meta = _object(body.get("metadata"))
    fields = meta.get("managedFields")
    listed = fields if isinstance(fields, list) else []
    managers = sorted({str(_object(one).get("manager")) for one in listed})
    if not managers or FIELD_MANAGER in managers:
        return ""
    holder = _object(body.get("spec")).get("holderIdentity")
    return (
        f"the lease '{meta.get('name')}' belongs to something else: {holder}, written by "
        f"{', '.join(managers)}"
    )


def _memory(body: Document) -> str | None:
    """What the holder of a lease has left in it."""
    notes = _object(_object(body.get("metadata")).get("annotations"))
    found = notes.get(MEMORY)
    return found if isinstance(found, str) else None


def _object(value: object) -> Document:
    """An object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float:
    """A number that a lease may hold; 0 for anything else."""
    return float(value) if isinstance(value, int | float) and 0 < value < _MOST else 0.0
