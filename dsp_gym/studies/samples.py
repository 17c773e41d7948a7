"""Makes the recordings and the journal that the package ships: `make samples`.

    python -m dsp_gym.studies.samples [--out FOLDER] [--home FOLDER]

Nexmark Q11 runs on a real Flink under a day of load that passes in eight minutes, and is recorded;
beside it a shadow watches. Then the same job runs saturated in three configurations, from which a
calibration learns its capacity. Twelve minutes in all; an interrupted recording goes on.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.recording.plan import RecordConfig
from dsp_gym.backends.flink.recording.record import open_recording
from dsp_gym.backends.flink.recording.recorder import Progress, Recorder
from dsp_gym.config import files
from dsp_gym.control.config import RunConfig
from dsp_gym.control.start import started
from dsp_gym.records.shipped import SAMPLES

DAY, CAPACITY = "flink-q11-day", "flink-q11-capacity"
SCRAPED_S = 10.0
"""By then Prometheus has samples of a job."""


def main(
    out: Annotated[Path, typer.Option(help="Folder of recordings and journals.")] = SAMPLES,
    home: Annotated[Path, typer.Option(help="Folder of the local cluster.")] = Path("runs/cluster"),
) -> None:
    """Record the shipped samples on a local cluster of their own."""
    cluster = LocalCluster.up(ClusterSettings(rest_port=0, prometheus_port=0), home)
    try:
        _record_watched(cluster, out, home)
        _recorder(cluster, CAPACITY, out).run()
    finally:
        cluster.down()
    for name in (DAY, CAPACITY):  # the rates as they were given to the job; the manifest has them
        shutil.rmtree(out / "recordings" / name / "loads", ignore_errors=True)
    (out / "journals" / DAY / "lock").unlink()


def _recorder(
    cluster: LocalCluster, name: str, out: Path, running: threading.Event | None = None
) -> Recorder:
    """Make the recorder of a plan; it sets `running` when a job runs."""
    plan = files.load_model(RecordConfig, "recordings", name)

    def tell(now: Progress) -> None:
        if running is not None and now.what == "running":
            running.set()

    return Recorder(plan, cluster, open_recording(plan, out / "recordings" / name, cluster), tell)


def _record_watched(cluster: LocalCluster, out: Path, home: Path) -> None:
    """Record the day, with a shadow beside it from its warm-up to shortly before its end."""
    running = threading.Event()
    recorder = _recorder(cluster, DAY, out, running)
    recorder.job_name = DAY
    recording = threading.Thread(target=recorder.run)
    recording.start()
    while recording.is_alive() and not running.wait(1.0):
        pass
    time.sleep(recorder.config.warm_up_s + SCRAPED_S)
    try:
        config = files.load_model(RunConfig, "shadow", DAY).model_copy(
            update={"job_name": recorder.job_name, "where": PlaceConfig(home=home)}
        )
        with started(config, journal=out / "journals" / DAY) as shadow:
            shadow.run(duration_s=recorder.config.seconds - 2 * SCRAPED_S)
    finally:
        recording.join()


if __name__ == "__main__":
    typer.run(main)
