"""A second process that stands by while a job is stopped, and submits it should this one die.

Between its stop and its resubmission a job runs nowhere, and only the process that stopped it knows
how it goes on. The second process is started before the stop is asked for, and holds the end of a
pipe: what it reads there is either that the rescale has ended, or, however this process dies, the
end of the pipe. Then it does what a restarted process would do, but at once.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ConfigDict

from dsp_gym.backends.flink.program import UserProgram
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import StorageError
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.finishing import stood_by

_LOG = logging.getLogger(__name__)

LOADED, STANDS_BY, ENDED = b"loaded\n", b"stands by\n", b"ended\n"
"""What the two say to each other: the second process the first two, this one the last."""

_PROGRAM = "dsp_gym.backends.flink.rescale.finishing"
_START_S = 30.0
"""Longest wait for the second process to stand by; the job runs on meanwhile."""

_END_S = 5.0


@dataclass(frozen=True, slots=True)
class StepJournal:
    """Where the steps of a rescale are written down.

    Args:
        folder: of the journal.
        policy: whose decisions are carried out.
    """

    folder: Path
    policy: str | None


class Order(ConfigModel):
    """What the second process is told; it goes through a pipe, for it may hold credentials."""

    model_config = ConfigDict(hide_input_in_errors=True)

    journal: Path
    policy: str | None
    rest_url: str
    timeout_s: float  # of a request
    access: AccessConfig | None
    job_name: str
    spec: JobSpec
    rescale_timeout_s: float
    next_id: str  # of the rescale that is about to begin
    arguments: dict[str, str]  # of the job, secret ones too: a journal hides those
    own: UserProgram | None = None


class Finisher:
    """Starts the second process for each rescale, and ends it with the rescale.

    Without one a rescale goes on all the same: an earlier crash is rarer than a job that is late.

    Args:
        journal: where this process writes its steps, and the second one continues.
        rest: the cluster.
        job_name: the job's name.
        spec: its job file.
        timeout_s: longest wait for a step of a rescale, s.
        own: the user's program that the job is of; None: the job file names one.
    """

    def __init__(
        self,
        journal: StepJournal,
        rest: FlinkRest,
        job_name: str,
        spec: JobSpec,
        timeout_s: float,
        own: UserProgram | None = None,
    ) -> None:
        self._own = own
        self._journal, self._rest, self._job_name = journal, rest, job_name
        self._spec, self._timeout_s = spec, timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The second process; None while there is none."""
        return None if self._process is None else self._process.pid

    def begin(self, next_id: str, arguments: Mapping[str, str]) -> None:
        """Have a second process stand by; the job may be stopped then.

        Args:
            next_id: Flink's id of the job to be submitted.
            arguments: of the job, as it runs.
        """
        order = Order(
            journal=self._journal.folder.absolute(),
            policy=self._journal.policy,
            rest_url=self._rest.url,
            timeout_s=self._rest.timeout_s,
            access=self._rest.access,
            job_name=self._job_name,
            spec=self._spec,
            rescale_timeout_s=self._timeout_s,
            next_id=next_id,
            arguments=dict(arguments),
            own=self._own,
        )
        try:
            self._process = _started(self._journal.folder)
            _order(self._process, order)
        except (OSError, StorageError) as error:
            _LOG.warning(
                "no second process stands by while job %s is rescaled, so a crash would leave it "
                "stopped until dsp-gym is back: %s",
                self._job_name,
                error,
            )
            self._drop()

    def end(self) -> None:
        """Tell the second process that the rescale has ended, and wait for its own end."""
        if self._process is None:
            return
        try:
            self._process.communicate(ENDED, timeout=_END_S)
        except (OSError, subprocess.TimeoutExpired):
            _LOG.warning("the second process of job %s did not end by itself", self._job_name)
        self._drop()

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


def _started(folder: Path) -> subprocess.Popen[bytes]:
    """Start it with the lock that says so; in a session of its own, which no Ctrl-C reaches."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    # It computes nothing: without the compiler it takes half of the memory and of the time.
    env = {**os.environ, "PYTHONPATH": path, "NUMBA_DISABLE_JIT": "1"}
    with stood_by(folder) as lock:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock.fileno(),),
            env=env,
            start_new_session=True,
        )


def _order(process: subprocess.Popen[bytes], order: Order) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    _hear(process.stdout, LOADED)
    process.stdin.write(order.model_dump_json(by_alias=True).encode() + b"\n")
    process.stdin.flush()
    _hear(process.stdout, STANDS_BY)


def _hear(answers: IO[bytes], expected: bytes) -> None:
    """Wait for a line; it is written at once as a whole.

    Raises:
        OSError: It does not come.
    """
    ready, _, _ = select.select([answers], [], [], _START_S)
    if not ready:
        raise OSError(f"it did not start within {_START_S:g} s")
    if answers.readline() != expected:
        raise OSError("it has ended; its own words are above")
