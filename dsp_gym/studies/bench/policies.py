"""How many decisions per second the rule policies make, in a batch and for one job.

Snapshots are those of a simulated day in which nothing is enacted, so that every rule sees load,
backlog and backpressure come and go. Snapshots are taken beforehand; explaining is off in the
batch, as in evaluation, and on for one job, as in `dsp-gym decide` and `dsp-gym shadow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import parse
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.capabilities import without_reasons
from dsp_gym.policies.registry import available, make, resolve
from dsp_gym.simulation.options import SimulationOptions
from dsp_gym.studies.bench.environment import JOB
from dsp_gym.studies.bench.machine import MeasuredRate, measure

RULES = (
    "static",
    "hpa-cpu",
    "hpa-varga",
    "keda",
    "aws-managed-flink",
    "dataflow",
    "beam-flink",
    "dhalion",
    "dhalion-reactive",
    "daedalus",
    "conttune",
    "ds2",
    "ds2-reactive",
    "flink-autoscaler",
    "justin-paper",
    "justin-artifact",
)
"""Policies that follow rules; trained ones are timed with the agents, planners are not timed."""

BATCH_BAR = 20_000.0
SINGLE_BAR = 1_000.0
"""One decision for 16 vertices within a millisecond."""

LARGE = 16
TICKS = 32
INTERVAL_S = 60


def rule_policies(names: Iterable[str] = ()) -> list[str]:
    """List the installed rule policies, or those of them that are named.

    Returns:
        Names.

    Raises:
        ConfigError: A name is not that of an installed policy.
    """
    for name in names:
        resolve(name)
    return list(names) or [name for name in RULES if name in available()]


def bench_policies(
    names: Iterable[str] = (), jobs: int = 1024, runs: int = 5
) -> list[MeasuredRate]:
    """Time every rule policy: a batch of eight vertices, one job of sixteen.

    Returns:
        Decisions per second of each.
    """
    wanted, rates = rule_policies(names), []
    for spec, count, said, explain, bar in (
        (load_job(JOB), jobs, f"{jobs} jobs of 8 vertices", False, BATCH_BAR),
        (chain(LARGE), 1, f"one job of {LARGE} vertices", True, SINGLE_BAR),
    ):
        seen = recorded([spec], count)
        for name in wanted:
            decide = _decider(name, seen, explain=explain)
            rates.append(measure(f"{name}, {said}", "decisions/s", decide, runs=runs, bar=bar))
    return rates


def recorded(specs: Sequence[JobSpec], jobs: int) -> list[MetricsSnapshot]:
    """Record jobs under a load that doubles and halves.

    Returns:
        Snapshots, one per minute.
    """
    topology = Topology.of(specs, [j % len(specs) for j in range(jobs)])
    simulated = SimulatedJobs(topology, SimulationOptions())
    seconds = np.arange(TICKS * INTERVAL_S)
    phase = np.random.default_rng(0).uniform(0, 2 * np.pi, (jobs, 1))
    swing = 1 + 0.5 * np.sin(2 * np.pi * seconds / seconds.size + phase)
    simulated.reset(np.arange(jobs), topology.tables.rate_per_s[topology.row, None] * swing)
    snapshots = []
    for _ in range(TICKS):
        simulated.advance(INTERVAL_S)
        snapshots.append(simulated.snapshot())
    return snapshots


def chain(vertices: int) -> JobSpec:
    """Make a chain of a source, stateful and stateless operators in turn, and a sink.

    Returns:
        A job of that many vertices, `v0` to `vN`, driven by 20,000 records/s.
    """
    operators: list[dict[str, object]] = [
        {
            "name": f"v{v}",
            "inputs": [{"from": f"v{v - 1}", "ship": "HASH"}],
            "cpu_us_per_record": 50,
            "parallelism": 2,
        }
        for v in range(1, vertices)
    ]
    for stateful in operators[:-1:2]:
        stateful["state"] = {"reads": 1, "writes": 1, "keys": 100_000, "value_bytes": 100}
    operators[-1]["kind"] = "sink"
    listed = [{"name": "v0", "kind": "source", "cpu_us_per_record": 1}, *operators]
    job = {"job": f"chain-{vertices}", "source": {"rate_per_s": 20_000.0}, "vertices": listed}
    return parse(JobSpec, job, f"chain of {vertices}")


def _decider(name: str, seen: list[MetricsSnapshot], *, explain: bool) -> Callable[[], int]:
    policy: Policy = make(name) if explain else without_reasons(make(name))
    seeds: Ints = np.arange(len(seen[0]))

    def once() -> int:
        policy.reset(seen[0].topology, seeds)
        for snapshot in seen:
            policy.decide(snapshot)
        return len(seen) * len(seen[0])

    return once
