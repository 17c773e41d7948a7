"""Rescaling through the Flink Kubernetes Operator: one key of the resource is written.

The operator then does the rest, in its own time and whether or not this process lives on. So a
write is followed until the parallelism it asks for runs, and the old numbers are written back where
it does not come about: a vertex that vanishes from the override would make the operator redeploy.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from dsp_gym.backends.base import OnEvent, ignored
from dsp_gym.backends.flink.rescale.running import RunningJob
from dsp_gym.backends.flink.rescale.worker import JobActuator, Unreached, as_words, clipped
from dsp_gym.backends.flink.submission import Submission
from dsp_gym.backends.kubernetes.api import FIELD_MANAGER, KubernetesApi
from dsp_gym.backends.kubernetes.collector import RunningVertices
from dsp_gym.backends.kubernetes.config import KubernetesPlace
from dsp_gym.backends.kubernetes.lease import Lease
from dsp_gym.backends.kubernetes.overrides import levels_in, levels_shown, with_levels
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.backends.kubernetes.writer import OverrideWriter
from dsp_gym.backends.lease import LeaseKeeper
from dsp_gym.errors import FlinkError, KubernetesError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.protocols import ActuatorStatus

_TROUBLED = ("ROLLED_BACK", "ROLLING_BACK", "FAILED", "SUSPENDED", "DELETING", "DELETED")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an actuator looks at what it asked for, and how long it waits at the end."""

    poll_s: float = 1.0
    """Seconds between two looks at the running tasks."""

    close_s: float = 20.0
    """How long `close` waits for a change to come about; the operator carries on by itself."""

    sleep: Callable[[float], object] = time.sleep
    """Waits that many seconds."""

    interval_s: float = math.inf
    """Seconds from one decision to the next; one that is older is not written."""


