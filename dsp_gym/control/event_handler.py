"""What went wrong in a turn of a live loop: the interface and the kind as data, then the words."""

from __future__ import annotations

from typing import NamedTuple

from dsp_gym.errors import Api, ApiError, ApiReason, DspGymError
from dsp_gym.redaction import redacted

__all__ = ["TurnFailure", "words"]


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
        """A job that could not be seen or scaled through its interfaces.

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
        """The failure as JSON values, for journals and answers.

        Returns:
            Stage and reason; interface and kind where one failed.
        """
        found: dict[str, object] = {"stage": self.stage, "reason": self.reason}
        return found if self.api is None else {**found, "api": self.api, "kind": self.kind}


def words(error: Exception) -> str:
    """An error in words: one of ours says everything, of another the type matters.

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
