"""The fence: a new leader stamps the resource before anything else.

Between a writer's look at its lease and its write it may be frozen, for as long as it takes. The
stamp changes the version of the resource, so that what was made for the version before it is
refused by the server, whenever it arrives; and who finds another's stamp writes no more.
"""

from __future__ import annotations

import threading

from dsp_gym.backends.kubernetes.admission import merged, refusal
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.resources import LEAP, FlinkResource, Stamp
from dsp_gym.config.strict_json import Document
from dsp_gym.errors import KubernetesError


class Refusal(KubernetesError):
    """A write that is not made, for a reason that may pass."""


def check_admitted(now: FlinkResource, patch: Document) -> None:
    """Refuse a write that the admission policy would refuse.

    Args:
        now: the resource as it stands there.
        patch: a merge patch of it.

    Raises:
        Refusal: One write may not change that.
    """
    reason = refusal(now.body, merged(now.body, patch))
    if reason is not None:
        raise Refusal(f"{now}: {reason}", reason="Conflict")


class Fence:
    """The stamp of one instance on one resource; the lease's thread and the writer's share it.

    Args:
        api: the server.
        where: kind, namespace and name of the resource.
        lease: looked at right before each stamp.
    """

    def __init__(self, api: KubernetesApi, where: tuple[str, str, str], lease: Lease) -> None:
        self._api, self._where, self._lease = api, where, lease
        self._epoch = 0  # the greatest that this instance has asked for
        self._asked_term = 0  # when that was
        self._term = 0  # of the stamp that is known to stand
        self._lock = threading.Lock()

    def stamp(self, decision: str | None = None) -> Stamp:
        """Make the stamp of a write.

        Returns:
            The stamp of this instance in this term, with the id of the decision.
        """
        return Stamp(self._epoch, self._lease.holder, decision)

    def entered(self, now: FlinkResource) -> FlinkResource:
        """See that the resource bears this leader's stamp.

        Args:
            now: the resource, just read.

        Returns:
            The resource under the stamp; the same one where it was stamped before.

        Raises:
            Refusal: A later leader has stamped it, or the lease is not held.
            KubernetesError: The server refuses, or does not answer.
        """
        with self._lock:
            there, term = now.stamp, self._lease.term
            if there.trouble is not None:
                raise Refusal(f"{now}: {there.trouble}", reason="Conflict")
            if (there.epoch, there.holder) == (self._epoch, self._lease.holder):
                self._term = self._asked_term
            if self._term == term != 0:
                if (there.epoch, there.holder) == (self._epoch, self._lease.holder):
                    return now
                if there.epoch >= self._epoch:
                    raise Refusal(
                        f"{now}: '{there.holder}' has taken over, with epoch {there.epoch} after "
                        f"{self._epoch}",
                        reason="Conflict",
                    )
            epoch = min(max(there.epoch, self._epoch) + 1, there.epoch + LEAP)
            return self._stamped(now, epoch, term)

    def _stamped(self, now: FlinkResource, epoch: int, term: int) -> FlinkResource:
        if not self._lease.is_held_now(self._api.timeout_s):
            raise Refusal(
                f"{now}: the lease is not held, so another instance may act", reason="Conflict"
            )
        self._epoch, self._asked_term = epoch, term
        patch: Document = {"metadata": {"annotations": self.stamp().annotations()}}
        check_admitted(now, patch)
        try:
            body = self._api.merge_patch(*self._where, patch, resource_version=now.resource_version)
        except KubernetesError as error:
            if not error.may_have_acted:
                raise
            raise KubernetesError(  # a stamp that arrives late changes nothing of the spec
                f"{now}: it could not be stamped: {error.message}",
                reason=error.reason,
                remedy=error.remedy,
            ) from error
        self._term = term
        return FlinkResource.parse({"kind": self._where[0], **body})
