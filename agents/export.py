"""From a trained agent to the folder that is deployed."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import yaml

from agents.folder import (
    SCHEMA,
    ActionDocument,
    ObservationDocument,
    PolicyDocument,
    write_folder,
)
from agents.learner import Learner, by_feature
from agents.network import Weights, parameters
from agents.offline import dataset_hashes, datasets_of
from dsp_gym import __version__
from dsp_gym.arrays import Floats32
from dsp_gym.envs.action import MEMORY_NAMES, MOVE_NAMES
from dsp_gym.envs.capacity import CAPACITY_FEATURES, KAPPAS
from dsp_gym.envs.observation import JOB_FEATURES, VERTEX_FEATURES
from dsp_gym.evaluation.experiment import ExperimentConfig
from dsp_gym.guardrails.out_of_distribution import quantile_box
from dsp_gym.job.catalog import load_job
from dsp_gym.job.identity import job_hash
from dsp_gym.loads.spec import TraceLoad, nodes
from dsp_gym.loads.traces import TraceLibrary

__all__ = ["config_text", "data_hashes", "export", "job_hashes", "versions"]


def export(learner: Learner, target: Path, base_dir: str | Path | None = None) -> Path:
    """Writes the best agent of a learner.

    Returns:
        The policy's folder.
    """
    config, best = learner.config, learner.best
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
    # The critic stays behind: a deployed policy only acts.
    weights = actor_weights(best.weights, learner)
    return write_folder(target, document, weights, config_text(config), card(document, config))


def _features(learner: Learner) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names per vertex, and per job."""
    if learner.shape.choices is not None:
        return (), tuple(CAPACITY_FEATURES)
    return tuple(VERTEX_FEATURES), tuple(JOB_FEATURES)


def _actions(learner: Learner) -> ActionDocument:
    """What the logits mean."""
    if learner.shape.choices is None:
        return ActionDocument(moves=MOVE_NAMES, memory_moves=MEMORY_NAMES, masked=learner.masked)
    env = learner.config.env
    price = env.reward.slo
    return ActionDocument(
        space="capacity",
        kappas=KAPPAS,
        act_above=learner.best.figures["act_above"],
        late_price=price,
        late_prices=env.randomise.late_price or (price, price),
        sizing=env.capacity,
        masked=learner.masked,
    )


def actor_weights(weights: dict[str, Floats32], learner: Learner) -> Weights:
    """Leaves the critic behind: a deployed policy only acts.

    Returns:
        The actor's weights by name.
    """
    return {name: weights[name] for name in parameters(learner.shape)}


def config_text(config: ExperimentConfig) -> str:
    """The resolved experiment as YAML that `dsp-gym train` reads.

    Returns:
        A YAML document with every field written out, defaults included, in the model's order.
    """
    document = config.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def job_hashes(config: ExperimentConfig) -> dict[str, str]:
    """Hashes everything the job files say but the evidence of their fit.

    Returns:
        The hash of each job by name.
    """
    return {spec.job: job_hash(spec) for spec in map(load_job, config.jobs)}


def data_hashes(config: ExperimentConfig, base_dir: str | Path | None = None) -> dict[str, str]:
    """Hashes the recorded loads of all splits.

    Returns:
        The hash of each file by its path.
    """
    library = TraceLibrary(base_dir)
    paths = {
        node.path: library.find(node.path)
        for _, split in config.loads.splits()
        for entry in split.loads
        for node in nodes(entry.load)
        if isinstance(node, TraceLoad)
    }
    return {name: _short_hash(path.read_bytes()) for name, path in sorted(paths.items())}


def versions() -> dict[str, str]:
    """Lists the versions that the numbers depend on.

    Returns:
        Versions by package.
    """
    packages = ("gymnasium", "numba", "numpy", "sb3-contrib", "stable-baselines3", "torch")
    return {
        "dsp-gym": __version__,
        "python": platform.python_version(),
        **{package: version(package) for package in packages},
    }


def card(document: PolicyDocument, config: ExperimentConfig) -> str:
    """Writes the model card: what people should know before they use the policy.

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
            + (
                "."
                if config.family is None
                else f", and on {config.family.graphs} random graphs of "
                f"{config.family.vertices[0]} to {config.family.vertices[1]} vertices."
            ),
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


def _training_box(learner: Learner) -> dict[str, tuple[float, float]]:
    if not learner.samples:
        return {}
    vertex, job = by_feature(np.concatenate(learner.samples), learner.shape.vertices)
    of_vertex, of_job = _features(learner)
    samples = {name: vertex[:, i] for i, name in enumerate(of_vertex)}
    samples |= {name: job[:, i] for i, name in enumerate(of_job)}
    return quantile_box(samples)


def _short_hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
