"""A run on a real Flink: a job of its own, from its submission to the last record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dsp_gym import __version__
from dsp_gym.backends.base import Clock
from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import Place, connect, reach
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.control.notes import Notes
from dsp_gym.control.run import Turn
from dsp_gym.errors import FlinkError
from dsp_gym.evaluation.counterfactual.course import ObservedRun, read_course
from dsp_gym.evaluation.counterfactual.rescales import down_share, observed_outages_s
from dsp_gym.evaluation.validation.config import ValidationConfig
from dsp_gym.evaluation.validation.loop import RunTotals, acting, totals
from dsp_gym.evaluation.validation.records import CountedRecords, drained
from dsp_gym.evaluation.validation.runs import KeptRuns, RealRun, ValidationRun
from dsp_gym.records.journal import Journal

__all__ = ["drive"]

LEAD_S = 8.0
"""From the submission to the first second of the load, about a job's start-up."""

DRAIN_S = 60.0
"""Longest wait for the last records."""

LEAST_KNOWN = 0.95
"""Share of a run whose outcome has to be known."""

CANCEL_S = 60.0

_STEP_S = 1.0


def drive(
    run: ValidationRun,
    cluster: LocalCluster,
    kept: KeptRuns,
    tell: Callable[[float], None] = lambda seconds: None,
) -> RealRun:
    """Let a policy scale a real job of its own.

    Args:
        run: Which policy, job and load.
        cluster: Where; its scheduler is that of the job.
        kept: Where the journal is written.
        tell: Told how many seconds of the load have passed.

    Returns:
        What it cost.

    Raises:
        FlinkError: The job does not come up, or more than a twentieth of the run could not be
            seen.
    """
    config, case = kept.config, run.case
    actuator = "resubmit" if case.job.rescaling == "savepoint" else "adaptive"
    place = reach(PlaceConfig(home=cluster.home.folder, actuator=actuator))
    folder = _fresh(kept.journal(run))
    epoch_s = float(np.ceil(time.time() + LEAD_S))
    load = load_arguments([*case.rates, 0.0], folder.parent / "loads", round(1000 * epoch_s))
    name = f"validate-{run.name}"
    given = load | {"seed": str(run.repetition), "latency-s": str(config.latency_s)}
    submission = Submission.of_spec(case.spec, given, name)
    with _no_job_left(place, name):
        submission.submit(place.rest, case.start)
        turns, counted = _turns(run, place, name, config, folder, epoch_s, tell)
    found = totals(turns)
    if found.seconds < LEAST_KNOWN * config.seconds:
        raise FlinkError(
            f"only {found.seconds:.0f} of {config.seconds} s of the run could be seen",
            remedy=f"Its journal says why: {folder}",
        )
    began = time.strftime("%Y-%m-%d %H:%M", time.gmtime(epoch_s))
    flink = str(place.rest.overview()["flink-version"])
    return _result(run, kept, (found, counted, read_course(folder)), began, flink)


def _turns(
    run: ValidationRun,
    place: Place,
    name: str,
    config: ValidationConfig,
    folder: Path,
    epoch_s: float,
    tell: Callable[[float], None],
) -> tuple[list[Turn], CountedRecords]:
    """Decides on the beat of the load, so that an interval holds as many scrapes as the next."""
    case, turns, clock = run.case, [], Clock()
    with Journal(folder, durable=False) as written:
        notes = Notes(written, name, run.policy.name)
        backend = connect(
            place, case.spec, name, config.real_window, apply=True, on_event=notes.step, clock=clock
        )
        try:
            loop = acting(config, case, run.policy, backend, notes, epoch_s)
            _wait_until(clock, epoch_s)
            backend.advance(0)  # what came before the load is nobody's
            for number in range(1, config.seconds // config.real_interval_s + 1):
                decided = loop.decide()
                due_s = epoch_s + number * config.real_interval_s
                _wait_until(clock, due_s)
                turns.append(loop.finish(decided))
                tell(due_s - epoch_s)
        finally:
            backend.close()
        counted = drained(backend.collector.source, case.spec, DRAIN_S)
    return turns, counted


def _wait_until(clock: Clock, until_s: float) -> None:
    while (left_s := until_s - clock.now()) > 0:
        clock.wait(min(left_s, _STEP_S))


def _result(
    run: ValidationRun,
    kept: KeptRuns,
    seen: tuple[RunTotals, CountedRecords, ObservedRun],
    began: str,
    flink: str,
) -> RealRun:
    found, counted, course = seen
    return RealRun(
        of=kept.depends_on(run),
        started=began,
        version=__version__,
        flink=flink,
        seconds=found.seconds,
        cost=found.cost,
        late_s=found.late_s,
        down_s=found.down_s,
        rescales=found.rescales,
        turns=kept.config.seconds // kept.config.real_interval_s,
        failures=found.failures,
        outages_s=tuple(observed_outages_s(course, run.case.spec).values()),
        down_share=down_share(course),
        due=float(np.floor(run.case.rates.sum())),
        emitted=counted.emitted,
        received=counted.received,
        expected=counted.expected,
    )


def _fresh(folder: Path) -> Path:
    """An empty folder: a journal that was begun is of a run that did not end."""
    if folder.exists():
        for file in folder.iterdir():
            file.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def _no_job_left(place: Place, name: str) -> Iterator[None]:
    """Whatever happens inside, no job of that name runs before or afterwards."""
    _cancel(place, name)
    try:
        yield
    finally:
        _cancel(place, name)


def _cancel(place: Place, name: str) -> None:
    for job in place.rest.jobs():
        if job.name == name and job.state not in ENDED:
            place.rest.cancel(job.id)
            place.rest.wait_for(job.id, ENDED, CANCEL_S)
