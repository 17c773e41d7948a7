"""Jobs of random shape and sensible size: the same seed gives the same job file.

    python -m dsp_gym.job.random_dag 7 > my-job.yaml

Every vertex takes between one and fourteen tasks at the reference rate, 70 % busy with the least
memory, so that load above the reference still fits under the quota and load below it leaves
something to save. The cost of a record follows from that; shapes, selectivities, losses with
parallelism and states are drawn from the ranges that the measured jobs span.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import yaml

from dsp_gym.job.capacity import vertex_capacity
from dsp_gym.job.draw import Draw, short
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.tables import compile_jobs

MAX_TASKS = 14
UTILIZATION = 0.7
"""Utilization of a vertex with its number of tasks at the reference rate: the operator's target."""

QUOTA = 24
COSTS = ("read_hit_us", "read_miss_us", "write_us")


Document = dict[str, Any]
"""Part of a job file."""


def random_dag(seed: int, name: str | None = None, vertices: int | None = None) -> Document:
    """Draw the document of a job file.

    Args:
        seed: Any number from 0 on.
        name: Name of the job; `random-dag-SEED` when None.
        vertices: Number of vertices, at least 2; None: drawn, from 4 to 8. Given, operators pass on
            as many records as they read, since few would come through many in a row.

    Returns:
        A document that `JobSpec` accepts.
    """
    # The order of draws is part of the result: a new draw belongs at the end.
    draw = Draw(seed)
    sources, operators = draw.whole(1, 2), draw.whole(2, 5)
    if vertices is not None:
        sources = min(sources, max(1, vertices // 4))
        operators = vertices - sources - 1
    names = [f"source_{v + 1}" for v in range(sources)]
    made: list[Document] = [
        {"name": source, "kind": "source", "cpu_us_per_record": 1, "parallelism": 2}
        for source in names
    ]
    unread = list(names)
    for number in range(1, operators + 1):
        # The oldest unread stream is read next; a second input makes a join or a union.
        inputs = [unread.pop(0)]
        others = [other for other in names if other not in inputs]
        if others and (len(unread) > 1 or draw.real(0, 1) < 0.3):
            inputs.append(unread.pop(0) if unread else draw.one(others))
        vertex = f"operator_{number}"
        made.append(_operator(draw, vertex, inputs))
        if vertices is not None:
            made[-1]["selectivity"] = 1.0 / len(inputs)
        names.append(vertex)
        unread.append(vertex)
    keep_windows_last(made, unread)
    made.append(
        {
            "name": "sink",
            "kind": "sink",
            "inputs": [{"from": one, "ship": "REBALANCE"} for one in unread],
            "cpu_us_per_record": 0.1,
            "scalable": False,
        }
    )
    document = {
        "job": name or f"random-dag-{seed}",
        "description": f"A random graph of {len(made)} vertices: "
        f"`python -m dsp_gym.job.random_dag {seed}"
        f"{'' if vertices is None else f' --vertices {vertices}'}`.",
        "source": {"rate_per_s": draw.log(20_000, 200_000)},
        "vertices": made,
        "memory": {"base_mib": 158, "levels": 3, "split": "justin"},
        "taskmanager": {"slots": 4, "cores": 4, "memory_mib": 2048},
        "max_parallelism_per_vertex": QUOTA,
    }
    tasks = {v["name"]: max(1, round(draw.log(1, MAX_TASKS))) for v in made}
    return with_costs(document, tasks)


def keep_windows_last(vertices: list[Document], last: list[str]) -> None:
    """Remove windows that fire in bursts from vertices that another operator reads.

    Args:
        vertices: Vertices of a job file; they are changed.
        last: Names of those that the sink reads.

    A minute's results in one burst would need that operator twenty times over-provisioned to stay
    within any bound on latency: no policy could do right.
    """
    for vertex in vertices:
        window = vertex.get("state", {}).get("window")
        if window is not None and window["kind"] != "session" and vertex["name"] not in last:
            del vertex["state"]["window"]


def _operator(draw: Draw, name: str, inputs: list[str]) -> Document:
    """Draw a vertex with costs in the right proportion; their size follows from the job's rate."""
    stateful = len(inputs) > 1 or draw.real(0, 1) < 0.5
    vertex: Document = {
        "name": name,
        "inputs": [{"from": one, "ship": "HASH" if stateful else "REBALANCE"} for one in inputs],
        "selectivity": draw.log(0.1, 1.5),
        "cpu_us_per_record": 1.0,
        "efficiency": {"form": "power", "a": draw.real(0.0, 0.17)},
    }
    if stateful:
        vertex["state"] = _state(draw)
    return vertex


def _state(draw: Draw) -> Document:
    hit, miss = draw.real(0.5, 1.5), draw.real(0.5, 8.0)
    state: Document = {
        "reads": 1,
        "writes": 1,
        "keys": round(draw.log(1_000, 2_000_000)),
        "value_bytes": round(draw.log(50, 500)),
        "popularity": {"form": "zipf", "exponent": draw.real(0.0, 0.8)},
        "unshared_mib": draw.one([0, 128, 258]),
        "read_hit_us": hit,
        "read_miss_us": miss,
        "write_us": draw.real(0.5, 2.0),
    }
    kind = draw.one([None, "tumbling", "sliding", "session"])
    if kind is not None:
        length_s = draw.one([10, 30, 60])
        state["window"] = {"kind": kind, "length_s": length_s}
        if kind == "sliding":
            state["window"]["slide_s"] = length_s // 5
    return state


def with_costs(document: Document, tasks: dict[str, int]) -> Document:
    """Set costs such that each operator is as busy as wanted with its tasks.

    Args:
        document: A job file whose costs are in the right proportion within each operator; it is
            changed.
        tasks: Number of tasks by operator that carry the reference rate, `UTILIZATION` busy.

    Returns:
        The document.
    """
    rate_per_s = document["source"]["rate_per_s"]
    unsized = JobSpec.model_validate(document)
    tables = compile_jobs([unsized])
    by_name = {vertex["name"]: vertex for vertex in document["vertices"]}
    for v, spec in enumerate(unsized.topological_order()):
        if spec.kind != "operator":
            continue
        vertex, needed = by_name[spec.name], rate_per_s * float(tables.ratio[0, v])
        level = 0 if spec.state is not None else -1
        # Costs scale time linearly, so one factor brings the capacity to needed / UTILIZATION.
        capacity, _ = vertex_capacity(tables, 0, v, tasks[spec.name], level, needed)
        factor = capacity * UTILIZATION / needed
        vertex["cpu_us_per_record"] = short(factor)
        vertex["parallelism"] = tasks[spec.name]
        for cost in COSTS if spec.state is not None else ():
            vertex["state"][cost] = short(vertex["state"][cost] * factor)
    return document


def main(arguments: list[str] | None = None) -> int:
    """Write the job file of a seed (command line).

    Returns:
        The exit code, 0.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("--name", help="name of the job; random-dag-SEED if not given")
    parser.add_argument("--vertices", type=int, help="how many, at least 2; drawn if not given")
    given = parser.parse_args(arguments)
    if given.vertices is not None and given.vertices < 2:
        parser.error(f"--vertices is {given.vertices}, expected 2 or more: a source and a sink")
    document = random_dag(given.seed, given.name, given.vertices)
    text = yaml.safe_dump(document, sort_keys=False, width=100)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
