"""Writes the result of a search: a policy file or an experiment, with its provenance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from dsp_gym.config.files import write_atomic
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.study import BestTrial
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.version import __version__


def provenance(
    best: BestTrial, about: Mapping[str, object], seed: int, at_once: int = 1
) -> dict[str, object]:
    """Record where parameters come from, and how much better than the default they did there.

    Args:
        best: The parameters.
        about: Facts of the objective.
        seed: Of the search.
        at_once: Trials of a round; left out of the record when one.

    Returns:
        The record, as it is written in the policy's file.
    """
    return {
        **about,
        "trials": best.trials,
        "best_trial": None if best.is_default else best.trial,
        "seed": seed,
        **({"at_once": at_once} if at_once > 1 else {}),
        "found": _rounded(best.score.metrics),
        "default": _rounded(best.default.metrics),
        "within_bound": best.score.excess <= 0,
        "dsp_gym": __version__,
    }


def write_tuned(
    file: Path, config: PolicyConfig | ExperimentConfig, record: Mapping[str, object]
) -> Path:
    """Write a policy, or an experiment with its record above it as a comment; whole or not at all.

    Returns:
        The file.
    """
    head = _summary(record)
    if isinstance(config, PolicyConfig):
        config = config.model_copy(update={"provenance": dict(record)})
    else:
        head += f"\n{_yaml({'provenance': dict(record)})}"
    document = config.model_dump(mode="json", by_alias=True)
    return write_atomic(file, _comment(head) + _yaml(document))


def _summary(record: Mapping[str, object]) -> str:
    best = "the defaults, as nothing better was found" if record["best_trial"] is None else "best"
    late = "" if record["within_bound"] else "; none was within the bound on SLO violations"
    return f"dsp-gym tune on {record['tuned_on']}: {best} in {record['trials']} trials{late}."


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _yaml(document: Mapping[str, object]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=98)


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in metrics.items()}
