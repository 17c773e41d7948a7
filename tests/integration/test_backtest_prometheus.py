"""A backtest of several jobs' history in a real Prometheus."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.flink.history import FlinkHistory, HistoryOptions
from dsp_gym.cli import app
from dsp_gym.loop.configuration import Configuration
from dsp_gym.whatif.model import fitted
from dsp_gym.whatif.prometheus import fetched_history
from dsp_gym.whatif.sampled_history import Deployed, measured_history
from tests.backfilled import Submitted, backfilled
from tests.dataset_inputs import MARCH_1, day_of_samples
from tests.simulating import line

pytestmark = [pytest.mark.slow]

SECONDS = 2400


@pytest.fixture(scope="module")
def begin_s():
    return time.time() - SECONDS + 600  # it still runs while the tests do


@pytest.fixture(scope="module")
def cut_s(begin_s):
    return begin_s + 1200


@pytest.fixture(scope="module")
def samples(begin_s):
    found = day_of_samples(0, SECONDS)
    return replace(found, t_s=found.t_s - MARCH_1 - 3600.0 + begin_s)


@pytest.fixture(scope="module")
def url(tmp_path_factory, samples, cut_s):
    before, after = samples.between(-np.inf, cut_s - 300), samples.between(cut_s + 300, np.inf)
    parts = [
        Submitted(samples, "a1", "steady"),
        Submitted(before, "b1", "cut", called={"map": "filter"}, task_ids={"map": "id-f"}),
        Submitted(after, "b2", "cut"),
        Submitted(samples, "c1", "../../evil"),
    ]
    with backfilled(tmp_path_factory.mktemp("prometheus"), parts) as address:
        yield address


@pytest.fixture
def jobs(tmp_path):
    folder = tmp_path / "jobs"
    folder.mkdir()
    for name in ("steady", "cut", "evil", "gone"):
        spec = line().model_copy(update={"job": name})
        text = yaml.safe_dump(spec.model_dump(mode="json", by_alias=True, exclude_defaults=True))
        (folder / f"{name}.yaml").write_text(text)
    return folder


def fetched(url, folder, name="steady", chunk_s=600):
    options = HistoryOptions(chunk_s=chunk_s, queries_per_s=1000)
    history = FlinkHistory(url, name, line(), keep=folder, options=options)
    return fetched_history(history, line(), 4 * SECONDS / 86_400, 30)


@pytest.mark.validate
def test_chunks_give_what_the_whole_gives(url, samples, tmp_path):
    small = fetched(url, tmp_path / "a", chunk_s=300)
    tasks = Configuration.of_spec(line())
    whole = measured_history(
        "steady",
        line(),
        samples,
        [Deployed(float(small.t_s[0]), tasks, float("nan"))],
        30,
        until_s=float(small.t_s[-1]) + 30,
    )
    assert len(small) == len(whole)
    np.testing.assert_allclose(small.load_per_s[1:], whole.load_per_s[1:], rtol=1e-9)
    np.testing.assert_array_equal(small.wanted, whole.wanted)
    np.testing.assert_allclose(small.late, whole.late)
    assert not small.rescales.any()
    assert fitted(small).spec.vertices[1].cpu_us_per_record == pytest.approx(1000.0, rel=0.15)


def test_another_graph_is_left_out_and_named(url, tmp_path, cut_s):
    found = fetched(url, tmp_path, "cut")
    assert found.t_s[0] > cut_s
    assert any("another graph" in note for note in found.notes)


def test_the_jobs_that_prometheus_knows_are_enough(url, tmp_path, monkeypatch):
    words = ["backtest", "--prometheus", url, "--days", "0.08", "--interval", "30", "--json"]
    words += ["--policies", "ds2"]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    known = [job["name"] for job in found["jobs"]]
    assert known, done.output
    assert set(known) <= {"steady", "cut", "../../evil"}


def test_one_command_fetches_fits_replays_and_reports(url, jobs, tmp_path, monkeypatch):
    out = tmp_path / "report"
    words = ["backtest", "--prometheus", url, "--jobs", jobs]
    words += ["--jobs", f"../../evil={jobs}/evil.yaml"]
    words += ["--days", "0.08", "--interval", "30", "--policies", "ds2", "--out", out]
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    found = json.loads((out / "backtest.json").read_text())
    assert [job["name"] for job in found["jobs"]] == ["../../evil", "cut", "steady"]
    assert "gone: " in found["left_out"][0]
    assert found["jobs"][2]["observed"]["late"] == pytest.approx(1.0)  # more than a task carries
    assert found["jobs"][2]["is_dated"]
    pages = sorted(file.name for file in out.glob("*.html"))
    assert pages == ["index.html", "job-1-evil.html", "job-2-cut.html", "job-3-steady.html"]
    again = CliRunner().invoke(app, [str(word) for word in words])
    assert again.exit_code == 0, again.output
