"""`dsp-gym reproduce espa`: figures of a run, tables of further runs, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.calibration.scaled_runs import read_runs
from dsp_gym.cli import app
from dsp_gym.errors import ConfigError
from dsp_gym.studies.reproduce import registry
from dsp_gym.studies.reproduce.espa import compare, rank_correlation, rows
from dsp_gym.studies.reproduce.espa_jobs import TOPICS, name_of
from dsp_gym.studies.reproduce.espa_policies import espa_policy
from dsp_gym.studies.reproduce.espa_runs import Course, as_on_this_job, recorded, setting_of

HEADER = (
    "run,repeat,query,policy,setting,t_s,input_rate_per_s,throughput_per_s,lag_records,latency_s,"
    "busy_share,idle_share,backpressured_raw,cpu_load,taskmanagers"
)
FIGURES = {"mean_taskmanagers", "peak_taskmanagers", "changes", "p95_latency_s", "late_share"}


def lines(run: str, policy: str, setting: str, query: str = "q1", seconds: int = 900):
    """A quarter of an hour at 60,000 records/s, with one change from 4 to 2 TaskManagers."""
    return [
        f"{run},x,{query},{policy},{setting},{t},60000,60000,50000,"
        f"{9.0 if t == 450 else 0.1},0.2,0.7,20,0.5,{4 if t < 450 else 2}"
        for t in range(0, seconds, 15)
    ]


def table(folder: Path, *runs: list[str], header: str = HEADER) -> Path:
    file = folder / "runs.csv"
    file.write_text("\n".join([header, *(line for run in runs for line in run)]))
    return file


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A table of two policies, one of them by its name in the other repeat."""
    folder = tmp_path_factory.mktemp("espa")
    return table(
        folder, lines("a", "hpa", "70"), lines("b", "ds2-original-reactive", "33", seconds=600)
    )


def test_the_figures_of_a_recorded_run(found):
    figures = recorded(read_runs(found).runs[0]).figures()
    assert figures.mean_taskmanagers == pytest.approx(3.0)
    assert (figures.peak_taskmanagers, figures.changes) == (4, 1)
    assert figures.p95_latency_s == pytest.approx(0.1)
    assert figures.late_share == pytest.approx(1 / 60)


def test_a_missing_sample_is_late():
    course = Course(*np.array([[0, 15, 30], [2, 2, 2], [0, 0, 0], [0.1, np.nan, 3.0]]), ())
    assert course.figures().late_share == pytest.approx(2 / 3)


def test_a_table_of_runs_is_told_run_by_run(found):
    result = CliRunner().invoke(app, ["reproduce", "espa", "--runs", str(found), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert [(row["run"], row["query"], row["policy"], row["setting"]) for row in told] == [
        ("a", "q1", "hpa", 70.0),
        ("b", "q1", "ds2-original-reactive", 33.0),
    ]
    for row in told:
        assert set(row) == {"run", "query", "policy", "setting", "real", "simulated"}
        assert set(row["real"]) == set(row["simulated"]) == FIGURES
        assert 1 <= row["simulated"]["mean_taskmanagers"] <= 16
    assert told[0]["real"]["mean_taskmanagers"] == 3.0


def test_seeds_give_the_same_run_twice_and_others_another(found):
    first, again = (compare(None, found, seeds=(3, 4))[0].simulated for _ in range(2))
    assert np.array_equal(first[0].lag_records, again[0].lag_records)
    assert not np.array_equal(first[0].lag_records, first[1].lag_records)


def test_the_page_has_every_run(found, tmp_path):
    page = tmp_path / "page.html"
    checks = registry.reproduce("espa", None, runs=found, report=page)
    assert all(check.passed is None for check in checks)  # further runs are told, not judged
    text = page.read_text()
    assert "<option>a</option>" in text
    assert "<option>b</option>" in text


def test_an_unknown_policy_and_query_are_left_out_by_name(tmp_path, caplog):
    file = table(
        tmp_path, lines("c", "magic", "1"), lines("d", "magic", "2"), lines("e", "hpa", "70", "q9")
    )
    assert rows(None, file) == []
    assert caplog.messages == [
        "runs.csv: unknown policy 'magic': its runs are left out",
        "runs.csv: unknown query 'q9': its runs are left out",
    ]


def test_a_run_that_cannot_be_repeated_is_left_out_by_name(tmp_path, caplog):
    empty_at_first = [line.rsplit(",", 1)[0] + "," for line in lines("h", "hpa", "70")[:5]]
    file = table(
        tmp_path,
        lines("f", "hpa", "much"),
        lines("g", "varga1", "1.5"),
        lines("h", "hpa", "70")[5:20],
        [line.replace("h,", "i,", 1) for line in empty_at_first] + lines("i", "hpa", "70")[5:],
        lines("j", "hpa", "", seconds=200),
        lines("k", "dhalion", "5", seconds=90),
        lines("l", "dhalion", "-1"),
    )
    with caplog.at_level("WARNING"):
        told = rows(None, file)
    assert [row["run"] for row in told] == ["h"]
    said = " ".join(caplog.messages)
    assert "run 'f' is left out: its setting 'much' is no number" in said
    assert "run 'g' is left out: varga1 cannot have the setting 1.5" in said
    assert "run 'i' is left out: no TaskManager is registered in its first 60 s" in said
    assert "run 'j' is left out: its setting '' is no number" in said
    assert "run 'k' is left out: it lasts 75 s, of at least 120 s" in said
    assert "run 'l' is left out: dhalion cannot have the setting -1" in said


def test_a_setting_may_have_its_unit(tmp_path):
    run = read_runs(table(tmp_path, lines("a", "hpa", "60%"))).runs[0]
    assert setting_of(run) == 60.0


def test_without_latency_nothing_is_said_of_lateness():
    course = Course(*np.array([[0, 15], [2, 2], [0, 0], [np.nan, np.nan]]), ())
    assert np.isnan(course.figures().late_share)


def test_without_a_table_and_data_it_says_what_is_missing():
    with pytest.raises(ConfigError, match="no table of runs"):
        rows(None)


def test_other_studies_take_no_runs(found):
    with pytest.raises(ConfigError, match="only the study 'espa' takes a table of runs"):
        registry.reproduce("khaos", None, runs=found)
    with pytest.raises(ConfigError, match="only the study 'espa' makes a page"):
        registry.reproduce("khaos", None, report=found)


def test_the_topic_does_not_count_as_an_operator():
    assert as_on_this_job(espa_policy("varga2", 0.5)).params["counts_sources"] is False
    assert as_on_this_job(espa_policy("hpa", 50.0)) == espa_policy("hpa", 50.0)


def test_ranks():
    x = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(x, x**3) == pytest.approx(1.0)
    assert rank_correlation(x, -x) == pytest.approx(-1.0)
    assert rank_correlation(x, np.ones(4)) == 0.0


def test_each_query_has_a_shipped_job():
    from dsp_gym.job.catalog import load_job

    for query in TOPICS:
        spec = load_job(name_of(query))
        assert spec.signals is not None
        assert (spec.rescale.mode, spec.rescale.checkpoint_interval_s) == ("in_place", 10)
        assert spec.max_parallelism_per_vertex == 16
