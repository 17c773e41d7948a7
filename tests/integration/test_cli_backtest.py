"""`dsp-gym backtest`, from what ships to pages; and from exported tables of two jobs."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import yaml
from tests.stored_states import IDS, config_map, database, state
from typer.testing import CliRunner

from dsp_gym.backends.discovery import flink as by_rest
from dsp_gym.cli import app
from dsp_gym.records.shipped import folder_of
from tests.answering import answering
from tests.fakes.kubernetes_api import served_kubernetes
from tests.flink_resources import deployment, stable
from tests.running_job import run_job

pytestmark = pytest.mark.slow

COLUMNS = (
    "t_s,offered_events_per_s,throughput_events_per_s,throughput_samples,"
    "consumer_lag_records,latency_ms,cpu_load,task_slots"
)


def invoke(*words, code=0):
    done = CliRunner().invoke(app, ["backtest", *(str(word) for word in words)])
    assert done.exit_code == code, done.output
    return done.output


def test_a_journal_that_ships_gives_pages_and_claims_nothing_of_eight_minutes(tmp_path):
    out = tmp_path / "report"
    said = invoke("--journal", "flink-q11-day", "--policies", "ds2", "--out", out)
    assert said.startswith("Nothing may be claimed on 1 job yet")
    assert "the history covers 0.13 hours; a claim needs 24 hours" in said
    names = sorted(file.name for file in out.iterdir())
    assert names == ["backtest.json", "index.html", "job-1-flink-q11-day.html"]
    page = (out / "job-1-flink-q11-day.html").read_text(encoding="utf-8")
    assert '<div class="chart"' in page
    assert "session 4 → " in page
    assert "demand" in page


def test_json_alone_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = ("--recording", "flink-q11-day", "--interval", 10, "--policies", "static")
    found = json.loads(invoke(*chosen, "--json"))
    assert found["schema"] == "dsp-gym/backtest/1"
    (claim,) = found["jobs"][0]["claims"]
    assert claim["policy"] == "static"  # what the job file starts with: one task, too few
    assert claim["late"] > 0.1
    assert claim["claimed_per_month"] == 0
    assert not list(tmp_path.iterdir())


def rows(days, late):
    """A job on 8 slots that needs two: 10,000 records/s by day, of 40,000 it can take."""
    yield COLUMNS
    for step in range(round(days * 86_400 / 300)):
        t_s = 300 * step
        load = 6000 - 4000 * math.cos(2 * math.pi * t_s / 86_400)
        latency = 9000 if late and step % 10 == 0 else 50
        yield f"{t_s},{load:.0f},{load:.0f},300,10,{latency},0.1,8"


JOB = """\
job: JOB
source: {rate_per_s: 10000}
vertices:
- {name: source, kind: source, cpu_us_per_record: 1, parallelism: 8}
- {name: main, kind: sink, inputs: [{from: source}], cpu_us_per_record: 200, parallelism: 8}
rescale: {outage_s: [5, 8, 12], mode: in_place}
"""


@pytest.fixture
def exported(tmp_path):
    folder = tmp_path / "exported"
    for name, late in (("ads", False), ("<b>clicks", True)):
        (folder / name).mkdir(parents=True)
        (folder / name / "series.csv").write_text("\n".join(rows(2.5, late)) + "\n")
        (folder / name / "job.yaml").write_text(JOB.replace("JOB", name[-3:]))
    return folder


def test_exported_tables_give_a_claim_where_the_model_agrees_and_say_why_not_elsewhere(
    exported, tmp_path
):
    out = tmp_path / "report"
    chosen = ("--policies", "ds2-justin", "--days", 14, "--out", out)
    said = invoke("--series", exported, *chosen)
    found = {job["name"]: job for job in json.loads((out / "backtest.json").read_text())["jobs"]}
    assert set(found) == {"ads", "<b>clicks"}
    assert found["ads"]["observed"]["late"] == 0
    assert found["<b>clicks"]["observed"]["late"] == pytest.approx(0.1)
    reasons = found["<b>clicks"]["claims"][0]["why_not"]
    assert any("observed were 10.0 %" in text for text in reasons)
    assert found["<b>clicks"]["claims"][0]["claimed_per_month"] == 0
    assert found["ads"]["claims"][0]["saving_per_month"]["low"] > 0
    assert "14 days were asked for, the load of 2.5 days is known" in said
    pages = sorted(file.name for file in out.glob("*.html"))
    assert pages == ["index.html", "job-1-clicks.html", "job-2-ads.html"]
    assert "<b>clicks" not in (out / "index.html").read_text()


def test_an_interrupted_backtest_goes_on_where_it_stopped(exported, tmp_path, monkeypatch):
    out, whole = tmp_path / "report", tmp_path / "whole"
    chosen = ("--series", exported, "--policies", "ds2", "--workers", 1)
    invoke(*chosen, "--out", whole)
    from dsp_gym.whatif import backtest as run

    play, played = run.play, []

    def stopping(work, tell):
        if len(played) == 1:
            raise KeyboardInterrupt
        played.append(work)
        return play(work, tell)

    monkeypatch.setattr(run, "play", stopping)
    stopped = CliRunner().invoke(app, ["backtest", *map(str, chosen), "--out", str(out)])
    assert stopped.exit_code != 0
    assert "2 replays are kept" in stopped.output
    monkeypatch.setattr(run, "play", play)
    refused = invoke(*chosen, "--out", out, code=2)
    assert "Continue it with --resume" in refused
    invoke(*chosen, "--out", out, "--resume")
    assert (out / "backtest.json").read_bytes() == (whole / "backtest.json").read_bytes()
    assert not (out / "unfinished").exists()


def test_the_path_of_a_shipped_journal_is_as_good_as_its_name(tmp_path):
    copy = tmp_path / "day"
    shutil.copytree(folder_of("journals", "flink-q11-day"), copy)
    chosen = ("--policies", "static", "--json")
    by_path = json.loads(invoke("--journal", copy, *chosen))
    by_name = json.loads(invoke("--journal", "flink-q11-day", *chosen))
    assert by_path["jobs"] == by_name["jobs"]


def test_tables_may_be_parquet(exported, tmp_path):
    from pyarrow import csv, parquet

    other = tmp_path / "parquet" / "ads"
    other.mkdir(parents=True)
    parquet.write_table(csv.read_csv(exported / "ads" / "series.csv"), other / "series.parquet")
    shutil.copy(exported / "ads" / "job.yaml", other)
    chosen = ("--policies", "ds2-justin", "--json")
    found = [
        json.loads(invoke("--series", folder, *chosen))["jobs"]
        for folder in (exported / "ads", other)
    ]
    assert found[0] == found[1]


def test_the_stored_state_of_the_autoscaler_is_replayed_and_nothing_is_claimed(
    tmp_path, monkeypatch
):
    """From a file, from its database, and from the cluster: the same load, the same answer."""
    monkeypatch.setattr(by_rest, "_PAUSE_S", 0.0)
    stored = state(minutes=20)
    file = tmp_path / "state.yaml"
    file.write_text(yaml.safe_dump(config_map("orders", stored)))
    kept = database(tmp_path / "state.db", {"orders": stored})
    chosen = ("--policies", "static", "--guardrails", "none", "--json")
    with answering() as flink, served_kubernetes() as kubernetes:
        run_job(flink, "orders-job", ids=IDS)
        body = deployment("orders", labels={"team": "ads"})
        kubernetes.put(body)
        kubernetes.set_status("FlinkDeployment", "orders", stable(body, job_id="a1"))
        kubernetes.put(config_map("orders", stored))
        may = {"flinkdeployments": ("get", "list"), "configmaps": ("list",)}
        account = kubernetes.kubeconfig(tmp_path / "config", kubernetes.account("reads", may))
        there = ("--selector", "team=ads", "--namespace", "jobs", "--kubeconfig", account)
        found = [
            json.loads(invoke("--autoscaler", where, *more, *chosen))
            for where, more in (
                (file, ("--flink", flink.url)),
                (f"sqlite:///{kept}", ("--flink", flink.url)),
                ("kubernetes", (*there, "--flink", flink.url)),
            )
        ]
        assert kubernetes.writes() == []
    jobs = [one["jobs"][0] for one in found]
    assert [job["name"] for job in jobs] == ["orders"] * 3
    assert [job["claims"] for job in jobs] == [jobs[0]["claims"]] * 3
    (claim,) = jobs[0]["claims"]
    assert claim["claimed_per_month"] == 0
    assert any("neither latencies nor cache hit rates" in note for note in jobs[0]["notes"])


def test_an_id_without_a_job_is_refused_with_what_to_do(tmp_path):
    file = tmp_path / "state.yaml"
    file.write_text(yaml.safe_dump(config_map("orders", state())))
    assert "nothing says which job they are of" in invoke("--autoscaler", file, code=2)
    named = ("--autoscaler", file, "--job", "nexmark-q1")
    assert "is not HEX=NAME" in invoke(*named, "--vertex", f"{IDS[0]}=nobody", code=2)
    assert "no id is known of" in invoke(*named, code=2)
    assert "belongs to --autoscaler" in invoke("--journal", "x", "--vertex", "a=b", code=2)
    assert "--selector LABELS" in invoke("--autoscaler", "kubernetes", code=2)


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    said = invoke("--dataset", tmp_path, code=2)
    assert "is not a dataset" in said
    assert "runs/datasets/nowhere" in invoke("--dataset", "nowhere", code=2)
