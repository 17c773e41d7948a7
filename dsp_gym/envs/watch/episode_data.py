"""One job over an episode, as it is shown: what is fixed, its moments, and sums so far."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.job.memory import level_mib
from dsp_gym.job.spec import CURRENCY
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology


@dataclass(frozen=True, slots=True)
class ShownVertex:
    """A vertex in the picture of the job."""

    name: str
    inputs: tuple[int, ...]  # places of the vertices it reads from
    is_source: bool
    stateful: bool


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """The fixed facts about a job that is watched."""

    job: str
    load: str
    vertices: tuple[ShownVertex, ...]  # in topological order
    slo_s: float
    managed_mib: Floats  # (levels + 1,) managed memory of a subtask by level + 1
    length_s: float | None = None  # of the episode; None: unknown
    currency: str = CURRENCY  # of costs

    @classmethod
    def of(
        cls, topology: Topology, job: int, load: str = "", length_s: float | None = None
    ) -> Scene:
        """Read what is fixed about one row of a batch.

        Args:
            topology: The jobs.
            job: The row.
            load: Name of the load.
            length_s: Seconds of the episode; None: unknown.

        Returns:
            The scene.
        """
        spec = topology.spec(job)
        ordered = spec.topological_order()
        place = {vertex.name: k for k, vertex in enumerate(ordered)}
        vertices = tuple(
            ShownVertex(
                vertex.name,
                tuple(place[given.from_] for given in vertex.inputs),
                vertex.kind == "source",
                vertex.state is not None,
            )
            for vertex in ordered
        )
        memory = spec.memory
        managed = [level_mib(memory.base_mib, level) for level in range(-1, memory.levels)]
        return cls(
            spec.job,
            load,
            vertices,
            spec.slo.latency_s,
            np.array(managed),
            length_s,
            spec.prices.currency,
        )


@dataclass(frozen=True, slots=True, eq=False)
class Moment:
    """A job at one decision, and the interval before it; NaN: unknown.

    What an interval brought is NaN at the first moment, which has no interval before it.
    """

    t_s: float
    status: Status
    parallelism: Ints  # (V,)
    memory_level: Ints  # (V,)
    busy: Floats  # (V,) share of the time
    backpressured: Floats  # (V,) share of the time
    records_in_per_s: Floats  # (V,); of a source: what it sends
    offered_per_s: float
    processed_per_s: float
    latency_p95_s: float
    pending: float  # records
    cost: float  # money in the interval
    late_s: float  # of the interval
    seconds: float  # of the interval, 0 at the first moment
    down_s: float = 0.0  # of the interval
    rescaled: bool = False
    said: str = ""  # the reason of the last decision, or what a guardrail changed

    @classmethod
    def of(
        cls, snapshot: MetricsSnapshot, job: int, outcome: Outcome | None = None, said: str = ""
    ) -> Moment:
        """Read one row of a batch at its snapshot.

        Args:
            snapshot: Of the batch.
            job: The row.
            outcome: Of the interval that ends at the snapshot; None at the begin.
            said: About the decision that was taken for that interval.

        Returns:
            The moment, with copies of the values.
        """
        count = len(snapshot.topology.names(job))

        def of_vertices(name: str) -> Floats:
            return np.array(getattr(snapshot, name)[job, :count], np.float64)

        def of_interval(name: str) -> float:
            return float("nan") if outcome is None else float(getattr(outcome, name)[job])

        received = of_vertices("records_in_per_s")
        seconds = 0.0 if outcome is None else of_interval("seconds")
        last = float(snapshot.latency_p95_s[job])
        latency = of_interval("latency_p95_s")
        return cls(
            t_s=float(snapshot.t_s[job]),
            status=Status(int(snapshot.status[job])),
            parallelism=np.array(snapshot.parallelism[job, :count]),
            memory_level=np.array(snapshot.memory_level[job, :count]),
            busy=of_vertices("busy_ms_per_s") / 1000,
            backpressured=of_vertices("backpressured_ms_per_s") / 1000,
            records_in_per_s=np.where(received > 0, received, of_vertices("records_out_per_s")),
            offered_per_s=of_interval("arrived") / seconds if seconds else float("nan"),
            processed_per_s=of_interval("processed") / seconds if seconds else float("nan"),
            latency_p95_s=last if latency != latency else latency,
            pending=_pending(snapshot, job) if outcome is None else of_interval("pending"),
            cost=of_interval("cost"),
            late_s=of_interval("slo_s"),
            seconds=seconds,
            down_s=np.nan_to_num(of_interval("down_s")),
            rescaled=outcome is not None and of_interval("rescales") > 0,
            said=said,
        )

    @property
    def tasks(self) -> int:
        """Subtasks of all vertices, sources too."""
        return int(self.parallelism.sum())

    @property
    def cost_per_hour(self) -> float:
        """Money per hour over the interval; NaN at the first moment."""
        return 3600 * self.cost / self.seconds if self.seconds else float("nan")

    def managed_mib(self, scene: Scene) -> Floats:
        """Managed memory of one subtask of each vertex.

        Returns:
            (V,) MiB.
        """
        return np.asarray(scene.managed_mib[self.memory_level + 1])


def _pending(snapshot: MetricsSnapshot, job: int) -> float:
    known = snapshot.pending_records[job]
    return float(np.nansum(known)) if np.isfinite(known).any() else float("nan")


_SERIES = (
    "t_s",
    "seconds",
    "offered_per_s",
    "processed_per_s",
    "latency_p95_s",
    "pending",
    "cost",
    "cost_per_hour",
    "late_s",
    "down_s",
    "rescaled",
    "tasks",
)
"""Fields and properties of a moment that are shown over time."""


class Story:
    """What has happened to one job so far.

    Args:
        scene: The job.
    """

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.moments: list[Moment] = []
        self._table = np.empty((len(_SERIES), 256))

    def add(self, moment: Moment) -> None:
        """Take in the next moment; it replaces those at its time and later."""
        while self.moments and self.moments[-1].t_s >= moment.t_s:
            self.moments.pop()
        place = len(self.moments)
        if place == self._table.shape[1]:
            self._table = np.concatenate([self._table, np.empty_like(self._table)], axis=1)
        self._table[:, place] = [getattr(moment, name) for name in _SERIES]
        self.moments.append(moment)

    def __len__(self) -> int:
        return len(self.moments)

    @property
    def now(self) -> Moment:
        """The last moment."""
        return self.moments[-1]

    @property
    def before(self) -> Moment:
        """The moment before the last one; the last one where it is the first."""
        return self.moments[max(0, len(self.moments) - 2)]

    def series(self, name: str) -> Floats:
        """Read one quantity over time.

        Args:
            name: A field or property of `Moment` that is a number.

        Returns:
            (moments,) in the field's own unit; a view, valid until the next moment is added.
        """
        return self._table[_SERIES.index(name), : len(self.moments)]

    def cost(self) -> Floats:
        """Sum the money up to each moment; unknown costs count nothing.

        Returns:
            (moments,) sums.
        """
        return np.asarray(np.cumsum(np.nan_to_num(self.series("cost"))))

    def late_share(self) -> Floats:
        """Compute the late share of the time up to each moment.

        Returns:
            (moments,) from 0 to 1; NaN before the first interval.
        """
        seconds = np.cumsum(self.series("seconds"))
        late = np.cumsum(np.nan_to_num(self.series("late_s")))
        return np.divide(late, seconds, out=np.full_like(late, np.nan), where=seconds > 0)

    def rescaled(self) -> Bools:
        """Mark the moments that end an interval that began with a rescale.

        Returns:
            (moments,).
        """
        return np.asarray(self.series("rescaled") > 0)
