"""Histories from the state that Flink's autoscaler keeps for itself: minutes, not days.

The autoscaler forgets its samples whenever the job restarts, and those older than its metrics
window. What it keeps says how many records came and went and how busy vertices were; it says
nothing of latencies, caches and state, and so nothing that a saving could be claimed on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dsp_gym.backends.flink.autoscaler_state import AutoscalerState, Sample
from dsp_gym.errors import MetricsError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Samples
from dsp_gym.whatif.history import JobHistory
from dsp_gym.whatif.model import FEW
from dsp_gym.whatif.sampled_history import Deployed, measured_history

__all__ = ["stored_history"]

_NEEDED = "NUM_RECORDS_IN"
_LACKS = (
    "the autoscaler stores neither latencies nor cache hit rates: memory levels cannot be "
    "compared, and lateness is known from the backlog alone"
)


def stored_history(
    state: AutoscalerState, spec: JobSpec, vertices: Mapping[str, str], interval_s: int
) -> JobHistory:
    """The history that a stored state holds.

    Args:
        state: of the job.
        spec: its job file.
        vertices: name in the job file by vertex id.
        interval_s: seconds between decisions.

    Returns:
        The history since the job last started, as far as the autoscaler remembers.

    Raises:
        MetricsError: It holds too little, or is of another job.
    """
    _refuse(state, spec, vertices)
    by_name = {vertices[key]: key for key in state.vertices}
    tasks = _tasks(state, spec, by_name)
    levels = Configuration.of_spec(spec).memory_level
    times = [one.t_s for one in state.samples]
    series = {}
    for vertex in spec.vertices:
        key = by_name[vertex.name]
        for metric, values in _series(state.samples, key, tasks[vertex.name]).items():
            series[vertex.name, 0, metric] = (times, values)
    notes = [_LACKS]
    pending = {key for key in series if key[2] == "pending_records"}
    if not any(any(series[key][1]) for key in pending):
        # A backlog of zero may be one that the source does not report: the autoscaler stores 0.
        series = {key: found for key, found in series.items() if key not in pending}
        notes.append("no backlog is known: every stored LAG is 0, as where a source reports none")
    if not state.parallelism:
        notes.append("the state tells no parallelism: that of the job file is taken")
    if state.rescales:
        notes.append(
            f"{state.rescales} earlier rescales are remembered, but not the load of their time"
        )
    found = measured_history(
        state.name,
        with_restarts(spec, state.restarts_s),
        Samples.of_series(series),
        [Deployed(times[0], Configuration(tasks, levels), math.nan)],
        interval_s,
        until_s=times[-1],
        notes=notes,
        is_dated=True,
    )
    found.stretches()
    return found


def with_restarts(spec: JobSpec, seconds: Sequence[float]) -> JobSpec:
    """The job with outages as long as those that were measured elsewhere.

    Returns:
        A copy; the job itself where too few are known.
    """
    if len(seconds) < FEW:
        return spec
    low, middle, high = np.quantile(seconds, (0.1, 0.5, 0.9)).tolist()
    rescale = spec.rescale.model_copy(update={"outage_s": (low, middle, high)})
    return spec.model_copy(update={"rescale": rescale})


def _refuse(state: AutoscalerState, spec: JobSpec, vertices: Mapping[str, str]) -> None:
    if len(state.samples) < 2:
        raise MetricsError(
            f"job '{state.name}': the autoscaler has stored {len(state.samples)} samples, "
            "but a backtest needs two",
            remedy="It forgets them when the job restarts: try again some minutes later, or take "
            "the history from Prometheus.",
        )
    unknown = sorted(state.vertices - set(vertices))
    missing = sorted({v.name for v in spec.vertices} - {vertices.get(k) for k in state.vertices})
    if unknown or missing:
        said = f"vertices {', '.join(unknown)} have no name" if unknown else ""
        said += f"{' and ' if said and missing else ''}"
        said += f"no id is known of {', '.join(missing)}" if missing else ""
        raise MetricsError(
            f"job '{state.name}': {said} in the job file '{spec.job}'",
            remedy="Name the running job, --flink URL or --selector LABELS, or give the names: "
            "--vertex HEX=NAME.",
        )
    if not any(_NEEDED in found for one in state.samples for found in one.metrics.values()):
        raise MetricsError(
            f"job '{state.name}': its samples hold no {_NEEDED}, as those of old operators",
            remedy="Take the history from Prometheus.",
        )


def _tasks(state: AutoscalerState, spec: JobSpec, by_name: Mapping[str, str]) -> dict[str, int]:
    """Tasks of every vertex; the autoscaler stores those it has asked for."""
    filed = Configuration.of_spec(spec).parallelism
    return {name: state.parallelism.get(key, filed[name]) for name, key in by_name.items()}


def _series(samples: Sequence[Sample], key: str, tasks: int) -> dict[str, list[float]]:
    """Metrics of one vertex as this project names them; NaN where a sample lacks one."""

    def of(name: str) -> list[float]:
        return [one.metrics.get(key, {}).get(name, math.nan) for one in samples]

    taken, given = of(_NEEDED), of("NUM_RECORDS_OUT")
    found = {
        "records_in_total": taken,
        # Of a source that counts no output what it has read is what it gave out.
        "records_out_total": given if np.nansum(given) > 0 else taken,
        "pending_records": of("LAG"),
    }
    busy = of("ACCUMULATED_BUSY_TIME")
    if np.isfinite(busy).any():
        found["busy_ms_total"] = [value / tasks for value in busy]  # of all subtasks
    else:
        found["busy_ms_per_s"] = [1000.0 * value for value in of("LOAD")]
    return {name: values for name, values in found.items() if np.isfinite(values).any()}
