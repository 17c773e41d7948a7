"""The episodes of environments on a card: drawn once, on the host."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.cuda.tables import Pool
from dsp_gym.envs.episodes import EpisodeSource, start_configuration
from dsp_gym.envs.reward import TERMS, weights_of
from dsp_gym.job import sizing
from dsp_gym.job.spec import JobSpec
from dsp_gym.loads.splits import LoadSet, SplitName
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import simulated_topology

MOST_ROWS, EPISODES = 1024, 2
"""Most rows of a pool, and episodes of each; of two hours, they take 0.1 GiB."""


class DrawnPool(NamedTuple):
    """Episodes, row after row."""

    pool: Pool
    rates: Floats  # (rows * episodes, 1, T) records/s


class EpisodePool:
    """The rows of a pool, each with a job, a seed and its first episodes.

    Environments beyond the number of rows share loads and starts with others, under random streams
    of their own. With as many rows as environments, and as many episodes as are run, everything is
    drawn as on the CPU.

    Args:
        specs: The distinct jobs.
        jobs: (J,) job of each environment, rising.
        loads: The loads that episodes draw from.
        split: Part of the loads.
        config: Clock, start, differences between episodes.
        base_dir: Folder in which relative trace paths start.
        most_rows: Most rows.
        episodes: Episodes of each row.
    """

    def __init__(
        self,
        specs: tuple[JobSpec, ...],
        jobs: Ints,
        loads: LoadSet,
        split: SplitName,
        config: EnvConfig,
        base_dir: str | Path | None = None,
        most_rows: int = MOST_ROWS,
        episodes: int = EPISODES,
    ) -> None:
        share = np.bincount(jobs, minlength=len(specs))  # environments of each job
        most = len(jobs) if len(jobs) <= most_rows else max(1, most_rows // len(specs))
        count = np.minimum(share, most)  # its rows
        place = np.arange(len(jobs)) - np.searchsorted(jobs, np.arange(len(specs)))[jobs]
        first = np.cumsum(count) - count
        self.row: Ints = first[jobs] + place * count[jobs] // share[jobs]
        """(J,) row of each environment; those of one row stand together, since it may change its
        job, and threads that take the same branches are twice as fast as a mix."""
        self.members: Ints = np.unique(self.row, return_index=True)[1]
        """(rows,) environment whose seeds a row has: the first one of the row."""
        self.episodes = episodes
        topology = Topology.of(specs, jobs[self.members].tolist())
        self._topology = simulated_topology(topology, config.simulation.mechanisms)
        self._config = config
        self._source = EpisodeSource(self._topology, loads, split, config, base_dir)

    @property
    def bytes(self) -> int:
        """Bytes of the rates on the card, which are nearly all of the pool."""
        return len(self.members) * self.episodes * self._config.episode_s * 8

    def draw(self, seeds: Ints) -> DrawnPool:
        """Draw all episodes.

        Args:
            seeds: (J,) seeds of the environments.

        Returns:
            The pool; episode n of row r stands at r * episodes + n.
        """
        rows, config = np.arange(len(self.members)), self._config
        topology, tables = self._topology, self._topology.tables
        self._source.seed(np.asarray(seeds)[self.members])
        late_price = weights_of(config.reward, len(rows))[TERMS.index("slo")]
        parts = []
        for _ in range(self.episodes):
            drawn = self._source.draw(rows)
            if drawn.job is not None:
                topology.row[:] = drawn.job
            of_row = topology.row.copy()
            p, level = start_configuration(topology, config, drawn, rows)
            low, high = tables.min_parallelism[of_row], tables.max_parallelism[of_row]
            none = np.zeros(len(rows), np.int64)
            parts.append(
                (
                    np.clip(p, low, high),
                    np.clip(level, -1, tables.levels[of_row][:, None] - 1),
                    drawn.factor,
                    config.simulation.measurement.delays_s(drawn.seeds),
                    late_price if drawn.late_price is None else drawn.late_price,
                    none if drawn.skipped is None else drawn.skipped,
                    of_row,
                    sizing.reference_cost_per_s(tables, of_row, config.start_headroom),
                    drawn.rates,
                )
            )
        columns = [np.concatenate(np.stack(one, axis=1)) for one in zip(*parts, strict=True)]
        return DrawnPool(Pool(*columns[:-1]), columns[-1][:, None])
