"""The folder a trained policy is stored in: `dsp-gym/policy/1`.

`policy.json` says what the weights mean, `weights.safetensors` holds them, `config.yaml` is the
resolved experiment, `card.md` is for people. Nothing in it is executed when it is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from safetensors.numpy import save as save_tensors

from agents.network import NetworkShape, Weights
from agents.tensors import MOST_BYTES as MOST_WEIGHTS_BYTES
from agents.tensors import load_tensors, refuse_not_finite
from dsp_gym.config.explain import explain
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.config.temporary import exchange_folder, sync_folder
from dsp_gym.envs.config import CapacityConfig
from dsp_gym.errors import ConfigError, PolicyError, StorageError
from dsp_gym.experiments.agent import MOST_LAWS
from dsp_gym.policies.folder_files import read_regular
from dsp_gym.policies.registry import MOST_BYTES

SCHEMA = "dsp-gym/policy/1"
POLICY, WEIGHTS, CONFIG, CARD = "policy.json", "weights.safetensors", "config.yaml", "card.md"

Range = tuple[float, float]


class ObservationDocument(ConfigModel):
    """Observation the network reads."""

    vertex_features: tuple[str, ...] = Field(description="names per vertex, in order")
    job_features: tuple[str, ...] = Field(description="names per job, in order")
    normalisation: Literal["(x - shift) * scale, cut at +-10"] = Field(
        "(x - shift) * scale, cut at +-10",
        description="shift and scale stand among the weights, fixed before training",
    )
    quantiles: dict[str, Range] = Field(
        description="0.1 % and 99.9 % of each feature in training, before normalisation, widened "
        "by a tenth: bounds for the out-of-distribution guardrail"
    )


class ActionDocument(ConfigModel):
    """Meaning of the network's logits: moves of a vertex, or capacities of the job."""

    space: Literal["vertex", "single", "capacity"] = Field(
        "vertex",
        description="moves of every vertex; one move of one vertex; or a multiple of the load for "
        "the whole job",
    )
    moves: tuple[str, ...] = Field((), description="parallelism moves of a vertex, in order")
    memory_moves: tuple[str, ...] = Field((), description="memory moves of a vertex, in order")
    kappas: tuple[float, ...] = Field(
        (), description="capacity: multiples of the present load, in order, after holding"
    )
    act_above: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="capacity: the policy acts above this probability of acting; none: where "
        "acting is its best choice",
    )
    late_price: float | None = Field(
        None,
        gt=0,
        description="capacity: price of a late minute it decides with unless told another",
    )
    late_prices: Range | None = Field(None, description="capacity: prices it was trained with")
    sizing: CapacityConfig | None = Field(
        None, description="capacity: the service model behind the actions"
    )
    masked: bool = Field(description="whether moves that cannot be made were masked in training")


class TrainedDocument(ConfigModel):
    """Content of `policy.json` that all trained policies share."""

    schema_: Literal["dsp-gym/policy/1"] = Field(alias="schema", description="format")
    name: str = Field(description="the experiment it came from")
    algorithm: str = Field(description="how it was trained")
    interval_s: float = Field(gt=0, description="seconds between decisions in training")
    jobs: dict[str, str] = Field(description="jobs it was trained on, with the hash of each")
    data: dict[str, str] = Field(
        description="recorded loads and datasets it was trained on, with their hashes"
    )
    seed: int = Field(description="seed of this agent")
    seeds: tuple[int, ...] = Field(description="seeds that were trained; this one was the best")
    validation: dict[str, float] = Field(description="figures on the validation loads")
    versions: dict[str, str] = Field(description="packages it was trained with")
    weights_sha256: str = Field(description="hash of the weights file")


class PolicyDocument(TrainedDocument):
    """Content of `policy.json` of a network."""

    network: NetworkShape = Field(description="shape of the network")
    observation: ObservationDocument = Field(
        description="observations: features, and their range in training"
    )
    action: ActionDocument = Field(
        description="actions: moves of parallelism and memory, or multiples of the load"
    )
    ds2_utilization: float = Field(
        gt=0, le=1, description="utilization the move 'what DS2 says' aimed at in training"
    )
    steps: int = Field(description="decisions it had learned from when it was the best")


class LoadStatesDocument(ConfigModel):
    """Numbering of a load's states: by level, trend and peak, multiples of a reference."""

    levels: int = Field(description="levels")
    level_width: float = Field(description="width of a level, as a share of the reference rate")
    trends: int = Field(description="classes of change of the level over an hour")
    peaks: int = Field(description="classes of height of the recent peak")


