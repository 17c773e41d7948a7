"""Decisions for others: a snapshot comes in, the guarded decision of a policy goes out.

Each client's job has its own copy of the policy and of its guardrails, with its own history; the
loop that runs beside is not touched.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dsp_gym.control.history import RequestHistory
from dsp_gym.control.seat import Seat
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.wire import Document, decision_to_json, snapshot_from_json

__all__ = ["Decisions"]

MOST_JOBS = 64
"""Histories that are kept; the one asked for least recently goes first."""


@dataclass(slots=True)
class _Job:
    seat: Seat
    history: RequestHistory
    lock: threading.Lock


class Decisions:
    """Answers `dsp-gym/snapshot/1` with `dsp-gym/decision/1`.

    Args:
        seats: makes the seat of one policy, by name.
        default: the policy that answers where none is named.
        seed: of policies that draw.
    """

    def __init__(
        self, seats: Mapping[str, Callable[[], Seat]], default: str, seed: int = 0
    ) -> None:
        self._seats, self._default, self._seed = dict(seats), default, seed
        self._jobs: OrderedDict[tuple[str, str], _Job] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def policies(self) -> list[str]:
        """Names that may be asked for."""
        return sorted(self._seats)

    def answer(self, document: Document, policy: str | None = None) -> Document:
        """The decision on one snapshot.

        Returns:
            The guarded decision as a `dsp-gym/decision/1` document.

        Raises:
            DspGymError: The document is none, contradicts the job's history, or the policy does not
                fit the job.
        """
        name = policy or self._default
        if name not in self._seats:
            raise ConfigError(
                f"there is no policy '{name}' here",
                key="policy",
                remedy=did_you_mean(name, self._seats),
            )
        snapshot = snapshot_from_json([document], "request")
        asked = self._job(name, snapshot)
        with asked.lock:
            asked.history.take(snapshot)
            judged = asked.seat.decide(snapshot)
        answer = decision_to_json(judged.guarded, snapshot.job(0))
        # The caller enacts what is answered.
        settled = asked.seat.settle(snapshot, judged, enacted=True)
        failure = judged.failure or settled
        if failure is not None:
            answer["reason"] = failure.reason
        return answer

    def close(self) -> None:
        """Forget every job."""
        with self._lock:
            self._jobs.clear()

    def _job(self, policy: str, snapshot: MetricsSnapshot) -> _Job:
        key = snapshot.topology.spec(0).job
        with self._lock:
            found = self._jobs.get((policy, key))
            if found is None:
                seat = self._seats[policy]()
                seat.reset(snapshot.topology, np.array([self._seed], np.int64))
                history = RequestHistory(
                    snapshot, "Send the snapshots of a job in order, each once."
                )
                found = self._jobs[policy, key] = _Job(seat, history, threading.Lock())
                if len(self._jobs) > MOST_JOBS:
                    self._jobs.popitem(last=False)
            self._jobs.move_to_end((policy, key))
            return found