class KubernetesActuator(JobActuator):
    """Asks for parallelism in the resource, and sees that it comes about.

    Args:
        api: the server.
        place: the resource, and the time limits.
        name: of the resource.
        spec: its job file.
        look: counts the running tasks, through Flink or its metrics.
        lease: held by the instance that acts.
        pace: how often it looks, and how long it waits at the end.
        on_event: receives every step, from the thread of the request.
    """

    def __init__(
        self,
        api: KubernetesApi,
        place: KubernetesPlace,
        name: str,
        spec: JobSpec,
        look: Callable[[], RunningVertices],
        lease: Lease,
        *,
        pace: Pace | None = None,
        on_event: OnEvent = ignored,
    ) -> None:
        self._pace = pace or Pace()
        self.place, self.lease, self._look = place, lease, look
        self.writer = OverrideWriter(
            api, place.kind, place.namespace, name, lease, sleep=self._pace.sleep
        )
        self._seen: FlinkResource | None = None  # the resource a request was made for
        self._wrote: FlinkResource | None = None  # the resource as written, until that runs
        self._ran: RunningVertices | None = None  # seen last
        start = Configuration.of_spec(spec)
        self._found: FlinkResource | None = None  # the resource as compared with what was asked
        self._levels: Mapping[str, int] = levels_shown((), spec) or start.memory_level
        self._before: Configuration | None = None  # the last change, to be taken back
        self._changed_in: int | None = (
            None  # term of the lease in which this process changed anything last
        )
        self._asked_back: tuple[Configuration, str] | None = None  # a request to go back, and why
        self._going_back: str | None = None  # why, while that is under way
        self._abandon: str | None = None  # why what is under way is to be given up
        self._decided_s = math.inf  # when what is under way was decided last, by the writer's clock
        self._decision: str | None = None  # its id, in the journal and on the resource
        self._left = threading.Event()
        self._is_made = False
        super().__init__(
            name,
            spec,
            timeout_s=place.rescale_timeout_s,
            poll_s=self._pace.poll_s,
            on_event=on_event,
        )
        self._is_made = True
        self.keeper = LeaseKeeper(lease, self.writer.claim)

    def apply(self, guarded: GuardedDecision) -> None:
        """Ask for the guarded configuration; returns at once.

        What is under way and decided again is as young as the last decision.
        """
        wanted = clipped(guarded, self.topology)
        with self._lock:
            if self._under_way is None or self._under_way == wanted:
                self._decided_s = self.writer.clock()
        super().apply(guarded)

    def roll_back(self, before: GuardedDecision, reason: str) -> None:
        """Write the numbers from before the last change; returns at once.

        What is under way is given up, and its old numbers are written back. Of these numbers the
        actuator has its own record; `before` is needed where an earlier process made the
        change.
        """
        with self._lock:
            if self._under_way is not None:
                self._abandon = reason
                return
            wanted, self._before = self._before, None
            if self._changed_in != self.lease.term:  # another process has acted since
                wanted = clipped(before, self.topology)
            if wanted is None or self._closing.is_set():
                said = "there is no change to take back" if wanted is None else "it is closed"
            else:
                self._asked_back = (wanted, reason)
                self._begin(wanted)
                return
            self._status = ActuatorStatus.FAILED
        self._emit("refused", {"reason": said, "asked": reason})

    def close(self) -> None:
        """Wait for what is under way, but not for long, and give up the lease.

        A write that was made stands; the operator carries it out.
        """
        timer = threading.Timer(self._pace.close_s, self._left.set)
        timer.daemon = True
        timer.start()
        try:
            super().close()
        finally:
            timer.cancel()
            self.keeper.close()

    def _handle(self, wanted: Configuration) -> None:
        with self._lock:
            asked = self._asked_back
            if asked is not None and asked[0] is wanted:
                self._asked_back, self._going_back = None, asked[1]
        try:
            super()._handle(wanted)
        finally:
            self._going_back = self._abandon = None

    def _intend(self, kind: str, body: dict[str, object]) -> None:
        """Report the request with an id, which its write leaves on the resource."""
        self._decision = uuid.uuid4().hex[:16]
        super()._intend(kind, {**body, "id": self._decision})

    def _read(self) -> RunningJob:
        try:
            self._seen = resource = self.writer.read()
        except KubernetesError as error:
            raise Unreached(str(error)) from error
        try:
            self._ran = ran = self._look()
        except FlinkError:
            if not self._is_made:  # a job that is down now is scaled when it runs
                starts = Configuration(Configuration.of_spec(self.spec).parallelism, self._levels)
                return self._running(resource, "", starts, {})
            if self._ran is None or self._going_back is None:
                raise
            ran = self._ran  # the job is down, and that is why one goes back
        self._levels = levels_shown(resource.effective_arguments, self.spec) or self._levels
        runs = Configuration(self._asked_of(resource, ran), dict(self._levels))
        return self._running(resource, ran.job_id, runs, ran.ids)

    def _asked_of(self, resource: FlinkResource, ran: RunningVertices) -> dict[str, int]:
        """Tasks by vertex that the resource asks for, and else those that run.

        Fewer may be seen to run while a TaskManager is away or not scraped: what was asked for
        before a change is what comes back after it.

        Raises:
            Unreached: The resource does not say it of all vertices, and not every task runs.
        """
        names = [vertex.name for vertex in self.spec.vertices]
        says = {name: resource.overrides.get(ran.ids[name]) for name in names}
        is_known = ran.settled or not self._is_made or self._going_back is not None
        if not is_known and None in says.values():
            raise Unreached(
                f"not every task of the job runs: {_tasks(ran)}", remedy="Ask again when they do."
            )
        return {name: says[name] or ran.parallelism[name] for name in names}

    def _running(
        self, resource: FlinkResource, job_id: str, runs: Configuration, ids: Mapping[str, str]
    ) -> RunningJob:
        submission = Submission.of_spec(self.spec, {}, self.job_name)
        return RunningJob(job_id, resource.job_state, submission, runs, dict(ids))

    def _lease_of(self) -> Lease:
        return self.lease

    def _standing(self) -> Hashable:
        self._found = self.writer.read()
        return _mark(self._found.overrides)

    def _described(self) -> tuple[str, str | None]:
        """The override, and the client that the server names."""
        found = self._found
        assert found is not None  # it was just read
        ids = {} if self._ran is None else self._ran.ids
        names = {vertex_id: name for name, vertex_id in ids.items()}
        tasks = " ".join(f"{names.get(i, i)}={n}" for i, n in found.overrides.items())
        by = found.override_manager
        if by == FIELD_MANAGER and found.stamp.holder != self.lease.holder:
            by = f"{by} ({found.stamp.holder})"
        return tasks or "no override", by

    def _rescale(self, job: RunningJob, wanted: Configuration) -> None:
        self._wrote, seen, back = None, self._seen, self._going_back is not None
        assert seen is not None
        arguments = self._arguments(seen, job, wanted)
        began = time.monotonic()
        self._wrote = self._written(seen, job, wanted, arguments, back=back)
        self._is_asked = True
        self._emit(
            "submitted",
            {
                "job_id": job.id,
                "generation": self._wrote.generation,
                "overrides": dict(self._wrote.overrides),
                "reason": self._going_back,
            },
        )
        self._wait(self._wrote, wanted, back=back)
        self._watch.stands(_mark(self._wrote.overrides))
        self._emit("running", {"job_id": self._job_id(), "seconds": time.monotonic() - began})
        self._wrote = None
        self._before = None if back else job.configuration
        self._changed_in = self.lease.term

    def _recover(self, job: RunningJob, wanted: Configuration) -> None:
        """Put the old numbers back, unless nothing was written or another client has written."""
        wrote, self._wrote = self._wrote, None
        if wrote is None:
            return
        if self._left.is_set():
            self._emit("left", {"job_id": job.id, "overrides": dict(wrote.overrides)})
            return
        arguments = self._arguments(wrote, job, job.configuration)
        try:
            now = self._written(wrote, job, job.configuration, arguments, back=True)
            self._wait(now, job.configuration, back=True)
            self._watch.stands(_mark(now.overrides), settled=False)
        except (FlinkError, KubernetesError) as error:
            self._alarm(job, error)
        else:
            self._emit("restored", {"job_id": self._job_id()})

    def _written(
        self,
        seen: FlinkResource,
        job: RunningJob,
        wanted: Configuration,
        arguments: tuple[str, ...] | None,
        *,
        back: bool,
    ) -> FlinkResource:
        """Write a configuration under the lease."""
        overrides = {job.vertex_ids[name]: tasks for name, tasks in wanted.parallelism.items()}
        try:
            if not self.lease.try_acquire():
                raise Unreached(
                    self.lease.taken(),
                    remedy="Only one may act; this one takes over when the other ends, but never "
                    "from a lease of something else: name another one with `lease`.",
                )
            self._watch.asking(_mark({**seen.overrides, **overrides}))
            until_s = math.inf if back else self._decided_s + self._pace.interval_s
            return self.writer.write(
                seen, overrides, arguments, back=back, decision=self._decision, until_s=until_s
            )
        except KubernetesError as error:
            status = ActuatorStatus.TIMED_OUT if error.may_have_acted else ActuatorStatus.FAILED
            self._is_asked = error.may_have_acted
            if error.may_have_acted:
                self._emit(
                    "alarm",
                    {
                        "reason": str(error),
                        "overrides": overrides,
                        "remedy": "look at the resource",
                    },
                )
            raise Unreached(str(error), status=status) from error

    def _arguments(
        self, seen: FlinkResource, job: RunningJob, wanted: Configuration
    ) -> tuple[str, ...] | None:
        """The job's arguments with the wanted memory levels; None where those stay."""
        if self.spec.memory.uniform:  # there is nothing to choose
            return None
        stays = wanted.memory_level == job.configuration.memory_level
        if self.place.memory_route == "none":
            if stays:
                return None
            raise Unreached(
                "a memory level is asked for, and the place has no route for memory",
                remedy="Set memory_route: job-arguments, or use a policy that leaves memory alone.",
            )
        asked = levels_in(seen.job_arguments, self.spec)
        if asked is None and not stays:
            raise Unreached(
                f"{seen}: spec.job.args do not belong to a job of this project",
                remedy="Set memory_route: none.",
            )
        if asked is None or asked == wanted.memory_level:
            return None
        return with_levels(seen.job_arguments, wanted.memory_level, self.spec)

    def _wait(self, wrote: FlinkResource, wanted: Configuration, *, back: bool) -> None:
        """Follow a write until the configuration runs in full."""
        began = time.monotonic()
        reacted, trouble = False, ""
        while True:
            if self._abandon is not None and not back:
                raise Unreached(f"taken back: {self._abandon}")
            try:
                now = self.writer.read()
                self._check(wrote, now)
                reacted = reacted or _reacted(wrote, now)
                self._ran = self._look()
                if self._runs(now, self._ran, wanted):
                    return
                trouble = f"; it runs {_tasks(self._ran)}"
            except Unreached:
                raise
            except (FlinkError, KubernetesError) as error:  # out of reach for a moment
                trouble = f"; {error}"
            waited_s = time.monotonic() - began
            if self._left.is_set():
                raise Unreached(
                    "closed before the job ran; the operator continues",
                    status=ActuatorStatus.TIMED_OUT,
                )
            if not reacted and waited_s > self.place.reaction_s:
                raise Unreached(
                    f"the operator did not react within {self.place.reaction_s:g} s{trouble}",
                    status=ActuatorStatus.TIMED_OUT,
                    remedy="Does the operator run, and watch this namespace?",
                )
            if waited_s > self.timeout_s:
                raise Unreached(
                    f"the new configuration did not run within {self.timeout_s:g} s{trouble}",
                    status=ActuatorStatus.TIMED_OUT,
                    remedy="Are there nodes and quota for its TaskManagers?",
                )
            self._pace.sleep(self.poll_s)

    def _check(self, wrote: FlinkResource, now: FlinkResource) -> None:
        """Give up where what was written does not stand, or will not run."""
        if now.uid != wrote.uid:
            self._wrote = None
            raise Unreached(f"{now} was deleted and created again")
        if now.overrides != wrote.overrides:
            self._wrote = None  # it is not ours to put back
            raise Unreached(f"{now}: another client has overwritten the override")
        if now.has_ended:
            self._wrote = None  # the old numbers would start it again
            raise Unreached(f"{now}: its job is {now.job_state}")
        if now.lifecycle_state in _TROUBLED and now.generation == now.observed_generation:
            said = f": {now.error}" if now.error else ""
            raise Unreached(f"{now} is {now.lifecycle_state}{said}")

    def _runs(self, now: FlinkResource, ran: RunningVertices, wanted: Configuration) -> bool:
        """Whether the configuration runs, and the operator is done with it."""
        levels = levels_shown(now.effective_arguments, self.spec)
        if levels is not None and levels != wanted.memory_level:
            return False
        is_done = now.lifecycle_state == "STABLE" and not now.has_pending_change
        return is_done and ran.settled and dict(ran.parallelism) == dict(wanted.parallelism)

    def _job_id(self) -> str | None:
        return None if self._ran is None else self._ran.job_id

    def _alarm(self, job: RunningJob, error: Exception) -> None:
        numbers = {job.vertex_ids[v]: n for v, n in job.configuration.parallelism.items()}
        self._emit(
            "alarm",
            {
                "reason": f"the job does not run as before the change: {error}",
                "job_id": job.id,
                "configuration": as_words(job.configuration),
                "overrides": numbers,
                "remedy": "See why in the resource's status; then write the overrides given here.",
            },
        )


def _mark(overrides: Mapping[str, int]) -> Hashable:
    """Make a value that is equal for overrides that ask for the same."""
    return frozenset(overrides.items())


def _reacted(wrote: FlinkResource, now: FlinkResource) -> bool:
    """Whether the operator has begun."""
    observed = now.observed_generation
    is_seen = observed is not None and wrote.generation is not None and observed >= wrote.generation
    return is_seen or now.lifecycle_state not in (wrote.lifecycle_state, "STABLE")


def _tasks(ran: RunningVertices) -> str:
    return ", ".join(f"{name}={tasks}" for name, tasks in ran.parallelism.items())
