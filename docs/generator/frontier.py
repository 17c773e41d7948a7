"""What the cards of the shipped agents say of `core-v2`, from its results.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

KNOWN, AGENTS = "clairvoyant", ("planner", "learned-ppo", "learned-q11")
WHAT = {
    "planner": "plans by value iteration over laws of the load that were counted in training",
    "learned-ppo": "is a network that imitated `planner`, and that PPO then trained on many jobs",
    "learned-q11": "is a network that PPO trained on one job, Nexmark Q11",
}
"""What each agent is; a sentence begins with its name."""

FIRST = "unseen-jobs-unseen-loads"
TITLES = {
    FIRST: "unseen jobs, unseen generated loads",
    "unseen-jobs-recorded-loads": "unseen jobs, recorded loads",
}
"""Cells of the cards: jobs that no policy was trained or tuned on."""

BEGIN, END = "<!-- core-v2 -->", "<!-- end of core-v2 -->"
_ALT = "Cost against lateness: the planner is closer to the best plan than to any rule"
PICTURE = f"""![{_ALT}](figures/core-v2-light.svg#only-light)
![{_ALT}](figures/core-v2-dark.svg#only-dark)"""
"""For pages of the site; the README has one picture, the film."""

FEW = 3
"""Jobs named on either side of a comparison."""

Json = Mapping[str, Any]


def cut(frontier: Path) -> dict[str, object]:
    """Cut a frontier down to what the pages show."""
    full = json.loads(frontier.read_text(encoding="utf-8"))
    kept = ("policy", "rule", "cost", "ratio", "closed", "by_job")
    cells = [
        {
            **{key: cell[key] for key in ("cell", "jobs", "loads", "seeds")},
            "policies": [
                {
                    **{key: one[key] for key in kept},
                    "trainings": len(next(iter(one.get("trainings", {}).values()), [None])),
                    "points": [(point["late"], point["cost"]) for point in one["points"]],
                }
                for one in cell["policies"]
            ],
        }
        for cell in full["cells"]
        if cell["cell"] in TITLES
    ]
    levels = sorted(full["config"]["lateness"])
    told = {key: full[key] for key in ("name", "fingerprint", "versions")}
    told |= {key: full.get(key) for key in ("command", "part_of")}
    told["currency"] = full.get("currency", "USD")
    rises = [
        {key: one[key] for key in ("shift", "policy", "ratio", "rise")}
        for one in full.get("shifts") or []
        if one["rise"] is not None
    ]
    return {**told, "lateness": levels, "cells": cells, "shifts": rises}


def real_flink(found: Json) -> str:
    """Return what `dsp-gym validate policies` measured of the planner, a paragraph of the README.

    Args:
        found: `docs/figures/validation/policies.json`.
    """
    own = [row for row in found["agents"] if row["agent"] == "planner"]
    runs = sum(case["label"] == row["job"] for row in own for case in found["cases"])
    late_s = [sum(row["late_s"][side] for row in own) / runs for side in (0, 1)]
    cost, price = (sorted(row[key] for row in own) for key in ("cost", "price"))
    return "\n".join(
        [
            f"On a real Flink `planner` cost {cost[0]:.2f} to {cost[-1]:.2f} of the best tuned "
            f"rule in {len(own)} cases outside its training,",
            f"{price[0]:.2f} to {price[-1]:.2f} with late time priced in. It was late for "
            f"{late_s[0]:.1f} s in a run of {found['seconds']:.0f} s, that rule for",
            f"{late_s[1]:.1f} s ([validation](docs/validation.md), `make validate-policies`).",
        ]
    )


def card_part(found: Json, policy: str) -> str:
    """Return where a shipped agent wins and loses, for its card; between markers."""
    parts = [text for cell in found["cells"] if (text := _against_rules(found, cell, policy))]
    parts += _shifted(found, policy)
    at = f"{100 * float(level_of(found)):g} %"
    trained = {
        one.get("trainings", 1)
        for cell in found["cells"]
        for one in cell["policies"]
        if one["policy"] == policy
    }
    rules = "the best tuned rule"
    if max(trained, default=1) > 1:
        rules += f", means over {max(trained)} trainings"
    said = "\n".join(parts) or (
        f"- Not among the policies of {found['name']}'s results; `dsp-gym evaluate core-v1` "
        "plays it."
    )
    if found.get("since"):
        said += f"\n\n{found['since']}"
    return f"""{BEGIN}
## Where it wins and loses

The policy `{policy}` {WHAT[policy]}.

By `{found["name"]}` ({found["fingerprint"]}), cost at {at} late against {rules}:

{said}
{END}"""


def _shifted(found: Json, policy: str) -> list[str]:
    """Say which shift takes most of the policy's advantage; nothing without shifts."""
    own = [one for one in found.get("shifts", []) if one["policy"] == policy]
    if not own:
        return []
    worst = max(own, key=lambda one: one["rise"])
    return [
        f"- Loses most of its advantage with {worst['shift']}: money and late time together are "
        f"then {number(worst['ratio'], interval=True)} of the best tuned rule's, "
        f"{worst['rise']:+.2f}."
    ]


def with_part(card: str, part: str) -> str:
    """Return a card with the part in place of the one it had, or at its end."""
    before, _, rest = card.partition(BEGIN)
    return f"{before.rstrip()}\n\n{part}\n{rest.partition(END)[2].lstrip()}"


def _against_rules(found: Json, cell: Json, policy: str) -> str:
    """Return a sentence about one cell; empty where the policy took no part."""
    level = level_of(found)
    one = next((one for one in cell["policies"] if one["policy"] == policy), None)
    rules = [one for one in cell["policies"] if one["rule"] and one["cost"][level] is not None]
    if one is None or not rules:
        return ""
    rule = min(rules, key=lambda one: one["cost"][level]["value"])
    where = f"- {TITLES[cell['cell']].capitalize()}: "
    if one["ratio"][level] is None:
        where += "later than that at each of its settings."
    else:
        where += f"{number(one['ratio'][level], interval=True)} of what {rule['policy']} costs."
    ratios = sorted(_by_job(one, rule, level), key=lambda pair: pair[1])
    wins = [pair for pair in ratios if pair[1] < 1][:FEW]
    loses = [pair for pair in reversed(ratios) if pair[1] >= 1][:FEW]
    later = [
        job
        for job, costs in one["by_job"].items()
        if costs[level] is None and rule["by_job"][job][level] is not None
    ]
    for verb, pairs in (("Wins most on", wins), ("Dearer on", loses)):
        if pairs:
            where += f" {verb} {', '.join(f'{job} ({ratio:.2f})' for job, ratio in pairs)}."
    return where + (f" Later than the rule on {', '.join(later)}." if later else "")


def _by_job(one: Json, rule: Json, level: str) -> Iterator[tuple[str, float]]:
    """Return the cost of each job, of the rule's, where both reach the lateness."""
    for job, costs in one["by_job"].items():
        ours, theirs = costs[level], rule["by_job"][job][level]
        if ours is not None and theirs is not None:
            yield job, ours / theirs


def first_cell(found: Json) -> Json:
    """Return the cell of jobs and generated loads that nobody had seen."""
    return next(cell for cell in found["cells"] if cell["cell"] == FIRST)


def level_of(found: Json) -> str:
    """Return the middle level of lateness, as the tables name it."""
    return f"{found['lateness'][len(found['lateness']) // 2]:g}"


def number(
    estimate: Mapping[str, float] | None,
    factor: float = 1.0,
    unit: str = "",
    interval: bool = False,
) -> str:
    """Return an estimate in three digits, its interval in brackets where asked for."""
    if estimate is None:
        return "–"
    value, low, high = (f"{factor * estimate[key]:.3g}" for key in ("value", "low", "high"))
    return f"{value}{unit} [{low}, {high}]" if interval and low != high else f"{value}{unit}"
