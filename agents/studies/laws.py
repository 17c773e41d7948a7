"""What a law of the load is worth: the same planner under several laws, at equal lateness.

    python -m agents.studies.laws --write

Plays part of a referee's development set; writes `docs/what-learning-adds.md` with --write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from dsp_gym.arrays import Floats, Ints
from dsp_gym.config.files import load_model, write_atomic
from dsp_gym.evaluation.batch_of_runs import play
from dsp_gym.evaluation.frontier.config import SweptPolicy
from dsp_gym.evaluation.frontier.estimate import cost_at
from dsp_gym.evaluation.frontier.play import entrants
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import DevelopmentRuns, development_runs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "what-learning-adds.md"
PRICES = (1.5, 2.5, 4.0, 6.5, 10.0)
LEVELS = (0.01, 0.015, 0.02)
_DRAWS = 2000
_TUNED_SCALE = 0.55
"""The tuned walk prices lateness by the width of its walk, too: it needs lower prices."""

BASE: dict[str, object] = {"headroom": 0.99, "rescale_price": 50.0}
"""The rest of the planner, equal for all laws but the tuned walk, which has its own."""

TUNED = "the walk, tuned like a rule"
KNOWN = "the loads' own law"
_LAWS: dict[str, tuple[str, dict[str, object]]] = {
    TUNED: ("tuned/core-v3/planner-walk-tuned", {}),
    "no law: each minute drawn anew": ("planner-uninformative", BASE),
    "the walk by hand": ("planner-walk", BASE),
    "counted on the training loads": ("mdp", BASE | {"own_weight": 0.0}),
    "the same, and the job's own two days": ("mdp", BASE),
    KNOWN: ("mdp", BASE | {"known_law": True}),
}


class PlayedLaw(NamedTuple):
    """One law's runs, (settings, runs)."""

    late: Floats  # share of the time
    cost: Floats  # multiples of the reference configuration's
    family: tuple[str, ...]  # of each run


def play_law(law: str, parts: tuple[DevelopmentRuns, ...]) -> PlayedLaw:
    """Play a law at every price.

    Args:
        law: One of the laws.
        parts: Runs by family of load.

    Returns:
        What happened.
    """
    policy, params = _LAWS[law]
    late, cost, family = [], [], []
    for part in parts:
        swept = _swept(policy, params)
        cells = [play(replace(part.batch, entrant=one)).cells for one in entrants(swept)]
        late.append(np.array([[cell.metrics["slo_share"] for cell in row] for row in cells]))
        money = np.array([[cell.metrics["cost"] for cell in row] for row in cells])
        cost.append(money / part.reference_cost)
        family += [part.family] * len(part.batch)
    return PlayedLaw(np.concatenate(late, axis=1), np.concatenate(cost, axis=1), tuple(family))


def _swept(policy: str, params: dict[str, object]) -> SweptPolicy:
    """Return a policy at every price; a tuned one has prices about its own."""
    knob = {"policy": {"policy": policy, "params": params} if params else policy}
    prices = PRICES if params else tuple(price * _TUNED_SCALE for price in PRICES)
    return SweptPolicy.model_validate(
        knob | {"name": "law", "knob": "late_price", "values": prices}
    )


def ratios(played: dict[str, PlayedLaw], rows: Ints, level: float) -> dict[str, tuple[float, ...]]:
    """Return each law's cost at a lateness as a ratio to the tuned walk's, on some runs.

    Args:
        played: Runs by law.
        rows: Runs to count, resampled for the interval.
        level: Share of the time late.

    Returns:
        Value and 95 % interval; the value NaN where no setting reaches the level.
    """
    random = np.random.default_rng(0)
    draws = np.concatenate([rows[None], random.choice(rows, (_DRAWS, len(rows)))])
    at = {law: _costs(one, draws, level) for law, one in played.items()}
    found: dict[str, tuple[float, ...]] = {}
    for law, costs in at.items():
        ratio = costs / at[TUNED]
        low, high = np.nanquantile(ratio[1:], [0.025, 0.975])
        found[law] = (float(ratio[0]), float(low), float(high))
    return found


