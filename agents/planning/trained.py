"""The starting point of planning: the shipped transitions, a walk, or a trained policy's folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agents.folder import (
    POLICY,
    WEIGHTS,
    HistoryDocument,
    LoadStatesDocument,
    PlanningDocument,
    read_kind,
)
from agents.planning.chain import TABLE, read_counts, unpacked
from agents.planning.config import MdpConfig
from agents.planning.load import BIN, LEVELS, PEAKS, STATES, TRENDS
from agents.planning.walk import walk_weights
from agents.shipped import policy_folder
from agents.tensors import OF_JOBS
from dsp_gym.arrays import Floats
from dsp_gym.config.files import parse
from dsp_gym.errors import PolicyError
from dsp_gym.loop.topology import Topology

STATES_DOCUMENT = LoadStatesDocument(levels=LEVELS, level_width=BIN, trends=TRENDS, peaks=PEAKS)
"""The states that this release distinguishes."""

TABLE_PREFIX = "transitions/"
"""Prefix of the names of the table's arrays."""

_REMEDY = "Export or pull the policy again."


class Trained(NamedTuple):
    """The starting point of a policy."""

    config: MdpConfig  # completed by the parameters found in training
    counts: Floats  # (K, STATES, STATES) minutes by law; of a walk, its weights
    history: Mapping[str, HistoryDocument]  # by job
    past: Mapping[str, Mapping[str, Floats]]  # learned by its service model, by job
    document: PlanningDocument | None = None  # of the folder, if any
    laws: tuple[str, ...] = ()  # names of K laws, in order; none: they have none


def past_prefix(job: str) -> str:
    """Return the prefix of the names of the arrays of a job's service model.

    Returns:
        The prefix.
    """
    return f"{OF_JOBS}{job}/"


def trained(config: MdpConfig) -> Trained:
    """Read the starting point that a configuration names.

    Returns:
        The starting point; its parameters are those given, then the folder's, then the defaults.

    Raises:
        PolicyError: The folder or the table cannot be read, or is something else.
    """
    if config.path is None:
        return Trained(config, _named(config), {}, {})
    folder = policy_folder(config.path)
    document, weights = read_kind(folder, PlanningDocument)
    if document.states != STATES_DOCUMENT:
        raise PolicyError(
            "the policy's load states differ from those of this release",
            file=folder / POLICY,
            key="states",
            remedy="Train the policy again with this release, or use the release that made it.",
        )
    given = {name: getattr(config, name) for name in config.model_fields_set}
    whole = parse(MdpConfig, {**document.params, **given}, folder / POLICY)
    file = folder / WEIGHTS
    laws = document.laws
    if whole.transitions is not None or whole.walk is not None:
        counts, laws = _named(whole), ()
    else:
        prefixes = [f"{TABLE_PREFIX}{law}/" for law in document.laws] or [TABLE_PREFIX]
        counts = np.empty((len(prefixes), STATES, STATES))
        for place, prefix in enumerate(prefixes):
            counts[place] = unpacked(_below(weights, prefix), file, _REMEDY)
    past = {job: past_in(weights, job, one, file) for job, one in document.history.items()}
    if not whole.own_past:
        past = {}
    return Trained(whole, counts, document.history, past, document, laws)


def own_pasts(start: Trained, jobs: Topology) -> Mapping[int, Mapping[str, Floats]]:
    """Find the jobs whose past the policy has learned from.

    Args:
        start: Starting point of the policy.
        jobs: The batch.

    Returns:
        The learned arrays, by row of the job's file.

    Raises:
        PolicyError: A job had another graph at the time.
    """
    found: dict[int, Mapping[str, Floats]] = {}
    for k, spec in enumerate(jobs.specs):
        past = start.past.get(spec.job)
        if past is None or start.history[spec.job].prior != start.config.prior:
            continue
        names = tuple(vertex.name for vertex in spec.topological_order())
        then = start.history[spec.job].vertices
        columns = past["unit"].shape[1]
        if names != then or columns != spec.memory.levels + 1:
            raise PolicyError(
                f"the policy was trained on the past of '{spec.job}' when its vertices were "
                f"{', '.join(then)}; those of the running job are {', '.join(names)}, or its "
                "memory levels differ",
                remedy="Train it again on a dataset of the present job, or set own_past: false.",
            )
        found[k] = past
    return found


def _named(config: MdpConfig) -> Floats:
    """Return the law of the load that the configuration names, or the shipped one."""
    if config.walk is not None:
        return walk_weights(config.walk, config.neighbours)[None]
    return read_counts(TABLE if config.transitions is None else Path(config.transitions))[None]


def _below(
    weights: Mapping[str, NDArray[np.generic]], prefix: str
) -> dict[str, NDArray[np.generic]]:
    return {
        name.removeprefix(prefix): values
        for name, values in weights.items()
        if name.startswith(prefix)
    }


def _has_columns(found: Mapping[str, Floats]) -> bool:
    """Return whether the columns of limits, by which compiled code reads, are memory levels."""
    column = found.get("limit_column", np.zeros(1))
    return bool(np.all((column >= 0.0) & (column < found["unit"].shape[1])))


def past_in(
    weights: Mapping[str, NDArray[np.generic]], job: str, document: HistoryDocument, file: Path
) -> dict[str, Floats]:
    """Read what a policy has learned of the past of a job.

    Args:
        weights: All arrays of its folder.
        job: Name of the job.
        document: What its policy.json says of it.
        file: The file of the arrays, for errors.

    Returns:
        Arrays as `ServiceModel.learned` returns them.

    Raises:
        PolicyError: They are not those of the job.
    """
    found = {
        name: np.asarray(values, np.float64)
        for name, values in _below(weights, past_prefix(job)).items()
    }
    wanted = {
        "covariance",
        "hit",
        "is_known",
        "mean",
        "minutes",
        "ratio",
        "tried",
        "unit",
    }
    rows = {len(values) for values in found.values()}
    # Release 1.0.0 knew no limits.
    complete = found.keys() - {"limit", "limit_column"} == wanted
    if not complete or rows != {len(document.vertices)} or not _has_columns(found):
        raise PolicyError(
            f"the weights do not hold the service model of '{job}' that policy.json describes",
            file=file,
            remedy=_REMEDY,
        )
    return found
