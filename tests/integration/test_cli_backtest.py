"""`dsp-gym backtest`, from what ships to pages; and from exported tables of two jobs."""

from __future__ import annotations

import json
import math
import re
import shutil
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.records.journal import Journal, read
from dsp_gym.records.shipped import folder_of

pytestmark = pytest.mark.slow

JOURNAL = "journals/flink-q11-day"

PATIENT = "from dsp_gym.cli import backtest, main; backtest.LOOK_S = 1.0; main()"

COLUMNS = (
    "t_s,offered_events_per_s,throughput_events_per_s,throughput_samples,"
    "consumer_lag_records,latency_ms,cpu_load,task_slots"
)


def invoke(*words, code=0):
    done = CliRunner().invoke(app, ["backtest", *(str(word) for word in words)])
    assert done.exit_code == code, done.output
    return done.output


def test_a_journal_that_ships_gives_pages_and_a_verdict(tmp_path):
    out = tmp_path / "report"
    said = invoke(JOURNAL, "--out", out)
    assert said.startswith("flink-q11-day: no policy is sure to keep its lateness within the bound")
    assert "flink-q11-day, planner: keep watching" in said
    assert re.search(r"assumed +not measured: an outage of 2 to 10 s for each rescale", said)
    names = sorted(file.name for file in out.iterdir())
    assert names == ["backtest.json", "index.html", "job-1-flink-q11-day.html"]
    page = (out / "job-1-flink-q11-day.html").read_text(encoding="utf-8")
    assert '<div class="chart"' in page
    assert "session 4 → " in page
    assert "demand" in page


def test_leaving_a_provider_s_default_is_answered_with_pages(tmp_path):
    out, default = tmp_path / "report", "aws-managed-flink"
    chosen = (JOURNAL, "--policies", "static", "--guardrails", "none", "--incumbent", default)
    said = invoke(*chosen, "--out", out)
    assert f"flink-q11-day, leaving {default}:" in said
    assert f"assumed         not measured: the cost and lateness of {default}" in said
    page = (out / "job-1-flink-q11-day.html").read_text(encoding="utf-8")
    assert f"What leaving {default} would save" in page
    found = json.loads((out / "backtest.json").read_text())
    assert found["incumbent"] == found["jobs"][0]["incumbent"]["policy"] == default
    for words in (("--register", "models:/q11/1"), ("--follow",)):
        assert "--incumbent" in invoke(*chosen, *words, code=2)
    assert "Did you mean 'dataflow'" in invoke(JOURNAL, "--incumbent", "datflow", code=2)


def test_json_alone_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = ("recordings/flink-q11-day", "--interval", 10, "--policies", "static")
    found = json.loads(invoke(*chosen, "--json"))
    assert found["schema"] == "dsp-gym/backtest/1"
    (claim,) = found["jobs"][0]["claims"]
    assert claim["policy"] == "static"  # what the job file starts with: one task, too few
    assert claim["late"]["value"] > 0.1
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
    said = invoke(exported, "--policies", "ds2-justin", "--days", 14, "--out", out)
    found = {job["name"]: job for job in json.loads((out / "backtest.json").read_text())["jobs"]}
    assert set(found) == {"ads", "<b>clicks"}
    assert found["ads"]["observed"]["late"] == 0
    assert found["<b>clicks"]["observed"]["late"] == pytest.approx(0.1)
    assert any("observed were 10.0 %" in text for text in found["<b>clicks"]["distrust"])
    assert found["<b>clicks"]["claims"][0]["claimed_per_month"] == 0
    assert not found["ads"]["distrust"]
    assert found["ads"]["claims"][0]["saving_per_month"]["low"] > 0
    assert "14 days were asked for, the load of 2.5 days is known" in said
    pages = sorted(file.name for file in out.glob("*.html"))
    assert pages == ["index.html", "job-1-clicks.html", "job-2-ads.html"]
    assert "<b>clicks" not in (out / "index.html").read_text()


@pytest.mark.validate
def test_an_interrupted_backtest_goes_on_where_it_stopped(exported, tmp_path, monkeypatch):
    out, whole = tmp_path / "report", tmp_path / "whole"
    chosen = (exported, "--policies", "ds2", "--workers", 1)
    invoke(*chosen, "--out", whole)
    from dsp_gym.whatif import backtest as engine

    play, played = engine.played, []

    def stopping(work, tell):
        if len(played) == 1:
            raise KeyboardInterrupt
        played.append(work)
        return play(work, tell)

    monkeypatch.setattr(engine, "played", stopping)
    stopped = CliRunner().invoke(app, ["backtest", *map(str, chosen), "--out", str(out)])
    assert stopped.exit_code != 0
    assert "1 replays are kept" in stopped.output
    monkeypatch.setattr(engine, "played", play)
    refused = invoke(*chosen, "--out", out, code=2)
    assert "Continue it with --resume" in refused
    invoke(*chosen, "--out", out, "--resume")
    assert (out / "backtest.json").read_bytes() == (whole / "backtest.json").read_bytes()
    assert not (out / "unfinished").exists()


