"""A process that dies in the middle of a rescale, and its successor, on simulated jobs.

Compared with the same run without a crash. A successor goes on as its predecessor would have: a
restart that loses no time changes nothing. What does is the time in which nothing decides, after
which decisions fall at other seconds, so of many runs a few may go another way.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.crashing import INTERVAL_S, QUIET_S, Case, Crash, Fate

FIGURES = Path(__file__).resolve().parents[2] / "docs/figures/validation/crashes.json"
LATER = 1.2
"""Most late seconds after a crash, over those of the run without it; its length comes on top."""

MOST_LATER = 0.01
"""Share of the runs that may be later."""

RUNS = 2000


def compared(seed: int, folder: Path) -> tuple[Crash, Fate, Fate]:
    """A run without a crash, and the same with one, drawn from a seed."""
    rng = np.random.default_rng(seed)
    case = Case.drawn(rng)
    crash = Crash(int(rng.integers(QUIET_S, 3 * QUIET_S)), int(rng.choice([5, 30, 120, 600])))
    fates = []
    for name, one in (("without", None), ("with", crash)):
        (folder / name).mkdir(parents=True)
        fates.append(case.run(folder / name, one))
    return crash, fates[0], fates[1]


def changes_by_itself(seed: int, folder: Path) -> bool:
    """Whether a restart between two decisions, with no time lost, changes what comes of a run."""
    rng = np.random.default_rng(seed)
    case = Case.drawn(rng)
    at_s = int(rng.integers(QUIET_S, 3 * QUIET_S)) // INTERVAL_S * INTERVAL_S
    fates = []
    for name, one in (("whole", None), ("restarted", Crash(at_s, INTERVAL_S))):
        (folder / name).mkdir(parents=True)
        fates.append(case.run(folder / name, one))
    return fates[0] != fates[1]


def is_later(crash: Crash, without: Fate, crashed: Fate) -> bool:
    return crashed.late_s > LATER * without.late_s + crash.lasts_s + INTERVAL_S


@pytest.mark.parametrize("seed", range(6))
def test_a_crash_costs_no_more_than_its_length(tmp_path, seed):
    crash, without, crashed = compared(seed, tmp_path)
    assert not is_later(crash, without, crashed), (without.late_s, crashed.late_s)
    assert not crashed.roll_backs
    assert crashed.rests_while_late == 0


@pytest.mark.parametrize("seed", [35, 772, 985])
def test_a_restart_that_loses_no_time_changes_nothing(tmp_path, seed):
    assert not changes_by_itself(seed, tmp_path)


@pytest.mark.validate
def test_of_two_thousand_crashes_none_is_followed_by_a_roll_back(tmp_path):
    later, more_s, roll_backs, rests, restarts = [], [], 0, 0, 0
    for seed in range(RUNS):
        crash, without, crashed = compared(seed, tmp_path / str(seed))
        more_s.append(crashed.late_s - without.late_s - crash.lasts_s)
        roll_backs += len(crashed.roll_backs)
        rests += crashed.rests_while_late
        if is_later(crash, without, crashed):
            later.append(seed)
            restarts += changes_by_itself(seed, tmp_path / f"{seed}-restarted")
    quantiles = dict(
        zip(("p50", "p95", "p99"), np.quantile(more_s, (0.5, 0.95, 0.99)), strict=True)
    )
    figures = {
        "command": "pytest -m validate tests/properties/test_crash_laws.py",
        "runs": RUNS,
        "later_than_the_bar": len(later),
        "seeds_later": later,
        "later_by_the_restart_itself": restarts,
        "late_s_beyond_the_length_of_the_crash": {
            name: round(float(value), 1) for name, value in quantiles.items()
        },
        "roll_backs": roll_backs,
        "decisions_held_by_a_rest_while_late": rests,
    }
    FIGURES.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    assert len(later) <= MOST_LATER * RUNS, later
    assert restarts == 0
    assert roll_backs == 0
    assert rests == 0
