"""The history of a job from a real Prometheus: in chunks, once, with irregularities reported."""

from __future__ import annotations

import json
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dsp_gym.backends.flink.history import FlinkHistory, HistoryOptions, keep_folder
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.metrics.running import running_in
from dsp_gym.metrics.samples import Samples
from tests.answering import Answering, answering
from tests.backfilled import Submitted, backfilled
from tests.dataset_inputs import day_of_samples
from tests.simulating import line

pytestmark = [pytest.mark.slow]

BEGIN_S = 1_772_326_800.0  # 2026-03-01T01:00:00Z
SECONDS = 1200
NOW_S = BEGIN_S + 7200
CUT_S = BEGIN_S + 600
OPTIONS = HistoryOptions(chunk_s=600, queries_per_s=1000, retries=3)
THEIRS = {"job_name": "flink_job", "tm_id": "pod"}


def shifted(samples: Samples, seconds: float) -> Samples:
    return replace(samples, t_s=samples.t_s + seconds)


@pytest.fixture(scope="module")
def samples() -> Samples:
    return day_of_samples(0, SECONDS)


@pytest.fixture(scope="module")
def url(tmp_path_factory, samples) -> Iterator[str]:
    before, after = samples.between(-np.inf, CUT_S), samples.between(CUT_S + 60, np.inf)
    parts = [
        Submitted(before, "a1", "renamed", called={"map": "old map"}),
        Submitted(after, "a2", "renamed"),
        Submitted(before, "b1", "regraphed", called={"map": "filter"}, task_ids={"map": "id-f"}),
        Submitted(after, "b2", "regraphed"),
        Submitted(before, "c1", "grown"),
        Submitted(before, "c1", "grown", called={"map": "extra"}, task_ids={"map": "id-x"}),
        Submitted(after, "c2", "grown"),
        Submitted(samples, "d1", "elsewhere", labels=THEIRS),
        Submitted(samples, "e1", "steady"),
        Submitted(samples, "../../id", "../../evil"),
    ]
    with backfilled(tmp_path_factory.mktemp("prometheus"), parts) as address:
        yield address


def history(url: str, folder: Path, job: str = "steady", **rest: Any) -> FlinkHistory:
    rest = {"options": OPTIONS, "clock": lambda: NOW_S, "sleep": lambda _: None} | rest
    return FlinkHistory(url, job, line(), keep=folder, **rest)


def fetched(made: FlinkHistory, seconds: float = SECONDS) -> Samples:
    parts = [chunk.samples() for chunk in made.chunks(BEGIN_S, BEGIN_S + seconds)]
    return Samples.joined(parts)


def remarks(made: FlinkHistory) -> dict[str, str]:
    return {one.kind: one.sentence for one in made.remarks}


@contextmanager
def before(url: str, ruins: Callable[[Answering], Any]) -> Iterator[Answering]:
    """A server that forwards what `ruins` does not answer itself."""
    with answering() as told:

        def forward(path: str) -> Callable[[dict[str, str]], Any]:
            def answer(query: dict[str, str]) -> Any:
                ruined = ruins(told)
                if ruined is not None:
                    return ruined
                asked = f"{url}{path}?{urllib.parse.urlencode(query)}"
                with urllib.request.urlopen(asked, timeout=10) as got:
                    return json.loads(got.read())

            return answer

        for path in ("/api/v1/query", "/api/v1/series"):
            told.answers[path] = forward(path)
        yield told


def test_samples_are_those_that_were_scraped_and_are_asked_for_once(url, samples, tmp_path):
    made = history(url, tmp_path)
    found = fetched(made)
    for vertex in ("source", "map", "sink"):
        got, had = (one.grid(vertex, "records_out_total") for one in (found, samples))
        kept = np.isin(had[0], got[0])
        assert np.sum(~kept) <= 1  # a scrape at the very begin is of the chunk before
        np.testing.assert_allclose(got[2], had[2][kept], rtol=1e-12)
    assert (made.fetched, made.remarks) == (2, ())
    again = history(url, tmp_path)
    assert len(fetched(again)) == len(found)
    assert again.fetched == 0
    next(tmp_path.rglob("*.json")).write_text('{"rows": ')  # as a killed process leaves it
    resumed = history(url, tmp_path)
    assert len(fetched(resumed)) == len(found)
    assert resumed.fetched == 1


def test_a_renamed_vertex_is_told_by_its_id(url, samples, tmp_path):
    made = history(url, tmp_path, "renamed")
    times = fetched(made).grid("map", "records_out_total")[0]
    assert times[0] < CUT_S < times[-1]
    assert remarks(made) == {"renamed": "'map' was called 'old map' before: its id is the same"}


@pytest.mark.parametrize(
    ("job", "said"),
    [
        ("regraphed", "submission b1 had another graph, without 'map' and with 'filter'"),
        ("grown", "submission c1 had another graph, with 'extra'"),
    ],
)
def test_what_ran_with_another_graph_is_left_out_and_named(url, tmp_path, job, said):
    made = history(url, tmp_path, job)
    found = fetched(made)
    assert len(found)
    assert found.t_s[0] > CUT_S
    assert remarks(made)["other_graph"].startswith(said)


