"""Kubernetes Events in the shape of the operator's own ScalingReport."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dsp_gym.backends.kubernetes.api import KubernetesApi
from dsp_gym.backends.kubernetes.resources import FlinkResource
from dsp_gym.config.strict_json import Document

REPORTER = "dsp-gym.io/autoscaler"
REASON = "ScalingReport"
REPEAT_S = 1800.0
"""`job.autoscaler.scaling.event.interval` of the operator: 30 min."""

_NOTE_BYTES = 1024
"""Longest note of an Event that the server takes."""


@dataclass(frozen=True, slots=True)
class VertexChange:
    """One vertex of a recommendation, as the operator's report shows it."""

    vertex_id: str
    parallelism: int
    recommended: int
    capacity_per_s: float = float("nan")
    expected_capacity_per_s: float = float("nan")
    target_rate_per_s: float = float("nan")

    def __str__(self) -> str:
        return (
            f"{{ Vertex ID {self.vertex_id} | Parallelism {self.parallelism} -> {self.recommended} "
            f"| Processing capacity {_rate(self.capacity_per_s)} -> "
            f"{_rate(self.expected_capacity_per_s)} | Target data rate "
            f"{_rate(self.target_rate_per_s)}}}"
        )


def scaling_report(changes: Sequence[VertexChange], *, enacted: bool, mode: str = "advise") -> str:
    """The note of an event; vertices that do not fit are counted.

    Returns:
        The text, at most 1,024 bytes.

    >>> scaling_report([VertexChange("bc764cd8", 2, 4, 100.0, 200.0, 150.0)], enacted=True)
    'Scaling execution enabled, begin scaling vertices:{ Vertex ID bc764cd8 | Parallelism 2 -> 4 \
| Processing capacity 100.00 -> 200.00 | Target data rate 150.00}'
    """
    note = (
        "Scaling execution enabled, begin scaling vertices:"
        if enacted
        else f"Scaling execution disabled by config dsp-gym.mode:{mode}, recommended parallelism "
        "change:"
    )
    for done, change in enumerate(changes):
        rest = f" and {len(changes) - done} more"
        if len(f"{note}{change}{rest}".encode()) > _NOTE_BYTES:
            return note + rest
        note += str(change)
    return note


class ScalingReports:
    """Writes reports; the same recommendation only once in half an hour.

    Args:
        api: where to.
        instance: who reports, at most 128 characters.
        clock: Unix seconds.
    """

    def __init__(
        self, api: KubernetesApi, instance: str, clock: Callable[[], float] = time.time
    ) -> None:
        self._api, self._instance, self._clock = api, instance, clock
        self._told_s: dict[tuple[str, str], float] = {}

    def report(
        self,
        resource: FlinkResource,
        changes: Sequence[VertexChange],
        *,
        enacted: bool,
        mode: str = "advise",
    ) -> bool:
        """Write an event about a resource; False where the same was said lately, or nothing is.

        Returns:
            True where an event was written.

        Raises:
            KubernetesError: The server did not take the event; the next call tries again.
        """
        changes = [change for change in changes if change.recommended != change.parallelism]
        if not changes:
            return False
        said = f"{enacted}:" + ",".join(
            f"{c.vertex_id}:{c.parallelism}:{c.recommended}" for c in changes
        )
        now_s, key = self._clock(), (resource.uid, said)
        self._told_s = {k: t for k, t in self._told_s.items() if 0 <= now_s - t < REPEAT_S}
        if key in self._told_s:
            return False
        note = scaling_report(changes, enacted=enacted, mode=mode)
        self._api.create("Event", resource.namespace, self._event(resource, note, now_s))
        self._told_s[key] = now_s
        return True

    def _event(self, resource: FlinkResource, note: str, now_s: float) -> Document:
        at = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{resource.name[:200]}.{uuid.uuid4().hex[:16]}",
                "namespace": resource.namespace,
            },
            "eventTime": at,
            "reportingController": REPORTER,
            "reportingInstance": self._instance[:128],
            "action": "Scaling",
            "reason": REASON,
            "type": "Normal",
            "note": note,
            "regarding": {
                "apiVersion": "flink.apache.org/v1beta1",
                "kind": resource.kind,
                "namespace": resource.namespace,
                "name": resource.name,
                "uid": resource.uid,
            },
        }


def _rate(records_per_s: float) -> str:
    """As Java's `%.2f` has it.

    >>> _rate(float("nan")), _rate(float("inf"))
    ('NaN', 'Infinity')
    """
    return {"nan": "NaN", "inf": "Infinity"}.get(str(records_per_s), f"{records_per_s:.2f}")
