"""An agent's view of a batch of jobs, and the meaning of its actions.

An environment has one of two: moves of every vertex, or one capacity for the whole job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.envs import action
from dsp_gym.envs.encode_snapshot import look
from dsp_gym.envs.observation import ObservationEncoder
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology


class Codec(Protocol):
    """Observations, actions and masks of J jobs."""

    observation_size: int

    choices: tuple[int, ...]
    """Number of choices of each part of an action."""

    def reset(self, mask: Mask | None = None) -> None:
        """Forget all jobs, or those where the mask is True."""

    def look(
        self, snapshot: MetricsSnapshot, late_price: Floats, rows: Ints | None = None
    ) -> Floats32:
        """Encode a snapshot that follows the last one, or its given rows.

        Args:
            snapshot: Snapshot of all J jobs.
            late_price: (J,) price of a late minute, in minutes of the reference configuration.
            rows: (n,) jobs to encode, which have just begun; the memory of the others stays. None:
                all.

        Returns:
            Observations (n, observation_size).
        """

    def masks(self, snapshot: MetricsSnapshot) -> Bools:
        """Mark the valid choices on a snapshot.

        Returns:
            (J, sum of `choices`) flags, one part after the other.
        """

    def decode(self, snapshot: MetricsSnapshot, actions: Ints) -> ScalingDecision:
        """Read actions (J, number of parts) on a snapshot; an invalid choice holds.

        Returns:
            The decision they mean, (J, V), without reasons.
        """

    def encode(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> Ints:
        """Find the valid action nearest to a decision, such as a teacher's.

        Returns:
            Actions (J, number of parts).
        """

    def save(self) -> dict[str, Any]:
        """Copy everything later observations and masks depend on.

        Returns:
            Arrays and JSON values by name, as `load` takes them.
        """

    def load(self, saved: Mapping[str, Any]) -> None:
        """Continue from `save()`."""


class VertexCodec:
    """A move of parallelism and one of memory for every vertex.

    Args:
        topology: The jobs.
        ds2_utilization: Target utilization of DS2's move.
        vertices: Number of vertices to have room for; None: the largest job's.
        threads: Number of threads the jobs are split over.
    """

    def __init__(
        self,
        topology: Topology,
        ds2_utilization: float,
        vertices: int | None = None,
        threads: int = 1,
    ) -> None:
        self.encoder = ObservationEncoder(topology, vertices)
        self.vertices = self.encoder.layout.vertices
        self.observation_size = self.encoder.layout.size
        self.choices = (action.MOVES, action.MEMORY_MOVES) * self.vertices
        self._utilization, self._threads = ds2_utilization, threads
        self._columns = topology.max_vertices

    def reset(self, mask: Mask | None = None) -> None:
        self.encoder.reset(mask)

    def look(
        self, snapshot: MetricsSnapshot, late_price: Floats, rows: Ints | None = None
    ) -> Floats32:
        return look(snapshot, self.encoder, self._utilization, rows, self._threads)

    def masks(self, snapshot: MetricsSnapshot) -> Bools:
        valid = action.masks(*action.targets(snapshot, self._utilization))
        # An environment may have room for more vertices than its jobs have.
        missing = self.vertices - self._columns
        if missing:
            padding = np.zeros((len(valid), missing, action.LOGITS), dtype=bool)
            # Padding vertices can only hold and keep: an agent's distribution needs one valid
            # choice.
            padding[..., [action.HOLD, action.MOVES]] = True
            valid = np.concatenate([valid, padding.reshape(len(valid), -1)], axis=1)
        return valid

    def decode(self, snapshot: MetricsSnapshot, actions: Ints) -> ScalingDecision:
        targets = action.targets(snapshot, self._utilization)
        return action.decode(actions[:, : self._columns * 2], *targets)

    def encode(self, snapshot: MetricsSnapshot, decision: ScalingDecision) -> Ints:
        nearest = action.encode(decision, *action.targets(snapshot, self._utilization))
        return np.pad(nearest, ((0, 0), (0, 2 * (self.vertices - self._columns))))

    def save(self) -> dict[str, Any]:
        return dict(self.encoder.save())

    def load(self, saved: Mapping[str, Any]) -> None:
        self.encoder.load(saved)
