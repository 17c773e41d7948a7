"""The status of every job that a process watches, by name; jobs come and go while others read."""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, replace

from dsp_gym.control.overview import CAUSES, JobLine, causes, headline, place, totals
from dsp_gym.control.serve.liveness import Liveness
from dsp_gym.control.serve.status import StatusBoard
from dsp_gym.errors import ConfigError, did_you_mean
from dsp_gym.loop.wire import Document

JOBS_SCHEMA = "dsp-gym/jobs/1"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A job that should be watched and cannot be."""

    namespace: str
    reason: str
    times: int  # that was tried


class Boards:
    """Boards by job.

    Args:
        board: the only one there ever is; None: whichever are put and dropped.
    """

    def __init__(self, board: StatusBoard | None = None) -> None:
        self._lock = threading.Lock()
        self._boards = {} if board is None else {board.run.writer.job: board}
        self._troubles: dict[str, Trouble] = {}
        self._is_one = board is not None
        self.trouble: str | None = None if board is not None else "no job was looked for yet"
        """Why nothing is known of what there is to watch; None: it is known."""

    def put(self, name: str, board: StatusBoard) -> None:
        """Add the board of a job that is watched."""
        with self._lock:
            self._boards[name] = board
            self._troubles.pop(name, None)

    def fail(self, name: str, namespace: str, reason: str) -> None:
        """Note that a job could not be watched, or no longer can be."""
        with self._lock:
            self._boards.pop(name, None)
            known = self._troubles.get(name)
            times = 1 if known is None else known.times + 1
            self._troubles[name] = Trouble(namespace, reason, times)

    def drop(self, name: str) -> None:
        """Forget a job that is no longer there, or no longer wanted."""
        with self._lock:
            self._boards.pop(name, None)
            self._troubles.pop(name, None)

    def all(self) -> dict[str, StatusBoard]:
        """List the boards of the jobs that are watched, by name.

        Returns:
            Status board by the name of the job, sorted.
        """
        with self._lock:
            return dict(sorted(self._boards.items()))

    def troubles(self) -> dict[str, Trouble]:
        """List the jobs that cannot be watched, by name.

        Returns:
            Reason and number of attempts by the name of the job, sorted.
        """
        with self._lock:
            return dict(sorted(self._troubles.items()))

    def of(self, name: str | None) -> StatusBoard:
        """Find the board of one job.

        Returns:
            The status board of the job.

        Raises:
            ConfigError: No job has that name, or there are several jobs and none is named.
        """
        known = self.all()
        if name is None and len(known) == 1:
            return next(iter(known.values()))
        if name is None:
            raise ConfigError(
                f"{len(known)} jobs are watched",
                key="job",
                remedy=f"Name one: {', '.join(known)}." if known else "See /v1/jobs.",
            )
        if name not in known:
            trouble = self.troubles().get(name)
            said = "no job of that name is watched" if trouble is None else trouble.reason
            raise ConfigError(said, key="job", value=name, remedy=did_you_mean(name, known))
        return known[name]

    def hanging(self, liveness: Liveness) -> str | None:
        """Look for a loop that has shown no sign of life for too long.

        Args:
            liveness: how long a loop may show none.

        Returns:
            Its job and since when, in a sentence; None while every loop is alive.
        """
        boards = self.all()
        longest_s = liveness.longest_s(len(boards))
        for name, board in boards.items():
            if (still_s := board.still_s()) > longest_s:
                return (
                    f"the loop of {name} hangs: no sign of life for {still_s:.0f} s, expected one "
                    f"within {longest_s:.0f} s"
                )
        return None

    def readiness(self) -> tuple[bool, str]:
        """Say whether a job was seen at its last decision, and put it in a sentence.

        Where a selector names the jobs, one job in trouble does not make the process unready; nor
        does a selector without jobs.

        Returns:
            Whether the process is ready, and the sentence that says why or why not.
        """
        known, troubles = self.all(), self.troubles()
        if self._is_one:
            (board,) = known.values()
            return board.is_ready, board.readiness()
        seen = [name for name, board in known.items() if board.is_ready]
        there = len(known) + len(troubles)
        if self.trouble is not None and not seen:
            return False, self.trouble
        said = f"{len(seen)} of {there} jobs are seen" if there else "no job is there to be watched"
        return bool(seen) or not there, said

    def document(self) -> Document:
        """Write a line on each job, and on all of them, `dsp-gym/jobs/1`.

        Returns:
            The document, one entry per job in order of the names; `fleet` has the order of what
            matters.
        """
        watched, lines = list[Document](), list[JobLine]()
        for name, board in self.all().items():
            line = replace(board.job_line(), name=name)
            lines.append(line)
            watched.append(_line(board, line))
        for name, one in self.troubles().items():
            watched.append(
                {"job": name, "namespace": one.namespace, "watched": False, "held": one.reason}
            )
            lines.append(JobLine(name, trouble=one.reason))
        return {
            "schema": JOBS_SCHEMA,
            "fleet": _fleet(lines),
            "jobs": sorted(watched, key=lambda job: job["job"]),
        }


def _fleet(lines: list[JobLine]) -> Document:
    return {
        "headline": headline(lines),
        "totals": [asdict(one) for one in totals(lines)],
        "late": [line.name for line in lines if line.late_since_s is not None],
        "causes": [asdict(one) for one in causes(lines)],
        "order": [line.name for line in sorted(lines, key=place)],
    }


def _line(board: StatusBoard, line: JobLine) -> Document:
    status = board.document()
    kept = ("namespace", "mode", "acting", "job_status", "held", "decisions_made", "t_s")
    conditions = {one["type"]: one["status"] for one in status["conditions"]}
    verdict = line.verdict
    return {
        "job": line.name,
        "watched": True,
        **{key: status[key] for key in kept},
        "conditions": conditions,
        "now": board.glance()._asdict(),
        "trouble": line.trouble,
        "cause": None if line.cause is None else CAUSES.get(line.cause, line.cause),
        "verdict": None if verdict is None else verdict.model_dump(mode="json"),
        "saving": board.saving(),
    }
