"""What recording costs: throughput of a saturated job with and without it, in interleaved pairs.

    python -m dsp_gym.studies.validation.overhead [--pairs 8] [--out FILE.json]

Recording is Prometheus scraping the cluster every 5 s and the range query a recorder makes at the
end of a run. One job runs throughout; what changes from window to window is whether it is recorded,
in an order that alternates (on off, off on, ...), so that a drift of the machine cancels out.
RocksDB's metrics and the sampled state latencies are on in both.

The job is saturated as recorded jobs are: eight tasks read RocksDB and pay `CPU_US` per record by
parking. Without any parking, throughput on two shared cores differs by tens of percent from one
window to the next, and no overhead can be told from it.
"""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path
from typing import Annotated

import typer

from dsp_gym.backends.flink.job import FlinkJob
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.prometheus import PrometheusSamples
from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.errors import FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.studies.runner import run, write_figures
from dsp_gym.studies.running import constant_load, submitted

JOB = "flink-micro-read"
SETTLE_S, WINDOW_S = 5.0, 20.0
SATURATE = 1e6
TASKS, CPU_US = 8, 100
_FETCH_S = 10.0
"""Longest wait for values that Flink has fetched again; it takes tens of milliseconds."""


def interval(losses: list[float]) -> tuple[float, float, float]:
    """Mean of paired relative losses and its 95 % interval (Student's t).

    Returns:
        (mean, lower end, upper end), as shares: 0.01 is 1 %.

    >>> tuple(round(x, 3) for x in interval([0.01, 0.02, 0.03, 0.02]))
    (0.02, 0.007, 0.033)
    """
    from scipy.stats import t

    mean = statistics.fmean(losses)
    half = float(t.ppf(0.975, len(losses) - 1)) * statistics.stdev(losses) / math.sqrt(len(losses))
    return mean, mean - half, mean + half


def main(
    pairs: Annotated[int, typer.Option(min=4, help="Pairs of windows.")] = 8,
    out: Annotated[Path | None, typer.Option(help="Where the figures are written.")] = None,
    home: Annotated[Path | None, typer.Option(help="Folder of the local cluster.")] = None,
) -> None:
    """Measure the overhead of recording on the local cluster."""
    cluster, spec = LocalCluster.attach(home), load_job(JOB)
    start = Configuration.of_spec(spec)
    tasks = Configuration(
        {**start.parallelism, "state": TASKS},
        {**start.memory_level, "state": spec.memory.levels - 1},
    )
    load = constant_load(SATURATE, **{"cpu-us": f"state={CPU_US}"})
    with submitted(cluster.rest, spec, "overhead", load, tasks) as job_id:
        time.sleep(30.0)
        try:
            rows = [
                _pair(cluster, spec, job_id, first_on=not number % 2) for number in range(pairs)
            ]
        finally:
            cluster.start("prometheus")
    mean, low, high = interval([1.0 - row["on"] / row["off"] for row in rows])
    write_figures(
        {"pairs": rows, "loss": mean, "low": low, "high": high, "holds": high < 0.05}, out
    )


def _pair(cluster: LocalCluster, spec: JobSpec, job_id: str, *, first_on: bool) -> dict[str, float]:
    """Records per second with and without collection, by `on` and `off`."""
    row = {}
    for on in (first_on, not first_on):
        change = cluster.start if on else cluster.stop
        change("prometheus")
        time.sleep(SETTLE_S)
        began_s = time.time()
        before, begun = _received(cluster.rest, job_id, "state")
        time.sleep(WINDOW_S)
        after, ended = _received(cluster.rest, job_id, "state")
        row["on" if on else "off"] = (after - before) / (ended - begun)
        if on and cluster.prometheus_url is not None:
            job = FlinkJob(cluster.rest, "overhead", spec)
            PrometheusSamples(cluster.prometheus_url, job, spec).samples(began_s, time.time())
    return row


def _received(rest: FlinkRest, job_id: str, vertex: str) -> tuple[float, float]:
    """Records a vertex has taken in, and the monotonic second in which that was so.

    Flink answers with the values it fetched when it was last asked, then fetches new ones; those of
    a saturated job differ, so the first answer that does is of now.
    """
    found = next(v for v in rest.job(job_id)["vertices"] if v["name"] == vertex)
    path = f"/jobs/{job_id}/vertices/{found['id']}/subtasks/metrics?get=numRecordsIn&agg=sum"
    old, end = _sum(rest, path), time.monotonic() + _FETCH_S
    while (new := _sum(rest, path)) is None or new == old:
        if time.monotonic() > end:
            raise FlinkError(
                f"vertex {vertex!r} has taken in nothing, or Flink shows no new values",
                remedy="Look at the job: it should be saturated.",
            )
        old = new if old is None else old
        time.sleep(0.02)
    return new, time.monotonic()


def _sum(rest: FlinkRest, path: str) -> float | None:
    """The sum over subtasks; None while Flink has fetched nothing."""
    answer = rest.get(path)
    return float(answer[0]["sum"]) if answer else None


if __name__ == "__main__":
    run(main)
