"""What the README and the cards of the shipped agents say of `core-v2`, from its results.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from generator.markdown import table

KNOWN, AGENTS = "clairvoyant", ("planner", "learned-ppo", "learned-q11")
WHAT = {
    "planner": "plans by value iteration; training gave it counts of load transitions and a "
    "price of a late minute",
    "learned-ppo": "is a network that PPO trained on many jobs",
    "learned-q11": "is a network that PPO trained on one job, Nexmark Q11",
}
"""What each agent is; a sentence begins with its name."""

ALSO = ("planner-no-file", "justin-artifact", "flink-autoscaler", "ds2", "hpa-cpu", "dhalion")
"""The planner without a job file, and published autoscalers with their defaults."""

FIRST = "unseen-jobs-unseen-loads"
TITLES = {
    FIRST: "unseen jobs, unseen generated loads",
    "unseen-jobs-recorded-loads": "unseen jobs, recorded loads",
}
"""Cells of the README and the cards: jobs that no policy was trained or tuned on."""

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


def readme_block(found: Json) -> str:
    """Return the README's table: costs at equal lateness on jobs and loads that nobody had seen."""
    cell, level = first_cell(found), _level(found)
    by_cost = sorted(
        (one for one in cell["policies"] if one["policy"] != KNOWN and _is_told(one)),
        key=lambda one: (one["cost"][level] or {"value": float("inf")})["value"],
    )
    known = [one for one in cell["policies"] if one["policy"] == KNOWN]
    head = ["policy", *(f"{100 * share:g} % late" for share in found["lateness"])]
    at = f"{100 * float(level):g} %"
    rows = [
        [
            _title(one),
            *(_number(one["cost"][f"{share:g}"]) for share in found["lateness"]),
            _number(one["ratio"][level], interval=True),
            _number(one["closed"][level], 100.0, " %"),
        ]
        for one in (*known, *by_cost)
    ]
    seeds = f"{len(cell['seeds'])} seed{'s' if len(cell['seeds']) > 1 else ''}"
    currency = found.get("currency", "USD")  # results of earlier releases name none
    name, jobs, loads = found["name"], len(cell["jobs"]), len(cell["loads"])
    trained: dict[int, list[str]] = {}
    for one in by_cost:
        trained.setdefault(one.get("trainings", 1), []).append(f"`{one['policy']}`")
    drawn = sum(job.startswith("random-dag") for job in cell["jobs"])
    several = [
        f" The figures of {' and '.join(names)} are means over {count} trainings."
        for count, names in trained.items()
        if count > 1
    ]
    return f"""Costs at equal lateness, in {currency} per job and day, on {jobs} jobs and {loads}
families of load outside all training and tuning; {drawn} of the jobs are random graphs of the
generator that also drew training jobs. A job is late while its p95
latency exceeds its bound, or while it is down; a dash: the policy is later than the column at each
of its settings. A tuned rule is a published autoscaler with parameters searched on training
loads. `{KNOWN}` plans with the future load known and assumes warm caches: the gap is 0 %
closed at the best tuned rule and 100 % at `{KNOWN}`. Brackets hold 95 % intervals.
{"".join(several).lstrip()}

{table([*head, f"of the best tuned rule, {at}", f"gap closed, {at}"], rows)}

`planner` {WHAT["planner"]}.
`planner-no-file` is the same without the job file. `learned-ppo` {WHAT["learned-ppo"]}, and
`learned-q11` {WHAT["learned-q11"].removeprefix("is ")}.
`planner` and `learned-ppo` ran inside the guardrails `floor`, the other policies without any.
This repeats the comparison in some hours; `make frontier` trains, and runs all seeds:

```sh
{found.get("command") or f"dsp-gym evaluate {name}"}
```

It is {_extent(found, seeds)}.{_since(found)}
[Recorded loads, known jobs, each job by itself](docs/core-v2.md); [other results](docs/results.md);
[what ships](docs/concepts/agents.md#what-ships)."""


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


def _since(found: Json) -> str:
    """Say how policies have changed since the results; "" where they have not."""
    return f"\n{found['since']}" if "since" in found else ""


def _extent(found: Json, seeds: str) -> str:
    """Say what the results cover of their benchmark."""
    name, whole = found["name"], found.get("part_of")
    part = f"{seeds} of each load, fingerprint {found['fingerprint']}"
    if whole is None:
        return f"the frozen benchmark `{name}` ({part})"
    return f"a part of the frozen benchmark `{name}` (fingerprint {whole}):\n{part}"


def card_part(found: Json, policy: str) -> str:
    """Return where a shipped agent wins and loses, for its card; between markers."""
    parts = [text for cell in found["cells"] if (text := _against_rules(found, cell, policy))]
    parts += _shifted(found, policy)
    at = f"{100 * float(_level(found)):g} %"
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
        f"then {_number(worst['ratio'], interval=True)} of the best tuned rule's, "
        f"{worst['rise']:+.2f}."
    ]


def with_part(card: str, part: str) -> str:
    """Return a card with the part in place of the one it had, or at its end."""
    before, _, rest = card.partition(BEGIN)
    return f"{before.rstrip()}\n\n{part}\n{rest.partition(END)[2].lstrip()}"


def _against_rules(found: Json, cell: Json, policy: str) -> str:
    """Return a sentence about one cell; empty where the policy took no part."""
    level = _level(found)
    one = next((one for one in cell["policies"] if one["policy"] == policy), None)
    rules = [one for one in cell["policies"] if one["rule"] and one["cost"][level] is not None]
    if one is None or not rules:
        return ""
    rule = min(rules, key=lambda one: one["cost"][level]["value"])
    where = f"- {TITLES[cell['cell']].capitalize()}: "
    if one["ratio"][level] is None:
        where += "later than that at each of its settings."
    else:
        where += f"{_number(one['ratio'][level], interval=True)} of what {rule['policy']} costs."
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


def _level(found: Json) -> str:
    """Return the middle level of lateness, as the tables name it."""
    return f"{found['lateness'][len(found['lateness']) // 2]:g}"


def _is_told(one: Json) -> bool:
    return one["rule"] or one["policy"] in (*AGENTS, *ALSO)


def _title(one: Json) -> str:
    name = one["policy"]
    return f"**{name}**" if name in AGENTS else f"{name} (tuned rule)" if one["rule"] else name


def _number(
    estimate: Mapping[str, float] | None,
    factor: float = 1.0,
    unit: str = "",
    interval: bool = False,
) -> str:
    if estimate is None:
        return "–"
    value, low, high = (f"{factor * estimate[key]:.3g}" for key in ("value", "low", "high"))
    return f"{value}{unit} [{low}, {high}]" if interval and low != high else f"{value}{unit}"
