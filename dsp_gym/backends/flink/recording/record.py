"""A recording from its plan: the missing runs are recorded on a real job.

A run is in the recording when it is over, so whatever ends this program costs at most the run it
was at; the same plan continues with the missing runs.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.recording.plan import RecordConfig, planned
from dsp_gym.backends.flink.recording.recorder import Recorder, Tell
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.manifest import MANIFEST
from dsp_gym.records.writer import RecordingWriter


def record(
    config: RecordConfig,
    out: Path,
    *,
    home: Path | None = None,
    tell: Tell = lambda progress: None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> RecordingWriter:
    """Record the runs of a plan that are missing.

    Args:
        config: the plan.
        out: folder of the recording; gone on with if it holds one of this plan.
        home: folder of the cluster; None: the default one. One that runs is used, else one is
            started and ended.
        tell: told how far it is.
        clock: Unix seconds.
        sleep: waits that many seconds.

    Returns:
        The recording's writer.

    Raises:
        ConfigError: The plan does not fit the job, or the folder holds a recording of another.
        StorageError: The folder holds something else, or cannot be made.
        FlinkError: The cluster cannot be had, ended, or other jobs run on it.
    """
    planned(config, load_job(config.job))  # fails before a cluster is started
    _kept(config, out)
    with _cluster_for(config, home) as cluster:
        writer = open_recording(config, out, cluster, clock)
        Recorder(config, cluster, writer, tell, clock, sleep).run()
    return writer


@contextlib.contextmanager
def _cluster_for(config: RecordConfig, home: Path | None) -> Iterator[LocalCluster]:
    """The cluster that runs in a folder, or one that is started and ended with the block."""
    running = _running(home)
    if running is not None:
        yield running
        return
    cluster = LocalCluster.up(config.cluster, home)
    try:
        yield cluster
    finally:
        cluster.down()


def _running(home: Path | None) -> LocalCluster | None:
    """The cluster of a folder if any part of it runs; whatever part does not is started."""
    cluster = LocalCluster.find(home)
    if cluster is None or all(part.state == "dead" for part in cluster.status().parts):
        return None
    return LocalCluster.up(None, home)


def open_recording(
    config: RecordConfig, out: Path, cluster: LocalCluster, clock: Callable[[], float] = time.time
) -> RecordingWriter:
    """Open the recording of a plan in a folder: a new one, or the one that is there.

    Returns:
        The recording's writer.
    """
    kept = _kept(config, out)
    if kept is not None:
        return kept
    with cluster.rest.reading():
        version = str(cluster.rest.overview()["flink-version"])
    environment: dict[str, object] = {
        "flink": version,
        "cluster": cluster.settings.model_dump(mode="json"),
        "plan": config.model_dump(mode="json", exclude={"cluster"}),
    }
    spec = load_job(config.job)
    return RecordingWriter.create(
        out, spec, environment, started_unix_s=clock(), plan_sha256=config.sha256(spec)
    )


def _kept(config: RecordConfig, out: Path) -> RecordingWriter | None:
    """The recording that is in a folder; None where one can be begun."""
    if not (out / MANIFEST).exists():
        RecordingWriter.make_folder(out)
        return None
    writer = RecordingWriter.resume(out)
    if writer.manifest.plan_sha256 != config.sha256(load_job(config.job)):
        raise ConfigError(
            "holds a recording of another plan or job file",
            file=out,
            remedy="Name another folder with --out, or remove this one.",
        )
    return writer
