"""The write: one override, under the lease, for the spec the decision was made for, or not at all.

Whatever is not certain is read again before anything is repeated. The version in the patch makes
the server refuse what was made for another state of the resource; but the operator writes its
status all the time, so a conflict alone says nothing about the spec.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from dsp_gym.backends.documents import Document
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.errors import KubernetesError

__all__ = ["HeldLease", "OverrideWriter", "PatchApi", "Refusal"]

_WAIT_S = 0.2


class Refusal(KubernetesError):
    """A write that is not made, for a reason that may pass."""


class PatchApi(Protocol):
    """What writing needs of an API server."""

    @property
    def timeout_s(self) -> float:
        """How long one call takes at most, s."""

    def get(self, kind: str, namespace: str, name: str) -> Document:
        """One object.

        Returns:
            The object's document.
        """

    def merge_patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        body: Document,
        *,
        resource_version: str,
        dry_run: bool = False,
    ) -> Document:
        """Merge a patch into an object, if it still has that version.

        Returns:
            The object after the patch; a dry run's is not stored.
        """


class HeldLease(Protocol):
    """What writing needs of a lease."""

    def is_held_now(self, for_s: float = 0.0) -> bool:
        """Whether it is held, and for so much longer.

        Returns:
            True where this instance holds it for `for_s` seconds more.
        """


@dataclass(frozen=True, slots=True)
class _Change:
    """What is to be written."""

    overrides: Mapping[str, int]
    arguments: Sequence[str] | None

    def is_in(self, resource: FlinkResource) -> bool:
        there = {**resource.overrides, **self.overrides} == resource.overrides
        return there and (self.arguments is None or tuple(self.arguments) == resource.job_arguments)

    def patch(self, resource: FlinkResource) -> Document:
        patch = resource.patch_for(self.overrides)
        if self.arguments is not None:
            patch["spec"]["job"] = {"args": list(self.arguments)}
        return patch


@dataclass(frozen=True, slots=True)
class _Lost:
    """A write without an answer: while the resource has that version it may yet arrive."""

    version: str
    error: KubernetesError

    def told(self, resource: FlinkResource) -> KubernetesError:
        return KubernetesError(
            f"{resource}: whether a write was made is not known: {self.error.message}",
            reason=self.error.reason,
            may_have_acted=True,
            remedy="Look at the resource when the API server answers again.",
        )


class OverrideWriter:
    """Writes overrides to one resource.

    Args:
        api: the server.
        kind: FlinkDeployment or FlinkSessionJob.
        namespace: where.
        name: of the resource.
        lease: looked at right before each write.
        attempts: how often a conflict, or an answer that was lost, is met with another look.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        api: PatchApi,
        kind: str,
        namespace: str,
        name: str,
        lease: HeldLease,
        *,
        attempts: int = 8,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._api, self._where, self._lease = api, (kind, namespace, name), lease
        self._attempts, self._sleep = attempts, sleep
        self.outcomes: Counter[str] = Counter()
        """written, conflict, lost (no answer), refused: how often each came about."""

    def read(self) -> FlinkResource:
        """Read the resource.

        Returns:
            The resource as it stands there.

        Raises:
            KubernetesError: The server does not say.
        """
        return FlinkResource.parse({"kind": self._where[0], **self._api.get(*self._where)})

    def write(
        self,
        seen: FlinkResource,
        overrides: Mapping[str, int],
        arguments: Sequence[str] | None = None,
        *,
        back: bool = False,
    ) -> FlinkResource:
        """Write parallelism by vertex id.

        Args:
            seen: the resource the decision was made for; only if its spec stands is written.
            overrides: what is asked for.
            arguments: the job's own, where they change, too.
            back: the old numbers are put back; that the job is in trouble does not stop this.

        Returns:
            The resource as it then stands there.

        Raises:
            Refusal: Nothing was written, for a reason of the resource or of the lease.
            KubernetesError: The server refuses, or whether it wrote could not be found out
                (`may_have_acted`).
        """
        change = _Change(overrides, arguments)
        lost: _Lost | None = None
        for attempt in range(self._attempts):
            if attempt:
                self._sleep(_WAIT_S * random.uniform(0.5, 1.0) * min(attempt, 10))
            try:
                now = self.read()
            except KubernetesError as error:
                if lost is None:
                    raise
                lost = _Lost(lost.version, error)
                continue
            if now.uid == seen.uid and change.is_in(now):
                if lost is not None:
                    self.outcomes["written"] += 1
                return now
            try:
                self._check(seen, now, back=back)
                return self._patched(now, change)
            except KubernetesError as error:
                if error.may_have_acted:
                    self.outcomes["lost"] += 1
                    lost = _Lost(now.resource_version, error)
                elif error.reason == "Conflict" and not isinstance(error, Refusal):
                    self.outcomes["conflict"] += 1
                else:
                    self.outcomes["refused"] += 1
                    if lost is not None and lost.version == now.resource_version:
                        raise lost.told(seen) from error  # it may yet arrive
                    raise
        if lost is not None:
            raise lost.told(seen)
        self.outcomes["refused"] += 1
        raise Refusal(
            f"{seen}: {self._attempts} writes in a row met with a conflict",
            reason="Conflict",
            remedy="Does something else write to it all the time (kubectl get ... -o yaml "
            "--show-managed-fields)?",
        )

    def _check(self, seen: FlinkResource, now: FlinkResource, *, back: bool) -> None:
        """Refuse to write to a resource other than the observed one."""
        reason = now.reason_not_to_write() if back else now.reason_not_to_act()
        if now.uid != seen.uid:
            reason = "it was deleted and created again"
        elif reason is None and _spec(now) != _spec(seen):
            reason = "another client has changed its spec"
        if reason is not None:
            raise Refusal(f"{now}: {reason}", reason="Conflict")

    def _patched(self, now: FlinkResource, change: _Change) -> FlinkResource:
        """Write, right after a look at the lease."""
        if not self._lease.is_held_now(self._api.timeout_s):
            raise Refusal(
                f"{now}: the lease is not held, so another instance may act", reason="Conflict"
            )
        body = self._api.merge_patch(
            *self._where, change.patch(now), resource_version=now.resource_version
        )
        self.outcomes["written"] += 1
        return FlinkResource.parse({"kind": self._where[0], **body})


def _spec(resource: FlinkResource) -> tuple[object, ...]:
    """What makes a spec another one: its generation, and what is about to be replaced."""
    return resource.generation, dict(resource.overrides), resource.job_arguments
