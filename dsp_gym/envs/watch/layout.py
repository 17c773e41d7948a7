"""Where the vertices of a job lie: layers from left to right, few crossings (Sugiyama)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsp_gym.envs.watch.canvas import Point

_SWEEPS = 6
"""Times the layers are put in order, from the left and from the right in turn."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Places in a unit square: 0 to 1 from left to right, and from top to bottom."""

    centres: tuple[Point, ...]  # of the vertices
    edges: tuple[tuple[Point, ...], ...]  # from a vertex over layers between to another
    ends: tuple[tuple[int, int], ...]  # vertices of each edge
    layers: int
    rows: int  # of the layer that has most


def arranged(inputs: Sequence[Sequence[int]]) -> Arrangement:
    """Lay out a directed graph without circles.

    Args:
        inputs: For each vertex, in topological order, the vertices it reads from.

    Returns:
        Centres of vertices, and edges with a point in each layer they pass.

    >>> arranged([[], [0], [1]]).centres
    ((0.0, 0.5), (0.5, 0.5), (1.0, 0.5))
    """
    layer: list[int] = []
    for read in inputs:
        layer.append(max((layer[one] + 1 for one in read), default=0))
    chains, sources = _chains(inputs, layer)
    count = max(layer) + 1
    columns: list[list[int]] = [[] for _ in range(count)]
    for node, at in enumerate(layer):
        columns[at].append(node)
    _in_order(columns, sources)
    places = _places(columns, count)
    edges = tuple(tuple(places[node] for node in chain) for chain in chains)
    vertices = len(inputs)
    return Arrangement(
        tuple(places[node] for node in range(vertices)),
        edges,
        tuple((chain[0], chain[-1]) for chain in chains),
        count,
        max(map(len, columns)),
    )


def _chains(
    inputs: Sequence[Sequence[int]], layer: list[int]
) -> tuple[list[list[int]], dict[int, list[int]]]:
    """List the nodes along each edge, with a new one in each layer it passes, and all sources."""
    chains: list[list[int]] = []
    sources: dict[int, list[int]] = {node: [] for node in range(len(inputs))}
    for node, read in enumerate(inputs):
        for begin in read:
            chain = [begin]
            for at in range(layer[begin] + 1, layer[node]):
                layer.append(at)
                sources[len(layer) - 1] = [chain[-1]]
                chain.append(len(layer) - 1)
            sources[node].append(chain[-1])
            chains.append([*chain, node])
    return chains, sources


def _in_order(columns: list[list[int]], sources: dict[int, list[int]]) -> None:
    """Sort each layer by the mean place of the neighbours in the layer before, then behind."""
    targets: dict[int, list[int]] = {}
    for node, read in sources.items():
        for one in read:
            targets.setdefault(one, []).append(node)
    for sweep in range(_SWEEPS):
        forwards = sweep % 2 == 0
        beside = sources if forwards else targets
        for column in columns if forwards else reversed(columns):
            place = {
                node: (k + 0.5) / len(other) for other in columns for k, node in enumerate(other)
            }
            mean = {
                node: sum(place[one] for one in found) / len(found)
                if (found := beside.get(node))
                else place[node]
                for node in column
            }
            column.sort(key=lambda node, mean=mean: mean[node])  # type: ignore[misc]  # bound at once


def _places(columns: list[list[int]], count: int) -> dict[int, Point]:
    rows = max(map(len, columns))
    found: dict[int, Point] = {}
    for at, column in enumerate(columns):
        x = at / (count - 1) if count > 1 else 0.5
        for k, node in enumerate(column):
            y = 0.5 if rows == 1 else 0.5 + (k - (len(column) - 1) / 2) / (rows - 1)
            found[node] = (x, y)
    return found
