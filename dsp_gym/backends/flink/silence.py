"""A job that is not scraped, as opposed to one that has only just started."""

from __future__ import annotations

from dsp_gym.backends.flink.source import RealJob
from dsp_gym.errors import FlinkError
from dsp_gym.loop.snapshot import Status
from dsp_gym.metrics.window import WindowConfig

__all__ = ["SILENT_S", "refuse_silence"]

SILENT_S = 30.0
"""A job sampled for the first time later than this, after a whole window, is not scraped."""


def refuse_silence(
    prometheus_url: str | None,
    job: RealJob,
    window: WindowConfig,
    now_s: float,
    *,
    or_else: str = "",
) -> None:
    """Refuse a job without samples that has run long enough to be sampled.

    Args:
        prometheus_url: where its samples were looked for.
        job: the job.
        window: the metrics window, over which samples are averaged.
        now_s: Unix seconds.
        or_else: what can be done but to name another Prometheus.

    Raises:
        FlinkError: The job runs for longer than a window and half a minute, without any sample.
    """
    observed = job.observe(now_s)
    ran_s = now_s - observed.running_since_s
    if observed.status == Status.RUNNING and ran_s > window.window_s + SILENT_S:
        raise FlinkError(
            f"{prometheus_url}: Prometheus has no metrics of job {job.name!r}, which has run "
            f"for {ran_s:.0f} s",
            api="prometheus",
            reason="NoMetrics",
            key="prometheus_url",
            remedy=f"Name the Prometheus that scrapes its TaskManagers{or_else}.",
        )
