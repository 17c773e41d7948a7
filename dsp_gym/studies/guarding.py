"""What guardrails cost policies that need none, and how far they contain broken ones.

python -m dsp_gym.studies.guarding core-v1 --policies planner --guardrails floor,deployed
python -m dsp_gym.studies.guarding core-v2 --cell unseen-jobs-unseen-loads
python -m dsp_gym.studies.guarding core-v1 --policies ds2,mdp --guardrails deployed --shadow

Runs are paired: each is compared with the same policy without guardrails, and with the fallback,
on the same job, load and seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import numpy as np
import typer

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.control.loop import ControlLoop
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.evaluation.batch_of_runs import runs_of
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.guardrails.chain import Chain, build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.sizing import sized
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.protocols import Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import guarded_turn, settle_turn
from dsp_gym.policies import make
from dsp_gym.studies.runner import run
from dsp_gym.whatif.journal import TRIP_REST_S


class Stuck:
    """Holds whatever runs, for ever. It has no memory, and a study saves that of no policy."""

    name = "stuck"

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Forget nothing: there is no memory."""

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Hold.

        Returns:
            The running configuration.
        """
        reasons = (self.name,) * len(snapshot)
        return ScalingDecision(snapshot.parallelism, snapshot.memory_level, reasons)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        pass


class RandomTargets(Stuck):
    """Moves every vertex by up to four tasks and one memory level, all the time."""

    name = "random"

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._rng = np.random.default_rng(1)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Draw a move.

        Returns:
            A decision that keeps no bound.
        """
        shape = snapshot.parallelism.shape
        return ScalingDecision(
            snapshot.parallelism + self._rng.integers(-4, 5, shape),
            snapshot.memory_level + self._rng.integers(-1, 2, shape),
            (self.name,) * len(snapshot),
        )


