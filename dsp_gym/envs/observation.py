"""The observation: scale-free numbers about a job and its vertices, in one flat vector.

Layout: vertex features (V * FV), job features (FJ), mask (V), adjacency (V * V, row = downstream,
column = upstream). The features stand in `dsp_gym.envs.features`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.envs.features import (
    FJ,
    FV,
    JOB_FEATURES,
    JOB_MEMORY_COLUMNS,
    LIMIT,
    VERTEX_FEATURES,
    VERTEX_MEMORY_COLUMNS,
    EncoderMemory,
    encode_rows,
    room_of_thread,
)
from dsp_gym.loop.protocols import Mask, State
from dsp_gym.loop.rates import Ds2Rates, ds2_rates
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.numba_handles import Handle, Handles, direct

__all__ = [
    "FJ",
    "FV",
    "JOB_FEATURES",
    "LIMIT",
    "VERTEX_FEATURES",
    "ObservationEncoder",
    "ObservationLayout",
]


@dataclass(frozen=True, slots=True)
class ObservationLayout:
    """The places of the parts of a flat observation of a job with V vertices."""

    vertices: int

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return self.vertices * FV + FJ + self.vertices + self.vertices**2

    @property
    def vertex(self) -> slice:
        """Vertex features, vertex by vertex."""
        return slice(0, self.vertices * FV)

    @property
    def job(self) -> slice:
        """Job features."""
        return slice(self.vertices * FV, self.vertices * FV + FJ)

    @property
    def mask(self) -> slice:
        """1 for each vertex that is not padding."""
        return slice(self.job.stop, self.job.stop + self.vertices)

    @property
    def adjacency(self) -> slice:
        """1 where the row's vertex reads from the column's."""
        return slice(self.mask.stop, self.mask.stop + self.vertices**2)


class ObservationEncoder:
    """An encoder of snapshots; it remembers the last configuration and the course of the load.

    Both follow from the observed configurations and loads, so the same snapshots give the same
    observations in the gym, in shadow mode and live.
    """

    def __init__(self, topology: Topology, vertices: int | None = None) -> None:
        self.topology = topology
        self.layout = ObservationLayout(vertices or topology.max_vertices)
        jobs = len(topology)
        self._memory = EncoderMemory(
            np.full((jobs, topology.max_vertices, len(VERTEX_MEMORY_COLUMNS)), np.nan),
            np.full((jobs, len(JOB_MEMORY_COLUMNS)), np.nan),
            self.layout.job.start,
        )
        self._fixed = _fixed_part(topology, self.layout)
        self._every = np.ones(jobs, np.bool_)
        self._handles = Handles()

    def reset(self, mask: Mask | None = None) -> None:
        """Clear the memory of all jobs, or of those where the mask is True."""
        rows = slice(None) if mask is None else mask
        self._memory.vertex[rows] = np.nan
        self._memory.job[rows] = np.nan

    def encode(
        self,
        snapshot: MetricsSnapshot,
        rates: Ds2Rates | None = None,
        rows: Ints | None = None,
    ) -> Floats32:
        """Encode a snapshot that follows the last one.

        Args:
            snapshot: snapshot of all J jobs.
            rates: DS2's rates of the snapshot, where they are not `ds2_rates(snapshot)`.
            rows: (n,) jobs to encode; the memory of the others stays. None: all.

        Returns:
            Observations (n, layout.size).
        """
        chosen, _, out = self.given(rows)
        known = ds2_rates(snapshot) if rates is None else rates
        facts, seen = self.topology.facts, snapshot.arrays
        room = room_of_thread(self.topology.max_vertices).arrays
        _encode(chosen, facts, seen, known.block, 0, len(out), self._memory, room, out)
        return out if rows is None else out[rows]

    def given(self, rows: Ints | None) -> tuple[Bools, Handle[EncoderMemory], Floats32]:
        """Return the inputs of `encode_rows` beside a snapshot.

        Args:
            rows: (n,) jobs to encode; None: all.

        Returns:
            Flags of the rows (J,), the memory, and observations (J, layout.size) with mask and
            adjacency filled in.
        """
        chosen = self._every
        if rows is not None:
            chosen = np.zeros(len(self._every), np.bool_)
            chosen[rows] = True
        return chosen, self._held(), self._fixed.copy()

    def _held(self) -> Handle[EncoderMemory]:
        """Return the memory for compiled code."""
        return self._handles.of("memory", lambda: self._memory)

    def state(self) -> State:
        """Return the memory as JSON values (NaN as None), as `restore` takes it.

        Returns:
            Nested lists under the keys `vertex` and `job`, one row per job.
        """
        return {"vertex": _listed(self._memory.vertex), "job": _listed(self._memory.job)}

    def restore(self, state: State) -> None:
        """Continue from `state()`."""
        self._handles = Handles()
        self._memory = EncoderMemory(
            np.array(state["vertex"], dtype=np.float64),
            np.array(state["job"], dtype=np.float64),
            self.layout.job.start,
        )

    def save(self) -> dict[str, Floats]:
        """Copy the memory to arrays, as `load` takes it.

        Returns:
            Arrays under `encoder_vertex` and `encoder_job`, the first axis is the job.
        """
        return {
            "encoder_vertex": self._memory.vertex.copy(),
            "encoder_job": self._memory.job.copy(),
        }

    def load(self, saved: Mapping[str, NDArray[np.generic]]) -> None:
        """Continue from `save()`."""
        self._handles = Handles()
        self._memory = EncoderMemory(
            np.array(saved["encoder_vertex"], dtype=np.float64),
            np.array(saved["encoder_job"], dtype=np.float64),
            self.layout.job.start,
        )


_encode = direct(encode_rows)

Nested: TypeAlias = "list[Nested] | float | None"


def _listed(array: Floats) -> Nested:
    """Return nested lists, NaN as None."""
    boxed = array.astype(object)
    boxed[np.isnan(array)] = None
    return cast(Nested, boxed.tolist())


def _fixed_part(topology: Topology, layout: ObservationLayout) -> Floats32:
    """Return observations with mask and adjacency filled in, all else 0."""
    tables, vertices = topology.tables, layout.vertices
    out = np.zeros((len(topology), layout.size), np.float32)
    for j, k in enumerate(topology.row):
        mask = np.zeros(vertices)
        edges = np.zeros((vertices, vertices))
        for v in range(tables.n[k]):
            mask[v] = 1
            for u in tables.upstream[k, v]:
                if u >= 0:
                    edges[v, u] = 1
        out[j, layout.mask], out[j, layout.adjacency] = mask, edges.ravel()
    return out
