"""Simulated jobs for tests: random graphs with windows and selectivities, and small exact ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.episodes import Draws
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation.options import Faults, Measurement, MechanismSwitches, SimulationOptions
from tests.strategies import random_configuration, spec_of

FAULTY = SimulationOptions(
    faults=Faults(
        failures_per_hour=30,
        recovery_s=7,
        slow_nodes_per_hour=30,
        metric_gaps_per_hour=30,
        failed_rescale_probability=0.3,
    ),
    measurement=Measurement(missing_probability=0.2),
)
"""Everything that can go wrong, often."""


def exact(**rest: Any) -> SimulationOptions:
    """No noise anywhere; `rest` as in SimulationOptions."""
    mechanisms = MechanismSwitches(service_noise=False, **rest.pop("mechanisms", {}))
    measurement = Measurement(noise_cv=0, **rest.pop("measurement", {}))
    return SimulationOptions(mechanisms=mechanisms, measurement=measurement, **rest)


def line(cpu_us: float = 1000.0, **rest: Any) -> JobSpec:
    """source -> map -> sink; one task of the map carries 1e6 / cpu_us records/s."""
    spec: dict[str, Any] = {"rescale": {"mode": "in_place", "outage_s": [20, 20, 20]}}
    return spec_of(
        "line",
        {"name": "source", "kind": "source", "cpu_us_per_record": 1.0, "parallelism": 4},
        {
            "name": "map",
            "inputs": [{"from": "source", "ship": "REBALANCE"}],
            "cpu_us_per_record": cpu_us,
        },
        {
            "name": "sink",
            "kind": "sink",
            "inputs": [{"from": "map", "ship": "REBALANCE"}],
            "cpu_us_per_record": 1.0,
            "scalable": False,
        },
        **(spec | rest),
    )


def keyed(state: dict[str, Any] | None = None, **rest: Any) -> JobSpec:
    """source -> map with RocksDB state over a hash edge -> sink."""
    given = {"reads": 1, "writes": 1, "keys": 1e6, "value_bytes": 1000} | (state or {})
    return spec_of(
        "keyed",
        {"name": "source", "kind": "source", "cpu_us_per_record": 1.0, "parallelism": 4},
        {
            "name": "map",
            "inputs": [{"from": "source", "ship": "HASH"}],
            "cpu_us_per_record": 100.0,
            "state": given,
        },
        {
            "name": "sink",
            "kind": "sink",
            "inputs": [{"from": "map", "ship": "REBALANCE"}],
            "cpu_us_per_record": 1.0,
            "scalable": False,
        },
        **rest,
    )


def random_job(rng: np.random.Generator, name: str = "random") -> JobSpec:
    """Two to seven vertices, edges, windows, selectivities and memory of any kind."""
    size = int(rng.integers(2, 8))
    sources = int(rng.integers(1, max(2, size // 2)))
    vertices: list[dict[str, Any]] = [
        {"name": f"v{v}", "kind": "source", "parallelism": int(rng.integers(1, 4))}
        for v in range(sources)
    ]
    for v in range(sources, size):
        count = int(rng.integers(1, min(v, 3) + 1))
        ship = str(rng.choice(["HASH", "REBALANCE"]))
        chosen = sorted(rng.choice(v, count, replace=False))
        vertex: dict[str, Any] = {
            "name": f"v{v}",
            "inputs": [{"from": f"v{u}", "ship": ship} for u in chosen],
            "cpu_us_per_record": float(rng.choice([1.0, 50.0, 2000.0])),
            "selectivity": float(rng.choice([0.0, 0.02, 1.0, 1.7])),
            "efficiency": {"form": "power", "a": float(rng.choice([0.0, 0.1]))},
            "max_parallelism": 24,
        }
        if v == size - 1:
            vertex |= {"kind": "sink", "scalable": bool(rng.integers(2))}
        elif rng.integers(2):
            vertex["state"] = _random_state(rng)
        vertices.append(vertex)
    return spec_of(
        name,
        *vertices,
        max_parallelism_per_vertex=int(rng.integers(2, 24)),
        source={"rate_per_s": 1000.0, "log": bool(rng.integers(4))},
        memory={"levels": int(rng.integers(1, 4))},
        taskmanager={"contention": float(rng.choice([0.0, 0.05]))},
        slot_sharing=bool(rng.integers(2)),
        buffer_records=float(rng.choice([10.0, 2000.0])),
        rescale={
            "mode": str(rng.choice(["redeploy", "in_place"])),
            "outage_s": [3, 6, 9],
            "savepoint_mib_per_s": 10.0,
        },
    )


def _random_state(rng: np.random.Generator) -> dict[str, Any]:
    state: dict[str, Any] = {
        "reads": float(rng.integers(0, 3)),
        "writes": float(rng.integers(0, 2)),
        "keys": float(rng.choice([10.0, 1e5])),
        "value_bytes": float(rng.choice([100.0, 1e4])),
        "prefilled": bool(rng.integers(2)),
    }
    kind = str(rng.choice(["none", "tumbling", "sliding", "session"]))
    if kind != "none":
        state["window"] = {"kind": kind, "length_s": 20.0}
    if kind == "sliding":
        state["window"]["slide_s"] = 7.0
    return state


def random_jobs(
    rng: np.random.Generator, jobs: int, options: SimulationOptions | None = None, seconds: int = 60
) -> SimulatedJobs:
    """A batch over one to three random jobs, started from random configurations and loads."""
    specs = [random_job(rng, f"random-{i}") for i in range(int(rng.integers(1, 4)))]
    topology = Topology.of(specs, [int(k) for k in rng.integers(0, len(specs), jobs)])
    made = SimulatedJobs(topology, options or SimulationOptions())
    parallelism, level = random_configuration(rng, topology)
    level_of = rng.choice([0.0, 10.0, 1000.0, 50_000.0], (jobs, 1))
    rates = level_of * rng.uniform(0, 2, (jobs, seconds))
    seeds = rng.integers(0, 2**62, jobs)
    made.reset(seeds, rates, parallelism=parallelism, memory_level=level)
    return made


def wanted(parallelism: np.ndarray, level: np.ndarray) -> GuardedDecision:
    """The request for a configuration."""
    reasons = ("test",) * len(parallelism)
    return GuardedDecision.unchanged(ScalingDecision(parallelism, level, reasons))


def rescale_some(rng: np.random.Generator, jobs: SimulatedJobs) -> None:
    """Ask half of the jobs for another random configuration."""
    parallelism, level = random_configuration(rng, jobs.topology)
    keep = rng.integers(0, 2, (len(jobs), 1)) == 1
    jobs.apply(
        wanted(
            np.where(keep, jobs.state.parallelism, parallelism),
            np.where(keep, jobs.state.level, level),
        )
    )


def constant(spec: JobSpec, rate_per_s: float, options: SimulationOptions, **given: int):
    """One job under constant load; `given` is parallelism by vertex name."""
    jobs = SimulatedJobs(Topology.of([spec]), options)
    parallelism = jobs.topology.tables.start_parallelism.copy()
    for name, p in given.items():
        parallelism[0, jobs.topology.names(0).index(name)] = p
    jobs.reset(np.array([1]), np.array([[rate_per_s]]), parallelism=parallelism)
    return jobs


def ask(jobs: SimulatedJobs, level: int | None = None, **given: int) -> None:
    """Ask the first job for a parallelism by vertex name, and a level everywhere."""
    parallelism, levels = jobs.state.parallelism.copy(), jobs.state.level.copy()
    for name, p in given.items():
        parallelism[0, jobs.topology.names(0).index(name)] = p
    if level is not None:
        levels[:] = level
    jobs.apply(wanted(parallelism, levels))


def begun(env: AutoscaleBatch, seeds: np.ndarray, rates: np.ndarray) -> np.ndarray:
    """The observations of an environment begun with given seeds and loads, nothing else drawn."""
    ones = np.ones(len(env))
    return env.begin(Draws(seeds, rates, ones, ones, np.zeros(len(env), np.int64)))