def test_labels_that_differ_are_named(url, tmp_path):
    with pytest.raises(FlinkError, match="has no sample of a job 'elsewhere'"):
        fetched(history(url, tmp_path / "a", "elsewhere"))
    labels = Labels.parse("job_name=flink_job, tm_id=pod")
    assert len(fetched(history(url, tmp_path / "b", "elsewhere", labels=labels)))
    with pytest.raises(ConfigError, match=r"no label of Flink's.*Did you mean 'job_name'"):
        Labels.parse("job_nam=x")


def test_a_job_that_is_not_there_is_named_with_those_that_are(url, tmp_path):
    with pytest.raises(FlinkError, match=r"no sample of a job 'stead' .*Did you mean 'steady'"):
        list(history(url, tmp_path, "stead", clock=lambda: BEGIN_S + 900).chunks(BEGIN_S))


def test_a_job_of_other_vertices_is_refused(url, tmp_path):
    vertices = [v.model_copy(update={"name": f"my-{v.name}"}) for v in line().vertices]
    spec = line().model_copy(update={"vertices": tuple(vertices)})
    with pytest.raises(FlinkError, match=r"never had the vertices.*my-map.*it had: map, sink"):
        list(FlinkHistory(url, "steady", spec, keep=tmp_path, clock=lambda: NOW_S).chunks(BEGIN_S))


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_ever_later(url, tmp_path, status):
    slept: list[float] = []
    left = [3]

    def busy(_: Answering) -> Any:
        left[0] -= 1
        return (status, "busy") if left[0] >= 0 else None

    with before(url, busy) as told:
        found = fetched(history(told.url, tmp_path, sleep=slept.append))
    assert len(found)
    assert [seconds for seconds in slept if seconds > 0.1] == [0.5, 1.0, 2.0]


def test_a_server_that_stays_down_ends_it_and_what_was_fetched_is_kept(url, tmp_path):
    asked = [0]

    def falls_silent(_: Answering) -> Any:
        asked[0] += 1
        return (503, "down") if asked[0] > 4 else None  # the tasks, and one chunk

    with before(url, falls_silent) as told:
        made = history(told.url, tmp_path)
        with pytest.raises(FlinkError, match=r"HTTP status 503.*the same command goes on") as down:
            fetched(made)
    assert down.value.reason == "Other"
    resumed = history(url, tmp_path)
    assert len(fetched(resumed))
    assert resumed.fetched == 1


def test_a_question_that_is_too_large_is_halved(url, tmp_path):
    def limited(told: Answering) -> Any:
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(told.asked[-1]).query).get(
            "query", [""]
        )
        return (422, "too many samples") if "[600000ms]" in query[0] else None

    whole = fetched(history(url, tmp_path / "whole"))
    with before(url, limited) as told:
        halved = fetched(history(told.url, tmp_path / "halved"))
    assert list(halved.rows()) == list(whole.rows())


def test_an_expiring_token_is_read_again_and_else_asked_for(url, tmp_path):
    account = tmp_path / "token"
    account.write_text("first")
    account.chmod(0o600)

    def expires(told: Answering) -> Any:
        is_known = told.accounts[-1] == f"Bearer {valid[0]}"
        return None if is_known else (401, "token expired")

    valid = ["first"]
    with before(url, expires) as told:
        made = history(told.url, tmp_path / "kept", account=AccessConfig(file=account))
        chunks = made.chunks(BEGIN_S, BEGIN_S + SECONDS)
        next(chunks)
        valid[0] = "second"
        account.write_text("second")  # as Kubernetes renews a projected token
        assert next(chunks).rows > 0
        valid[0] = "third"
        late = history(told.url, tmp_path / "late", account=AccessConfig(file=account))
        with pytest.raises(FlinkError, match=r"token has expired.*what was fetched is kept") as no:
            fetched(late)
    assert no.value.reason == "Unauthorized"


def test_no_name_becomes_a_path(url, tmp_path):
    folder = keep_folder(tmp_path, url, "../../evil", line(), Labels())
    assert folder.parent == tmp_path
    assert len(fetched(history(url, folder, "../../evil")))
    assert [one.name for one in tmp_path.iterdir()] == [folder.name]


def test_undisturbed_times_end_where_counters_restart_and_scrapes_are_missing(samples):
    spec = line()
    assert [one.parallelism for one in running_in(spec, samples)] == [
        {"source": 4, "map": 1, "sink": 1}
    ]
    later = shifted(samples.between(-np.inf, BEGIN_S + 300), SECONDS)
    hole = samples.between(-np.inf, CUT_S), samples.between(CUT_S + 60, np.inf)
    spans = [
        (one.since_s - BEGIN_S, one.until_s - BEGIN_S)
        for one in running_in(spec, Samples.joined((*hole, later)))
    ]
    expected = [(0, 600), (660, SECONDS), (SECONDS, SECONDS + 300)]
    assert len(spans) == 3
    for (begin, end), (since, until) in zip(spans, expected, strict=True):
        assert (begin, end) == (pytest.approx(since, abs=20), pytest.approx(until, abs=20))


def test_another_number_of_tasks_begins_another_time(samples):
    two = Samples.of(
        [
            *samples.rows(),
            *((t, v, 1, m, x) for t, v, _, m, x in samples.rows() if v == "map" and t > CUT_S),
        ]
    )
    found = running_in(line(), two)
    assert [one.parallelism["map"] for one in found] == [1, 2]
    assert found[1].since_s == pytest.approx(CUT_S, abs=20)