class HistoryDocument(ConfigModel):
    """Facts learned from the past of one job."""

    minutes: int = Field(description="minutes of its load that were counted")
    prior: str = Field(description="what times per record are ratios to: job-file, or none")
    vertices: tuple[str, ...] = Field(description="its vertices, in topological order")


class PlanningDocument(TrainedDocument):
    """Content of `policy.json` of a policy that plans."""

    policy: Literal["mdp"] = Field("mdp", description="installed policy that reads the folder")
    params: dict[str, object] = Field(description="its parameters, the price among them")
    states: LoadStatesDocument = Field(description="states of the load that were counted")
    laws: tuple[str, ...] = Field(
        (),
        max_length=MOST_LAWS,
        description="laws of the load that were counted apart; none: all loads as one",
    )
    minutes: float = Field(description="minutes of load behind the transitions")
    late_target: float = Field(description="share of the time late that training aimed at")
    tried: dict[str, dict[str, float]] = Field(
        description="figures on the validation loads for each price of a late minute tried"
    )
    history: dict[str, HistoryDocument] = Field(
        description="jobs whose own past it learned from; their service models are in the weights"
    )


DOCUMENTS: dict[str, type[TrainedDocument]] = {
    "trained": PolicyDocument,
    "mdp": PlanningDocument,
}
"""Kind of document by its key `policy`; a network's document does not have the key."""

Document = TypeVar("Document", bound=TrainedDocument)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def write_folder(
    target: Path,
    document: TrainedDocument,
    weights: Mapping[str, NDArray[np.generic]],
    config: str,
    card: str,
) -> Path:
    """Write the folder aside and put it in place whole; an older one there is replaced.

    Args:
        target: The folder.
        document: Content of `policy.json`; the hash of the weights is filled in.
        weights: Arrays by name.
        config: Text of `config.yaml`, the resolved experiment.
        card: Text of `card.md`.

    Returns:
        The folder now in place.

    Raises:
        PolicyError: An array has a value that is NaN or infinite.
    """
    refuse_not_finite(dict(weights), target / WEIGHTS)
    # Contiguous copies: safetensors writes memory as it lies.
    packed = save_tensors({key: np.ascontiguousarray(value) for key, value in weights.items()})
    document = document.model_copy(update={"weights_sha256": hashlib.sha256(packed).hexdigest()})
    body = json.dumps(document.model_dump(mode="json", by_alias=True), indent=2, allow_nan=False)
    contents = {
        POLICY: f"{body}\n".encode(),
        WEIGHTS: packed,
        CONFIG: config.encode(),
        CARD: card.encode(),
    }
    return replace_folder(target, contents)


