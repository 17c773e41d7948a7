"""What goes wrong in a turn: the interface and the kind as data, then the words; and its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dsp_gym.arrays import finite
from dsp_gym.backends.base import Collector
from dsp_gym.control.guarded_policy import Judgement
from dsp_gym.control.journal_writer import JournalWriter, outcome_to_json
from dsp_gym.errors import Api, ApiError, ApiReason, DspGymError
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.wire import decision_to_json, snapshot_to_json
from dsp_gym.redaction import redacted


class TurnFailure(NamedTuple):
    """One thing that went wrong in a turn."""

    stage: str
    """collector, clock, policy, journal, actuator, outcome, report or account."""

    reason: str
    """A sentence for people; nothing is read out of it."""

    api: Api | None = None
    """The interface that failed; None: none did."""

    kind: ApiReason | None = None
    """How it failed; None: no interface did."""

    @classmethod
    def of_api(cls, stage: str, error: Exception) -> TurnFailure:
        """Name the interface by which a job could not be seen or scaled.

        An error that names no interface, such as of a backend of your own, counts as Flink's.

        Args:
            stage: of the turn.
            error: raised by the backend.

        Returns:
            The failure, with the error's own interface and reason.

        >>> TurnFailure.of_api("collector", TimeoutError("no answer"))[1:]
        ('TimeoutError: no answer', 'flink', 'Timeout')
        """
        if isinstance(error, ApiError):
            return cls(stage, str(error), error.api, error.reason)
        return cls(stage, words(error), "flink", _kind(error))

    def document(self) -> dict[str, object]:
        """Write the failure as JSON values, for journals and answers.

        Returns:
            Stage and reason; interface and kind where one failed.
        """
        found: dict[str, object] = {"stage": self.stage, "reason": self.reason}
        return found if self.api is None else {**found, "api": self.api, "kind": self.kind}


class EventHandler:
    """Collects what goes wrong in a turn, and writes it to the journal.

    Args:
        writer: the journal.
        acting: name of the policy whose decision counts.
    """

    def __init__(self, writer: JournalWriter, acting: str) -> None:
        self._writer, self._acting = writer, acting
        self.failures: list[TurnFailure] = []
        """Of the turn, in order."""

    def begin(self) -> None:
        """Begin a turn."""
        self.failures = []

    def fail(
        self,
        failed: TurnFailure,
        policy: str | None = None,
        *,
        written: bool = True,
        **more: str | None,
    ) -> None:
        """Take in one thing that went wrong.

        Args:
            failed: what it is.
            policy: whose fault it is; None: nobody's.
            written: False: it is written with the decision, or cannot be.
            more: further values of its entry.
        """
        self.failures.append(failed)
        if written:
            self._writer("error", {**failed.document(), **more}, policy=policy)

    def step(self, event: str, body: Mapping[str, object]) -> int | None:
        """Write a step of the acting policy.

        Returns:
            The number of its entry; None where it was not written.
        """
        return self._writer.step(event, body, self._acting)

    def write(
        self, seen: MetricsSnapshot, judged: Sequence[Judgement], decided: Mapping[str, object]
    ) -> int | None:
        """Write all about a decision; it is on disk when this returns, unless the disk fails.

        Args:
            seen: what was decided on.
            judged: what every policy made of it; none in mode off.
            decided: what is about to be asked of the job.

        Returns:
            The number of the entry that holds the decision; None where there is none.
        """
        writer, job, number = self._writer, seen.job(0), None
        with writer.decision():
            writer("snapshot", snapshot_to_json(job, writer.job), float(seen.t_s[0]))
            for failed in self.failures:
                writer("error", failed.document())
            for one in judged:
                if (failure := one.failure) is not None:
                    failed = TurnFailure("policy", failure.reason)
                    cause, by = failure.cause, failure.replaced_by
                    self.fail(failed, one.policy, cause=cause, replaced_by=by)
                proposed = decision_to_json(one.guarded.proposed, job, writer.job)
                writer("decision", proposed, policy=one.policy)
                allowed = decision_to_json(one.guarded, job, writer.job)
                writer("guard", allowed, policy=one.policy)
            if judged:
                number = self.step("decided", decided)
        return number

    def write_outcome(self, outcome: Outcome, collector: Collector) -> None:
        """Write what came of a decision, and how old the metrics are."""
        age_s = collector.age_s  # until then it was counted
        more = {
            "data_age_s": finite(age_s),
            "arrivals": list(collector.arrivals),
        }
        self._writer("outcome", {**outcome_to_json(outcome), **more})


def words(error: Exception) -> str:
    """Put an error in words: one of ours says everything, of another the type matters.

    Returns:
        A sentence without credentials.
    """
    if isinstance(error, DspGymError):
        return str(error)
    return redacted(f"{type(error).__name__}: {error}")


def _kind(error: Exception) -> ApiReason:
    if isinstance(error, TimeoutError):
        return "Timeout"
    return "Unreachable" if isinstance(error, ConnectionError) else "Other"
