"""Where raw samples of a job come from, and whose they are."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import Observed

__all__ = ["FollowedJob", "SampleSource"]


class FollowedJob(Protocol):
    """One real job, followed over its restarts."""

    @property
    def trouble(self) -> str | None:
        """Why the last look failed; None where it did not."""

    @property
    def job_id(self) -> str:
        """Flink's id of the job now.

        Raises:
            FlinkError: There is none.
        """

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids the job is known to have had, the newest last."""

    def observe(self, now_s: float) -> Observed:
        """Status and configuration at `now_s`, Unix seconds."""


@runtime_checkable
class SampleSource(Protocol):
    """Raw samples of one job: Prometheus, Flink's REST interface, or a recording."""

    def samples(self, since_s: float, until_s: float) -> Samples:
        """Samples with since_s < t_s <= until_s, Unix seconds, each at the time it was taken.

        Raises:
            FlinkError: Nothing is known of that time. No sample at all is an answer, not an error.
        """

    def poll(self) -> None:
        """Called about every 5 s by whoever waits; a source that keeps no history asks now."""
