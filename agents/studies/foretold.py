"""How well laws foretell a load 15 and 60 minutes ahead, on loads that none was counted on.

    python -m agents.studies.foretold --write

Skill is 1 less the mean squared error's ratio to persistence's: 0 is as good as "as now". Each
load's hits and misses adapt its intervals of 80 % (Gibbs and Candès, NeurIPS 2021). The option
--write writes `docs/forecasts.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from agents.planning.chain import RARE, counted, pooled
from agents.planning.config import MdpConfig
from agents.planning.laws import Laws, hear, laws_of, shares_of
from agents.planning.load import BIN, LEVELS, MOODS, STATES, level_of, levels, states_of
from agents.planning.trained import trained
from dsp_gym.arrays import Floats, Ints
from dsp_gym.compiling import njit
from dsp_gym.config.files import load_model, write_atomic
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.referee.development import development_runs
from dsp_gym.loads.generate import minute_means
from dsp_gym.loop.topology import Topology

PAGE = Path(__file__).resolve().parents[2] / "docs" / "forecasts.md"

AHEAD = (15, 60)
"""Minutes."""

COVERED = 0.8
_STEP = 15
"""Minutes between two forecasts."""

_LEAST = 120
"""Minutes of a load before its first forecast."""

_NONE = 1e-9
"""A probability that is left out."""

_ADAPTED = 0.05
"""By how much of a miss, or a hit, the next interval changes."""


class Foretold(NamedTuple):
    """Forecasts of some loads, one column for each of `AHEAD`."""

    error: Floats  # (n, 2) of the mean, multiples of the reference
    persistence: Floats  # (n, 2) of the present level
    covered: Floats  # (n, 2) 1 where the level came to lie within the interval

    def skill(self) -> Floats:
        """Return the skill of the means.

        Returns:
            (2,) at most 1; NaN where the load never changes.
        """
        there, ours = np.square(self.persistence).mean(axis=0), np.square(self.error).mean(axis=0)
        return np.where(there > 0, 1.0 - ours / np.where(there > 0, there, 1.0), np.nan)


def law_of(loads: list[Floats], neighbours: float) -> Laws:
    """Count one law on loads.

    Args:
        loads: each (minutes,) multiples of the reference.
        neighbours: minutes that neighbouring levels count for.

    Returns:
        A library of this law alone.
    """
    return laws_of([pooled(counted(loads), neighbours)], RARE)


def foretell(laws: Laws, loads: list[Floats], memory_h: float) -> Foretold:
    """Forecast loads by a library, each from its own minutes until then.

    Args:
        laws: the library.
        loads: each (minutes,) multiples of the reference, longer than three hours.
        memory_h: hours after which evidence for a law counts for a third.

    Returns:
        All forecasts, load by load.
    """
    parts = [_of_load(laws, np.ascontiguousarray(load), memory_h) for load in loads]
    return Foretold(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _of_load(laws: Laws, load: Floats, memory_h: float) -> Foretold:
    states = states_of(load)
    level = np.array([level_of(load[max(0, i - 6) : i + 1]) for i in range(len(load))])
    evidence = np.zeros(len(laws.size))
    nominal, middles = np.full(len(AHEAD), COVERED), levels()[::MOODS]
    errors, still = [], []
    covered: list[Floats] = []
    for now in range(1, len(load) - AHEAD[-1]):
        hear(laws, states[now - 1], states[now], memory_h, evidence)
        if now < _LEAST or now % _STEP:
            continue
        chances = _chances(laws, shares_of(evidence), int(states[now]), np.array(AHEAD))
        # A difference to the middle of the present level: a load's place within it stays.
        offset = level[now] - middles[states[now] // MOODS]
        came = np.array([level[now + ahead] for ahead in AHEAD])
        errors.append(chances @ middles + offset - came)
        still.append(level[now] - came)
        hits = np.empty(len(AHEAD))
        for h in range(len(AHEAD)):
            low, high = _interval(chances[h], offset, nominal[h])
            hits[h] = float(low <= came[h] <= high)
        covered.append(hits)
        for h, ahead in enumerate(AHEAD):  # what is known by now of earlier forecasts
            known = len(covered) - 1 - ahead // _STEP
            if known >= 0:
                nominal[h] += _ADAPTED * (COVERED - covered[known][h])
        nominal = np.clip(nominal, 0.02, 0.998)
    return Foretold(np.array(errors), np.array(still), np.array(covered))


@njit(cache=True, nogil=True)
def _chances(laws: Laws, shares: Floats, state: int, ahead: Ints) -> Floats:
    """Probability of each level at each horizon, (2, LEVELS)."""
    now, found = np.zeros(STATES), np.zeros((len(ahead), LEVELS))
    now[state] = 1.0
    for minute in range(1, ahead[-1] + 1):
        following = np.zeros(STATES)
        for s in range(STATES):
            for k in range(len(shares)):
                chance = now[s] * shares[k]
                if chance > _NONE:
                    for w in range(laws.size[k, s]):
                        following[laws.state[k, s, w]] += chance * laws.probability[k, s, w]
        now = following / following.sum()
        for h in range(len(ahead)):
            if ahead[h] == minute:
                for s in range(STATES):
                    found[h, s // MOODS] += now[s]
    return found


def _interval(chances: Floats, offset: float, nominal: float) -> tuple[float, float]:
    """The middle part of a distribution that is even within each level."""
    below = np.append(0.0, chances.cumsum())
    edges = np.arange(LEVELS + 1) * BIN
    rises = np.diff(below) > 1e-12
    ends = np.append(rises, False) | np.append(False, rises)  # without levels that never come
    tail = 0.5 * (1.0 - nominal)
    low, high = np.interp([tail, 1.0 - tail], below[ends], edges[ends])
    return float(low + offset), float(high + offset)


def main(
    referee: str = "core-v3",
    loads: Annotated[int, typer.Option(help="Loads of each family.")] = 16,
    write: Annotated[bool, typer.Option("--write", help="Write the page.")] = False,
) -> None:
    """Forecast the development set's loads, and print or write the page."""
    text = "\n".join(_page(referee, loads))
    if write:
        write_atomic(PAGE, text.encode())
    else:
        typer.echo(text)


