"""A run from its configuration: everything that can be wrong is found before the first decision."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dsp_gym.guardrails.chain import build_for
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.live.config import RunConfig
from dsp_gym.live.connection import reach, watched
from dsp_gym.live.limits import bounded, slots_within_reach
from dsp_gym.live.run import LiveRun, Notes, Turn
from dsp_gym.loop.journal import Journal
from dsp_gym.policies.registry import make

__all__ = ["job_of", "journal_folder", "started"]


def job_of(config: RunConfig) -> JobSpec:
    """The job file, with the objective of the run."""
    spec = load_job(config.job)
    return spec if config.slo is None else spec.model_copy(update={"slo": config.slo})


def journal_folder(config: RunConfig) -> Path:
    """Where the journal of the run's job stands."""
    return config.journal / (config.job_name or job_of(config).job)


@contextmanager
def started(
    config: RunConfig,
    *,
    apply: bool,
    journal: Path | None = None,
    on_decision: Callable[[Turn], None] | None = None,
    on_turn: Callable[[Turn], None] | None = None,
    on_event: Callable[[str, dict[str, Any]], None] | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[LiveRun]:
    """A run that is ready to decide; when the block ends, nothing is under way and the job runs.

    Args:
        config: what to run.
        apply: False: a dry run.
        journal: folder of the journal; default: the configuration's.
        on_decision: called with every decision when it was made.
        on_turn: called with every decision when its interval has passed.
        on_event: called with every step of the actuator, from its thread.
        clock: Unix seconds.
        sleep: waits that many seconds.
    """
    spec, policy = job_of(config), make(config.policy)
    name = config.job_name or spec.job
    build_for(policy, config.guardrails)  # a wrong name is refused before the cluster is asked
    place = reach(config.where)
    with Journal(journal or config.journal / name) as written:
        notes = Notes(written, name, policy.name, clock)

        def step(kind: str, body: dict[str, Any]) -> None:
            notes.step(kind, body)
            if on_event is not None:
                on_event(kind, body)

        jobs = watched(
            place, spec, name, config.window, apply=apply, on_event=step, clock=clock, sleep=sleep
        )
        try:
            seen = jobs.snapshot()
            running = dict(zip(seen.topology.names(0), seen.parallelism[0].tolist(), strict=False))
            slots = config.max_slots or slots_within_reach(place.rest, spec, running)
            chain = build_for(policy, bounded(config.guardrails, spec, slots))
            yield LiveRun(
                jobs, policy, chain, notes, applied=apply, interval_s=config.interval_s,
                seed=config.seed, clock=clock, on_decision=on_decision, on_turn=on_turn,
            )  # fmt: skip
        finally:
            jobs.close()