class Inverted(Stuck):
    """Takes away as many tasks as DS2 would add, and the other way round."""

    name = "inverted"

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._right = make("ds2-justin")
        self._right.reset(jobs, seeds, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Ask DS2 and do the opposite.

        Returns:
            A decision of at least one task a vertex.
        """
        right = self._right.decide(snapshot)
        mirrored = np.maximum(1, 2 * snapshot.parallelism - right.parallelism)
        return ScalingDecision(mirrored, snapshot.memory_level, right.reasons)


FALLBACK = "tuned/core-v1/justin-artifact-tuned"
"""The fallback of the chain `deployed`."""

COLUMNS = (
    "policy",
    "chain",
    "cost per day",
    "late",
    "cost, points late against no guardrails",
    "against the fallback",
    "rescales per day",
    "decisions changed per day",
)

BROKEN: dict[str, type[Stuck]] = {"stuck": Stuck, "random": RandomTargets, "inverted": Inverted}
"""Policies with which something is wrong."""


class GuardedRuns(NamedTuple):
    """Runs of one policy; (J,) a value each."""

    cost: Floats  # money per day
    late: Floats  # share of the time
    rescales: Floats  # per day
    trips: Mapping[str, Floats]  # decisions changed per day, by guardrail

    def dearer(self, others: GuardedRuns) -> float:
        """Compare costs with those of other runs of the same jobs, loads and seeds.

        Returns:
            Cost above theirs, a share of it: the geometric mean over the runs, so that a large job
            counts no more than a small one.
        """
        return float(np.exp(np.log(self.cost / others.cost).mean()) - 1.0)

    def later(self, others: GuardedRuns) -> float:
        """Compare lateness with that of other runs of the same jobs, loads and seeds.

        Returns:
            Share of the time late above theirs, the mean over the runs.
        """
        return float((self.late - others.late).mean())


def _started(config: BenchmarkConfig, headroom: float | None = None) -> tuple[SimulatedJobs, Ints]:
    """Start the runs of a split; with a headroom they carry the highest rate at that use."""
    runs = runs_of(config, None)
    topology = Topology.of(runs.specs, runs.job.tolist())
    tables, row = topology.tables, topology.row
    first = runs.rates[:, 0] if headroom is None else runs.rates.max(axis=1)
    share, even = headroom or config.start_headroom, np.ones(len(runs))
    jobs = SimulatedJobs(topology, config.simulation)
    parallelism = sized(tables, row, first, share, even, tables.start_level[row])
    jobs.reset(runs.seeds, runs.rates, parallelism=parallelism)
    return jobs, runs.seeds


def _chain_of(policy: Policy, guardrails: GuardrailsConfig | str) -> Chain:
    """Build the chain around a policy, without words."""
    chain = build_for(policy, guardrails)
    assert chain is not None  # there are guardrails
    chain.explain = False
    return chain


def made(policy: str) -> Policy:
    """Make a policy by name, broken or not.

    Returns:
        The policy, to be reset.
    """
    return BROKEN[policy]() if policy in BROKEN else make(policy)


def play_guarded(
    policy: Policy, guardrails: GuardrailsConfig | str | None, config: BenchmarkConfig
) -> GuardedRuns:
    """Play the runs of a benchmark's split with one policy.

    Args:
        policy: Decides.
        guardrails: What its decisions pass; None: nothing.
        config: The benchmark, whose own policies take no part.

    Returns:
        Cost, lateness, rescales and interventions of every run, job by job.
    """
    jobs, seeds = _started(config)
    chain = None if guardrails is None else _chain_of(policy, guardrails)
    loop = ControlLoop(jobs, policy, chain, config.interval_s)
    loop.reset(seeds)
    steps = [loop.step() for _ in range(config.episode_s // config.interval_s)]
    total = Outcome.joined([step.outcome for step in steps])
    days = config.episode_s / 86_400
    changed = np.sum([step.guarded.trips for step in steps], axis=0) / days
    by_name = {} if chain is None else dict(zip(chain.names, changed.T, strict=True))
    late = total.slo_s / config.episode_s
    return GuardedRuns(total.cost / days, late, total.rescales / days, by_name)


def watch_beside(
    policy: Policy,
    guardrails: GuardrailsConfig | str,
    config: BenchmarkConfig,
    headroom: float = 0.6,
) -> dict[str, Floats]:
    """Ask a policy beside healthy jobs, whose configuration carries every peak and stays.

    Args:
        policy: Decides; nothing of it is enacted.
        guardrails: What its decisions pass.
        config: The benchmark, whose own policies take no part.
        headroom: Utilization of the jobs at their peak.

    Returns:
        Times that each guardrail stepped in over the episode, (J,), as the gate counts them: again
        after an hour without.
    """
    jobs, seeds = _started(config, headroom)
    chain = _chain_of(policy, guardrails)
    policy.reset(jobs.topology, seeds)
    chain.reset(jobs.topology, seeds)
    trips = np.zeros((len(seeds), len(chain.names)))
    last_s = np.full(trips.shape, -np.inf)
    for _ in range(config.episode_s // config.interval_s):
        snapshot = jobs.collector.snapshot()
        guarded = guarded_turn(snapshot, policy.decide, chain)
        settle_turn(snapshot, None, chain)
        t_s = snapshot.t_s[:, None]
        trips += guarded.trips & (t_s - last_s >= TRIP_REST_S)
        last_s = np.where(guarded.trips, t_s, last_s)
        jobs.advance(config.interval_s)
    return dict(zip(chain.names, trips.T, strict=True))


def benchmark_of(name: str, cell: str | None = None, *, train: bool = False) -> BenchmarkConfig:
    """Find the runs of a benchmark, or of one cell of a frontier.

    Args:
        name: A benchmark; with a cell, a frontier.
        cell: As `unseen-jobs-unseen-loads`.
        train: The jobs and loads that policies may be tuned on, instead of those of the test.

    Returns:
        A benchmark, whose policies take no part here.

    Raises:
        ConfigError: The frontier has no such cell.
    """
    if cell is None:
        config = load_model(BenchmarkConfig, "benchmarks", name)
        changes = {"jobs": config.train_jobs, "split": "train"} if train else {}
        return config.model_copy(update=changes)
    frontier = load_model(FrontierConfig, "frontiers", name)
    cells = {each.name: each for each in frontier.cells()}
    if cell not in cells:
        raise ConfigError(f"{name} has no cell '{cell}'", remedy=did_you_mean(cell, cells))
    return frontier.benchmark(cells[cell], (Entrant(policy="static", name="-"),))


def main(
    benchmark: Annotated[str, typer.Argument(help="A benchmark; with --cell, a frontier.")],
    cell: Annotated[
        str | None, typer.Option(help="Of a frontier, as unseen-jobs-unseen-loads.")
    ] = None,
    policies: Annotated[
        str, typer.Option(metavar="A,B,C", help="By name, broken ones among them.")
    ] = ",".join(("planner", *BROKEN)),
    guardrails: Annotated[
        str, typer.Option(metavar="A,B,C", help="Chains around each policy.")
    ] = "floor,deployed",
    fallback: Annotated[str, typer.Option(help="Policy to compare with.")] = FALLBACK,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Beside healthy jobs; nothing acts.")
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Of each load.")] = 1,
    train: Annotated[bool, typer.Option("--train", help="On the training jobs and loads.")] = False,
) -> None:
    """Print a table: a row for each policy under each chain."""
    config = benchmark_of(benchmark, cell, train=train).model_copy(update={"seeds": seeds})
    names, chains = policies.split(","), guardrails.split(",")
    if shadow:
        for policy in names:
            for chain in chains:
                typer.echo(_watched(policy, chain, config))
        return
    typer.echo(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    usual = play_guarded(made(fallback), None, config)
    typer.echo(_row(fallback.split("/")[-1], "none", usual, usual, usual))
    for policy in names:
        alone = play_guarded(made(policy), None, config)
        typer.echo(_row(policy, "none", alone, alone, usual))
        for chain in chains:
            found = play_guarded(made(policy), chain, config)
            typer.echo(_row(policy, chain, found, alone, usual))


def _counted(trips: Mapping[str, Floats]) -> str:
    often = {name: each.mean() for name, each in trips.items() if each.mean() >= 0.05}
    return ", ".join(f"{name} {value:.1f}" for name, value in often.items())


def _watched(policy: str, chain: str, config: BenchmarkConfig) -> str:
    """Count interventions per day beside healthy jobs: the mean and the most of any run."""
    days = config.episode_s / 86_400
    found = {name: each / days for name, each in watch_beside(made(policy), chain, config).items()}
    changed = np.sum(list(found.values()), axis=0)
    return (
        f"{policy:32} {chain:10} mean {changed.mean():6.1f} most {changed.max():6.0f}  "
        f"{_counted(found)}"
    )


def _row(
    policy: str, chain: str, found: GuardedRuns, alone: GuardedRuns, fallback: GuardedRuns
) -> str:
    """Make a row of the table: means over all runs, and paired differences."""
    against = [
        f"{100 * found.dearer(others):+.1f} %, {100 * found.later(others):+.2f}"
        if others is not found
        else "–"
        for others in (alone, fallback)
    ]
    cells = (
        policy,
        chain,
        f"{found.cost.mean():.2f}",
        f"{100 * found.late.mean():.2f} %",
        *against,
        f"{found.rescales.mean():.1f}",
        _counted(found.trips) or "–",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    run(main)
