"""Random jobs and snapshots: graphs of any shape, metrics of any value, some of them unknown."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import strategies as st

from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.snapshot import PER_VERTEX, MetricsSnapshot, Status
from dsp_gym.loop.topology import Topology


def spec_of(name: str, *vertices: dict[str, Any], **rest: Any) -> JobSpec:
    """A job file from its vertices; 10 us per record where nothing is said."""
    full = [{"cpu_us_per_record": 10.0, **vertex} for vertex in vertices]
    source = rest.pop("source", {"rate_per_s": 1000.0})
    return JobSpec.model_validate({"job": name, "source": source, "vertices": full, **rest})


def chain_spec(**rest: Any) -> JobSpec:
    """source -> map -> window (stateful) -> sink of one task."""
    return spec_of(
        "chain",
        {"name": "source", "kind": "source", "parallelism": 2},
        {"name": "map", "inputs": [{"from": "source"}]},
        {
            "name": "window",
            "inputs": [{"from": "map"}],
            "state": {"reads": 1, "writes": 1, "keys": 1000, "value_bytes": 100},
        },
        {"name": "sink", "kind": "sink", "inputs": [{"from": "window"}], "scalable": False},
        **rest,
    )


def random_spec(rng: np.random.Generator, name: str = "random") -> JobSpec:
    """A job of 2 to 7 vertices with random edges; the last one is a sink."""
    size = int(rng.integers(2, 8))
    sources = int(rng.integers(1, max(2, size // 2)))
    vertices: list[dict[str, Any]] = [
        {"name": f"v{v}", "kind": "source", "parallelism": int(rng.integers(1, 4))}
        for v in range(sources)
    ]
    for v in range(sources, size):
        count = int(rng.integers(1, min(v, 3) + 1))
        inputs = [{"from": f"v{u}"} for u in sorted(rng.choice(v, count, replace=False))]
        vertex: dict[str, Any] = {"name": f"v{v}", "inputs": inputs}
        if v == size - 1:
            vertex |= {"kind": "sink", "scalable": bool(rng.integers(2))}
        elif rng.integers(2):
            vertex["state"] = {"reads": 1, "keys": 1000, "value_bytes": 100}
        vertices.append(vertex)
    return spec_of(
        name,
        *vertices,
        max_parallelism_per_vertex=int(rng.integers(2, 40)),
        source={"rate_per_s": 1000.0, "log": bool(rng.integers(2))},
        memory={"levels": int(rng.integers(1, 4))},
    )


def random_topology(rng: np.random.Generator, jobs: int) -> Topology:
    """A batch of jobs over one to three random job files."""
    specs = [random_spec(rng, f"random-{i}") for i in range(int(rng.integers(1, 4)))]
    return Topology.of(specs, [int(k) for k in rng.integers(0, len(specs), jobs)])


def blank_snapshot(topology: Topology, t_s: float = 600.0, **values: Any) -> MetricsSnapshot:
    """Running since the start with a full window; start configuration, metrics unknown."""
    jobs, size = len(topology), topology.max_vertices
    tables = topology.tables
    filled: dict[str, Any] = {}
    for field in fields(MetricsSnapshot):
        if field.name != "topology":
            shape = (jobs, size) if field.name in PER_VERTEX else (jobs,)
            filled[field.name] = np.full(shape, np.nan)
    filled |= {
        "t_s": np.full(jobs, t_s),
        "status": np.full(jobs, int(Status.RUNNING), dtype=np.int64),
        "running_since_s": np.zeros(jobs),
        "window_s": np.full(jobs, 120.0),
        "window_fill": np.ones(jobs),
        "parallelism": tables.start_parallelism[topology.row].copy(),
        "memory_level": tables.start_level[topology.row].copy(),
    }
    for name, value in values.items():
        array = np.asarray(value, dtype=filled[name].dtype)
        filled[name] = np.broadcast_to(array, filled[name].shape).copy()
    return MetricsSnapshot(topology=topology, **filled)


def random_configuration(
    rng: np.random.Generator, topology: Topology
) -> tuple[np.ndarray, np.ndarray]:
    """A configuration inside every bound."""
    tables, row = topology.tables, topology.row
    low, high = tables.min_parallelism[row], tables.max_parallelism[row]
    parallelism = rng.integers(low, high + 1)
    lowest = np.where(tables.stateful[row] == 1, 0, -1)
    level = rng.integers(lowest, tables.levels[row][:, None])
    return (
        np.where(topology.mask, parallelism, 0).astype(np.int64),
        np.where(topology.mask, level, -1).astype(np.int64),
    )


def random_snapshot(
    rng: np.random.Generator,
    topology: Topology,
    t_s: float = 600.0,
    *,
    unknown: float = 0.05,
    previous: MetricsSnapshot | None = None,
) -> MetricsSnapshot:
    """Any metrics, some unknown; half the jobs keep the previous configuration."""
    jobs, size = len(topology), topology.max_vertices
    shape = (jobs, size)
    parallelism, level = random_configuration(rng, topology)
    since = t_s - rng.choice([10.0, 100.0, 400.0], jobs)
    if previous is not None:
        same = rng.integers(0, 2, jobs) == 1
        parallelism[same] = previous.parallelism[same]
        level[same] = previous.memory_level[same]
        since[same] = previous.running_since_s[same]
    busy = rng.uniform(0, 1000, shape)
    records_in = rng.uniform(0, 2000, shape) * rng.integers(0, 5, shape).clip(0, 1)
    values: dict[str, Any] = {
        "records_in_per_s": records_in,
        "records_out_per_s": records_in * rng.uniform(0, 2, shape),
        "busy_ms_per_s": busy,
        "busy_now_ms_per_s": rng.uniform(0, 1000, shape),
        "backpressured_ms_per_s": 1000 - busy,
        "cache_hit_rate": rng.choice([0.0, 0.5, 0.7, 0.9, 0.99], shape),
        "state_read_latency_ms": rng.uniform(0, 2, shape),
        "pending_records": rng.choice([0.0, 100.0, 1e6], shape),
        "pending_growth_per_s": rng.uniform(-500, 500, shape),
    }
    stateless = topology.tables.stateful[topology.row] == 0
    values["cache_hit_rate"][stateless] = np.nan
    source = topology.tables.kind[topology.row] == 0
    for name in ("pending_records", "pending_growth_per_s"):
        values[name][~source] = np.nan
    for array in values.values():
        array[(rng.uniform(size=shape) < unknown) | ~topology.mask] = np.nan
    status = rng.choice([0, 0, 0, 0, 1, 2, 3], jobs)
    return blank_snapshot(
        topology,
        t_s,
        running_since_s=since,
        status=status,
        window_fill=rng.choice([0.0, 0.5, 1.0, 1.0, 1.0], jobs),
        parallelism=parallelism,
        memory_level=level,
        latency_p95_s=rng.choice([0.1, 1.0, 5.0], jobs),
        outage_s=rng.uniform(10, 100, jobs),
        **values,
    )


def random_decision(rng: np.random.Generator, topology: Topology) -> ScalingDecision:
    """A decision that keeps no bound at all."""
    shape = (len(topology), topology.max_vertices)
    parallelism = np.where(topology.mask, rng.integers(-2, 60, shape), 0)
    level = np.where(topology.mask, rng.integers(-2, 5, shape), -1)
    return ScalingDecision(
        parallelism.astype(np.int64), level.astype(np.int64), ("random",) * len(topology)
    )


def seeds() -> st.SearchStrategy[int]:
    """Seeds of NumPy generators; hypothesis picks, NumPy draws."""
    return st.integers(0, 2**32 - 1)
