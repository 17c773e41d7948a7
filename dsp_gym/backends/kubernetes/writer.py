"""The write: one override, under lease and stamp, for the spec it was decided for, or not at all.

Whatever is not certain is read again before anything is repeated. The version in the patch makes
the server refuse what was made for another state of the resource; but the operator writes its
status all the time, so a conflict alone says nothing about the spec.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.fence import Fence, Refusal, check_admitted
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.resources import FlinkResource, Stamp
from dsp_gym.backends.lease import elapsed
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError

_WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class _Change:
    """What is to be written."""

    overrides: Mapping[str, int]
    arguments: Sequence[str] | None
    decision: str | None
    until_s: float

    def is_in(self, resource: FlinkResource) -> bool:
        there = {**resource.overrides, **self.overrides} == resource.overrides
        return there and (self.arguments is None or tuple(self.arguments) == resource.job_arguments)

    def patch(self, resource: FlinkResource, stamp: Stamp) -> Document:
        """The patch; the job's arguments are beyond the rule of the admission policy.

        Raises:
            Refusal: The rule forbids the rest.
        """
        patch = resource.patch_for(self.overrides)
        patch["metadata"] = {"annotations": stamp.annotations()}
        check_admitted(resource, patch)
        if self.arguments is not None:
            patch["spec"]["job"] = {"args": list(self.arguments)}
        return patch


@dataclass(frozen=True, slots=True)
class _Lost:
    """A write without an answer: while the resource has that version it may yet arrive."""

    before: FlinkResource
    error: KubernetesError

    def is_ruled_out_by(self, now: FlinkResource) -> bool:
        """Whether it can neither arrive any more nor have been made: others wrote, but no spec."""
        before = self.before
        if now.uid != before.uid or now.resource_version == before.resource_version:
            return False
        return now.generation == before.generation

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
        clock: seconds that only go forward, by which a decision ages.
    """

    def __init__(
        self,
        api: KubernetesApi,
        kind: str,
        namespace: str,
        name: str,
        lease: Lease,
        *,
        attempts: int = 8,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = elapsed,
    ) -> None:
        self._api, self._where, self._lease = api, (kind, namespace, name), lease
        self._attempts, self._sleep, self.clock = attempts, sleep, clock
        self._fence = Fence(api, self._where, lease)
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

    def claim(self) -> None:
        """Stamp the resource, as a new leader does before anything else.

        What may not be written to is left alone; it is stamped before the first write to it.

        Raises:
            Refusal: A later leader has stamped it, or the lease is not held.
            KubernetesError: The server refuses, does not answer, or has a conflict every time.
        """
        for attempt in range(self._attempts):
            if attempt:
                self._pause(attempt)
            now = self.read()
            if now.reason_not_to_write() is not None:
                return
            try:
                self._fence.entered(now)
                return
            except KubernetesError as error:
                if _is_final(error) or attempt + 1 == self._attempts:
                    raise

    def write(
        self,
        seen: FlinkResource,
        overrides: Mapping[str, int],
        arguments: Sequence[str] | None = None,
        *,
        back: bool = False,
        decision: str | None = None,
        until_s: float = math.inf,
    ) -> FlinkResource:
        """Write parallelism by vertex id.

        Args:
            seen: the resource the decision was made for; only if its spec stands is written.
            overrides: what is asked for.
            arguments: the job's own, where they change, too.
            back: the old numbers are put back; that the job is in trouble does not stop this.
            decision: id that is written beside them.
            until_s: time of the clock from which on the decision is too old to be written.

        Returns:
            The resource as it then stands there.

        Raises:
            Refusal: Nothing was written, for a reason of the resource or of the lease.
            KubernetesError: The server refuses, or whether it wrote could not be found out
                (`may_have_acted`).
        """
        change = _Change(overrides, arguments, decision, until_s)
        lost: _Lost | None = None
        for attempt in range(self._attempts):
            if attempt:
                self._pause(attempt)
            try:
                now = self.read()
            except KubernetesError as error:
                if lost is None:
                    raise
                lost = _Lost(lost.before, error)
                continue
            if now.uid == seen.uid and change.is_in(now):
                if lost is not None:
                    self.outcomes["written"] += 1
                return now
            try:
                self._check(seen, now, back=back)
                now = self._fence.entered(now)
                return self._patched(now, change)
            except KubernetesError as error:
                if error.may_have_acted:
                    self.outcomes["lost"] += 1
                    lost = _Lost(now, error)
                elif not _is_final(error):
                    self.outcomes["conflict"] += 1
                else:
                    self.outcomes["refused"] += 1
                    if lost is not None and not lost.is_ruled_out_by(now):
                        raise lost.told(seen) from error
                    raise
        raise self._given_up(seen, lost)

    def _given_up(self, seen: FlinkResource, lost: _Lost | None) -> KubernetesError:
        """What a change comes to that no attempt is known to have written."""
        if lost is not None:
            return lost.told(seen)
        self.outcomes["refused"] += 1
        return Refusal(
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

    def _pause(self, attempt: int) -> None:
        self._sleep(_WAIT_S * random.uniform(0.5, 1.0) * min(attempt, 10))

    def _patched(self, now: FlinkResource, change: _Change) -> FlinkResource:
        """Write, right after a look at the lease and the clock."""
        if not self._lease.is_held_now(self._api.timeout_s):
            raise Refusal(
                f"{now}: the lease is not held, so another instance may act", reason="Conflict"
            )
        patch = change.patch(now, self._fence.stamp(change.decision))
        if self.clock() >= change.until_s:
            raise Refusal(f"{now}: the decision is older than its interval", reason="Conflict")
        body = self._api.merge_patch(*self._where, patch, resource_version=now.resource_version)
        self.outcomes["written"] += 1
        return FlinkResource.parse({"kind": self._where[0], **body})


def _is_final(error: KubernetesError) -> bool:
    """Whether another look at the resource would change nothing about it."""
    return error.reason != "Conflict" or isinstance(error, Refusal)


def _spec(resource: FlinkResource) -> tuple[object, ...]:
    """What makes a spec another one: its generation, and what is about to be replaced."""
    return resource.generation, dict(resource.overrides), resource.job_arguments
