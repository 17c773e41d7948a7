"""From the samples of a Prometheus to the vertices of a job."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest

from dsp_gym.backends.discovery.prometheus import found_by_prometheus
from dsp_gym.backends.flink.patient import PatientSamples
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.errors import FlinkError
from dsp_gym.metrics.identity import Task
from dsp_gym.metrics.samples import Samples

NOW_S = 1000.0


class Scraped:
    """A Prometheus with one job, whose tasks take in records until they end."""

    labels, url = Labels(), "http://prometheus"

    def __init__(
        self,
        folded: frozenset[str] = frozenset(),
        pending: Callable[[float], float] | None = None,
        **ends_s: float,
    ) -> None:
        self.ends_s, self.folded, self.pending = ends_s, set(folded), pending

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
        if self.pending is not None:
            rows += [
                (t_s, place, subtask, "pending_records", self.pending(t_s - since_s))
                for t_s, place, subtask, metric, _ in rows
                if metric == "records_in_total"
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


@pytest.mark.parametrize(
    ("pending", "arriving_per_s"),
    [
        (None, 10.0),
        (lambda t_s: 50.0, 10.0),
        (lambda t_s: max(0.0, 590.0 - 20.0 * t_s), 8.0),  # 590 are caught up with in 295 s
        (lambda t_s: 5.0 * t_s, 15.0),  # the job falls behind
        (lambda t_s: 1e6 - 100.0 * t_s, 10.0),  # records that expired: nobody read them
    ],
)
def test_what_was_waiting_at_the_first_look_is_no_part_of_the_load(pending, arriving_per_s):
    source = cast("PatientSamples", Scraped(pending=pending, stream=NOW_S))
    (job,) = found_by_prometheus(source, NOW_S)
    assert job.vertices[0].read_per_s == pytest.approx(10.0)
    assert job.vertices[0].arriving_per_s == pytest.approx(arriving_per_s)


class ScrapedInTurn(Scraped):
    """A Prometheus that scrapes the TaskManagers, one subtask each, at different moments."""

    def __init__(self, scrape_s: float, subtasks: int, ended: int = 0) -> None:
        super().__init__(stream=NOW_S)
        self.scrape_s, self.subtasks, self.ended = scrape_s, subtasks, ended

    def of_job(
        self, job_id: str, job_name: str, since_s: float, until_s: float
    ) -> tuple[list[Task], Samples, set[str]]:
        rows = []
        for subtask in range(self.subtasks):
            begin_s = since_s + self.scrape_s * subtask / self.subtasks
            ends_s = until_s - (200.0 if subtask >= self.subtasks - self.ended else 0.0)
            moments = [begin_s + self.scrape_s * k for k in range(int(300 / self.scrape_s))]
            rows += [
                (t_s, "0", subtask, f"records_{way}_total", 10.0 * (t_s - since_s))
                for t_s in moments
                if t_s <= ends_s
                for way in ("in", "out")
            ]
        return [Task("stream", "Source: stream")], Samples.of(rows), set()


@pytest.mark.parametrize("scrape_s", [5.0, 15.0, 30.0, 60.0])
@pytest.mark.parametrize("subtasks", [1, 4, 10])
def test_subtasks_on_taskmanagers_that_are_scraped_in_turn_are_all_counted(scrape_s, subtasks):
    source = cast("PatientSamples", ScrapedInTurn(scrape_s, subtasks))
    (job,) = found_by_prometheus(source, NOW_S)
    assert job.vertices[0].parallelism == subtasks


@pytest.mark.parametrize("scrape_s", [15.0, 60.0])
def test_subtasks_that_have_ended_are_not_counted(scrape_s):
    source = cast("PatientSamples", ScrapedInTurn(scrape_s, subtasks=10, ended=3))
    (job,) = found_by_prometheus(source, NOW_S)
    assert job.vertices[0].parallelism == 7


class Broken(Scraped):
    """A Prometheus that fails when it is asked for the job's samples."""

    def of_job(
        self, job_id: str, job_name: str, since_s: float, until_s: float
    ) -> tuple[list[Task], Samples, set[str]]:
        raise FlinkError("it does not answer")


def test_a_job_that_cannot_be_described_ends_nothing_where_failures_are_collected():
    source = cast("PatientSamples", Broken())
    failed: list[FlinkError] = []
    assert found_by_prometheus(source, NOW_S, failed=failed) == []
    assert [str(one) for one in failed] == ["it does not answer"]
    with pytest.raises(FlinkError, match="it does not answer"):
        found_by_prometheus(source, NOW_S)
