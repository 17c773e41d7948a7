r"""Does the shipped experiment keep its promise? Five seeds against DS2 on unseen loads.

    python -m agents.studies.claim configs/experiments/q11.yaml --runs runs/q11/latest \
        --out docs/figures/q11.json
    python -m agents.studies.claim configs/experiments/q11.yaml --policy learned-q11
        the shipped one alone

The claim: at least 10 % cheaper than DS2, with its defaults and again tuned, at no more SLO
seconds, each one-sided with 95 % confidence over training seeds and loads. DS2 was tuned on
training loads for the very reward the agent learned from:
`dsp-gym tune ds2 q11 --seeds 32 --trials 200`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import configs_root, find, load_model, write_atomic
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.run import evaluate
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.evaluation.statistics import paired_difference
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.studies.bench.machine import machine

CHEAPER = 0.10
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """Agents against one policy: the measurements and whether the claim holds."""

    job: str
    against: str
    cost: float  # mean money per episode of the agents
    cost_against: float
    slo_s: float  # mean SLO seconds per episode
    slo_s_against: float
    cost_change: float  # relative
    cost_change_upper: float  # one-sided bound
    slo_s_change: float
    slo_s_change_upper: float
    holds: bool


class ClaimDocument(TypedDict):
    """All measurements for the claim, as in its JSON file."""

    experiment: str
    machine: dict[str, str | int | float]
    agents: list[str]
    loads: int | None
    ds2_tuned: Mapping[str, object]
    tuning: Mapping[str, object] | None
    verdicts: list[dict[str, object]]


def tuned_ds2(config: ExperimentConfig, file: Path | None = None) -> PolicyConfig:
    """Read DS2 with the parameters that `dsp-gym tune` found on the experiment's training loads.

    Args:
        config: The experiment.
        file: Its output; None: the file shipped for the experiment.

    Returns:
        The policy's configuration.

    Raises:
        ConfigError: The file holds no policy, or one that was tuned on something else.
    """
    file = file or configs_root() / "policies" / "tuned" / config.name / "ds2-tuned.yaml"
    policy = load_model(PolicyConfig, "policies", file)
    found = (policy.provenance or {}).get("fingerprint")
    if found != fingerprint(config.benchmark()):
        raise ConfigError(
            f"was not tuned on {config.name}",
            file=file,
            key="provenance.fingerprint",
            value=found,
            remedy=f"Tune it again: dsp-gym tune ds2 {config.name}",
        )
    return policy


def trained_agents(config: ExperimentConfig, runs: Path) -> list[Entrant]:
    """List the agents that a training of the experiment left, one per seed.

    Returns:
        Entrants named `seed-N`, inside the experiment's guardrails.
    """
    return [
        Entrant(
            policy=str(runs / f"seed-{seed}" / "policy"),
            name=f"seed-{seed}",
            guardrails=config.guardrails,
        )
        for seed in config.agent.seeds
    ]


def claim(
    config: ExperimentConfig, agents: list[Entrant], tuned: PolicyConfig, jobs: tuple[str, ...] = ()
) -> ClaimDocument:
    """Compare agents with DS2, tuned DS2 and both Justins, on the experiment's and other jobs.

    Args:
        config: The experiment.
        agents: The agents, one per seed.
        tuned: The tuned DS2.
        jobs: Other jobs.

    Returns:
        One verdict per job and rival, with the facts of the measurement.
    """
    others: tuple[str | PolicyConfig, ...] = ("ds2", tuned, "justin-paper", "justin-artifact")
    names = ("ds2", "ds2-tuned", "justin-paper", "justin-artifact")
    rivals = [Entrant(policy=p, name=n) for p, n in zip(others, names, strict=True)]
    base = config.benchmark()
    verdicts: list[ClaimResult] = []
    for job in (*config.jobs, *jobs):
        benchmark = base.model_copy(
            update={
                "policies": (*rivals, *agents),
                "jobs": (job,),
                "reference": "ds2",
                "clairvoyant": False,
            }
        )
        card = evaluate(benchmark)
        verdicts += [_verdict(card, job, name, [a.name for a in agents]) for name in names]
    return {
        "experiment": config.name,
        "machine": machine(),
        "agents": [agent.name for agent in agents],
        "loads": base.seeds,
        "ds2_tuned": tuned.params,
        "tuning": tuned.provenance,
        "verdicts": [_plain(verdict) for verdict in verdicts],
    }


def _verdict(card: Scorecard, job: str, against: str, agents: list[str]) -> ClaimResult:
    cost = np.stack([_column(card, job, name, "cost") for name in agents], axis=1)
    slo = np.stack([_column(card, job, name, "slo_s") for name in agents], axis=1)
    cost_against = _column(card, job, against, "cost")[:, None]
    slo_against = _column(card, job, against, "slo_s")[:, None]
    # Paired by load and seed: the spread between loads cancels.
    money = paired_difference(cost, cost_against, relative=True, confidence=CONFIDENCE)
    late = paired_difference(slo, slo_against, confidence=CONFIDENCE)
    return ClaimResult(
        job=job,
        against=against,
        cost=float(cost.mean()),
        cost_against=float(cost_against.mean()),
        slo_s=float(slo.mean()),
        slo_s_against=float(slo_against.mean()),
        cost_change=float(money.estimate),
        cost_change_upper=float(money.upper),
        slo_s_change=float(late.estimate),
        slo_s_change_upper=float(late.upper),
        # One-sided: the whole interval lies below -10 %, and lateness does not grow.
        holds=bool(money.upper < -CHEAPER and late.upper <= 0),
    )


def _column(card: Scorecard, job: str, policy: str, metric: str) -> Floats:
    cells = [cell for cell in card.cells if cell.policy == policy and cell.job == job]
    cells.sort(key=lambda cell: (cell.load, cell.seed))
    return np.array([cell.metrics[metric] for cell in cells])


def _plain(verdict: ClaimResult) -> dict[str, object]:
    return {
        name: round(value, 5) if isinstance(value, float) else value
        for name in ClaimResult.__slots__
        for value in [getattr(verdict, name)]
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; exit with 1 where the claim against DS2, default or tuned, fails.

    Returns:
        The exit code: 0 where the claim holds, 1 where it does not.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("config", help="the experiment")
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--runs", type=Path, help="folder it was trained into: every seed's agent")
    who.add_argument("--policy", help="one agent, by name or folder")
    parser.add_argument("--tuned", type=Path, help="what dsp-gym tune ds2 wrote; the shipped file")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--other-jobs", nargs="*", default=(), help="jobs not trained on")
    given = parser.parse_args(arguments)
    config = load_model(ExperimentConfig, "experiments", find("experiments", given.config))
    agents = (
        trained_agents(config, given.runs)
        if given.runs is not None
        else [Entrant(policy=given.policy, name=given.policy, guardrails=config.guardrails)]
    )
    result = claim(config, agents, tuned_ds2(config, given.tuned), tuple(given.other_jobs))
    text = json.dumps(result, indent=2) + "\n"
    if given.out is not None:
        write_atomic(given.out, text)
    sys.stdout.write(text)
    bound = [v for v in result["verdicts"] if str(v["against"]).startswith("ds2")]
    return 0 if all(v["holds"] for v in bound if v["job"] in config.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
