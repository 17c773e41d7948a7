"""From the words of a command line to a comparison: one reader for benchmarks of all kinds.

A benchmark is a file of `configs/benchmarks`, `frontiers` or `referees`, an experiment, the folder
of a trained policy, or the `results.json` of an earlier comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsp_gym.config.files import find, names, parse, read_yaml
from dsp_gym.config.strict_json import read_json
from dsp_gym.errors import ConfigError, SchemaError, did_you_mean
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.evaluation.labels import LATEST, label_of
from dsp_gym.evaluation.referee.config import RefereeConfig
from dsp_gym.evaluation.run import PLAN
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.trainings import trained_policy
from dsp_gym.policies.registry import POLICY_FILE, is_trained, resolve

ALL = "all"
"""Stands for every policy that the benchmark lists, among those that are chosen."""

KINDS = ("benchmarks", "frontiers", "referees", "experiments")

AnyBenchmark = BenchmarkConfig | FrontierConfig | RefereeConfig
AnyComparison = AnyBenchmark | ExperimentConfig


@dataclass(frozen=True, slots=True)
class Chosen:
    """The part of a benchmark that a command line asks for."""

    policies: tuple[str, ...] = ()  # labels, or further policies; none: all
    seeds: int | None = None  # per load; none: the benchmark's
    trainings: tuple[str, ...] = ()  # LABEL=FOLDER each


def read_comparison(source: str) -> tuple[str, AnyComparison]:
    """Read what a name or path stands for.

    Args:
        source: A shipped name, or the path of a file or folder.

    Returns:
        The name of the benchmark, and its configuration.

    Raises:
        ConfigError: There is no such name or file, or it is wrong.
    """
    path = Path(source)
    if (path / POLICY_FILE).is_file():
        file = path / "config.yaml"
        experiment = parse(ExperimentConfig, read_yaml(file), file)
        return experiment.name, experiment.benchmark(source)
    if path.suffix == ".json" and path.is_file():
        return path.absolute().parent.name, _of_results(path)
    file = _file(path)
    document = read_yaml(file)
    if isinstance(document, dict) and document.keys() & {"agent", "env", "evaluation", "name"}:
        experiment = parse(ExperimentConfig, document, file)
        return experiment.name, experiment
    return file.stem, _parsed(document, file)


def _parsed(document: object, file: Path) -> AnyBenchmark:
    jobs, loads = (
        document.get(key) if isinstance(document, dict) else None for key in ("jobs", "loads")
    )
    if isinstance(loads, list):  # families to draw from; the others have splits or groups
        return parse(RefereeConfig, document, file)
    if isinstance(jobs, dict):  # groups of jobs; a benchmark lists them
        return parse(FrontierConfig, document, file)
    return parse(BenchmarkConfig, document, file)


def _file(path: Path) -> Path:
    """Find the file of a shipped name, or check that of a path."""
    known = {kind: names(kind) for kind in KINDS}
    if len(path.parts) > 1 or path.suffix or path.exists():
        return find("benchmarks", path)
    for kind, shipped in known.items():
        if str(path) in shipped:
            return find(kind, str(path))
    raise ConfigError(
        f"there is no benchmark or experiment '{path}'",
        remedy=did_you_mean(str(path), [name for found in known.values() for name in found]),
    )


def _of_results(file: Path) -> AnyBenchmark:
    """Read the benchmark of earlier results, with the trained policies recorded beside them."""
    document = read_json(file.read_text(encoding="utf-8"), file)
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise SchemaError("holds no results of dsp-gym evaluate", file=file, key="config")

    def kept(label: str, policy: object) -> object:
        folder = file.parent / "policies" / label
        return str(folder) if (folder / POLICY_FILE).is_file() else policy

    def beside(entrant: Mapping[str, Any]) -> Mapping[str, Any]:
        name = str(entrant["name"])
        if "trainings" not in entrant:  # of a benchmark, whose policies have one training each
            return {**entrant, "policy": kept(name, entrant["policy"])}
        first, *others = (
            kept(f"{name}-{number}", one)
            for number, one in enumerate((entrant["policy"], *entrant["trainings"]), start=1)
        )
        return {**entrant, "policy": first, "trainings": others}

    return _parsed({**config, "policies": [beside(one) for one in config["policies"]]}, file)


def with_choice(config: AnyComparison, chosen: Chosen) -> AnyBenchmark:
    """Narrow a benchmark to what was chosen, and add further policies.

    Args:
        config: The benchmark; an experiment without chosen policies takes the newest training.
        chosen: What was chosen.

    Returns:
        The benchmark to play; the reference, tuned rules and the best plan always stay. A referee
        keeps all its triples: how many are played is no part of it.

    Raises:
        ConfigError: There is no such policy or training.
    """
    if isinstance(config, FrontierConfig):
        found = parse(FrontierConfig, _swept_document(config, chosen), "--policies, --trainings")
        return found if chosen.seeds is None else found.with_seeds(chosen.seeds)
    if isinstance(config, RefereeConfig):
        return parse(RefereeConfig, _swept_document(config, chosen), "--policies, --trainings")
    if chosen.trainings:
        raise ConfigError(
            "needs a frontier, such as core-v2", key="--trainings", value=chosen.trainings[0]
        )
    guardrails = None
    if isinstance(config, ExperimentConfig):
        newest = not chosen.policies or config.name in chosen.policies
        guardrails = config.guardrails
        config = config.benchmark(_newest(config.name) if newest else None)
    labels = {entrant.name for entrant in config.policies}
    kept = _kept(labels, chosen.policies, {str(config.reference)})
    added = [
        {"policy": name, "guardrails": guardrails if is_trained(resolve(name)[1]) else None}
        for name in _added(labels, chosen.policies)
    ]
    document = {name: getattr(config, name) for name in BenchmarkConfig.model_fields}
    document["policies"] = (*(one for one in config.policies if one.name in kept), *added)
    document["seeds"] = chosen.seeds or config.seeds
    return parse(BenchmarkConfig, document, "--policies")


def _newest(experiment: str) -> Path:
    found = trained_policy(experiment)
    if found is None:
        raise ConfigError(
            f"experiment '{experiment}' has no trained policy yet",
            file=Path("runs") / experiment,
            remedy="Run dsp-gym train first, or name policies: --policies all,FOLDER.",
        )
    return found


def _kept(labels: set[str], wanted: Sequence[str], always: set[str]) -> set[str]:
    """Return the labels that stay."""
    return labels if not wanted or ALL in wanted else {*wanted, *always} & labels


def _added(labels: set[str], wanted: Sequence[str]) -> list[str]:
    return [name for name in wanted if name not in labels and name != ALL]


def _swept_document(config: FrontierConfig | RefereeConfig, chosen: Chosen) -> dict[str, object]:
    """Describe a frontier or a referee with the chosen policies, and further trainings of them."""
    document = config.model_dump(mode="json", by_alias=True)
    labels = {policy.name for policy in config.policies}
    always = {PLAN, *(policy.name for policy in config.policies if policy.rule)}
    kept = _kept(labels, chosen.policies, always)
    policies = [entry for entry in document["policies"] if entry["name"] in kept]
    for entry in policies:
        if entry["fallback"] not in kept:
            entry["fallback"] = None
    if document["shifts"] is not None:
        shifted = document["shifts"]["policies"]
        document["shifts"]["policies"] = {name: shifted[name] for name in shifted if name in kept}
    policies += [_swept(name) for name in _added(labels, chosen.policies)]
    for given in chosen.trainings:
        _add_trainings(policies, given)
    return {**document, "policies": policies}


def _swept(policy: str) -> dict[str, object]:
    """Describe a policy to add; a folder of trainings, as `dsp-gym train` makes it, is several."""
    folder = Path(policy)
    if (folder / LATEST).is_symlink():
        folder /= LATEST
    trained = sorted(folder.glob("seed-*/policy"))
    if not trained:
        return {"policy": policy}
    first, *others = map(str, trained)
    return {"policy": first, "name": label_of(folder.absolute()), "trainings": others}


def _add_trainings(policies: list[dict[str, Any]], given: str) -> None:
    """Add the trainings of a folder to the policy with their label."""
    label, _, folder = given.partition("=")
    labels = [str(entry.get("name", entry["policy"])) for entry in policies]
    if label not in labels:
        raise ConfigError(
            f"there is no policy '{label}' here",
            key="--trainings",
            value=given,
            remedy=did_you_mean(label, labels),
        )
    found = sorted(map(str, Path(folder).glob("seed-*/policy"))) if folder else []
    if not found:
        raise ConfigError(
            f"the folder '{folder}' holds no training",
            key="--trainings",
            value=given,
            remedy="Train with other seeds first: dsp-gym train EXPERIMENT --seed 1 --out "
            f"{folder or 'FOLDER'}/seed-1",
        )
    entry = policies[labels.index(label)]
    entry["trainings"] = [*entry.get("trainings", ()), *found]
