"""What a custom resource and its operator say about acting on a job."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dsp_gym.backends.base import Clock, Leadership, Platform
from dsp_gym.backends.interference import Interference
from dsp_gym.backends.kubernetes.access import Proof, RightsWatch
from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.collector import KubernetesJob, KubernetesSamples
from dsp_gym.backends.kubernetes.events import ScalingReports, VertexChange
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.backends.kubernetes.watch import Watcher
from dsp_gym.errors import FlinkError, KubernetesError, did_you_mean
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.rates import ds2_rates
from dsp_gym.loop.snapshot import MetricsSnapshot


@dataclass(frozen=True, slots=True)
class Followed:
    """An API server and a watcher of resources there, which the loops of several jobs may share."""

    api: KubernetesApi
    watcher: Watcher
    namespace: str
    only: str | None  # name of the one resource that is watched; None: whatever the place names
    rights: RightsWatch | None = None  # repeats the proof of an account that must only read
    proof: Proof | None = None  # the first one

    def resource(self, name: str) -> FlinkResource:
        """Find a resource by its name.

        Returns:
            The resource as last heard of.

        Raises:
            KubernetesError: No watched resource has that name.
        """
        known = self.watcher.resources()
        if name not in known:
            raise KubernetesError(
                f"there is no resource '{name}' there",
                reason="NotFound",
                remedy=did_you_mean(name, known),
            )
        return known[name]

    def must_end(self) -> KubernetesError | None:
        """Why nothing may go on with this account; None: it may.

        Returns:
            The rights that have appeared, as an error.
        """
        return None if self.rights is None else self.rights.error

    def close(self) -> None:
        """End the watcher and the connections."""
        if self.rights is not None:
            self.rights.close()
        self.watcher.close()
        self.api.close()


class ResourcePlatform(Platform):
    """The resource of one job, its operator, and the events on it.

    Args:
        followed: the server and its watcher.
        job: the job under the resource.
        samples: its metrics.
        clock: Unix seconds.
        leadership: the lease that an acting process holds; None: this one only watches.
        interference: finds what somebody else has changed.
    """

    def __init__(
        self,
        followed: Followed,
        job: KubernetesJob,
        samples: KubernetesSamples,
        clock: Clock,
        leadership: Leadership | None = None,
        interference: Callable[[], Interference | None] = lambda: None,
    ) -> None:
        self.watcher, self.job, self.leadership = followed.watcher, job, leadership
        self.namespace = followed.namespace
        self._followed, self._samples, self._clock = followed, samples, clock
        self._interference = interference
        self._reports = ScalingReports(followed.api, socket.gethostname(), clock.now)

    @property
    def resource(self) -> FlinkResource | None:
        """The resource as last heard of; None if it is gone."""
        return self.watcher.resources().get(self.job.name)

    def stopped(self) -> str | None:
        """Why nothing may be written to the resource, such as an annotation; None: it may.

        Returns:
            The reason, in words; None too before the resource was seen.
        """
        resource = self.resource
        return None if resource is None else resource.reason_not_to_write()

    def unsettled(self) -> str | None:
        """Why the resource may not be changed at this moment; None: it may.

        Returns:
            The reason, in words; a missing resource is one.
        """
        resource = self.resource
        return "the resource is not there" if resource is None else resource.reason_not_to_act()

    def interference(self) -> Interference | None:
        """What another client has written to the override; None: nothing.

        Returns:
            The first such change since this process acts.
        """
        return self._interference()

    def must_end(self) -> KubernetesError | None:
        """Why the run must end: an account that could only read may write meanwhile.

        Returns:
            The rights that have appeared, as an error; None without any.
        """
        return self._followed.must_end()

    def proved(self) -> str | None:
        """What the server said about the rights of an account that must only read.

        Returns:
            The proof of the start, in words; None where the account may write.
        """
        return None if self._followed.proof is None else str(self._followed.proof)

    def managed(self) -> str | None:
        """How the operator's own autoscaler scales the job; None: it does not.

        Returns:
            A sentence naming the resource and the operator's key.
        """
        resource = self.resource
        if resource is None or resource.builtin_autoscaler != "on":
            return None
        return f"the operator's own autoscaler scales {resource}: job.autoscaler.enabled"

    def written(self) -> str | None:
        """Which decision was written to the resource last.

        Returns:
            Its id, as in the intent; None where none was, or the resource is gone.
        """
        resource = self.resource
        return None if resource is None else resource.stamp.decision

    def advice(self) -> Mapping[str, int] | None:
        """What the built-in autoscaler recommends.

        Returns:
            Parallelism by vertex; None if it is off or silent.
        """
        resource = self.resource
        if resource is None or resource.builtin_autoscaler == "off":
            return None
        now_s = self._clock.now()
        try:
            ids = self.job.look().ids
            by_id = self._samples.advice(resource.namespace, resource.name, now_s - 60, now_s)
        except FlinkError:
            return None
        found = {name: by_id[vertex_id] for name, vertex_id in ids.items() if vertex_id in by_id}
        return found or None

    def tell(
        self, seen: MetricsSnapshot, guarded: GuardedDecision, *, enacted: bool, mode: str
    ) -> None:
        """Write a change as an Event, shaped like Flink's own scaling report.

        The same change is written once in half an hour.

        Raises:
            KubernetesError: The server did not take the event.
            FlinkError: Flink's ids of the vertices cannot be had.
        """
        resource = self.resource
        if resource is None:
            return
        ids = self.job.look().ids
        rates = ds2_rates(seen)
        changes = []
        for v, name in enumerate(seen.topology.names(0)):
            if name in ids:
                now, wanted = int(seen.parallelism[0, v]), int(guarded.parallelism[0, v])
                each, demand = float(rates.true_rate_per_task[0, v]), float(rates.demand[0, v])
                changes.append(
                    VertexChange(ids[name], now, wanted, now * each, wanted * each, demand)
                )
        self._reports.report(resource, changes, enacted=enacted, mode=mode)

    def errors(self) -> Mapping[str, int]:
        """How often the API server could not be watched.

        Returns:
            Failures by reason.
        """
        return self.watcher.errors
