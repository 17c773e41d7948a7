"""A batch of simulated jobs as environments: one step is one decision of every job.

This is the control loop turned inside out: actions come from the caller, all other parts (snapshot,
guardrails, actuator, outcome) are the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsp_gym.arrays import Bools, Floats32, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.core import EnvCore
from dsp_gym.envs.episodes import Draws, EpisodeSource, start_configuration
from dsp_gym.job import sizing
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.loop.protocols import Guardrail
from dsp_gym.loop.topology import Topology


class AutoscaleBatch(EnvCore):
    """J environments over simulated jobs, advanced together, without autoreset.

    Args:
        specs: the distinct jobs.
        row: (J,) job of each environment.
        loads: the loads that episodes draw from.
        split: part of the loads.
        config: clock, start, reward, simulation.
        guardrails: a guardrail (or chain) inside the environment; None: none.
        vertices: vertices that observation and action have room for; default: the largest job's.
        base_dir: folder in which relative trace paths start.
    """

    def __init__(
        self,
        specs: Sequence[JobSpec],
        row: Sequence[int],
        loads: LoadSet,
        split: SplitName = "train",
        config: EnvConfig | None = None,
        guardrails: Guardrail | None = None,
        vertices: int | None = None,
        base_dir: str | Path | None = None,
    ) -> None:
        config = config or EnvConfig()
        self.jobs = SimulatedJobs(Topology.of(specs, row), config.simulation)
        super().__init__(self.jobs.topology, config, guardrails, vertices)
        self.source = EpisodeSource(self.topology, loads, split, config, base_dir)

    @property
    def backend(self) -> SimulatedJobs:
        return self.jobs

    @property
    def base_seeds(self) -> Ints:
        """Seeds of the streams of episodes, (J,)."""
        return self.source.base_seeds

    @property
    def episodes(self) -> Ints:
        """Number of episodes of its stream that each environment has begun, (J,)."""
        return self.source.episodes

    def seed(self, seeds: Ints, mask: Bools | None = None) -> None:
        self.source.seed(seeds, mask)

    def reset(self, mask: Bools | None = None) -> Floats32:
        rows = np.arange(len(self)) if mask is None else np.flatnonzero(mask)
        # An empty mask would reset nothing, but encoding would advance the memory of all rows.
        if not len(rows):
            return self._observation
        drawn = self.source.draw(rows)
        for j in rows:
            self.load_labels[j] = self.source.labels[j]
        return self._start(rows, drawn, mask)

    def begin(self, drawn: Draws, labels: Sequence[str] | None = None) -> Floats32:
        """Begin episodes that were drawn elsewhere, in all environments.

        Returns:
            Observations (J, size).
        """
        self.load_labels = list(labels or [""] * len(self))
        return self._start(np.arange(len(self)), drawn, None)

    def save(self) -> dict[str, Any]:
        """Copy everything the future depends on; `load` of it continues exactly.

        Returns:
            Copies by name: the simulated jobs, the encoder's memory, the guardrails (None without),
            seeds, episodes, steps, load labels, job and price of lateness of each row, and the last
            observation.
        """
        return {
            "jobs": self.jobs.save(),
            "encoder": self.codec.save(),
            "guardrails": None if self.guardrails is None else self.guardrails.state(),
            "base_seeds": self.base_seeds.copy(),
            "episodes": self.episodes.copy(),
            "steps": self.steps.copy(),
            "labels": list(self.load_labels),
            "row": self.topology.row.copy(),
            "late_price": self.late_price.copy(),
            "observation": self._observation.copy(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Continue from `save()`."""
        if "row" in saved:  # states from before there were capacity actions have none
            self._take_jobs(np.arange(len(self)), saved["row"])
            self.late_price[:] = saved["late_price"]
        self.jobs.load(saved["jobs"])
        self.codec.load(saved["encoder"])
        if self.guardrails is not None:
            self.guardrails.restore(saved["guardrails"])
        self.source.base_seeds[:] = saved["base_seeds"]
        self.source.episodes[:] = saved["episodes"]
        self.steps, self.load_labels = saved["steps"].copy(), list(saved["labels"])
        self._observation = saved["observation"].copy()
        self._snapshot = self.backend.collector.snapshot()

    def _take_jobs(self, rows: Ints, jobs: Ints) -> None:
        """Make rows run other jobs, in place: all parts share the topology's rows."""
        self.topology.row[rows] = jobs
        tables, reference = self.topology.tables, self.reference_cost_per_s
        headroom = self.config.start_headroom
        # The unit of cost follows the job: the reference is computed again for these rows.
        reference[rows] = sizing.reference_cost_per_s(tables, self.topology.row[rows], headroom)

    def _start(self, rows: Ints, drawn: Draws, mask: Bools | None) -> Floats32:
        if drawn.job is not None:
            self._take_jobs(rows, drawn.job[rows])
        if drawn.late_price is not None:
            self.late_price[rows] = drawn.late_price[rows]
        parallelism, level = start_configuration(self.topology, self.config, drawn, rows)
        self.jobs.reset(
            drawn.seeds,
            drawn.rates,
            parallelism=parallelism,
            # The snapshot is taken again, not saved: it follows from the state of the jobs.
            memory_level=level,
            service_factor=drawn.factor,
            mask=mask,
        )
        # A staggered first episode begins as if some steps were over already.
        seen = self._begin(rows, self.jobs.state.seed, mask)
        if drawn.skipped is not None:
            self.steps[rows] = drawn.skipped[rows]
        return seen
