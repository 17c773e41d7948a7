"""What the README says of `core-v3`, from the results.json of an evaluation on a test set."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsp_gym.evaluation.referee.board import GROUPS
from dsp_gym.evaluation.referee.play import WHOLE
from generator.frontier import KNOWN, WHAT, level_of, number
from generator.markdown import table

COLUMNS = {"known": "trained-on", "generated": "new generated", "recorded": "recorded"}
"""Groups of families of load, and what the README calls them."""

AGENTS = ("planner", "learned-ppo")
ALSO = (
    "planner-no-file",
    "planner-walk-tuned",
    "justin-artifact",
    "flink-autoscaler",
    "ds2",
    "hpa-cpu",
)
"""Planners that nothing was trained for, and published autoscalers that nothing was tuned for."""

YARDSTICK = "planner-walk-tuned"
"""The planner with nothing trained, which `planner` is compared with run by run."""

Json = Mapping[str, Any]


def cut(referee: Path) -> dict[str, object]:
    """Cut the results of a referee down to what the README shows."""
    full = json.loads(referee.read_text(encoding="utf-8"))
    told = {key: full[key] for key in ("name", "fingerprint", "commit", "command", "currency")}
    kept = ("policy", "rule", "cost", "ratio")
    cells = {
        cell["cell"]: [{key: one[key] for key in kept} for one in cell["policies"] if _is_told(one)]
        for cell in full["cells"]
    }
    learned = {
        cell["cell"]: {level: one["cost"] for level, one in against.items()}
        for cell in full["cells"]
        for policy in cell["policies"]
        if policy["policy"] == "planner"
        and (against := policy.get("against", {}).get(YARDSTICK)) is not None
    }
    levels = sorted(full["config"]["lateness"])
    jobs = len({one["job"] for one in full["triples"]})
    shown = {"lateness": levels, "triples": len(full["triples"]), "jobs": jobs, "cells": cells}
    shown["learned"] = learned
    return told | shown


def readme_block(found: Json) -> str:
    """Return the README's table: costs at equal lateness on triples that nobody had seen."""
    level, cells = level_of(found), found["cells"]
    groups = {
        called: {one["policy"]: one["ratio"][level] for one in cells[GROUPS[name]]}
        for name, called in COLUMNS.items()
        if GROUPS[name] in cells
    }

    def rank(one: Json) -> tuple[bool, float]:
        return one["policy"] != KNOWN, (one["cost"][level] or {"value": float("inf")})["value"]

    at = f"{100 * float(level):g} %"
    head = ["policy", *(f"{100 * share:g} % late" for share in found["lateness"])]
    head += [f"of the best tuned rule, {at}", *(f"{called} loads" for called in groups)]
    rows = [
        [
            _title(one),
            *(number(one["cost"][f"{share:g}"]) for share in found["lateness"]),
            number(one["ratio"][level], interval=True),
            *(number(ratios[one["policy"]]) for ratios in groups.values()),
        ]
        for one in sorted(cells[WHOLE], key=rank)
    ]
    # Without a choice of policies the command plays these and others: it fits on one line.
    command = re.sub(r" --policies \S+", "", found["command"])
    commit, many = found["commit"][:12], f"{found['triples']} triples of a job, a load and a seed"
    return f"""Costs at equal lateness, in {found["currency"]} per job and day, on {many}.
Their seeds are a hash of the commit that was evaluated ({commit}): nobody could look at them
before. A job is late while its p95 latency exceeds its bound, or while it is down; a dash: the
policy is later than the column at each of its settings. A tuned rule is a published autoscaler with
parameters searched on other loads. `{KNOWN}` plans with the future load known. Brackets hold
95 % intervals over jobs; the last columns are the same ratio by kind of load.

{table(head, rows)}

`planner` {WHAT["planner"]}.
{_beside(cells[WHOLE])}{_trained(found["learned"], level)}
`learned-ppo` {WHAT["learned-ppo"]}.
Policies ran without guardrails, `-in-floor` within `floor`; `make referee` evaluates a commit:

```sh
{command}
```

[Families of load, other policies, each setting](docs/core-v3.md);
[the frozen benchmark](docs/core-v2.md), [other results](docs/results.md);
[what ships](docs/concepts/agents.md#what-ships)."""


def _beside(policies: list[Json]) -> str:
    """Say what the planners are for which nothing was trained."""
    if any(one["policy"] == "planner-no-file" for one in policies):
        return (
            "`planner-no-file` is the same without the job file, `planner-walk-tuned` with a law "
            "of the load\nwritten by hand."
        )
    return "`planner-walk-tuned` is the same with a law of the load\nwritten by hand."


def _trained(learned: Json, level: str) -> str:
    """Say what the planner costs of the one that nothing was trained for; "" without both."""
    if WHOLE not in learned:
        return ""
    said = f" Run by run `planner` costs {number(learned[WHOLE][level], interval=True)} of that one"
    groups = [
        f"{number(learned[GROUPS[group]][level], interval=True)} on {name}"
        for group, name in (("generated", "new generated"), ("recorded", "recorded"))
        if GROUPS[group] in learned
    ]
    if groups:
        said += f",\n{' and '.join(groups)} loads"
    return said + ": the rest is what training saves."


def _is_told(one: Json) -> bool:
    return one["rule"] or one["policy"] in (KNOWN, *AGENTS, *ALSO)


def _title(one: Json) -> str:
    name = one["policy"]
    return f"**{name}**" if name in AGENTS else f"{name} (tuned rule)" if one["rule"] else name
