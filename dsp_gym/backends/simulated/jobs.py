"""A batch of simulated jobs: collector and actuator in one."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from dsp_gym.arrays import Bools, Floats, Ints
from dsp_gym.backends.base import SelfContained
from dsp_gym.errors import MetricsError
from dsp_gym.loop.decision import GuardedDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import ActuatorStatus
from dsp_gym.loop.snapshot import MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology
from dsp_gym.numba_handles import Handle, Handles, handle
from dsp_gym.simulation import kernel, measure, rescaling
from dsp_gym.simulation.capacity import packing_room
from dsp_gym.simulation.options import Parameters, SimulationOptions, simulated_topology
from dsp_gym.simulation.outcome import simulated_outcome
from dsp_gym.simulation.rows import over_rows
from dsp_gym.simulation.state import (
    OUTCOME,
    SEEN,
    TRACE,
    Model,
    SimulationState,
    allocate,
    fixed_columns,
)

GROWN_S = 3600
"""Seconds by which rates grow at once."""


class SimulatedJobs(SelfContained):
    """J jobs of a topology, advanced together.

    Same seeds, rates and decisions, same trajectory, whatever the batch size and threads.
    """

    def __init__(self, topology: Topology, options: SimulationOptions | None = None) -> None:
        options = options or SimulationOptions()
        self.topology = simulated_topology(topology, options.mechanisms)
        tables = self.topology.tables
        self.options = options
        self.parameters = Parameters.of(options)
        self._fixed = fixed_columns(tables)
        self.state = allocate(tables, len(topology), options)
        self.rates: Floats = np.zeros((len(topology), 1))
        self.trace: Floats = np.zeros((len(topology), 0, len(TRACE)))
        self._outcome: Floats = np.zeros((len(topology), len(OUTCOME)))
        self._asked: Ints = np.zeros(len(topology), np.int64)
        self._view = measure.View.of(options.measurement)
        self._threads = options.thread_count(len(topology))
        self._handles = Handles()

    def __len__(self) -> int:
        return len(self.topology)

    def reset(
        self,
        seeds: Ints,
        rates: Floats,
        *,
        parallelism: Ints | None = None,
        memory_level: Ints | None = None,
        service_factor: Floats | None = None,
        mask: Bools | None = None,
    ) -> None:
        """Start jobs again, running, with empty windows and cold caches.

        Args:
            seeds: (J,) one per job; equal seeds give equal jobs wherever they stand.
            rates: (J, T) records/s offered to the whole job in each second; the last one holds on.
            parallelism: (J, V) to start with; default what the job files say.
            memory_level: (J, V) likewise.
            service_factor: (J,) scales CPU times, 1 = as the job file says.
            mask: (J,) rows to start again; default all.
        """
        jobs, tables, row = len(self), self.topology.tables, self.topology.row
        if rates.ndim != 2 or len(rates) != jobs:
            raise MetricsError(f"rates have shape {rates.shape}, expected ({jobs}, seconds)")
        rows = np.arange(jobs) if mask is None else np.flatnonzero(mask)
        # A copy of some rows only: the rates of a thousand jobs take tens of MiB.
        offered = rates if len(rows) == jobs else rates[rows]
        _refuse_impossible(offered)
        if mask is None:
            self.rates = np.array(rates, dtype=np.float64, order="C")
        else:
            longest = max(self.rates.shape[1], rates.shape[1])
            self.rates = _held(self.rates, longest)
            self.rates[rows] = _held(offered, longest)
        if self.options.trace:
            trace = np.full((jobs, self.rates.shape[1], len(TRACE)), np.nan)
            if mask is not None:
                trace[~mask, : self.trace.shape[1]] = self.trace[~mask]
            self.trace = trace
        self._outcome[rows] = 0
        state = self.state
        for array in state:
            array[rows] = 0
        state.seed[rows] = seeds[rows]
        start = tables.start_parallelism[row] if parallelism is None else parallelism
        level = tables.start_level[row] if memory_level is None else memory_level
        low, high = tables.min_parallelism[row], tables.max_parallelism[row]
        state.next_parallelism[rows] = np.clip(start, low, high)[rows]
        state.next_level[rows] = np.clip(level, -1, tables.levels[row][:, None] - 1)[rows]
        state.service_factor[rows] = 1.0 if service_factor is None else service_factor[rows]
        state.delay_s[rows] = self.options.measurement.delays_s(seeds[rows])
        self._asked[rows] = 0
        rescaling.start(*self._held(), rows, packing_room(self.topology.max_vertices))
        state.outage_s[rows] = np.nan

    def offer(self, per_s: Floats) -> None:
        """Replace the rates of all jobs by one load; those of seconds gone by must be equal.

        Args:
            per_s: (T,) records/s offered in each second since the start; the last one holds on.
        """
        _refuse_impossible(per_s)
        longest = self.rates.shape[1]
        if len(per_s) > longest:  # by the hour, so that a load that grows is rarely copied
            self.rates = _held(self.rates, len(per_s) + GROWN_S)
        self.rates[:, : len(per_s)] = per_s
        self.rates[:, len(per_s) :] = per_s[-1]

    def advance(self, seconds: int, seen: Floats | None = None) -> Outcome:
        """Let the jobs run for whole seconds.

        Args:
            seconds: How many.
            seen: (J, seconds, len(SEEN)), filled with what sinks tell of each second.

        Returns:
            What happened since the last call, each value (J,).
        """
        columns, self._outcome = self._outcome, np.zeros((len(self), len(OUTCOME)))
        model, state = self._held()
        rates, trace, vertices = self.rates, self.trace, self.topology.max_vertices
        told = np.empty((len(self), 0, len(SEEN))) if seen is None else seen

        def work(low: int, high: int) -> None:
            room = kernel.Room.of(vertices)
            kernel.advance(model, state, rates, seconds, low, high, columns, trace, told, room)

        over_rows(work, len(self), self._threads)
        return simulated_outcome(columns)

    def snapshot(self) -> MetricsSnapshot:
        """Look at the jobs, as a collector sees them.

        Returns:
            Metrics and running configurations, (J,) and (J, V).
        """
        return measure.snapshot(self.topology, *self._held(), self._view, self._threads)

    def apply(self, guarded: GuardedDecision) -> None:
        """Start rescaling the jobs whose configuration should change; returns at once."""
        rescaling.ask(
            *self._held(),
            np.ascontiguousarray(guarded.parallelism, dtype=np.int64),
            np.ascontiguousarray(guarded.memory_level, dtype=np.int64),
            0,
            len(self),
            self._asked,
            self._outcome,
            packing_room(self.topology.max_vertices),
        )

    def status(self) -> Ints:
        """State of the last request of each job.

        Returns:
            (J,) of `ActuatorStatus`.
        """
        done = self.state.status == Status.RUNNING
        failed = self.state.rescale_failed == 1
        found = np.where(
            done,
            np.where(failed, ActuatorStatus.FAILED, ActuatorStatus.REACHED),
            ActuatorStatus.PENDING,
        )
        known = (self._asked == ActuatorStatus.IDLE) | (self._asked == ActuatorStatus.FAILED)
        return np.where(known, self._asked, found)

    def save(self) -> dict[str, NDArray[np.generic]]:
        """Copy everything the future depends on; `load` of it continues exactly.

        Returns:
            Arrays by name.
        """
        arrays: dict[str, NDArray[np.generic]] = {
            name: array.copy() for name, array in self.state._asdict().items()
        }
        return arrays | {
            "rates": self.rates.copy(),
            "trace": self.trace.copy(),
            "outcome": self._outcome.copy(),
            "asked": self._asked.copy(),
        }

    def load(self, saved: dict[str, NDArray[np.generic]]) -> None:
        """Go on from `save()`."""
        self.state = SimulationState._make(saved[name].copy() for name in self.state._fields)
        self._handles = Handles()
        self.rates = np.array(saved["rates"], dtype=np.float64)
        self.trace = np.array(saved["trace"], dtype=np.float64)
        self._outcome = np.array(saved["outcome"], dtype=np.float64)
        self._asked = np.array(saved["asked"], dtype=np.int64)

    def _held(self) -> tuple[Handle[Model], Handle[SimulationState]]:
        """Model and state for compiled code."""
        if not self._handles:
            row = np.ascontiguousarray(self.topology.row)
            model = Model(self.topology.tables, row, self._fixed, self.parameters)
            self._handles["jobs"] = handle(model), handle(self.state)
        return cast("tuple[Handle[Model], Handle[SimulationState]]", self._handles["jobs"])


def _refuse_impossible(rates: Floats) -> None:
    least, most = rates.min(initial=0.0), rates.max(initial=0.0)
    if not (least >= 0.0 and most < np.inf):  # NaN is neither
        raise MetricsError("rates must be finite and not negative")


def _held(rates: Floats, seconds: int) -> Floats:
    """Rates of that many seconds; the last one holds on."""
    missing = seconds - rates.shape[1]
    return np.pad(rates, ((0, 0), (0, missing)), mode="edge") if missing else rates
