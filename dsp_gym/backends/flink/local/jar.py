"""Where the jar with the project's own Flink jobs lies."""

from __future__ import annotations

from pathlib import Path

from dsp_gym.errors import FlinkError

__all__ = ["jobs_jar"]

JAR = Path(__file__).resolve().parents[3] / "_jars" / "flink-jobs.jar"
"""Where `make flink-jobs` puts the jar, and a wheel carries it."""


def jobs_jar() -> Path:
    """Find the jar with the jobs of configs/jobs/flink-*.yaml.

    Returns:
        Its path.

    Raises:
        FlinkError: The jar was not built: a checkout before `make flink-jobs`, or a wheel of one.
    """
    if not JAR.is_file():
        raise FlinkError(
            "the jar with the Flink jobs has not been built",
            file=JAR,
            remedy="Build it in a checkout of dsp-gym, with a JDK 17: make flink-jobs",
        )
    return JAR