def _costs(one: PlayedLaw, draws: Ints, level: float) -> Floats:
    """Return the cost at a lateness of each resampling, (draws,)."""
    late = one.late[:, draws].mean(axis=2).T
    cost = np.log(one.cost)[:, draws].mean(axis=2).T
    return np.asarray(np.exp(cost_at(late, cost, level)))


def main(
    referee: str = "core-v3",
    each: Annotated[int, typer.Option(help="Triples of each kind of jobs and family.")] = 2,
    write: Annotated[bool, typer.Option("--write", help="Write the page.")] = False,
) -> None:
    """Play every law, and print or write the page."""
    config = load_model(RefereeConfig, "referees", referee)
    # A week takes as long as seven days of another family, and has the law of a recorded load.
    families = tuple(one.name for one in config.loads if one.name != "week")
    parts = development_runs(config, each=each, families=families)
    played = {law: play_law(law, parts) for law in _LAWS}
    text = "\n".join(_page(played, f"python -m agents.studies.laws --each {each} --write"))
    if write:
        write_atomic(PAGE, text.encode())
    else:
        typer.echo(text)


def _page(played: dict[str, PlayedLaw], command: str) -> Iterator[str]:
    """Write the page, line by line."""
    family = np.array(next(iter(played.values())).family)
    every = np.arange(len(family))
    yield _HEAD.format(command=command, runs=len(family), laws=len(played))
    yield "| law of the load | " + " | ".join(f"{100 * x:g} % late" for x in LEVELS) + " |"
    yield "| --- |" + " ---: |" * len(LEVELS)
    columns = [ratios(played, every, level) for level in LEVELS]
    for law in played:
        yield f"| {law} | " + " | ".join(_told(column[law]) for column in columns) + " |"
    yield _FAMILIES.format(level=f"{100 * LEVELS[-1]:g}")
    yield "| law of the load | " + " | ".join(dict.fromkeys(family.tolist())) + " |"
    yield "| --- |" + " ---: |" * len(set(family.tolist()))
    singly = {
        name: ratios(played, np.flatnonzero(family == name), LEVELS[-1])
        for name in dict.fromkeys(family.tolist())
    }
    for law in played:
        yield f"| {law} | " + " | ".join(_told(one[law]) for one in singly.values()) + " |"
    yield ""


def _told(ratio: tuple[float, ...]) -> str:
    value, low, high = ratio
    return "–" if np.isnan(value) else f"{value:.3f} [{low:.2f}, {high:.2f}]"


_HEAD = """# What a law of the load is worth

<!-- Written by `{command}`; do not edit. -->

The planner weighs money against lateness over what the load may do next. What it knows of that, its
law of the load, is the only part of it that is trained. This page asks what such knowledge is
worth, for readers who train agents: the same planner under {laws} laws, on {runs} triples of the
development set of [core-v3](concepts/evaluation.md#costs-at-equal-lateness), each at five prices of
lateness.

- **The walk, tuned like a rule** is pulled to a mean, with jumps; its three weights, its head-room
  and its prices were searched on the development set as a rule's parameters are. All others are
  ratios to its cost.
- **No law** draws each minute anew, and **the walk by hand** has weights that nobody tuned.
- **Counted** is a table of transitions, counted on 180 days of three families of training loads,
  which ships with `planner`.
- **The loads' own law** is such a table counted on other seeds of the very family, or other parts
  of the very traces: nobody who meets a load for the first time can know it. It bounds what a
  learner of transitions could win.

Cost at equal lateness, of the tuned walk's; brackets hold 95 % intervals over triples. A dash:
later at every price.
"""

_FAMILIES = """
By family of load, at {level} % late:
"""


if __name__ == "__main__":
    typer.run(main)
