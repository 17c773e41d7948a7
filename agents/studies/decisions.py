"""CPU time of single decisions of shipped agents about one job, over a simulated day.

    python -m agents.studies.decisions

One job of each kind of a referee's development set; times are of this machine. The first day of
each agent warms up and is not counted: it compiles, and reads files.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated

import numpy as np
import typer

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.files import load_model
from dsp_gym.evaluation.batch_of_runs import RunBatch, play
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import development_runs
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make

AGENTS = "planner,learned-ppo"
FAMILY = "day-with-bursts"


class Timed:
    """A policy whose decisions are timed.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self.seconds: list[float] = []

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Restart all rows, or only those where the mask is True."""
        self._policy.reset(jobs, seeds, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Decide, and keep the CPU time of all threads.

        Returns:
            The decision, (J, V).
        """
        begun = time.process_time()
        decision = self._policy.decide(snapshot)
        self.seconds.append(time.process_time() - begun)
        return decision

    def state(self) -> State:
        """Return everything the next decision depends on, as JSON values."""
        return self._policy.state()

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._policy.restore(state)


def decision_times(agent: str, run: RunBatch) -> Floats:
    """Time every decision of a day, after a day that is not counted.

    Args:
        agent: Name of a policy.
        run: One run.

    Returns:
        (decisions,) seconds of CPU time.
    """
    batch = replace(run, entrant=Entrant(policy=agent, name=agent))
    play(batch)
    timed = Timed(make(agent))
    play(batch, policy=timed)
    return np.array(timed.seconds)


def main(
    agents: Annotated[str, typer.Option(help="Names of policies.")] = AGENTS,
    referee: str = "core-v3",
) -> None:
    """Print a table of decision times."""
    config = load_model(RefereeConfig, "referees", referee)
    (part,) = development_runs(config, each=1, families=(FAMILY,))
    typer.echo("| agent | job | mean | median | 99th percentile | highest |")
    typer.echo("|---|---|---:|---:|---:|---:|")
    for agent in agents.split(","):
        for row, kind in enumerate(config.jobs):
            ms = 1000.0 * decision_times(agent, part.batch.take(row, row + 1))
            told = (ms.mean(), np.median(ms), np.quantile(ms, 0.99), ms.max())
            typer.echo(f"| `{agent}` | {kind.name} | {' | '.join(f'{x:.2f} ms' for x in told)} |")


if __name__ == "__main__":
    typer.run(main)
