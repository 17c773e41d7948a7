"""Histories from journals: the job as it was observed, and the decisions beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import job_of
from dsp_gym.errors import ConfigError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.shipped import folder_of
from dsp_gym.whatif.history import Decided, JobHistory, WatchedPolicy
from dsp_gym.whatif.journal import ObservedRun, journal_of
from dsp_gym.whatif.rescales import down_share, drawn_outages_s, outages_s


def journal_histories(folder: str | Path, spec: JobSpec | None = None) -> list[JobHistory]:
    """The histories that a journal holds; each model is that of the run's configuration.

    Args:
        folder: of the journal, or the name of a shipped one.
        spec: the model of its only job; None: that of the configuration.

    Returns:
        One for each job.
    """
    place = folder_of("journals", folder)
    reader = journal_of(place)
    jobs: list[str | None] = [*reader.jobs] or [None]  # without a job the reader says why
    return [history_of_run(reader.run(job), place, spec) for job in jobs]


def history_of_run(run: ObservedRun, place: str | Path, spec: JobSpec | None = None) -> JobHistory:
    """The history of an observed run, with the job's model.

    Args:
        run: the observed run.
        place: of its journal, for errors.
        spec: the job's model; None: that of the journal's configuration.

    Returns:
        The history, slot by slot as the run decided.

    Raises:
        ConfigError: The journal holds no configuration, or the model is of another job, or its
            prices are in another currency.
    """
    config, model = _configured(run, place, spec)
    order = _order(run, model, place)
    _refuse_currencies(run, model, place)
    after = run.next_up()[np.minimum(np.arange(len(run)) + 1, len(run) - 1)]
    seconds = run.outcome["seconds"]
    long_s = np.maximum(seconds, 1.0)
    arrived = run.outcome["arrived"].copy()
    for restart in run.restarts():  # no policy asked for it
        arrived[restart] = np.nan
    settled = run.up[after]
    settled[-1:] = False
    history = JobHistory(
        name=run.job,
        spec=model,
        t_s=run.t_s,
        interval_s=run.interval_s,
        seconds=seconds,
        arrived=arrived,
        parallelism=run.parallelism[:, order],
        memory_level=run.memory_level[:, order],
        wanted=run.parallelism[after][:, order],
        wanted_level=run.memory_level[after][:, order],
        settled=settled,
        late=np.clip(run.outcome["slo_s"] / long_s, 0.0, 1.0),
        lag_s=run.outcome["pending_s"],
        latency_s=run.outcome["latency_p95_s"],
        cost_per_h=_known_cost(run, long_s),
        rescales=run.outcome["rescales"],
        pending=run.pending[:, order],
        outage_s=outages_s(run),
        running_since_s=run.running_since_s,
        age_s=run.age_s,
        arrivals=run.arrivals,
        drawn_outages_s=drawn_outages_s(run, model),
        down_share=down_share(run),
        simulated=run.simulated,
        notes=tuple(run.notes()),
        is_dated=not run.simulated,
        watched=None if config is None else WatchedPolicy(config, _decided(run, order), run.held_s),
    )
    return history if config is None else replace(history, window=config.window)


def _configured(
    run: ObservedRun, place: str | Path, spec: JobSpec | None
) -> tuple[RunConfig | None, JobSpec]:
    """The configuration of a run, and the job's model."""
    if run.configuration is not None:
        config = parse(RunConfig, dict(run.configuration), str(place))
        return config, spec or job_of(config)
    if spec is None:
        raise ConfigError(
            "does not hold the configuration of its run",
            file=place,
            remedy="Name the job's file: --jobs FILE",
        )
    return None, spec


def _decided(run: ObservedRun, order: list[int]) -> dict[str, Decided]:
    """The decisions beside the job, vertices in the model's order."""
    return {
        name: replace(
            one,
            parallelism=one.parallelism[:, order],
            memory_level=one.memory_level[:, order],
            proposed=one.proposed[:, order],
        )
        for name, one in run.decided.items()
    }


def _known_cost(run: ObservedRun, long_s: Floats) -> Floats:
    return np.asarray(3600.0 * run.outcome["cost"] / long_s)


def _order(run: ObservedRun, spec: JobSpec, place: str | Path) -> list[int]:
    """Columns of the run in the model's order."""
    if {v.name for v in spec.vertices} != set(run.vertices):
        raise ConfigError(
            f"job '{spec.job}' has {', '.join(v.name for v in spec.vertices)}; the journal is of "
            f"a job with {', '.join(run.vertices)}",
            file=place,
            remedy="Name the file of the journal's job: --jobs FILE",
        )
    return [run.vertices.index(vertex.name) for vertex in spec.topological_order()]


def _refuse_currencies(run: ObservedRun, spec: JobSpec, place: str | Path) -> None:
    """What was paid and what is predicted are compared, so they are in one currency."""
    wrong = [found for found in run.currencies if found != spec.prices.currency]
    if wrong:
        raise ConfigError(
            f"the journal's costs are in {wrong[0]}, the prices of job '{spec.job}' in "
            f"{spec.prices.currency}; costs in two currencies are not compared",
            file=place,
            key="prices.currency",
            remedy="Name a job file with the journal's prices: --jobs FILE",
        )
