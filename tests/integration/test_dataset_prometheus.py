"""A history is fetched from a real Prometheus, in chunks, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.config.files import parse
from dsp_gym.errors import DatasetError
from dsp_gym.metrics.samples import Samples
from spark_pipelines.config import DatasetConfig
from spark_pipelines.sources import prometheus
from spark_pipelines.sources.prometheus import Fetch
from tests.answering import answering
from tests.backfilled import Submitted, backfilled
from tests.dataset_inputs import day_of_samples, job_file
from tests.simulating import line

pytestmark = [pytest.mark.slow]

BEGIN_S = 1_772_326_800.0  # 2026-03-01T01:00:00Z
SECONDS = 1200
DOWN_S = 300.0


@dataclass(frozen=True)
class Served:
    """A Prometheus that has a history."""

    url: str
    samples: Samples


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Served]:
    samples = day_of_samples(0, SECONDS)
    first = samples.between(-np.inf, BEGIN_S + SECONDS - 600)
    second = samples.between(BEGIN_S + SECONDS - 600 + DOWN_S, np.inf)
    # One job that was resubmitted, and two of one name.
    parts = [Submitted(first, "a1", "line"), Submitted(second, "a2", "line")]
    parts += [Submitted(samples, "b1", "twice"), Submitted(samples, "b2", "twice")]
    with backfilled(tmp_path_factory.mktemp("prometheus"), parts) as url:
        yield Served(url, samples)


def config(url: str, job: str, **rest):
    source = {"kind": "prometheus", "url": url, "job": job, "since": "2026-03-01T01:00:00Z",
              "until": "2026-03-01T02:00:00Z", "chunk_s": 600, "queries_per_s": 200, "retries": 1,
              **rest}  # fmt: skip
    return parse(DatasetConfig, {"name": "d", "sources": [source]}, "test").sources[0]


def survey(url: str, tmp_path: Path, **rest):
    wanted = config(url, job_file(tmp_path), **rest)
    return prometheus.survey(wanted, "live", tmp_path / "dataset" / ".staging" / "live")


@pytest.mark.spark
def test_a_history_is_read_as_it_was_scraped(served, spark, tmp_path) -> None:
    facts = survey(served.url, tmp_path)
    assert facts.partitions() == {("line", "2026-03-01")}
    raw = prometheus.read(spark, facts, [("line", "2026-03-01")]).rows()
    found = Samples.of(
        (r["t_s"], r["vertex"], r["subtask"], r["metric"], r["value"]) for r in raw.collect()
    )
    for vertex in ("source", "map"):
        for metric in ("records_out_total", "busy_ms_total"):
            times, subtasks, values = found.grid(vertex, metric)
            expected = served.samples.grid(vertex, metric)
            kept = np.isin(expected[0], times)
            np.testing.assert_array_equal(times, expected[0][kept])
            np.testing.assert_array_equal(subtasks, expected[1])
            np.testing.assert_allclose(values, expected[2][kept], rtol=1e-12)
            assert np.sum(~kept) == DOWN_S / 5


def test_what_was_fetched_is_not_asked_for_again(served, tmp_path) -> None:
    wanted = config(served.url, job_file(tmp_path))
    fetch = Fetch(wanted, "live", line(), tmp_path / "kept")
    files = list(fetch.chunks())
    assert (len(files), fetch.fetched) == (6, 6)
    again = Fetch(wanted, "live", line(), tmp_path / "kept")
    assert list(again.chunks()) == files
    assert again.fetched == 0
    files[2].unlink()
    resumed = Fetch(wanted, "live", line(), tmp_path / "kept")
    assert list(resumed.chunks()) == files
    assert resumed.fetched == 1


def test_a_chunk_that_is_not_over_is_fetched_again(served, tmp_path) -> None:
    wanted = config(served.url, job_file(tmp_path), until=None)
    now_s = BEGIN_S + 900
    for more, expected in ((0.0, 2), (0.0, 1), (600.0, 2)):
        fetch = Fetch(wanted, "live", line(), tmp_path / "kept", clock=lambda m=more: now_s + m)
        rows = [f for f in fetch.chunks() if f.exists()]
        assert fetch.fetched == expected
        assert len(rows) == (2 if not more else 3)


def test_no_more_queries_are_sent_than_allowed(served, tmp_path) -> None:
    slept: list[float] = []
    now = [BEGIN_S + 1e6]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    wanted = config(served.url, job_file(tmp_path), queries_per_s=2)
    fetch = Fetch(wanted, "live", line(), tmp_path / "kept", clock=lambda: now[0], sleep=sleep)
    list(fetch.chunks())
    # One query for the ids; for six chunks the tasks and their sources; and for the three in which
    # the job ran its TaskManagers. The first one waits for none.
    assert sum(slept) == pytest.approx((6 * 2 + 3) / 2, abs=2.0)


def test_two_jobs_of_one_name_are_refused(served, tmp_path) -> None:
    with pytest.raises(DatasetError, match=r"two jobs are named 'twice': b1 and b2"):
        survey(served.url, tmp_path, job_name="twice")


def test_a_job_that_is_not_there_is_named(served, tmp_path) -> None:
    with pytest.raises(DatasetError, match=r"has no sample of a job 'none'"):
        survey(served.url, tmp_path, job_name="none")


def test_an_error_names_the_chunk_and_keeps_what_was_fetched(served, tmp_path) -> None:
    folder = tmp_path / "kept"
    with pytest.raises(
        DatasetError, match=r"job 'line', day 2026-03-01, chunk 2026-03-01 01:00:00"
    ):
        survey("http://127.0.0.1:1", tmp_path, retries=0, archive=str(folder))
    survey(served.url, tmp_path, archive=str(folder), until="2026-03-01T01:20:00Z")
    with pytest.raises(DatasetError, match=r"chunk 2026-03-01 01:20:00"):
        survey("http://127.0.0.1:1", tmp_path, retries=0, archive=str(folder))


def test_a_partial_answer_is_refused(tmp_path) -> None:
    with answering() as told:
        told.answers["/api/v1/series"] = lambda _: {
            "status": "success",
            "data": [],
            "warnings": ["store-3 timed out"],
        }
        with pytest.raises(DatasetError, match=r"the answer is partial: store-3 timed out"):
            survey(told.url, tmp_path, retries=0)