def _page(referee: str, count: int) -> Iterator[str]:
    """Write the page, line by line."""
    start = trained(MdpConfig(path="shipped:planning"))
    c = start.config
    library = laws_of((pooled(one, c.neighbours) for one in start.counts), RARE)
    yield _HEAD.format(loads=count, laws=len(start.counts))
    ends = [f"{ahead} min" for ahead in AHEAD]
    heads = [f"{head}, {end}" for head in ("skill", "held", "own law's skill") for end in ends]
    yield f"| family | {' | '.join(heads)} |"
    yield "| --- |" + " ---: |" * len(heads)
    config, told = load_model(RefereeConfig, "referees", referee), []
    # A week has the law of a recorded load.
    families = tuple(one.name for one in config.loads if one.name != "week")
    for part in development_runs(config, families=families):
        runs = part.batch.runs
        reference = Topology.of(runs.specs).tables.rate_per_s[runs.job]
        loads = [minute_means(rates) for rates in (runs.rates / reference[:, None])[:count]]
        ours = foretell(library, loads, c.law_memory_h)
        assert runs.same_law is not None  # the referee draws them for the planner that knows
        known = foretell(law_of(list(runs.same_law), c.neighbours), loads, c.law_memory_h)
        skill, own, held = ours.skill(), known.skill(), ours.covered.mean(axis=0)
        cells = [*(f"{x:.2f}" for x in skill), *(f"{100 * x:.0f} %" for x in held)]
        yield f"| {part.family} | {' | '.join([*cells, *(f'{x:.2f}' for x in own)])} |"
        told.append((skill, own, held))
    skills, own_skills, all_held = (np.array(column) for column in zip(*told, strict=True))
    within = (all_held >= _HELD[0]) & (all_held <= _HELD[1])
    yield _GATE.format(
        families=len(told),
        library=_passing(skills),
        lowest=f"{skills.min():.2f}",
        own=_passing(own_skills),
        own_lowest=f"{own_skills.min():.2f}",
        held=int(within.all(axis=1).sum()),
    )


def _passing(skills: Floats) -> int:
    return int((skills >= _SKILL).all(axis=1).sum())


_SKILL, _HELD = 0.5, (0.75, 0.85)

_HEAD = """# How well laws foretell a load

<!-- Written by `python -m agents.studies.foretold --write`; do not edit. -->

`planner` weighs {laws} laws of the load by the job's own minutes. Are its forecasts any good, for
readers who would rather forecast a load than plan with its distributions? The library forecasts the
level of a load every fifteen minutes, from its minutes until then, on {loads} loads of each family
of the development set of [core-v3](concepts/evaluation.md#costs-at-equal-lateness); a week is left
out. No law was counted on any of them, though day, bursts and jumps are of kinds that some were.

- **Skill** is one less the mean squared error's ratio to that of persistence: 0 is as good as "as
  now", 1 is perfect.
- **Held** is the share of levels that came to lie in an interval of 80 %, which each load's own
  hits and misses widen or narrow.
- **Own law's skill** is that of a law counted on other seeds of the very family, or other parts of
  the very traces.
"""

_GATE = """
A network of forecasts was to pass a gate before the planner used it: a skill of 0.5 at both
distances on half of the families, of -0.05 at least everywhere, and 75 to 85 % held. On {library}
of the {families} families the library has that skill, at the lowest {lowest}; the loads' own law
has it on {own}, at the lowest {own_lowest}. The library holds 75 to 85 % on {held}.
[Decision 41](adr/0041-which-law-a-load-follows.md) says why the laws ship all the same.
"""


if __name__ == "__main__":
    typer.run(main)
