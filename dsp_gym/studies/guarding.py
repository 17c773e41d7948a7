"""What guardrails cost policies that need none, and how far they contain broken ones.

python -m dsp_gym.studies.guarding core-v1 --policies learned --guardrails floor deployed
python -m dsp_gym.studies.guarding core-v2 --cell unseen-jobs-unseen-loads --jobs nexmark-q8
python -m dsp_gym.studies.guarding core-v1 --policies ds2 mdp --guardrails deployed --shadow

Runs are paired: each is compared with the same policy without guardrails, and with the fallback,
on the same job, load and seed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import load_model
from dsp_gym.control.loop import ControlLoop
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.evaluation.batch_of_runs import benchmark_job, simulation_seed
from dsp_gym.evaluation.config import BenchmarkConfig, Entrant
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.guardrails.chain import Chain, build_for
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.job.sizing import sized
from dsp_gym.loads.sampler import LoadSampler
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.loop.turn import guarded_turn, settle_turn
from dsp_gym.policies import make
from dsp_gym.whatif.journal import TRIP_REST_S


class Stuck:
    """Holds whatever runs, for ever."""

    def __init__(self) -> None:
        self.name = "stuck"

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

    def __init__(self) -> None:
        super().__init__()
        self.name = "random"
        self._rng = np.random.default_rng(1)

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

    def __init__(self) -> None:
        super().__init__()
        self.name = "inverted"
        self._right = make("ds2-justin")

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        self._right.reset(jobs, seeds, mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Ask DS2 and do the opposite.

        Returns:
            A decision of at least one task a vertex.
        """
        right = self._right.decide(snapshot)
        mirrored = np.maximum(1, 2 * snapshot.parallelism - right.parallelism)
        return ScalingDecision(mirrored, snapshot.memory_level, right.reasons)

    def state(self) -> State:
        return self._right.state()

    def restore(self, state: State) -> None:
        self._right.restore(state)


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


class _Played(NamedTuple):
    """Jobs under the loads of a benchmark, ready to start."""

    jobs: SimulatedJobs
    seeds: Ints


def _started(config: BenchmarkConfig, headroom: float | None = None) -> _Played:
    """Start the runs of a split; with a headroom they carry the highest rate at that use."""
    specs = [benchmark_job(name, config) for name in config.jobs]
    sampler = LoadSampler(config.loads)
    cells = [cell for row in sampler.cells(config.split, config.seeds) for cell in row]
    shapes = np.array([sampler.rates(cell, config.episode_s) for cell in cells])
    topology = Topology.of(specs, np.repeat(np.arange(len(specs)), len(cells)).tolist())
    tables, row = topology.tables, topology.row
    rates = np.tile(shapes, (len(specs), 1)) * tables.rate_per_s[row][:, None]
    seeds = np.array([simulation_seed(cell) for cell in cells] * len(specs), np.int64)
    first = rates[:, 0] if headroom is None else rates.max(axis=1)
    share, even = headroom or config.start_headroom, np.ones(len(row))
    start = sized(tables, row, first, share, even, tables.start_level[row])
    jobs = SimulatedJobs(topology, config.simulation)
    jobs.reset(seeds, np.ascontiguousarray(rates), parallelism=start)
    return _Played(jobs, seeds)


