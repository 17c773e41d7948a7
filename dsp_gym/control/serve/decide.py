"""Decisions for others: a snapshot comes in, the guarded decision of a policy goes out.

Each client's job has its own copy of the policy and of its guardrails, with its own history; the
loop that runs beside is not touched. Histories are bounded in bytes. Those in use are never given
up, for with them go cool-downs and the order of snapshots: a job for which there is no room is
refused instead.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dsp_gym.control.history import RequestHistory
from dsp_gym.control.seat import Seat
from dsp_gym.control.serve.sizes import size_of
from dsp_gym.errors import ConfigError, MetricsError, did_you_mean
from dsp_gym.loop.protocols import Sharing
from dsp_gym.loop.reading import SnapshotReader
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.wire import Document, decision_to_json

__all__ = ["BusyError", "Decisions", "FullError"]

SILENT_S = 86_400.0
"""A history that nobody has asked about for so long may make room for another; no cool-down and no
window of a guardrail is as long."""

AHEAD_S = 60.0
"""How far a snapshot's time may lie ahead of this machine's clock: clocks differ."""

WAIT_S = 0.5
"""Longest wait for the decision before on the same job, s."""


class BusyError(Exception):
    """The job's snapshot before is still being decided."""


class FullError(Exception):
    """There is no room for the history of another job."""


class Key(NamedTuple):
    """Whose history it is."""

    client: str
    policy: str
    job: str


@dataclass(slots=True)
class _Job:
    seat: Seat
    history: RequestHistory
    reader: SnapshotReader
    asked_s: float
    bytes: int = 0
    answers: int = 0
    weighed_at: int = 16  # answers
    lock: threading.Lock = field(default_factory=threading.Lock)