def replace_folder(target: Path, contents: Mapping[str, bytes]) -> Path:
    """Write files into a folder aside and put it in place whole; an older one is replaced.

    Returns:
        The folder.
    """
    aside: Path | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, hence on the same file system, where renaming is atomic.
        aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        fresh = aside / "new"
        fresh.mkdir()
        for name, content in contents.items():
            with (fresh / name).open("wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
        sync_folder(fresh)
        exchange_folder(fresh, target, aside)
        sync_folder(target.parent)
    except OSError as error:
        raise StorageError(
            f"cannot be written: {error.strerror or error}; nothing was left half-written",
            file=target,
            remedy="Free some space, or choose a folder that can be written to with --out.",
        ) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
    return target


def read_folder(folder: Path) -> tuple[PolicyDocument, Weights]:
    """Read the folder of a network.

    Returns:
        Its document, and its weights by name.

    Raises:
        PolicyError: As for `read_kind`.
    """
    return read_kind(folder, PolicyDocument)


def read_kind(folder: Path, kind: type[Document]) -> tuple[Document, Weights]:
    """Read the folder of a policy of a given kind.

    Args:
        folder: The folder.
        kind: Class of its document.

    Returns:
        Its document, and its weights by name.

    Raises:
        PolicyError: A file is missing or damaged, or is of another schema or another kind of
            policy.
    """
    document, weights = read_any(folder)
    if not isinstance(document, kind):
        names = {model: name for name, model in DOCUMENTS.items()}
        raise PolicyError(
            f"holds a policy '{names[type(document)]}', and was named as one of '{names[kind]}'",
            file=folder,
            remedy=f"Name the folder alone, or with policy: {names[type(document)]}.",
        )
    return document, weights


_LOADED: dict[str, Weights] = {}
"""Weights by SHA-256 of their file: a process that watches a hundred jobs holds them once."""

_DESCRIBED: dict[bytes, TrainedDocument] = {}
"""Documents by the bytes of their file, for the same reason."""

_MOST_KEPT = 8


def _kept(among: dict[_Key, _Value], key: _Key, value: _Value) -> _Value:
    """Keep a value for later readers, in place of the oldest where there are many."""
    if len(among) >= _MOST_KEPT:
        among.pop(next(iter(among)), None)
    among[key] = value
    return value


def read_any(folder: Path) -> tuple[TrainedDocument, Weights]:
    """Read the folder of a policy of any kind.

    Returns:
        Its document, and its weights by name; the arrays are shared by all readers of the same file
        and must not be written to.

    Raises:
        PolicyError: A file is missing, damaged, too large or no regular file, is of another schema,
            or an array has a value that is NaN or infinite.
    """
    document = _read_document(folder / POLICY)
    file = folder / WEIGHTS
    try:
        packed = read_regular(file, MOST_WEIGHTS_BYTES)
    except OSError as error:
        raise PolicyError(
            f"cannot be read: {error.strerror}",
            file=file,
            remedy="A policy folder has policy.json and weights.safetensors.",
        ) from error
    # The hash is checked before parsing: an exchanged file is named as such.
    digest = hashlib.sha256(packed).hexdigest()
    if digest != document.weights_sha256:
        raise PolicyError(
            "is not the file that policy.json describes (weights_sha256 differs)",
            file=file,
            remedy="Export or pull the policy again.",
        )
    weights = _LOADED.get(digest)
    if weights is None:
        weights = _kept(_LOADED, digest, load_tensors(packed, file))
    return document, dict(weights)


def _read_document(file: Path) -> TrainedDocument:
    try:
        content = read_regular(file, MOST_BYTES)
        known = _DESCRIBED.get(content)
        if known is not None:
            return known
        data = parse_json(content)
    except OSError as error:
        raise PolicyError(
            f"cannot be read: {error.strerror}",
            file=file,
            remedy="Name the folder of a policy: dsp-gym train makes one.",
        ) from error
    except ValueError as error:
        raise PolicyError(
            f"is not JSON: {error}", file=file, remedy="Export or pull the policy again."
        ) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise PolicyError(
            f"expected '{SCHEMA}', the schema of this release",
            file=file,
            key="schema",
            value="nothing" if schema is None else schema,
            remedy="Train the policy again with this release, or use the release that made it.",
        )
    kind = data.get("policy", "trained")
    if not isinstance(kind, str) or kind not in DOCUMENTS:
        raise PolicyError(
            f"expected one of {', '.join(DOCUMENTS)}",
            file=file,
            key="policy",
            value=kind,
            remedy="Use the release that made it.",
        )
    model = DOCUMENTS[kind]
    try:
        document = model.model_validate(data)
    except ValidationError as error:
        found: ConfigError = explain(error, model, data, str(file))
        raise PolicyError(
            found.message, file=file, key=found.key, value=found.value, remedy=found.remedy
        ) from None
    return _kept(_DESCRIBED, content, document)


def describe(document: TrainedDocument) -> Mapping[str, object]:
    """Return the facts of a policy that people ask for first.

    Returns:
        Facts by name, as `dsp-gym policy show` prints them.
    """
    return {
        "name": document.name,
        "algorithm": document.algorithm,
        **_learned_by(document),
        "interval_s": document.interval_s,
        "jobs": ", ".join(document.jobs),
        "seed": document.seed,
        **{f"validation {key}": value for key, value in document.validation.items()},
    }


def _learned_by(document: TrainedDocument) -> dict[str, object]:
    if isinstance(document, PolicyDocument):
        network = document.network
        shape = f"{network.encoder} {'x'.join(map(str, network.hidden))}"
        if network.lstm is not None:
            shape = f"lstm {network.lstm}, {shape}"
        if network.members is not None:
            shape = f"{network.members} times {shape}"
        return {"network": shape, "action": document.action.space, "steps": document.steps}
    if isinstance(document, PlanningDocument):
        return {
            "price of a late minute": document.params.get("late_price"),
            "late at most (aim)": document.late_target,
            "minutes of load": document.minutes,
            "own past of": ", ".join(document.history) or "no job",
        }
    return {}
