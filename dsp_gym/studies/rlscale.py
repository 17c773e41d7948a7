"""Does anything beat a calibrated rule? The question of RLScale-Bench, asked here.

python -m dsp_gym.studies.rlscale --write

Zhang et al. (arXiv 2605.26418, 2026) run six workloads of one service with five seeds, and
policies that know one workload on five others. Their code is not at hand: loads and service follow
what they say of them. Each policy's setting is chosen on one workload, with seeds of its own, and
kept on all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dsp_gym.arrays import Floats
from dsp_gym.config.files import load_model, write_atomic
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.run import cells_of
from dsp_gym.evaluation.scorecard import ScorecardCell
from dsp_gym.studies.runner import run

BENCHMARK = "rlscale"
PAGE = Path("docs/rlscale.md")
COMMAND = "python -m dsp_gym.studies.rlscale --write"

INTRODUCTION = f"""# After RLScale-Bench

<!-- Written by `{COMMAND}`; do not edit. -->

RLScale-Bench (Zhang et al., arXiv 2605.26418, 2026) finds that a calibrated rule, Kubernetes' HPA
at 70 % of CPU, costs less than six algorithms of deep reinforcement learning on each of six
workloads, and is late more often than the best of them on two, bursty and flash. This page asks the
same question of the policies here, for readers who heard of that answer.

It is run **after the paper's description**, not by its code, which is not at hand: one stateless
service, a decision every 15 s, six workloads between 50 and 300 requests (here a second, there a
minute), five seeds of each, and five shifts: the setting of a policy is chosen on the periodic
workload, with other seeds, as the cheapest that is at most 2 % late, and kept on the five others.
What the paper leaves out is assumed, and says so, in `configs/jobs/rlscale-service.yaml` and
`configs/benchmarks/rlscale.yaml`. Replicas come and go without an outage, so nothing that this
project's policies know of Flink's restarts helps them. No policy was trained on these workloads.

A setting that is late more often than 2 % on the periodic workload is the least late of its range,
which is so for the planner (`planner`, `planner-no-file`): that workload is a day of one hour, and
noise of 10 %, which it measures.
"""


def main(
    write: Annotated[bool, typer.Option("--write", help="Write docs/rlscale.md.")] = False,
) -> None:
    """Run the six workloads and print the page."""
    config = load_model(BenchmarkConfig, "benchmarks", BENCHMARK)
    chosen = choose(config, cells_of(config.model_copy(update={"split": "train"})))
    kept = tuple(one for one in config.policies if one.name in {config.reference, *chosen})
    played = cells_of(config.model_copy(update={"policies": kept}))
    page = page_of(played, config)
    typer.echo(page)
    if write:
        write_atomic(PAGE, page)


def choose(config: BenchmarkConfig, played: Sequence[ScorecardCell]) -> list[str]:
    """Choose a setting of each policy: the cheapest that is late rarely enough.

    Args:
        config: The benchmark; a setting is called `POLICY@VALUE`.
        played: Runs of every setting.

    Returns:
        Labels, one per policy; of one that is always late too often, that which is least late.
    """
    found: dict[str, tuple[bool, float, str]] = {}
    for one in config.policies:
        policy, at, _ = one.name.partition("@")
        if not at:
            continue
        cost, late = (_mean(played, one.name, key) for key in ("cost", "slo_share"))
        is_late = late > config.max_slo_share
        rank = (is_late, late if is_late else cost, one.name)
        found[policy] = min(found.get(policy, rank), rank)
    return [label for *_, label in found.values()]


def page_of(played: Sequence[ScorecardCell], config: BenchmarkConfig) -> str:
    """Write the page of the chosen settings' runs.

    Args:
        played: Runs of the calibrated rule and the chosen settings.
        config: The benchmark.

    Returns:
        Markdown.
    """
    labels = [*dict.fromkeys(cell.policy for cell in played)]
    loads = [*dict.fromkeys(cell.load for cell in played)]
    rule = str(config.reference)
    rows: dict[str, dict[str, tuple[Floats, Floats]]] = {
        label: {load: _runs(played, label, load, config.episode_s / 3600.0) for load in loads}
        for label in labels
    }
    return "\n".join([INTRODUCTION, _answer(rows, rule, config.max_slo_share), _tables(rows, rule)])


def _runs(
    played: Sequence[ScorecardCell], label: str, load: str, hours: float
) -> tuple[Floats, Floats]:
    """Return mean replicas (seeds,) and late shares (seeds,) of a policy on one workload."""
    runs = [cell.metrics for cell in played if (cell.policy, cell.load) == (label, load)]
    # One core is the sink's, which nobody scales.
    replicas = np.array([run["core_h"] / hours - 1.0 for run in runs])
    return replicas, np.array([run["slo_share"] for run in runs])


def _mean(played: Sequence[ScorecardCell], label: str, key: str) -> float:
    return float(np.mean([cell.metrics[key] for cell in played if cell.policy == label]))


def _answer(rows: dict[str, dict[str, tuple[Floats, Floats]]], rule: str, most_late: float) -> str:
    """Say on how many workloads each policy is cheaper than the rule, and no later."""
    lines = ["## The answer", ""]
    for label in rows:
        if label == rule:
            continue
        cheaper, both = [], []
        for load, (hours, late) in rows[label].items():
            against, late_there = rows[rule][load]
            if hours.mean() < against.mean():
                cheaper.append(load)
                if late.mean() <= max(late_there.mean(), most_late):
                    both.append(load)
        names = f" ({', '.join(both)})" if both else ""
        lines.append(
            f"- `{label}` costs less than `{rule}` on {len(cheaper)} of {len(rows[label])} "
            f"workloads; on {len(both)} it is also at most {100 * most_late:g} % late, or no later "
            f"than the rule{names}."
        )
    return "\n".join([*lines, ""])


def _tables(rows: dict[str, dict[str, tuple[Floats, Floats]]], rule: str) -> str:
    loads = [*next(iter(rows.values()))]
    head = f"| policy | {' | '.join(loads)} |\n| --- |{' ---: |' * len(loads)}"
    costs, lates = [], []
    for label, found in rows.items():
        paired = [found[load][0] / rows[rule][load][0] for load in loads]
        cells = [f"{one.mean():.2f} ± {one.std():.2f}" for one in paired]
        costs.append(f"| {label} | {' | '.join(cells)} |")
        shares = [found[load][1] for load in loads]
        cells = [f"{100 * one.mean():.1f} ± {100 * one.std():.1f} %" for one in shares]
        lates.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(
        [
            f"## Cost, of `{rule}`'s",
            "",
            "Mean and standard deviation over five seeds, paired; below 1 is cheaper than the "
            "calibrated rule.",
            "",
            head,
            *costs,
            "",
            "## Share of the time late",
            "",
            "The share of seconds in which the p95 latency is above 2 s.",
            "",
            head,
            *lates,
            "",
        ]
    )


if __name__ == "__main__":
    run(main)