class Decisions:
    """Answers `dsp-gym/snapshot/1` with `dsp-gym/decision/1`.

    Args:
        seats: makes the seat of one policy, by name.
        default: the policy that answers where none is named.
        seed: of policies that draw.
        most_bytes: of all histories together.
        shared: what the seats share, and no history holds alone.
        now: Unix seconds.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        seats: Mapping[str, Callable[[], Seat]],
        default: str,
        seed: int = 0,
        *,
        most_bytes: int = 64 * 2**20,
        shared: tuple[object, ...] = (),
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seats, self._default, self._seed = dict(seats), default, seed
        self._most_bytes, self._shared = most_bytes, shared
        self._now, self._clock = now, clock
        self._jobs: OrderedDict[Key, _Job] = OrderedDict()  # the one asked for last comes last
        self._bytes = 0
        self._forgotten_s = float("-inf")  # newest snapshot of a history that was given up
        self._lock, self._making = threading.Lock(), threading.Lock()

    @property
    def policies(self) -> list[str]:
        """Names that may be asked for."""
        return sorted(self._seats)

    @property
    def held_bytes(self) -> int:
        """Bytes of all histories together."""
        return self._bytes

    def answer(
        self,
        document: Document,
        policy: str | None = None,
        client: str = "",
        *,
        enacts: bool = True,
    ) -> Document:
        """The decision on one snapshot.

        Args:
            document: the snapshot.
            policy: whose decision; None: that of the acting policy.
            client: who asks; clients do not share histories.
            enacts: whether the client enacts the answer; if not the guardrails count nothing.

        Returns:
            The guarded decision as a `dsp-gym/decision/1` document.

        Raises:
            DspGymError: The document is none, contradicts the job's history, or the policy does not
                fit the job.
            BusyError: The snapshot before is still being decided.
            FullError: There is no room for the history of another job.
        """
        name = policy or self._default
        if name not in self._seats:
            raise ConfigError(
                f"there is no policy '{name}' here",
                key="policy",
                remedy=did_you_mean(name, self._seats),
            )
        given = document.get("job") if isinstance(document, dict) else None
        asked = self._known(Key(client, name, given)) if isinstance(given, str) else None
        if asked is None:
            asked = self._begun(document, name, client)
        if not asked.lock.acquire(timeout=WAIT_S):
            raise BusyError(
                f"a decision on job '{given}' is under way for {WAIT_S:g} s; send its snapshots "
                "one after the other"
            )
        try:
            return self._decided(asked, asked.reader.read(document), enacts=enacts)
        finally:
            asked.lock.release()

    def close(self) -> None:
        """Forget every job."""
        with self._lock:
            self._jobs.clear()
            self._bytes = 0

    def _decided(self, asked: _Job, snapshot: MetricsSnapshot, *, enacts: bool) -> Document:
        self._refuse_future(snapshot)
        asked.history.take(snapshot)
        judged = asked.seat.decide(snapshot)
        answer = decision_to_json(judged.guarded, snapshot.job(0))
        settled = asked.seat.settle(snapshot, judged, enacted=enacts)
        failure = judged.failure or settled
        if failure is not None:
            answer["reason"] = failure.reason
        if judged.forecast is not None:
            answer["forecast"] = judged.forecast.document(0)
        asked.answers += 1
        if asked.answers >= asked.weighed_at:  # a history grows less and less
            asked.weighed_at *= 4
            self._weigh(asked)
        return answer

    def _refuse_future(self, snapshot: MetricsSnapshot) -> None:
        ahead_s = float(snapshot.t_s[0]) - self._now()
        if ahead_s > AHEAD_S:
            raise MetricsError(
                f"t_s {float(snapshot.t_s[0]):.0f} of job '{snapshot.topology.spec(0).job}' lies "
                f"{ahead_s:.0f} s ahead of this machine's clock",
                remedy="Send Unix seconds, and see to it that both clocks are right.",
            )

    def _known(self, key: Key) -> _Job | None:
        with self._lock:
            found = self._jobs.get(key)
            if found is not None:
                found.asked_s = self._clock()
                self._jobs.move_to_end(key)
            return found

    def _begun(self, document: Document, policy: str, client: str) -> _Job:
        """A new history; nothing is remembered of a snapshot that is refused."""
        reader = SnapshotReader("request")
        snapshot = reader.read(document)
        key = Key(client, policy, snapshot.topology.spec(0).job)
        self._refuse_future(snapshot)
        with self._making:
            found = self._known(key)
            if found is not None:
                return found
            t_s = float(snapshot.t_s[0])
            if t_s <= self._forgotten_s:
                raise MetricsError(
                    f"t_s {t_s:.0f} of job '{key.job}' is older than histories that were given up",
                    remedy="Send a snapshot of today.",
                )
            self._make_room(key)
            seat = self._seats[policy]()
            seat.reset(snapshot.topology, np.array([self._seed], np.int64))
            history = RequestHistory(snapshot, "Send the snapshots of a job in order, each once.")
            made = _Job(seat, history, reader, self._clock())
            with self._lock:
                self._jobs[key] = made
            self._weigh(made)
            return made

    def _make_room(self, key: Key) -> None:
        """Give up histories that nobody asks about; another one counts as the largest there is."""
        with self._lock:
            needed = max((one.bytes for one in self._jobs.values()), default=0)
            while self._jobs and self._bytes + needed > self._most_bytes:
                oldest, job = next(iter(self._jobs.items()))
                if self._clock() - job.asked_s < SILENT_S:
                    raise FullError(
                        f"no room for job '{key.job}': the histories of {len(self._jobs)} jobs "
                        f"take {self._bytes / 2**20:.0f} MiB, {self._most_bytes / 2**20:.0f} MiB "
                        "are the most, and all were asked about within a day. Raise "
                        "serve.history_mib."
                    )
                del self._jobs[oldest]
                self._bytes -= job.bytes
                self._forgotten_s = max(self._forgotten_s, job.history.t_s)

    def _weigh(self, job: _Job) -> None:
        policy = job.seat.policy
        shared = policy.shared if isinstance(policy, Sharing) else ()
        taken = size_of((job.seat, job.reader, job.history), (*self._shared, *shared))
        with self._lock:
            self._bytes += taken - job.bytes
            job.bytes = taken
