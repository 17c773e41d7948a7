"""Checkpoints: a folder with tensors and JSON, no pickle, written whole or not at all.

A checkpoint holds networks, optimiser, environments and random numbers: training continues from it
bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from agents.folder import replace_folder
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.trackers import flatten

SCHEMA = "dsp-gym/checkpoint/1"
STATE, TENSORS = "state.json", "tensors.safetensors"
FREE_KEYS = (
    "description",
    "evaluation.",
    "tracking.",
    "agent.seeds",
    "agent.total_steps",
    "agent.checkpoint_every",
    "agent.threads",
    "agent.device",
)
"""Keys that may change on resuming: the next update does not depend on them."""

Tree = dict[str, Any]
"""Nested dicts of arrays and JSON values."""


def write_checkpoint(folder: Path, tree: Tree) -> None:
    """Write nested dicts of arrays and JSON values, replacing an older checkpoint."""
    arrays: dict[str, NDArray[np.generic]] = {}
    skeleton = _split(tree, "", arrays)
    document = {"schema": SCHEMA, "tree": skeleton}
    replace_folder(
        folder,
        {STATE: json.dumps(document).encode(), TENSORS: save_tensors(arrays)},
    )


def has_checkpoint(folder: Path) -> bool:
    """Return whether a checkpoint was written.

    Returns:
        Whether the folder holds a checkpoint's state file; its content is not read.
    """
    return (folder / STATE).is_file()


def checkpoint_steps(folder: Path) -> int:
    """Read the number of decisions a checkpoint has learned from.

    Returns:
        Decisions; -1 without a checkpoint.
    """
    if not has_checkpoint(folder):
        return -1
    steps = _document(folder)["tree"].get("steps")
    if not isinstance(steps, int):
        raise _unreadable(folder, f"{STATE} has no number of steps")
    return steps


def checkpoint_config(folder: Path) -> Tree:
    """Read the configuration that a checkpoint was made with.

    Returns:
        The experiment as a nested dict; empty if the trainer keeps none.
    """
    found = _document(folder)["tree"].get("config")
    return found if isinstance(found, dict) else {}


def read_checkpoint(folder: Path) -> Tree:
    """Read a checkpoint.

    Returns:
        The nested dicts of arrays and JSON values that `write_checkpoint` was given.
    """
    document = _document(folder)
    try:
        arrays = load_tensors((folder / TENSORS).read_bytes())
    except (OSError, SafetensorError) as error:
        raise _unreadable(folder, error) from error
    try:
        return {key: _join(item, arrays) for key, item in document["tree"].items()}
    except (KeyError, TypeError) as error:
        raise _unreadable(folder, f"{TENSORS} has no array {error}") from error


def _document(folder: Path) -> Tree:
    file = folder / STATE
    try:
        document: Tree = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _unreadable(folder, error) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise SchemaError(
            f"expected '{SCHEMA}'",
            file=file,
            key="schema",
            value="nothing" if schema is None else schema,
            remedy="Continue with the release that wrote it, or train from the start.",
        )
    if not isinstance(document.get("tree"), dict):
        raise _unreadable(folder, f"{STATE} has no tree")
    return document


def _unreadable(folder: Path, why: object) -> SchemaError:
    return SchemaError(
        f"the checkpoint cannot be read: {why}",
        file=folder,
        remedy="Remove the folder and train from the start.",
    )


def refuse_other_config(folder: Path, saved: Tree, config: ExperimentConfig) -> None:
    """Refuse a configuration other than the one the checkpoint was made with.

    Keys in `FREE_KEYS` may differ.

    Args:
        folder: Folder of the checkpoint.
        saved: Configuration of the checkpoint.
        config: The present configuration.

    Raises:
        ConfigError: Other keys differ; the message names each of them.
    """
    before = flatten(saved)
    now = flatten(config.model_dump(mode="json", by_alias=True))
    differing = [
        key
        for key in sorted(before.keys() | now.keys())
        if not key.startswith(FREE_KEYS) and before.get(key) != now.get(key)
    ]
    if not differing:
        return
    key, *others = differing
    more = "".join(f"; {one} with {before.get(one)!r}, not {now.get(one)!r}" for one in others)
    raise ConfigError(
        f"the checkpoint in {folder} was made with {before.get(key)!r}{more}",
        key=key,
        value=now.get(key),
        remedy=f"Give the value{'s' if others else ''} back, choose another --out, or leave "
        "--resume out.",
    )


def _split(value: object, path: str, arrays: dict[str, NDArray[np.generic]]) -> object:
    if isinstance(value, np.ndarray):
        # An empty or scalar array keeps its shape (`ascontiguousarray` makes scalars 1-D), and
        # safetensors wants contiguous memory.
        arrays[path] = np.ascontiguousarray(value).reshape(value.shape)
        return {"$array": path}
    if isinstance(value, dict):
        return {key: _split(item, f"{path}/{key}", arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_split(item, f"{path}/{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _join(value: object, arrays: Mapping[str, object]) -> object:
    if isinstance(value, dict):
        if value.keys() == {"$array"}:
            return arrays[value["$array"]]
        return {key: _join(item, arrays) for key, item in value.items()}
    if isinstance(value, list):
        return [_join(item, arrays) for item in value]
    return value
