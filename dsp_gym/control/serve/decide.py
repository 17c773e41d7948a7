"""Decisions for others: a snapshot comes in, the guarded decision of a policy goes out.

Each client's job has its own copy of the policy and of its guardrails, with its own history; the
loop that runs beside is not touched.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsp_gym.control.seat import Seat
from dsp_gym.errors import ConfigError, MetricsError, did_you_mean
from dsp_gym.loop.wire import decision_to_json, snapshot_from_json

__all__ = ["Decisions"]

MOST_JOBS = 64
"""Histories that are kept; the one asked for least recently goes first."""


@dataclass(slots=True)
class _History:
    seat: Seat
    vertices: tuple[str, ...]
    t_s: float
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
        self._histories: OrderedDict[tuple[str, str], _History] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def policies(self) -> list[str]:
        """Names that may be asked for."""
        return sorted(self._seats)

    def answer(self, document: Any, policy: str | None = None) -> dict[str, Any]:
        """The decision on one snapshot.

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
        job = snapshot.job(0)
        key, t_s = snapshot.topology.spec(0).job, float(snapshot.t_s[0])
        history = self._history(name, key, snapshot)
        with history.lock:
            if history.vertices != job.vertices:
                raise MetricsError(
                    f"job '{key}' had the vertices {', '.join(history.vertices)} before, now "
                    f"{', '.join(job.vertices)}",
                    remedy="A changed graph is another job: give it another 'job' key.",
                )
            if t_s <= history.t_s:
                raise MetricsError(
                    f"t_s {t_s:g} of job '{key}' does not follow {history.t_s:g}",
                    remedy="Send the snapshots of a job in order, each once.",
                )
            history.t_s = t_s
            judged = history.seat.decide(snapshot)
        answer = decision_to_json(judged.guarded, job)
        if judged.failure is not None:
            answer["reason"] = judged.failure.reason
        return answer

    def close(self) -> None:
        """Let every policy's thread end."""
        with self._lock:
            for history in self._histories.values():
                history.seat.close()
            self._histories.clear()

    def _history(self, policy: str, key: str, snapshot: Any) -> _History:
        with self._lock:
            found = self._histories.get((policy, key))
            if found is None:
                seat = self._seats[policy]()
                seat.reset(snapshot.topology, np.array([self._seed], np.int64))
                vertices = snapshot.job(0).vertices
                found = _History(seat, vertices, float("-inf"), threading.Lock())
                self._histories[policy, key] = found
                if len(self._histories) > MOST_JOBS:
                    _, gone = self._histories.popitem(last=False)
                    gone.seat.close()
            self._histories.move_to_end((policy, key))
            return found
