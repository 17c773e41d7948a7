"""A real Prometheus with a history that a test gave it."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local.distribution import find_prometheus
from dsp_gym.backends.flink.local.processes import free_ports
from dsp_gym.backends.flink.local.prometheus_server import (
    is_ready,
    prometheus_command,
    prometheus_config,
)
from dsp_gym.errors import FlinkError
from dsp_gym.metrics.flink import BY_NAME
from dsp_gym.metrics.samples import Samples

__all__ = ["Submitted", "backfilled"]


@dataclass(frozen=True)
class Submitted:
    """Samples of one submission of a job, as Flink's reporter would have shown them."""

    samples: Samples
    job_id: str
    job_name: str
    task_ids: Mapping[str, str] = field(default_factory=dict)  # by vertex; else made of its name
    called: Mapping[str, str] = field(default_factory=dict)  # name of the task by vertex
    labels: Mapping[str, str] = field(default_factory=dict)  # another name by Flink's

    def exposed(self) -> str:
        """OpenMetrics text."""
        series: dict[str, list[str]] = {}
        for t_s, vertex, subtask, name, value in self.samples.rows():
            metric = BY_NAME[name]
            if metric.scope == "taskmanager":
                continue
            prefix = "flink_taskmanager_job_task_" + ("operator_" * (metric.scope == "operator"))
            labels = {
                "job_id": self.job_id,
                "job_name": self.job_name,
                "task_name": self.called.get(vertex, vertex),
                "task_id": self.task_ids.get(vertex, f"id-{vertex}"),
                "tm_id": "tm-1",
                "subtask_index": str(max(subtask, 0)),
            }
            if metric.quantile is not None:
                labels["quantile"] = str(metric.quantile)
            told = ",".join(f'{self.labels.get(k, k)}="{v}"' for k, v in labels.items())
            full = prefix + metric.flink[0].replace(".", "_").replace("-", "_")
            point = f"{full}{{{told}}} {value / metric.scale!r} {t_s:.3f}"
            series.setdefault(full, []).append(point)
        lines = []
        for name, points in series.items():
            lines += [f"# TYPE {name} gauge", *sorted(points, key=_in_order)]
        return "\n".join([*lines, "# EOF"]) + "\n"


def _in_order(point: str) -> tuple[str, float]:
    series, _, rest = point.partition("} ")
    return series, float(rest.split()[-1])


@contextmanager
def backfilled(folder: Path, parts: Sequence[Submitted]) -> Iterator[str]:
    """Runs a Prometheus that scrapes nothing and has that history.

    Yields:
        Its address.
    """
    try:
        program = find_prometheus()
    except FlinkError as error:
        pytest.skip(str(error))
    tool = shutil.which("promtool") or str(program.with_name("promtool"))
    for number, part in enumerate(parts):
        text = folder / f"{number}.om"
        text.write_text(part.exposed())
        command = [tool, "tsdb", "create-blocks-from", "openmetrics", str(text)]
        subprocess.run([*command, str(folder / "data")], check=True, capture_output=True)
    (folder / "prometheus.yml").write_text(prometheus_config(5, []))
    (port,) = free_ports(1)
    command = prometheus_command(
        program, config=folder / "prometheus.yml", storage=folder / "data", port=port,
        retention_days=36_500,
    )  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + 120
        while not is_ready(url):
            assert time.monotonic() < until, "Prometheus did not start"
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        process.wait(30)
