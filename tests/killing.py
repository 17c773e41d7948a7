"""A rescale in a process that is killed (kill -9) at a named point, and the next start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.backends.base import INTENTS, Clock
from dsp_gym.backends.flink.rescale.finisher import Finisher, StepJournal
from dsp_gym.backends.flink.rescale.resubmit import ResubmitActuator
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.config.files import parse
from dsp_gym.control.config import RunConfig
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.recovery import Recovery
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.finishing import wait_until_finished
from dsp_gym.records.journal import Journal, read
from dsp_gym.records.rescales import Unfinished
from tests.simulating import wanted

__all__ = ["POINTS", "Stage", "killed", "recovery_of", "restarted", "steps"]

POINTS = (
    "asked",
    "stopping",
    "stop was sent",
    "savepoint, not recorded",
    "savepoint",
    "stopped",
    "submitted",
    "submission under way",
    "running",
)
"""Where the process is killed: after that step was recorded, unless it says otherwise."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Stage:
    """A cluster, and where the rescale of its job is written down."""

    url: str
    spec: JobSpec
    savepoints: Path
    journal: Path
    poll_s: float = 0.01
    timeout_s: float = 10.0

    def notes(self, journal: Journal) -> JournalWriter:
        return JournalWriter(journal, self.spec.job, "test")

    def finisher(self, rest: FlinkRest) -> Finisher:
        kept = StepJournal(self.journal, "test")
        return Finisher(kept, rest, self.spec.job, self.spec, self.timeout_s)


def rescale(stage: Stage, tasks: tuple[int, ...], point: str, attended: bool = False) -> None:
    """Ask for so many tasks per vertex, and be killed at that point."""
    with Journal(stage.journal) as journal:
        notes = stage.notes(journal)

        def step(kind: str, body: dict) -> None:
            if point == f"{kind}, not recorded":
                die()
            (notes.intent if kind in INTENTS else notes.step)(kind, body)
            if point == kind:
                die()

        _die_while_asking(point)
        rest = FlinkRest(stage.url)
        actuator = ResubmitActuator(
            rest,
            stage.spec.job,
            stage.spec,
            stage.savepoints,
            timeout_s=stage.timeout_s,
            poll_s=stage.poll_s,
            on_event=step,
        )
        actuator.finisher = stage.finisher(rest) if attended else None
        levels = np.array([list(actuator._known.memory_level.values())])
        actuator.apply(wanted(np.array([tasks]), levels))
        actuator.wait(stage.timeout_s * 3)


def _die_while_asking(point: str) -> None:
    stop, run = FlinkRest.stop_with_savepoint, FlinkRest.run_program

    def stopped(*given):
        stop(*given)
        die()

    def submitted(*given):
        threading.Timer(0.02, die).start()
        return run(*given)

    if point == "stop was sent":
        FlinkRest.stop_with_savepoint = stopped
    elif point == "submission under way":
        FlinkRest.run_program = submitted


def killed(stage: Stage, tasks: tuple[int, ...], point: str, *, attended: bool = False) -> None:
    """Rescale in a process that ends by kill -9 at the point.

    Args:
        stage: the job.
        tasks: what is asked for.
        point: one of `POINTS`.
        attended: whether a second process stands by.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    child = context.Process(target=rescale, args=(stage, tasks, point, attended))
    child.start()
    child.join(120)
    assert child.exitcode == -signal.SIGKILL


def recovery_of(stage: Stage, mode: str, journal: Journal, url: str | None = None) -> Recovery:
    """The recovery of a run beside that cluster."""
    where = {
        "rest_url": url or stage.url,
        "metrics": "rest",
        "savepoints": str(stage.savepoints),
        "rescale_timeout_s": stage.timeout_s,
    }
    config = parse(RunConfig, {"job": stage.spec.job, "policy": "ds2", "where": where}, "run.yaml")
    return Recovery(config, stage.spec, mode, stage.notes(journal).step, Clock())


def restarted(stage: Stage, mode: str = "active", url: str | None = None) -> Unfinished | None:
    """What a run does before it connects to the job."""
    wait_until_finished(stage.journal, lambda: False)
    with Journal(stage.journal) as journal:
        return recovery_of(stage, mode, journal, url).before_connecting(stage.journal)


def steps(stage: Stage) -> list[str]:
    """Steps of actuators in the journal."""
    return [e.body["event"] for e in read(stage.journal) if e.kind == "actuation"]
