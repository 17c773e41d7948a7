"""Where raw samples of a job come from."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dsp_gym.metrics.samples import Samples

__all__ = ["SampleSource"]


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
