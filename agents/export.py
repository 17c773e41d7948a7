"""The export of a trained agent to its deployed folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from agents.folder import (
    ObservationDocument,
    PolicyDocument,
    write_folder,
)
from agents.foreign import plain_layers
from agents.importing import foreign_weights, network_document
from agents.learner import Learner, by_feature
from agents.network import parameters
from agents.provenance import (
    config_text,
    data_hashes,
    dataset_hashes,
    datasets_of,
    versions,
)
from dsp_gym.experiments.experiment import ExperimentConfig, FamilyConfig
from dsp_gym.guardrails.out_of_distribution import quantile_box


def export(learner: Learner, target: Path, base_dir: str | Path | None = None) -> Path:
    """Write the best agent of a learner.

    Plain layers of Stable-Baselines3 are written as `dsp-gym policy import` does.

    Args:
        learner: The learner, trained.
        target: Folder of the policy; an older one there is replaced.
        base_dir: Folder that relative trace paths start from.

    Returns:
        The policy's folder.
    """
    config, shape, best = learner.config, learner.shape, learner.best
    is_stock = config.ppo.needs.plain_layers
    found = network_document(
        config,
        shape,
        algorithm=config.ppo.algorithm,
        masked=learner.masked and not is_stock,
        steps=best.steps,
    )
    seen, action = found.observation, found.action
    if not is_stock and shape.choices is not None:
        action = action.model_copy(update={"act_above": best.figures["act_above"]})
    document = found.model_copy(
        update={
            "observation": seen.model_copy(update={"quantiles": _training_box(learner, seen)}),
            "action": action,
            "data": data_hashes(config, base_dir) | dataset_hashes(config),
            "seed": learner.seed,
            "seeds": config.ppo.seeds,
            "validation": best.figures,
            "versions": versions(),
        }
    )
    if is_stock:
        weights = foreign_weights(plain_layers(best.weights, target), shape)
    else:  # the critic is left out: a deployed policy only acts
        weights = {name: best.weights[name] for name in parameters(shape)}
    return write_folder(target, document, weights, config_text(config), card(document, config))


def card(document: PolicyDocument, config: ExperimentConfig) -> str:
    """Write the model card: the facts to know before using the policy.

    Returns:
        Markdown text.
    """
    network, figures = document.network, document.validation
    loads = {name: [entry.name for entry in split.loads] for name, split in config.loads.splits()}
    datasets = datasets_of(config)
    learned, recorded = (
        ", ".join(f"{n} ({value})" for n, value in document.data.items() if (n in datasets) is own)
        for own in (True, False)
    )
    reach = (
        "acts on jobs of any shape; it was trained on the jobs above alone"
        if network.encoder == "graph" or network.choices is not None
        else f"acts on jobs of at most {network.vertices} vertices only"
    )
    return "\n".join(
        [
            f"# {document.name}",
            "",
            config.description or "A learned autoscaling policy for Apache Flink jobs.",
            "",
            f"- Trained with {document.algorithm}, {document.steps:,} decisions, seed "
            f"{document.seed} of {list(document.seeds)}, on the simulated jobs "
            f"{', '.join(f'{name} ({value})' for name, value in document.jobs.items())}"
            + ("." if config.family is None else f", and on {_family(config.family)}."),
            f"- Loads: {', '.join(loads.get('train', []))}"
            + (f"; recorded: {recorded}." if recorded else "."),
            *([f"- Learned first from the dataset {learned}."] if learned else []),
            f"- Decides every {document.interval_s:g} s; trained "
            + (
                f"under the guardrails `{config.guardrails}`."
                if config.guardrails
                else "without guardrails."
            ),
            f"- Network: {network.encoder}, {' x '.join(map(str, network.hidden))}; {reach}.",
            "",
            "## On the validation loads",
            "",
            *(f"- {name}: {value:.4g}" for name, value in figures.items()),
            "",
            "The agent was selected by these figures, so they are optimistic. `dsp-gym evaluate`",
            "gives figures on unseen loads.",
            "",
            "## Limits",
            "",
            "- It learned from a model of the job: the documentation lists the model's limits.",
            "  Run it under guardrails.",
            "- It was trained on the loads above. `policy.json` has the range of each observation",
            "  in training; the guardrail `out_of_distribution` holds decisions outside it.",
            "",
        ]
    )


def _family(family: FamilyConfig) -> str:
    fewest, most = family.vertices
    parts = [f"{fewest} to {most} vertices"]
    for what, (low, high) in (("outages", family.outage), ("rates", family.rate)):
        if not low == high == 1:
            parts.append(f"{low:g} to {high:g} times the usual {what}")
    return f"{family.graphs} random graphs of {', '.join(parts)}"


def _training_box(learner: Learner, seen: ObservationDocument) -> dict[str, tuple[float, float]]:
    """Return the range of each feature in the observations that the learner has kept."""
    if not learner.samples:
        return {}
    vertex, job = by_feature(np.concatenate(learner.samples), learner.shape.vertices)
    samples = {name: vertex[:, i] for i, name in enumerate(seen.vertex_features)}
    samples |= {name: job[:, i] for i, name in enumerate(seen.job_features)}
    return quantile_box(samples)
