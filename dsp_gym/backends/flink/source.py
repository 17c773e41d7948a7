"""Where raw samples of a job come from, and whose they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import Protocol, runtime_checkable

from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import Samples
from dsp_gym.metrics.window import Observed


class RealJob(ABC):
    """One real job, followed over its restarts: Flink gives it another id at every submission.

    `trouble` says why the last look failed; None if it did not.

    Args:
        name: its name in Flink.
        spec: its job file.
    """

    def __init__(self, name: str, spec: JobSpec) -> None:
        self.name, self.spec = name, spec
        self.trouble: FlinkError | None = None
        self._ids: list[str] = []

    @property
    @abstractmethod
    def job_id(self) -> str:
        """Flink's id of the job now.

        Raises:
            FlinkError: No job of that name is running, or several are.
        """

    @property
    def names(self) -> tuple[str, ...]:
        """Names that Flink may know the job by; none: not known."""
        return (self.name,)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids the job is known to have had, the newest last."""
        return tuple(self._ids)

    @abstractmethod
    def observe(self, now_s: float) -> Observed:
        """Look at the job; `trouble` says what cannot be had.

        Args:
            now_s: Unix seconds.

        Returns:
            Its status and configuration then.
        """

    def _remembered(self, job_id: str) -> str:
        self._ids = [known for known in self._ids if known != job_id] + [job_id]
        return job_id


@runtime_checkable
class SampleSource(Protocol):
    """Raw samples of one job: Prometheus, Flink's REST interface, or a recording."""

    @property
    def folded(self) -> Collection[str]:
        """Labels of series that were left out as copies of others; empty without labels."""

    def samples(self, since_s: float, until_s: float) -> Samples:
        """Samples with since_s < t_s <= until_s, Unix seconds.

        Returns:
            The samples, each at the time it was taken.

        Raises:
            FlinkError: The source does not cover that time. An empty answer is no error.
        """

    def poll(self) -> None:
        """Take a sample now, if the source keeps no history; called about every 5 s."""
