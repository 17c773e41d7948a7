"""What a law of the load is worth, and what a network's actions cost, at equal lateness.

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
from dsp_gym.engine import LocalEngine, Tell
from dsp_gym.envs.capacity.codec import CapacityCodec
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.evaluation.batch_of_runs import play
from dsp_gym.evaluation.frontier.config import SweptPolicy
from dsp_gym.evaluation.frontier.estimate import cost_at
from dsp_gym.evaluation.frontier.play import entrants
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import development_runs
from dsp_gym.loop.decision import ScalingDecision
from dsp_gym.loop.protocols import Mask, Policy, State
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make

PAGE = Path(__file__).resolve().parents[2] / "docs" / "what-learning-adds.md"
PRICES = (1.5, 2.5, 4.0, 6.5, 10.0)
LEVELS = (0.01, 0.015, 0.02)
_DRAWS = 2000
_TUNED_SCALE = 0.55
"""The tuned walk prices lateness by the width of its walk, too: it needs lower prices."""

BASE: dict[str, object] = {"headroom": 0.99, "rescale_price": 50.0}
"""The rest of the planner, equal for all laws but the tuned walk, which has its own."""

TUNED = "the walk, tuned like a rule"
LIBRARY = "nineteen laws, weighed by the job's own minutes"
KNOWN = "the loads' own law"
_LAWS: dict[str, tuple[str, dict[str, object]]] = {
    TUNED: ("tuned/core-v3/planner-walk-tuned", {}),
    "no law: each minute drawn anew": ("planner-uninformative", BASE),
    "the walk by hand": ("planner-walk", BASE),
    "counted on the training loads": ("mdp", BASE | {"own_weight": 0.0}),
    "the same, and the job's own two days": ("mdp", BASE),
    LIBRARY: ("planner", BASE),
    KNOWN: ("mdp", BASE | {"known_law": True}),
}
BY_MULTIPLES = "the planner, by capacity actions"
NETWORK = "the network `learned-ppo`"
_NETWORK_PRICES = (1.25, 2.0, 2.8, 4.5, 9.0)
_ROWS = _LAWS | {BY_MULTIPLES: _LAWS[LIBRARY], NETWORK: ("learned-ppo", {})}


class ByMultiples:
    """A policy that can do no more than a network with capacity actions.

    Each of its decisions becomes the nearest valid choice: to hold, or a multiple of the load.

    Args:
        policy: The policy.
    """

    def __init__(self, policy: Policy) -> None:
        self.name, self._policy = policy.name, policy
        self._codec: CapacityCodec | None = None

    def reset(self, jobs: Topology, seeds: Ints, mask: Mask | None = None) -> None:
        """Restart all rows, or only those where the mask is True."""
        self._policy.reset(jobs, seeds, mask)
        if mask is None or self._codec is None:
            self._codec = CapacityCodec(jobs, CapacityConfig())
        else:
            self._codec.reset(mask)

    def decide(self, snapshot: MetricsSnapshot) -> ScalingDecision:
        """Decide as the policy does, as nearly as capacity actions can.

        Returns:
            The decision, (J, V).
        """
        codec = self._ready
        codec.look(snapshot, np.ones(len(snapshot)))  # the price is part of what is observed
        choices = codec.encode(snapshot, self._policy.decide(snapshot))
        return codec.decode(snapshot, choices)

    def state(self) -> State:
        """Return everything the next decision depends on, as JSON values."""
        return {"policy": self._policy.state(), "codec": self._ready.state()}

    def restore(self, state: State) -> None:
        """Continue from the values of `state()`."""
        self._policy.restore(state["policy"])
        self._ready.restore(state["codec"])

    @property
    def _ready(self) -> CapacityCodec:
        if self._codec is None:
            raise RuntimeError("reset() comes first")
        return self._codec


class PlayedLaw(NamedTuple):
    """One row's runs, (settings, runs)."""

    late: Floats  # share of the time
    cost: Floats  # multiples of the reference configuration's
    family: tuple[str, ...]  # of each run


class AskedRow(NamedTuple):
    """A row of the page, and the triples to play it on."""

    row: str
    referee: str
    each: int  # triples of each kind of jobs and family


