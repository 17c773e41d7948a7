"""A running job as a backend: under which name it is acted on."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.file_lease import FileLease
from dsp_gym.backends.flink.connection import connect, reach
from dsp_gym.metrics.window import WindowConfig
from tests.fakes.justin_endpoint import served
from tests.fakes.resubmitting import ResubmittingCluster
from tests.simulating import line, wanted

FIRST = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", ["my line", "my_line"])  # Flink's, and Prometheus' label
def test_a_job_is_acted_on_under_the_name_that_flink_has(tmp_path, name):
    jar = tmp_path / "jobs.jar"
    jar.write_bytes(b"a jar")
    cluster = ResubmittingCluster(jar, tmp_path / "savepoints")
    own = {"job-name": "my line", "parallelism": "source=4,map=1,sink=1", "rate": "5"}
    own["managed-mib"] = "source=158,map=158,sink=158"
    cluster.start(FIRST, {"program": "micro-update", "slot-sharing": "per-vertex", **own})
    leases = tmp_path / "leases"
    with served(cluster) as url:
        place = PlaceConfig(
            rest_url=url, metrics="rest", savepoints=str(tmp_path / "savepoints"),
            lease=str(leases),
        )  # fmt: skip
        events: dict[str, dict] = {}
        backend = connect(
            reach(place), line(flink={"program": "micro-update", "jar": str(jar)}), name,
            WindowConfig(window_s=30, stabilization_s=20), apply=True,
            on_event=lambda kind, body: events.update({kind: body}),
        )  # fmt: skip
        assert backend.platform.leadership.name == FileLease(leases, "my line").name
        with closing(backend):
            backend.actuator.apply(wanted(np.array([[4, 3, 1]]), np.array([[0, 0, 0]])))
    assert {body["job"] for body in events.values()} == {"my line"}
    assert events["stopping"]["job_name"] == "my line"
    assert list(events)[-1] == "reached"
    assert [job.arguments["job-name"] for job in cluster.alive()] == ["my line"]
