"""A run of one job on a real Flink, from its submission to the last record."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import Place, connect, reach
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.rest import ENDED
from dsp_gym.backends.flink.submission import Submission, load_arguments
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.turn import Turn
from dsp_gym.errors import FlinkError
from dsp_gym.evaluation.validation import ValidationConfig
from dsp_gym.records.journal import Journal
from dsp_gym.studies.policies_on_flink.loop import acting, totals
from dsp_gym.studies.policies_on_flink.runs import KeptRuns, RealRun, ValidationRun
from dsp_gym.studies.running import CountedRecords, drained, on_the_beat
from dsp_gym.version import __version__

LEADS_S = (8.0, 25.0, 60.0)
"""From a submission to the first second of the load, s; the first job of a cluster takes longer."""

READY_S = 1.0
"""How long before its load a job has to run, s."""

DRAIN_S = 180.0
"""Longest wait for the last records."""

LEAST_KNOWN = 0.95
"""Share of a run whose outcome has to be known."""

CANCEL_S = 60.0


def drive(
    run: ValidationRun,
    cluster: LocalCluster,
    kept: KeptRuns,
    tell: Callable[[float], None] = lambda seconds: None,
) -> RealRun:
    """Let a policy scale its own real job.

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
    config = kept.config
    actuator = "resubmit" if run.case.job.rescaling == "savepoint" else "adaptive"
    place = reach(PlaceConfig(home=cluster.home.folder, actuator=actuator))
    folder = kept.journal(run)
    shutil.rmtree(folder, ignore_errors=True)  # one that was begun is of a run that did not end
    outages_s: list[float] = []
    _cancel(place, _job_name(run))  # that of a program that was killed
    with ExitStack() as ends:
        ends.callback(_cancel, place, _job_name(run))
        epoch_s = _submitted(run, place, config, folder.parent / "loads")
        turns, counted = _watched(run, place, config, folder, epoch_s, outages_s, tell)
    found = totals(turns)
    if found.seconds < LEAST_KNOWN * config.seconds:
        raise FlinkError(
            f"only {found.seconds:.0f} of {config.seconds} s of the run were observed",
            remedy=f"Its journal has the reason: {folder}",
        )
    return RealRun(
        of=kept.depends_on(run),
        started=time.strftime("%Y-%m-%d %H:%M", time.gmtime(epoch_s)),
        version=__version__,
        flink=str(place.rest.overview()["flink-version"]),
        turns=len(turns),
        outages_s=tuple(outages_s),
        due=float(np.floor(run.case.rates.sum())),
        emitted=counted.emitted,
        received=counted.received,
        expected=counted.expected,
        **found.model_dump(),
    )


def _job_name(run: ValidationRun) -> str:
    return f"validate-{run.name}"


def _submitted(run: ValidationRun, place: Place, config: ValidationConfig, loads: Path) -> float:
    """Submit the job so that it runs when its load begins; return when that is, Unix seconds."""
    for lead_s in LEADS_S:
        epoch_s = float(np.ceil(time.time() + lead_s))
        load = load_arguments([*run.case.rates, 0.0], loads, round(1000 * epoch_s))
        given = load | {"seed": str(run.repetition), "latency-s": str(config.latency_s)}
        Submission.of_spec(run.case.spec, given, _job_name(run)).submit(place.rest, run.case.start)
        if time.time() < epoch_s - READY_S:
            return epoch_s
        _cancel(place, _job_name(run))
    raise FlinkError(f"the job took more than {LEADS_S[-1] - READY_S:g} s to come up")


def _watched(
    run: ValidationRun,
    place: Place,
    config: ValidationConfig,
    folder: Path,
    epoch_s: float,
    outages_s: list[float],
    tell: Callable[[float], None],
) -> tuple[list[Turn], CountedRecords]:
    """Decide on the beat of the load until it has ended, and count what arrived.

    Args:
        run: Which policy, job and load.
        place: The cluster.
        config: The validation.
        folder: Of the journal.
        epoch_s: When the load begins, Unix seconds.
        outages_s: Takes in the outages of rescales, savepoints left out.
        tell: Told how many seconds of the load have passed.

    Returns:
        The decisions with their outcomes, and the records.
    """
    name, turns = _job_name(run), list[Turn]()
    with Journal(folder, durable=False) as written:
        writer = JournalWriter(written, name, run.policy.name)

        def heard(kind: str, body: dict[str, object]) -> None:
            writer.step(kind, body)
            outage_s = body.get("outage_s")
            if kind == "running" and isinstance(outage_s, float):
                outages_s.append(outage_s)

        backend = connect(
            place, run.case.spec, name, config.real_window, apply=True, on_event=heard
        )
        with closing(backend):
            loop = acting(config, run.case, run.policy, backend, writer, epoch_s)
            for turn in on_the_beat(loop, epoch_s, config.seconds):
                turns.append(turn)
                tell(float(len(turns) * config.real_interval_s))
        return turns, drained(backend.collector.source, run.case.spec, DRAIN_S)


def _cancel(place: Place, name: str) -> None:
    for job in place.rest.jobs():
        if job.name == name and job.state not in ENDED:
            place.rest.cancel(job.id)
            place.rest.wait_for(job.id, ENDED, CANCEL_S)
