"""From the samples of a Prometheus to the vertices of a job."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest

from dsp_gym.backends.discovery.prometheus import found_by_prometheus
from dsp_gym.backends.flink.patient import PatientSamples
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.metrics.identity import Task
from dsp_gym.metrics.samples import Samples

NOW_S = 1000.0


class Scraped:
    """A Prometheus with one job, whose tasks take in records until they end."""

    labels, url = Labels(), "http://prometheus"

    def __init__(self, folded: frozenset[str] = frozenset(), **ends_s: float) -> None:
        self.ends_s, self.folded = ends_s, set(folded)

    def reading(self) -> nullcontext[None]:
        return nullcontext()

    def values(self, expression: str, at_s: float) -> list[tuple[dict[str, Any], float]]:
        job = {"job_id": "a1", "job_name": "branches"}
        return (
            [(job, 1.0)]
            if "numRecordsOut" in expression and "job_id,job_name" in expression
            else []
        )

    def of_job(
        self, job_id: str, job_name: str, since_s: float, until_s: float
    ) -> tuple[list[Task], Samples, set[str]]:
        tasks = [Task(name, f"Source: {name}") for name in self.ends_s]
        rows = [
            (float(t_s), str(place), 0, f"records_{way}_total", 10.0 * (t_s - since_s))
            for place, ends_s in enumerate(self.ends_s.values())
            for t_s in range(int(since_s), int(min(until_s, ends_s)), 5)
            for way in ("in", "out")
        ]
        return tasks, Samples.of(rows), self.folded


@pytest.mark.parametrize(
    ("ends_s", "left"),
    [(NOW_S, ["stream", "table"]), (NOW_S - 10, ["stream", "table"]), (NOW_S - 60, ["stream"])],
)
def test_a_vertex_that_has_ended_is_left_out(ends_s, left):
    source = cast("PatientSamples", Scraped(stream=NOW_S, table=ends_s))
    (job,) = found_by_prometheus(source, NOW_S)
    assert [vertex.id for vertex in job.vertices] == left
    assert [vertex.in_per_s for vertex in job.vertices] == pytest.approx([10.0] * len(left))


@pytest.mark.parametrize("folded", [frozenset(), frozenset({"replica"})])
def test_a_note_names_the_label_of_copies(folded):
    source = cast("PatientSamples", Scraped(folded, stream=NOW_S, table=NOW_S))
    (job,) = found_by_prometheus(source, NOW_S)
    notes = [note.text for note in job.notes if "counted once" in note.text]
    assert notes == ["series that differ in replica alone were counted once"] * len(folded)
