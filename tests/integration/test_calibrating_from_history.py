"""A job file fitted to a job's history in Prometheus, with notes on what it cannot determine."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.simulated.recording import simulated_samples
from dsp_gym.calibration.config import PrometheusHistory
from dsp_gym.calibration.history import measured_history, not_identifiable, opened_history
from dsp_gym.cli import app
from dsp_gym.errors import MetricsError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import Samples
from tests.backfilled import Submitted, backfilled
from tests.dataset_inputs import MARCH_1, job_file, simulated
from tests.simulating import line

pytestmark = [pytest.mark.slow]

CPU_US = 1000.0
PART_S = 600
DAYS = 0.25
NOW_S = MARCH_1 + 86_400 * DAYS


def with_maps(tasks: int) -> JobSpec:
    spec = line(cpu_us=CPU_US)
    vertices = [
        v.model_copy(update={"parallelism": tasks}) if v.name == "map" else v for v in spec.vertices
    ]
    return spec.model_copy(update={"vertices": tuple(vertices)})


def ran(parts: Sequence[tuple[int, float]], begin_s: float = 3600.0) -> Samples:
    """One part after the other: tasks of the map, and records/s offered; 30 s between them."""
    found, at_s = [], MARCH_1 + begin_s
    for tasks, rate_per_s in parts:
        samples = simulated_samples(simulated(with_maps(tasks), rate_per_s), PART_S)
        found.append(dataclasses.replace(samples, t_s=samples.t_s + at_s))
        at_s += PART_S + 30.0
    return Samples.joined(found)


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    several = [(1, 300.0), (2, 900.0), (4, 2000.0), (2, 2500.0)]
    one = ran([(2, 500.0), (2, 1200.0)])
    holed = Samples.joined(
        one.between(a, b) for a, b in ((-np.inf, MARCH_1 + 3900), (MARCH_1 + 4080, np.inf))
    )
    restless = Samples.joined(
        dataclasses.replace(
            one.between(-np.inf, MARCH_1 + 3600 + 90),
            t_s=one.between(-np.inf, MARCH_1 + 3690).t_s + k * 100,
        )
        for k in range(6)
    )
    parts = [
        Submitted(ran(several), "a1", "line"),
        Submitted(one, "b1", "one"),
        Submitted(holed, "c1", "holed"),
        Submitted(restless, "d1", "restless"),
        Submitted(ran([(2, 2.0)]), "e1", "idle"),
    ]
    with backfilled(tmp_path_factory.mktemp("prometheus"), parts) as address:
        yield address


def measured(url: str, folder: Path, name: str, spec: JobSpec | None = None):
    config = PrometheusHistory(url=url, job_name=name, keep=folder)
    spec = spec or line()
    return measured_history(opened_history(config, spec), spec, DAYS, now_s=NOW_S)


def sentences(found) -> str:
    return "\n".join(one.sentence for one in found)


def test_every_configuration_and_load_is_a_part(url, tmp_path):
    past = measured(url, tmp_path, "line")
    shown = [(o.parallelism["map"], o.saturated) for o in past.seen]
    assert shown == [(1, False), (2, False), (4, False), (2, True)]
    for o, rate in zip(past.seen, (300, 900, 2000, 2000), strict=True):
        assert o.rate_per_s == pytest.approx(rate, rel=0.02)
        assert o.selectivity["map"] == pytest.approx(1.0, rel=0.02)
    low, middle, high = past.rescale.outage_s
    assert 10 <= low <= middle <= high <= 60  # 30 s, as cells of two scrapes show them


def test_what_a_history_cannot_tell_is_named(url, tmp_path):
    seen = measured(url, tmp_path, "one").seen
    told = sentences(not_identifiable(line(), seen))
    assert "the job only ran with 2 tasks of 'map': how it scales is not identified" in told
    assert "never at its capacity ('map' was busy 60 % at the most)" in told
    more = sentences(not_identifiable(line(), measured(url, tmp_path, "line").seen))
    assert "the job never ran with more than 4 tasks of 'map': beyond is extrapolated" in more
    assert "capacity" not in more


def test_gaps_short_histories_and_missing_rocksdb_metrics_are_named(url, tmp_path):
    spec = line()
    state = {"reads": 1, "writes": 1, "keys": 10, "value_bytes": 10}
    vertices = [v.model_dump(by_alias=True, exclude_defaults=True) for v in spec.vertices]
    vertices[1]["state"] = state
    stateful = JobSpec.model_validate({**spec.model_dump(by_alias=True), "vertices": vertices})
    told = sentences(measured(url, tmp_path, "holed", stateful).problems)
    assert "samples are missing once, for" in told
    assert "from 2026-03-01 01:05" in told
    assert "Prometheus has 20 min of the 6.0 h asked for: nothing before 2026-03-01 01:00" in told
    assert "no RocksDB metrics of 'map'" in told


def test_no_part_reaches_across_a_restart(url, tmp_path):
    past = measured(url, tmp_path / "one", "one")
    assert "its counters restarted once with the same tasks" in sentences(past.problems)
    again_s = MARCH_1 + 3600 + PART_S + 30
    spans = [(o.start_s, o.end_s) for o in past.seen]
    assert [end < again_s or start > again_s + 50 for start, end in spans] == [True, True]
    with pytest.raises(MetricsError, match=r"never ran for 180 s without a restart"):
        measured(url, tmp_path, "restless")


def test_a_job_that_did_nothing_is_refused_with_the_reason(url, tmp_path):
    with pytest.raises(MetricsError, match=r"never busy for more than 5 % of the time"):
        measured(url, tmp_path, "idle")


def test_one_command_fits_a_job_file_to_its_history(url, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: NOW_S)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs").mkdir()
    priors = line(cpu_us=3 * CPU_US)  # three times too slow
    Path(job_file(tmp_path, priors)).rename(tmp_path / "jobs" / "mine.yaml")
    words = ["calibrate", url, "--job", "mine=line", "--days", str(DAYS)]
    words += ["--out", "fit.yaml", "--json"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    fitted = load_job(tmp_path / "fit.yaml")
    assert fitted.vertex("map").cpu_us_per_record == pytest.approx(CPU_US, rel=0.05)
    told = json.loads(done.stdout)
    assert "map.cpu_us_per_record" not in told["not_identified"]
    assert told["errors"]["fitted"]["rate_median"] < 0.05
    assert yaml.safe_load((tmp_path / "fit.yaml").read_text())["fitted"]["runs"] > 0
    kept = list((tmp_path / "runs" / "history").rglob("*.parquet"))
    assert len(kept) == 6


@pytest.mark.validate
def test_a_discovered_file_is_fitted_by_its_name_alone(url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time", lambda: MARCH_1 + 3600 + PART_S - 10)
    for words in (
        ["discover", "--prometheus", url, "--jobs", "line"],
        ["calibrate", url, "--job", "line", "--days", "0.2", "--out", "fit.yaml"],
    ):
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        monkeypatch.setattr("time.time", lambda: NOW_S)
    assert "never ran with more than 4 tasks of 'map'" in done.output
    fitted = load_job(tmp_path / "fit.yaml")
    assert fitted.vertex("map").cpu_us_per_record == pytest.approx(CPU_US, rel=0.1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["http://127.0.0.1:1"], "a history needs a job file"),
        (["localhost", "--job", "nexmark-q11"], "does not apply to a calibration"),
        (["http://127.0.0.1:1", "--job", "nexmark-q12"], "dsp-gym discover"),
        (["flink-q11-day", "--job", "nexmark-q11"], "belongs to a history"),
    ],
)
def test_what_is_wrong_is_said(words, says):
    done = CliRunner().invoke(app, ["calibrate", *words], catch_exceptions=False)
    assert (done.exit_code, says in done.output) == (2, True), done.output
