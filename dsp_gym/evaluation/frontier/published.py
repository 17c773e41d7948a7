"""The published results of a frontier, and the place of an entry's settings beside them.

A setting is compared at its own lateness: with what every published policy costs when it is as
late. So each setting has a rank, also one that is later than every level of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, Field, ValidationError

from dsp_gym.arrays import Floats
from dsp_gym.errors import SchemaError
from dsp_gym.evaluation.frontier.board import frontier_fingerprint
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.frontier.estimate import FrontierPoint, cost_at
from dsp_gym.evaluation.run import PLAN

_FOLDER = Path(__file__).parent / "published"


class PublishedPolicy(NamedTuple):
    """The settings of one policy in one cell."""

    policy: str
    rule: bool  # a tuned rule
    late: Floats  # (settings,) shares of the time
    cost: Floats  # (settings,) per day, geometric mean over jobs

    def cost_at(self, late: float) -> float | None:
        """Return the cost at a lateness, interpolated between settings; None: always later."""
        found = float(cost_at(self.late, np.log(self.cost), late))
        return None if np.isnan(found) else float(np.exp(found))


class PublishedCell(NamedTuple):
    """The policies that were published in one cell."""

    cell: str
    jobs: tuple[str, ...]
    loads: tuple[str, ...]
    seeds: tuple[int, ...]
    policies: tuple[PublishedPolicy, ...]


class _Policy(BaseModel):
    """One policy of the file; what is not read of it is passed over."""

    policy: str
    rule: bool
    points: list[tuple[float, float]] = Field(min_length=1)

    def read(self) -> PublishedPolicy:
        """Return its settings as arrays."""
        late, cost = np.array(self.points, dtype=np.float64).T
        return PublishedPolicy(self.policy, self.rule, late, cost)


class _Cell(BaseModel):
    """One cell of the file."""

    cell: str
    jobs: tuple[str, ...]
    loads: tuple[str, ...]
    seeds: tuple[int, ...]
    policies: list[_Policy]

    def read(self) -> PublishedCell:
        """Return its policies as arrays."""
        policies = tuple(one.read() for one in self.policies)
        return PublishedCell(self.cell, self.jobs, self.loads, self.seeds, policies)


class _Document(BaseModel):
    """The file, as `docs/results.py` writes it."""

    fingerprint: str
    cells: list[_Cell]


class PlacedSetting(NamedTuple):
    """One setting of an entry beside the published policies, at its own lateness."""

    point: FrontierPoint
    rank: int  # 1: none of them costs less
    of: int  # policies, the entry among them, the one that knows the load not
    rule: str | None  # the cheapest tuned rule there; None: every rule is later
    ratio: float | None  # cost, of that rule's


def published_file(frontier: str) -> Path:
    """Return where the published results of a frontier are kept.

    Args:
        frontier: Its name.

    Returns:
        A file in this package, whether it exists or not.
    """
    return _FOLDER / f"{frontier}.json"


def published_cells(frontier: str, config: FrontierConfig) -> dict[str, PublishedCell]:
    """Read what was published of a frontier.

    Args:
        frontier: Its name.
        config: As it is now, with as many seeds as one likes.

    Returns:
        Cells by name; empty where nothing was published of this frontier, or of an earlier form.

    Raises:
        SchemaError: The file is not as `docs/results.py` writes it.
    """
    file = published_file(frontier)
    if not file.is_file():
        return {}
    try:
        document = _Document.model_validate_json(file.read_text(encoding="utf-8"))
    except ValidationError as error:
        raise SchemaError(
            f"holds no published results: {error.errors()[0]['msg']}",
            file=file,
            remedy="Write it again: python docs/results.py --core-v2 RESULTS.json",
        ) from error
    cells = {cell.cell: cell.read() for cell in document.cells}
    seeds = max((len(cell.seeds) for cell in cells.values()), default=1)
    same = document.fingerprint == frontier_fingerprint(config.with_seeds(seeds))
    return cells if same else {}


def place(points: Sequence[FrontierPoint], cell: PublishedCell) -> list[PlacedSetting]:
    """Compare the settings of an entry with the published policies.

    Args:
        points: The settings, in any order.
        cell: What was published.

    Returns:
        A place for each setting, in their order.
    """
    rivals = [one for one in cell.policies if one.policy != PLAN]
    found = []
    for point in points:
        able = [(cost, one) for one in rivals if (cost := one.cost_at(point.late)) is not None]
        rank = 1 + sum(cost < point.cost for cost, _ in able)
        rules = [(cost, one.policy) for cost, one in able if one.rule]
        cost, rule = min(rules, default=(math.nan, None))
        ratio = None if rule is None else point.cost / cost
        found.append(PlacedSetting(point, rank, 1 + len(rivals), rule, ratio))
    return found