def play_row(asked: AskedRow, tell: Tell[None]) -> PlayedLaw:
    """Play a law, or one of the other policies, at every price.

    Args:
        asked: The row.
        tell: Not used: a row is played in minutes.

    Returns:
        What happened.
    """
    config = load_model(RefereeConfig, "referees", asked.referee)
    # A week takes as long as seven days of another family, and has the law of a recorded load.
    families = tuple(one.name for one in config.loads if one.name != "week")
    row, swept = asked.row, _swept(asked.row)
    late, cost, family = [], [], []
    for part in development_runs(config, each=asked.each, families=families):
        cells = [
            play(
                replace(part.batch, entrant=one),
                policy=ByMultiples(make(one.policy)) if row == BY_MULTIPLES else None,
            ).cells
            for one in entrants(swept)
        ]
        late.append(np.array([[cell.metrics["slo_share"] for cell in one] for one in cells]))
        money = np.array([[cell.metrics["cost"] for cell in one] for one in cells])
        cost.append(money / part.reference_cost)
        family += [part.family] * len(part.batch)
    return PlayedLaw(np.concatenate(late, axis=1), np.concatenate(cost, axis=1), tuple(family))


def _swept(row: str) -> SweptPolicy:
    """Return a row's policy at every price; a tuned one has prices about its own."""
    policy, params = _ROWS[row]
    prices: tuple[float, ...] = PRICES
    if row == TUNED:
        prices = tuple(price * _TUNED_SCALE for price in PRICES)
    elif row == NETWORK:
        prices = _NETWORK_PRICES
    knob = {"policy": {"policy": policy, "params": params} if params else policy}
    return SweptPolicy.model_validate(
        knob | {"name": "law", "knob": "late_price", "values": prices}
    )


def ratios(played: dict[str, PlayedLaw], rows: Ints, level: float) -> dict[str, tuple[float, ...]]:
    """Return each row's cost at a lateness as a ratio to the tuned walk's, on some runs.

    Args:
        played: Runs by row.
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
    workers: Annotated[int, typer.Option(help="Processes.")] = 2,
    write: Annotated[bool, typer.Option("--write", help="Write the page.")] = False,
) -> None:
    """Play every law and the other policies, and print or write the page."""
    with LocalEngine(workers) as engine:
        found = dict(engine.map(play_row, [AskedRow(row, referee, each) for row in _ROWS]))
    played = {row: found[place] for place, row in enumerate(_ROWS)}
    text = "\n".join(_page(played, f"python -m agents.studies.laws --each {each} --write"))
    if write:
        write_atomic(PAGE, text.encode())
    else:
        typer.echo(text)


def _page(played: dict[str, PlayedLaw], command: str) -> Iterator[str]:
    """Write the page, line by line."""
    family = np.array(next(iter(played.values())).family)
    yield _HEAD.format(command=command, runs=len(family), laws=len(_LAWS))
    every = np.arange(len(family))
    columns = {f"{100 * level:g} % late": ratios(played, every, level) for level in LEVELS}
    yield from _table("law of the load", _named(*_LAWS), columns)
    yield _FAMILIES.format(level=f"{100 * LEVELS[-1]:g}")
    singly = {
        name: ratios(played, np.flatnonzero(family == name), LEVELS[-1])
        for name in dict.fromkeys(family.tolist())
    }
    yield from _table("law of the load", _named(*_LAWS), singly)
    yield _ACTIONS
    yield from _table("policy", {"the planner": LIBRARY, **_named(BY_MULTIPLES, NETWORK)}, columns)
    yield ""


def _named(*rows: str) -> dict[str, str]:
    return {row: row for row in rows}


def _table(
    head: str, rows: dict[str, str], columns: dict[str, dict[str, tuple[float, ...]]]
) -> Iterator[str]:
    yield f"| {head} | " + " | ".join(columns) + " |"
    yield "| --- |" + " ---: |" * len(columns)
    for name, row in rows.items():
        yield f"| {name} | " + " | ".join(_told(column[row]) for column in columns.values()) + " |"


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
- **Counted** is one table of transitions, counted on 180 days of three families of training loads.
- **Nineteen laws** are as many tables, each of 60 days of one kind of load, five of them recorded
  elsewhere. Every minute of the job makes those likelier that had expected it. They ship with
  `planner`.
- **The loads' own law** is such a table counted on other seeds of the very family, or other parts
  of the very traces: nobody who meets a load for the first time can know it. It bounds what a
  learner of transitions could win.

Cost at equal lateness, of the tuned walk's; brackets hold 95 % intervals over triples. A dash:
later at every price.
"""

_FAMILIES = """
By family of load, at {level} % late:
"""

_ACTIONS = """
## What a network's actions cost

A network decides by [capacity actions](concepts/capacity.md): it holds, or goes to the cheapest
configuration that carries one of ten multiples of the load, 7 to 17 % apart. How near to the
planner can it come? **The planner, by capacity actions**, is the planner above with its nineteen
laws, each of whose moves becomes the nearest of these choices. A network that imitates it without
a fault costs as much.
"""


if __name__ == "__main__":
    # By its name, so that other processes find what they are to do.
    from agents.studies.laws import main as named

    typer.run(named)
