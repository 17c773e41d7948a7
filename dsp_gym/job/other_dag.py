"""Jobs of other random shapes than `random_dag`'s: what a policy for any job has not seen.

The older generator draws small graphs of one kind, and every learned policy was chosen on some of
them. These graphs have one of four shapes, each of which stresses something else: deep chains (a
backlog wanders from operator to operator), wide joins (one operator waits for three or four
streams), dear state (a read that misses the cache costs up to a hundred times a hit, and gigabytes
are restored) and many sources. Losses with parallelism, slots and outages differ as well. Sizes
follow the same rule, so that load above the reference still fits under the quota.
"""

from __future__ import annotations

from collections.abc import Callable

from dsp_gym.job.draw import Draw
from dsp_gym.job.random_dag import QUOTA, Document, keep_windows_last, with_costs

MOST_TASKS = 12
"""Most tasks of an operator at the reference rate."""

_OUTAGES_S = ((10, 20, 40), (30, 45, 75), (56, 76, 93), (60, 110, 180))
"""Outages of a rescale without the restore of its state: p10, p50 and p90, s."""


class _Graph:
    """A graph that grows: vertices in the order of their inputs."""

    def __init__(self, draw: Draw, sources: int) -> None:
        self.draw = draw
        self.vertices: list[Document] = [
            {
                "name": f"source_{v + 1}",
                "kind": "source",
                "cpu_us_per_record": 1,
                "parallelism": draw.whole(1, 4),
            }
            for v in range(sources)
        ]
        self.unread = [source["name"] for source in self.vertices]

    def read(self, inputs: list[str], stateful: bool, **state: float) -> str:
        """Add an operator, and return its name."""
        draw, name = self.draw, f"operator_{len(self.vertices) + 1}"
        keyed = stateful or len(inputs) > 1
        vertex: Document = {
            "name": name,
            "inputs": [{"from": one, "ship": "HASH" if keyed else "REBALANCE"} for one in inputs],
            # As many records as it reads come out of a join: few would get through many in a row.
            "selectivity": draw.log(0.6, 1.3) / len(inputs),
            "cpu_us_per_record": 1.0,
            "efficiency": _efficiency(draw),
        }
        if keyed:
            vertex["state"] = _state(draw) | state
        self.vertices.append(vertex)
        self.unread = [one for one in self.unread if one not in inputs] + [name]
        return name

    def take(self, most: int) -> list[str]:
        """Return the streams that have waited longest for a reader."""
        return self.unread[:most]


def _chain(draw: Draw) -> _Graph:
    graph = _Graph(draw, 1)
    for _ in range(draw.whole(6, 10)):
        graph.read(graph.take(1), stateful=draw.real(0, 1) < 0.3)
    return graph


def _joins(draw: Draw) -> _Graph:
    graph = _Graph(draw, draw.whole(3, 4))
    for _ in range(draw.whole(1, 2)):
        graph.read(graph.take(1), stateful=False)
    graph.read(graph.take(4), stateful=True)
    for _ in range(draw.whole(1, 2)):
        graph.read(graph.take(3), stateful=draw.real(0, 1) < 0.5)
    return graph


def _dear_state(draw: Draw) -> _Graph:
    graph = _Graph(draw, draw.whole(1, 2))
    for _ in range(draw.whole(2, 4)):
        graph.read(
            graph.take(2),
            stateful=True,
            keys=round(draw.log(100_000, 4_000_000)),
            value_bytes=round(draw.log(100, 1_000)),
            read_miss_us=draw.real(10.0, 100.0),
        )
    return graph


def _many_sources(draw: Draw) -> _Graph:
    graph = _Graph(draw, draw.whole(4, 7))
    while len(graph.unread) > 3:
        graph.read(graph.take(draw.whole(1, 3)), stateful=draw.real(0, 1) < 0.4)
    return graph


SHAPES: dict[str, Callable[[Draw], _Graph]] = {
    "a deep chain": _chain,
    "wide joins": _joins,
    "dear state": _dear_state,
    "many sources": _many_sources,
}
"""The shapes by what a job is said to be."""


def other_dag(seed: int) -> Document:
    """Draw the document of a job file.

    Args:
        seed: Any number from 0 on.

    Returns:
        A document that `JobSpec` accepts.
    """
    # The order of draws is part of the result: a new draw belongs at the end.
    draw = Draw(seed)
    shape = draw.one(list(SHAPES))
    graph = SHAPES[shape](draw)
    made = graph.vertices
    keep_windows_last(made, graph.unread)
    made.append(
        {
            "name": "sink",
            "kind": "sink",
            "inputs": [{"from": one, "ship": "REBALANCE"} for one in graph.unread],
            "cpu_us_per_record": 0.1,
            "scalable": False,
        }
    )
    slots = draw.one([1, 2, 4, 8])
    document = {
        "job": f"other-dag-{seed}",
        "description": f"A random graph of {len(made)} vertices with {shape}: `other-dag:{seed}`.",
        "source": {"rate_per_s": draw.log(5_000, 400_000)},
        "vertices": made,
        "memory": {"base_mib": draw.one([128, 158, 256]), "levels": 3, "split": "justin"},
        "taskmanager": {"slots": slots, "cores": slots, "memory_mib": 512 * slots},
        "max_parallelism_per_vertex": QUOTA,
        "rescale": {
            "outage_s": draw.one(_OUTAGES_S),
            "restore_mib_per_s": draw.log(100, 400),
            "savepoint_mib_per_s": draw.log(100, 400),
        },
    }
    return with_costs(document, {v["name"]: max(1, round(draw.log(1, MOST_TASKS))) for v in made})


def _efficiency(draw: Draw) -> Document:
    """Draw the loss with parallelism, at most a half at the quota."""
    form = draw.one(["linear", "power", "contention"])
    most = {"linear": 0.0, "power": 0.2, "contention": 0.04}[form]
    return {"form": form, "a": draw.real(0.0, most)}


def _state(draw: Draw) -> Document:
    """Draw state whose costs are in the right proportion to the CPU's."""
    state: Document = {
        "reads": draw.one([1, 1, 2]),
        "writes": draw.one([0, 1, 1]),
        "keys": round(draw.log(1_000, 1_000_000)),
        "value_bytes": round(draw.log(50, 500)),
        "popularity": {"form": "zipf", "exponent": draw.real(0.0, 1.2)},
        "unshared_mib": draw.one([0, 64, 128]),
        "read_hit_us": draw.real(0.5, 2.0),
        "read_miss_us": draw.real(1.0, 15.0),
        "write_us": draw.real(0.5, 3.0),
    }
    kind = draw.one([None, None, "tumbling", "session"])
    if kind is not None:
        state["window"] = {"kind": kind, "length_s": draw.one([10, 20, 60])}
    return state
