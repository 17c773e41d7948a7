"""The export of a trained agent to its deployed folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from agents.folder import (
    SCHEMA,
    ActionDocument,
    ObservationDocument,
    PolicyDocument,
    write_folder,
)
from agents.foreign import plain_layers
from agents.importing import foreign_document, foreign_weights
from agents.learner import Learner, by_feature
from agents.network import Weights, parameters
from agents.provenance import (
    config_text,
    data_hashes,
    dataset_hashes,
    datasets_of,
    job_hashes,
    versions,
)
from dsp_gym.arrays import Floats32
from dsp_gym.envs.action import MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.experiments.experiment import ExperimentConfig, FamilyConfig
from dsp_gym.guardrails.out_of_distribution import quantile_box

__all__ = ["export"]


def export(learner: Learner, target: Path, base_dir: str | Path | None = None) -> Path:
    """Write the best agent of a learner.

    Args:
        learner: The learner, trained.
        target: Folder of the policy; an older one there is replaced.
        base_dir: Folder that relative trace paths start from.

    Returns:
        The policy's folder.
    """
    config, best = learner.config, learner.best
    if config.ppo.needs.plain_layers:
        return _export_stock(learner, target, base_dir)
    document = PolicyDocument(
        schema=SCHEMA,
        name=config.name,
        algorithm=config.ppo.algorithm,
        network=learner.shape,
        observation=ObservationDocument(
            vertex_features=_features(learner)[0],
            job_features=_features(learner)[1],
            quantiles=_training_box(learner),
        ),
        action=_actions(learner),
        interval_s=config.env.interval_s,
        ds2_utilization=config.env.ds2_utilization,
        jobs=job_hashes(config),
        data=data_hashes(config, base_dir) | dataset_hashes(config),
        seed=learner.seed,
        seeds=config.ppo.seeds,
        steps=best.steps,
        validation=best.figures,
        versions=versions(),
        weights_sha256="",
    )
    # The critic is left out: a deployed policy only acts.
    weights = actor_weights(best.weights, learner)
    return write_folder(target, document, weights, config_text(config), card(document, config))


def _export_stock(learner: Learner, target: Path, base_dir: str | Path | None) -> Path:
    """Write plain layers of Stable-Baselines3, as `dsp-gym policy import` does."""
    config, best = learner.config, learner.best
    found = foreign_document(
        config, learner.shape, algorithm=config.ppo.algorithm, masked=False, steps=best.steps
    )
    document = found.model_copy(
        update={
            "observation": found.observation.model_copy(
                update={"quantiles": _training_box(learner)}
            ),
            "data": data_hashes(config, base_dir),
            "seed": learner.seed,
            "seeds": config.ppo.seeds,
            "validation": best.figures,
            "versions": versions(),
        }
    )
    weights = foreign_weights(plain_layers(best.weights, target), learner.shape)
    return write_folder(target, document, weights, config_text(config), card(document, config))


def _features(learner: Learner) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of features per vertex, and per job."""
    if learner.shape.choices is not None:
        return (), tuple(CAPACITY_FEATURES)
    return tuple(VERTEX_FEATURES), tuple(JOB_FEATURES)


def _actions(learner: Learner) -> ActionDocument:
    """Describe the meaning of the logits."""
    if learner.shape.choices is None:
        return ActionDocument(moves=MOVE_NAMES, memory_moves=MEMORY_NAMES, masked=learner.masked)
    env = learner.config.env
    price = env.reward.slo
    return ActionDocument(
        space="capacity",
        kappas=KAPPAS,
        act_above=learner.best.figures["act_above"],
        late_price=price or None,
        late_prices=env.randomise.late_price or (price, price),
        sizing=env.capacity,
        masked=learner.masked,
    )


def actor_weights(weights: dict[str, Floats32], learner: Learner) -> Weights:
    """Select the actor's weights: a deployed policy needs no critic.

    Returns:
        The actor's weights by name.
    """
    return {name: weights[name] for name in parameters(learner.shape)}


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


def _training_box(learner: Learner) -> dict[str, tuple[float, float]]:
    if not learner.samples:
        return {}
    vertex, job = by_feature(np.concatenate(learner.samples), learner.shape.vertices)
    of_vertex, of_job = _features(learner)
    samples = {name: vertex[:, i] for i, name in enumerate(of_vertex)}
    samples |= {name: job[:, i] for i, name in enumerate(of_job)}
    return quantile_box(samples)
