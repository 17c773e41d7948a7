"""Provenance of an agent: its experiment, jobs, data and versions. Needs no torch."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml

from dsp_gym import __version__
from dsp_gym.datasets.manifest import DatasetManifest
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.job.catalog import job_hash, load_job
from dsp_gym.loads.spec import TraceLoad, nodes
from dsp_gym.loads.template import traces_of
from dsp_gym.loads.traces import TraceLibrary
from dsp_gym.records.hashes import file_sha256


def config_text(config: ExperimentConfig) -> str:
    """Format the resolved experiment as YAML that `dsp-gym train` reads.

    Returns:
        A YAML document with every field, defaults included, in the model's order.
    """
    document = config.model_dump(mode="json", by_alias=True)
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=100)


def job_hashes(config: ExperimentConfig) -> dict[str, str]:
    """Hash all content of the job files except the evidence of their fit.

    Returns:
        The hash of each job by name.
    """
    return {spec.job: job_hash(spec) for spec in map(load_job, config.jobs)}


def datasets_of(config: ExperimentConfig) -> list[str]:
    """List the folders of the datasets that the experiment learns from.

    Returns:
        Each folder once, sorted; empty where it learns from simulation only.
    """
    agent = config.agent
    if agent.kind == "planning":
        return [] if agent.history is None else [agent.history.dataset]
    chosen = (agent.warm_start, agent.offline)
    return sorted({part.dataset for part in chosen if part is not None and part.dataset})


def dataset_hashes(config: ExperimentConfig) -> dict[str, str]:
    """Hash the content of the datasets an experiment learns from.

    Returns:
        The hash of each dataset's content by folder.
    """
    return {
        # 16 hex digits: enough to tell files apart, short enough for a model card.
        folder: DatasetManifest.read(folder).content_sha256[:16]
        for folder in datasets_of(config)
    }


def data_hashes(config: ExperimentConfig, base_dir: str | Path | None = None) -> dict[str, str]:
    """Hash the recorded loads of all splits, and of a planner's laws.

    Returns:
        The hash of each file by its path.
    """
    library = TraceLibrary(base_dir)
    names = [
        node.path
        for _, split in config.loads.splits()
        for entry in split.loads
        for node in nodes(entry.load)
        if isinstance(node, TraceLoad)
    ]
    laws = config.agent.laws if config.agent.kind == "planning" else ()
    names += [name for law in laws for name in traces_of(law.load)]
    # Each file once, however many loads or splits read it.
    return {name: file_sha256(library.find(name))[:16] for name in sorted(set(names))}


def versions() -> dict[str, str]:
    """List the versions that results depend on.

    Returns:
        Versions by package; packages that are not installed are omitted, as a planning agent is
        trained without those of deep learning.
    """
    found = {"dsp-gym": __version__, "python": platform.python_version()}
    for package in ("gymnasium", "numba", "numpy", "sb3-contrib", "stable-baselines3", "torch"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
