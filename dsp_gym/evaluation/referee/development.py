"""The development set as batches of runs: what rules, planners and networks are tuned on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dsp_gym.arrays import Floats
from dsp_gym.evaluation.batch_of_runs import RunBatch
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.play import RefereeRuns, benchmark_of
from dsp_gym.evaluation.referee.triples import DrawnSet
from dsp_gym.job.sizing import reference_cost_per_s
from dsp_gym.loop.topology import Topology


class DevelopmentRuns(NamedTuple):
    """Runs of one family of load in the development set."""

    family: str
    batch: RunBatch  # of a policy that never rescales; replace its entrant
    reference_cost: Floats  # (runs,) of the episode, in the job's reference configuration

    @property
    def decisions(self) -> int:
        """Decisions of all runs."""
        return len(self.batch) * (self.batch.config.episode_s // self.batch.config.interval_s)


def development_runs(
    config: RefereeConfig,
    *,
    each: int | None = None,
    families: Sequence[str] = (),
    base_dir: str | Path | None = None,
) -> tuple[DevelopmentRuns, ...]:
    """Return the development set, or an even part of it, ready to be played by any policy.

    Args:
        config: The referee.
        each: Most triples of each kind of jobs in each family; None: all.
        families: Families of load; none: all whose traces are here.
        base_dir: Folder that relative trace paths start from.

    Returns:
        A batch per family of load. `play(replace(runs.batch, entrant=...))` plays a policy on it;
        its cells are in the order of `reference_cost`.
    """
    drawn = DrawnSet.development(config.development)
    asked = RefereeRuns.of(config, drawn, families, each, base_dir)
    nobody = Entrant(policy="static", name="-")
    found = []
    for name, triples in asked.families.items():
        benchmark, runs = benchmark_of(
            config, config.family(name), triples, (nobody,), base_dir=base_dir
        )
        topology = Topology.of(runs.specs)
        unit = reference_cost_per_s(topology.tables, topology.row, benchmark.start_headroom)
        batch = RunBatch(nobody, runs, benchmark, drawn=(), bounding=False)
        found.append(DevelopmentRuns(name, batch, unit[runs.job] * benchmark.episode_s))
    return tuple(found)
