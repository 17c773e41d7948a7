"""Writes the result of a search: policy files or an experiment, with their provenance."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from dsp_gym.config.files import write_atomic
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.study import BestTrial, SearchResult
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.version import __version__


def point_file(folder: Path, label: str, found: SearchResult, point: BestTrial) -> Path:
    """Name the file of a point: LABEL-tuned.yaml of the middle level, with its level else.

    Returns:
        The file.
    """
    level = "" if point is found.best else f"-{100 * (point.level or 0.0):g}pct"
    return folder / f"{label}-tuned{level}.yaml"


def provenance(
    found: SearchResult, point: BestTrial, about: Mapping[str, object], seed: int, at_once: int = 1
) -> dict[str, object]:
    """Record where parameters come from, and how much better than the default they did there.

    Args:
        found: Result of the search.
        point: The parameters, one of its points.
        about: Facts of the objective.
        seed: Of the search.
        at_once: Trials of a round; left out of the record when one.

    Returns:
        The record, as it is written in the policy's file.
    """
    return {
        **about,
        **({} if point.level is None else {"max_slo_share": point.level}),
        "trials": found.trials,
        **({} if point.level is None else {"settled": found.has_settled}),
        "best_trial": None if point.is_default else point.trial,
        "seed": seed,
        **({"at_once": at_once} if at_once > 1 else {}),
        "found": _rounded(point.score.metrics),
        "default": _rounded(found.default.metrics),
        "within_bound": point.is_within,
        **({"on_bound": list(point.on_bound)} if point.on_bound else {}),
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
    level, late = record.get("max_slo_share"), ""
    if isinstance(level, float):
        late = f" at {100 * level:g} % late"
        if not record["within_bound"]:
            late += ", which none kept to"
    return f"dsp-gym tune on {record['tuned_on']}: {best} in {record['trials']} trials{late}."


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in text.splitlines())


def _yaml(document: Mapping[str, object]) -> str:
    return yaml.safe_dump(dict(document), sort_keys=False, allow_unicode=True, width=98)


def _rounded(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in metrics.items()}
