"""How far an observed run, and what policies would have made of it, lie from the model's fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.control.modes import INCUMBENT
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.validity import Extremes, Validity
from dsp_gym.whatif.journal import ObservedRun
from dsp_gym.whatif.stretch import Predicted

__all__ = ["validity_notes"]


def validity_notes(
    spec: JobSpec, course: ObservedRun, predicted: Mapping[str, Sequence[Predicted]]
) -> list[str]:
    """What a reader of the scorecard must know about the range of the model.

    Args:
        spec: the job.
        course: the observed run.
        predicted: the predictions of each policy, one per stretch.

    Returns:
        What lies beyond the fit, by policy, and the interval of the model's capacity; empty where
        the job file tells of no fit.
    """
    if spec.fitted is None:
        return []
    columns = [course.vertices.index(vertex.name) for vertex in spec.topological_order()]
    rate = course.outcome["arrived"] / np.maximum(course.outcome["seconds"], 1.0)
    up = np.flatnonzero(course.up)
    p, level = course.parallelism[up][:, columns], course.memory_level[up][:, columns]
    observed = _validity(spec, [(p[:, None], level[:, None], rate[up][:, None])])
    notes = [f"{INCUMBENT}: {sentence}" for sentence in observed.sentences()]
    for name, parts in predicted.items():
        if name != INCUMBENT and parts:
            notes += [f"{name}: {sentence}" for sentence in _of_policy(spec, parts).sentences()]
    if observed.factor is not None:
        notes.append(
            f"the model's capacities hold within a factor of {observed.factor:.2f} (90 % interval)"
        )
    return notes


def _of_policy(spec: JobSpec, parts: Sequence[Predicted]) -> Validity:
    return _validity(
        spec,
        (
            (
                one.parallelism,
                one.memory_level,
                one.outcome["processed"] / np.maximum(one.outcome["seconds"], 1.0),
            )
            for one in parts
        ),
    )


def _validity(spec: JobSpec, parts: Iterable[tuple[Ints, Ints, Floats]]) -> Validity:
    """Of intervals (K), each of S rows: tasks and levels (K, S, V), records/s (K, S)."""
    seen: Extremes | None = None
    rows = 1
    for parallelism, level, rate in parts:
        rows = parallelism.shape[1]
        seen = seen or Extremes([spec] * rows)
        for k in range(len(parallelism)):
            seen.take(parallelism[k], level[k], np.nan_to_num(rate[k]))
    assert seen is not None  # a journal without a stretch is refused before
    return seen.validity(np.arange(rows))