def test_the_path_of_a_shipped_journal_is_as_good_as_its_name(tmp_path):
    copy = tmp_path / "day"
    shutil.copytree(folder_of("journals", "flink-q11-day"), copy)
    found = [json.loads(invoke(one, "--policies", "static", "--json")) for one in (copy, JOURNAL)]
    assert found[0]["jobs"] == found[1]["jobs"]


@pytest.mark.validate
def test_tables_may_be_parquet(exported, tmp_path):
    from pyarrow import csv, parquet

    other = tmp_path / "parquet" / "ads"
    other.mkdir(parents=True)
    parquet.write_table(csv.read_csv(exported / "ads" / "series.csv"), other / "series.parquet")
    shutil.copy(exported / "ads" / "job.yaml", other)
    found = [
        json.loads(invoke(folder, "--policies", "ds2-justin", "--json"))["jobs"]
        for folder in (exported / "ads", other)
    ]
    assert found[0] == found[1]


POLICIES = "policies: [{name: ds2, policy: ds2-justin}, incumbent]"


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The journal of an hour in shadow mode beside a job that is far too small."""
    root = tmp_path_factory.mktemp("shadow")
    config = root / "run.yaml"
    config.write_text(f"job: nexmark-q1\n{POLICIES}\ngate: {{min_days: 0.04}}\n")
    # After half an hour, most of it the start, DS2 is sure to take away 36 % of the lateness; a
    # rescue needs 50 %. After an hour it is sure to take away 59 %.
    words = ["shadow", config, "diurnal", "--duration", "60m"]
    words += ["--journal", root / "journal"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return root / "journal"


def test_what_a_shadow_run_watched_has_a_verdict_on_its_own_policies(watched, tmp_path):
    said = invoke(watched, "--out", tmp_path / "report")
    # The start is far too small: DS2 scales up to be late 82 points less, at 3.6 times the cost.
    assert "ds2: rescue\n" in said
    assert re.search(r"holds +saving: costs 2\d\d % more \[.*; a rescue may cost up to 5", said)
    assert re.search(r"holds +SLO: late 8\d(\.\d)? points less than the incumbent", said)
    assert re.search(r"holds +failures: 0 of 60 decisions failed", said)


def test_the_verdict_is_written_on_a_version_and_only_a_person_moves_the_alias(
    watched, tmp_path, monkeypatch
):
    from mlflow import MlflowClient

    from dsp_gym.trackers.mlflow import MlflowTracker

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    folder = tmp_path / "policy"
    folder.mkdir()
    (folder / "policy.json").write_text("{}", encoding="utf-8")
    tracker = MlflowTracker(uri, "shadow")
    tracker.start("train", {})
    tracker.register(folder, "q1", "champion")
    assert tracker.register(folder, "q1", None) == "models:/q1/2"
    tracker.end()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    invoke(watched, "--json", "--register", "models:/q1/2")
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    tags = client.get_model_version("q1", "2").tags
    assert tags["shadow.verdict"] == "rescue"
    assert tags["shadow.saving"].startswith("costs 2")
    assert client.get_model_version_by_alias("q1", "champion").version == 1
    refused = invoke(watched, "--policies", "ds2,static", "--json", "--register", "models:/q1/2",
                     code=2)  # fmt: skip
    assert "there are several verdicts" in refused


@pytest.mark.validate
def test_a_process_beside_the_writer_follows_it_until_it_is_interrupted(tmp_path):
    """What it said last is what a backtest of the same journal says of these intervals."""
    entries = list(read(folder_of("journals", "flink-q11-day")))
    command = [sys.executable, "-c", PATIENT, "backtest", str(tmp_path), "--follow", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        with Journal(tmp_path / "orders") as journal:
            half = len(entries) // 2
            for entry in entries[:half]:
                journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
            first = json.loads(process.stdout.readline())
            for entry in entries[half:]:
                journal.append(entry.kind, entry.t_s, entry.job, entry.policy, entry.body)
            document = first
            while document["intervals"] < 43:
                document = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    twins = json.loads((tmp_path / "orders" / "twins.json").read_text("utf-8"))
    assert twins["intervals"] == document["intervals"] == 43
    assert first["intervals"] < 43
    (whole,) = json.loads(invoke(tmp_path / "orders", "--json"))["jobs"]
    assert whole["intervals"] == 44
    assert whole["name"] == document["name"]
