"""The published results of a frontier, and the place of an entry's settings beside them.

A setting is compared at its own lateness: with what every published policy costs when it is as
late. So each setting has a rank, also one that is later than every level of the tables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.strict_json import read_json
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
    data: Any = read_json(file.read_text(encoding="utf-8"), file)
    try:
        cells = {cell["cell"]: _cell(cell) for cell in data["cells"]}
        seeds = max(len(cell.seeds) for cell in cells.values())
        same = data["fingerprint"] == frontier_fingerprint(config.with_seeds(seeds))
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(
            f"holds no published results: {error!r}",
            file=file,
            remedy="Write it again: python docs/results.py --core-v2 RESULTS.json",
        ) from error
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


def _cell(cell: Any) -> PublishedCell:
    """Read one cell of the file, which is checked by what is read of it."""
    policies = []
    for one in cell["policies"]:
        late, cost = np.array(one["points"], dtype=np.float64).T
        policies.append(PublishedPolicy(str(one["policy"]), bool(one["rule"]), late, cost))
    jobs, loads, seeds = (tuple(cell[key]) for key in ("jobs", "loads", "seeds"))
    return PublishedCell(str(cell["cell"]), jobs, loads, seeds, tuple(policies))