def _chain_of(policy: Policy, guardrails: GuardrailsConfig | str | None) -> Chain | None:
    """Build the chain around a policy, without words."""
    chain = None if guardrails is None else build_for(policy, guardrails)
    if chain is not None:
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
    chain = _chain_of(policy, guardrails)
    loop = ControlLoop(jobs, policy, chain, config.interval_s)
    loop.reset(seeds)
    names = () if chain is None else chain.names
    total = np.zeros((3, len(seeds)))
    trips = np.zeros((len(seeds), len(names)))
    for _ in range(config.episode_s // config.interval_s):
        step = loop.step()
        came = step.outcome
        total += np.stack([came.cost, came.slo_s / config.episode_s, came.rescales])
        trips += step.guarded.trips
    days = config.episode_s / 86_400
    cost, late, rescales = total
    by_name = dict(zip(names, trips.T / days, strict=True))
    return GuardedRuns(cost / days, late, rescales / days, by_name)


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
        Times that each guardrail stepped in over the episode, (J,), as the gate counts them: anew
        after an hour without.
    """
    jobs, seeds = _started(config, headroom)
    chain = build_for(policy, guardrails)
    assert chain is not None
    chain.explain = False
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
        return (
            config.model_copy(update={"jobs": config.train_jobs, "split": "train"})
            if train
            else config
        )
    frontier = load_model(FrontierConfig, "frontiers", name)
    cells = {each.name: each for each in frontier.cells()}
    if cell not in cells:
        raise ConfigError(f"{name} has no cell '{cell}'", remedy=did_you_mean(cell, cells))
    return frontier.benchmark(cells[cell], (Entrant(policy="static", name="-"),))


def _narrowed(config: BenchmarkConfig, chosen: argparse.Namespace) -> BenchmarkConfig:
    """Keep fewer jobs, loads or seeds, as asked."""
    changes: dict[str, object] = {"seeds": chosen.seeds}
    if chosen.jobs:
        changes["jobs"] = tuple(chosen.jobs)
    if chosen.loads:
        split = getattr(config.loads, config.split)
        loads = tuple(load for load in split.loads if load.name in chosen.loads)
        split = split.model_copy(update={"loads": loads})
        changes["loads"] = config.loads.model_copy(update={config.split: split})
    return config.model_copy(update=changes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table: a row for each policy under each chain."""
    parser = argparse.ArgumentParser(prog="python -m dsp_gym.studies.guarding", description=__doc__)
    parser.add_argument("benchmark")
    parser.add_argument("--cell", help="of a frontier, as unseen-jobs-unseen-loads")
    parser.add_argument("--policies", nargs="+", default=["learned", *BROKEN])
    parser.add_argument("--guardrails", nargs="+", default=["floor", "deployed"])
    parser.add_argument("--fallback", default=FALLBACK, help="policy to compare with")
    parser.add_argument("--jobs", nargs="+", help="of the benchmark; all if not given")
    parser.add_argument("--loads", nargs="+", help="of the benchmark; all if not given")
    parser.add_argument("--shadow", action="store_true", help="beside healthy jobs, nothing acts")
    parser.add_argument("--seeds", type=int, default=1, help="of each load")
    parser.add_argument("--train", action="store_true", help="on the training jobs and loads")
    chosen = parser.parse_args(arguments)
    config = _narrowed(benchmark_of(chosen.benchmark, chosen.cell, train=chosen.train), chosen)
    if chosen.shadow:
        for policy in chosen.policies:
            for chain in chosen.guardrails:
                _say(_watched(policy, chain, config))
        return
    _say(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    fallback = play_guarded(made(chosen.fallback), None, config)
    _say(_row(chosen.fallback.split("/")[-1], "none", fallback, fallback, fallback))
    for policy in chosen.policies:
        alone = play_guarded(made(policy), None, config)
        _say(_row(policy, "none", alone, alone, fallback))
        for chain in chosen.guardrails:
            _say(_row(policy, chain, play_guarded(made(policy), chain, config), alone, fallback))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _counted(trips: Mapping[str, Floats]) -> str:
    said = {name: float(each.mean()) for name, each in trips.items()}
    return ", ".join(f"{name} {value:.1f}" for name, value in said.items() if value >= 0.05)


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
    cells = [policy, chain, f"{found.cost.mean():.2f}", f"{100 * found.late.mean():.2f} %"]
    for others in (alone, fallback):
        cells.append(
            "–"
            if others is found
            else f"{100 * found.dearer(others):+.1f} %, {100 * found.later(others):+.2f}"
        )
    cells += [f"{found.rescales.mean():.1f}", _counted(found.trips) or "–"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
