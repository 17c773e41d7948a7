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

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dsp_gym.arrays import Floats
from dsp_gym.config.files import configs_root, load_model
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.batch_of_runs import OnStep
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.run import evaluate
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.evaluation.statistics import Difference, paired_difference
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.studies.bench.machine import machine
from dsp_gym.studies.runner import OutOption, run, write_figures

CHEAPER = 0.10
CONFIDENCE = 0.95


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


def trained_agents(
    config: ExperimentConfig, runs: Path, guardrails: str | GuardrailsConfig | None
) -> list[Entrant]:
    """List the agents that a training of the experiment left, one per seed.

    Returns:
        Entrants named `seed-N`, inside the guardrails.
    """
    return [
        Entrant(
            policy=str(runs / f"seed-{seed}" / "policy"), name=f"seed-{seed}", guardrails=guardrails
        )
        for seed in config.agent.seeds
    ]


def claim(
    config: ExperimentConfig, agents: list[Entrant], tuned: PolicyConfig, jobs: tuple[str, ...] = ()
) -> list[dict[str, object]]:
    """Compare agents with DS2, tuned DS2 and both Justins, on the experiment's and other jobs.

    Args:
        config: The experiment.
        agents: The agents, one per seed.
        tuned: The tuned DS2.
        jobs: Other jobs.

    Returns:
        One verdict per job and rival.
    """
    rivals = {
        "ds2": "ds2",
        "ds2-tuned": tuned,
        "justin-paper": "justin-paper",
        "justin-artifact": "justin-artifact",
    }
    entrants = [Entrant(policy=policy, name=name) for name, policy in rivals.items()]
    ours = [agent.name for agent in agents]
    verdicts = []
    for job in (*config.jobs, *jobs):
        card = card_of(config, (*entrants, *agents), "ds2", jobs=(job,))
        verdicts += [_verdict(card, job, name, ours) for name in rivals]
    return verdicts


def card_of(
    config: ExperimentConfig,
    entrants: Sequence[Entrant],
    reference: str,
    observer: OnStep | None = None,
    **changes: object,
) -> Scorecard:
    """Run an experiment's comparison with other policies.

    Args:
        config: The experiment.
        entrants: The policies.
        reference: One of them.
        observer: Called after each step.
        changes: Of the benchmark.

    Returns:
        The scorecard.
    """
    chosen = {"policies": tuple(entrants), "reference": reference, "clairvoyant": False}
    benchmark = config.benchmark().model_copy(update={**chosen, **changes})
    return evaluate(benchmark, observer=observer)


def paired(
    card: Scorecard, metric: str, agents: Sequence[str], rival: str, *, relative: bool = True
) -> tuple[Floats, Floats, Difference]:
    """Compare agents of one experiment with a rival on the same loads.

    Each agent is paired by load and seed with the same run of the rival: the spread between loads
    cancels.

    Args:
        card: The runs.
        metric: Of them.
        agents: One per seed.
        rival: Who they are compared with.
        relative: Whether the difference is a share of the rival's.

    Returns:
        Values of the agents (runs, agents), of the rival (runs, 1), and their difference.
    """
    cells = sorted(card.cells, key=lambda cell: (cell.job, cell.load, cell.seed))
    ours, theirs = (
        np.stack([[c.metrics[metric] for c in cells if c.policy == one] for one in names], axis=1)
        for names in (agents, [rival])
    )
    found = paired_difference(ours, theirs, relative=relative, confidence=CONFIDENCE)
    return ours, theirs, found


def _verdict(card: Scorecard, job: str, against: str, agents: list[str]) -> dict[str, object]:
    cost, cost_against, money = paired(card, "cost", agents, against)
    slo_s, slo_s_against, late = paired(card, "slo_s", agents, against, relative=False)
    figures = {
        "cost": cost.mean(),  # of an episode, as all of them
        "cost_against": cost_against.mean(),
        "slo_s": slo_s.mean(),
        "slo_s_against": slo_s_against.mean(),
        "cost_change": money.estimate,  # relative
        "cost_change_upper": money.upper,  # one-sided bound
        "slo_s_change": late.estimate,
        "slo_s_change_upper": late.upper,
    }
    return {
        "job": job,
        "against": against,
        **{name: round(float(value), 5) for name, value in figures.items()},
        # One-sided: the whole interval lies below -10 %, and lateness does not grow.
        "holds": bool(money.upper < -CHEAPER and late.upper <= 0),
    }


def main(
    config: Annotated[str, typer.Argument(help="The experiment.")],
    runs: Annotated[
        Path | None, typer.Option(help="Folder it was trained into: every seed's agent.")
    ] = None,
    policy: Annotated[str | None, typer.Option(help="One agent, by name or folder.")] = None,
    tuned: Annotated[
        Path | None, typer.Option(help="Output of dsp-gym tune ds2. Default: the shipped file.")
    ] = None,
    other_jobs: Annotated[str, typer.Option(metavar="A,B,C", help="Jobs not trained on.")] = "",
    out: OutOption = None,
) -> None:
    """Hold agents against DS2, default and tuned; exit with 1 where the claim fails."""
    if (runs is None) == (policy is None):
        raise typer.BadParameter("give one of --runs and --policy")
    experiment = load_model(ExperimentConfig, "experiments", config)
    guardrails = experiment.guardrails
    agents = (
        trained_agents(experiment, runs, guardrails)
        if runs is not None
        else [Entrant(policy=str(policy), name=policy, guardrails=guardrails)]
    )
    ds2 = tuned_ds2(experiment, tuned)
    others = tuple(filter(None, other_jobs.split(",")))
    verdicts = claim(experiment, agents, ds2, others)
    document = {
        "experiment": experiment.name,
        "machine": machine(),
        "agents": [agent.name for agent in agents],
        "loads": experiment.benchmark().seeds,
        "ds2_tuned": ds2.params,
        "tuning": ds2.provenance,
        "verdicts": verdicts,
    }
    write_figures(document, out, indent=2)
    bound = [v for v in verdicts if str(v["against"]).startswith("ds2")]
    if not all(v["holds"] for v in bound if v["job"] in experiment.jobs):
        raise typer.Exit(1)


if __name__ == "__main__":
    run(main)
