"""`dsp-gym discover`: job files that the other commands take, safely named and wholly written."""

from __future__ import annotations

import json
import re
import shlex
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

from dsp_gym.backends.discovery import flink as by_rest
from dsp_gym.cli import app
from dsp_gym.cli.shadow import settings_of
from dsp_gym.control.start import job_of
from dsp_gym.job.catalog import load_job
from tests.answering import answering
from tests.running_job import run_job


@pytest.fixture
def flink(monkeypatch):
    monkeypatch.setattr(by_rest, "_PAUSE_S", 0.0)
    with answering() as told:
        yield told


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def discover(flink, folder, *words):
    return run("discover", "--flink", flink.url, "--out", folder, *words)


def test_the_written_file_is_taken_by_the_other_commands(flink, tmp_path):
    run_job(flink)
    euros = ("--prices", "1,0.1,EUR")
    refused = discover(flink, tmp_path / "jobs", "--prices", "EUR")
    assert refused.exit_code == 2
    assert "takes two prices and a currency" in refused.output
    done = discover(flink, tmp_path / "jobs", "--slo-latency-s", "5", *euros)
    assert done.exit_code == 0, done.output
    file = tmp_path / "jobs" / "words.yaml"
    assert f"dsp-gym simulate {file}" in done.output
    spec = load_job(file)
    assert (spec.slo.latency_s, spec.prices.core_hour, spec.prices.currency) == (5, 1, "EUR")
    assert "fine" in run("config", "check", file, "--kind", "jobs").output
    played = run("simulate", file, "--duration", "10m", "--json")
    assert played.exit_code == 0, played.output


def test_evil_names_stay_inside_the_folder_and_two_of_one_name_get_two_files(flink, tmp_path):
    run_job(flink, "../../evil", "a1")
    run_job(flink, "../../evil", "b2")
    run_job(flink, "\x1b[31m[red]x", "c3")
    done = discover(flink, tmp_path / "in" / "jobs")
    assert done.exit_code == 0, done.output
    written = ["31m-red-x.yaml", "evil-a1.yaml", "evil-b2.yaml"]
    jobs = tmp_path / "in" / "jobs"
    assert sorted(path.name for path in jobs.iterdir()) == [*written, "fleet"]
    assert sorted(path.name for path in (jobs / "fleet").glob("*.yaml")) == written
    assert "\x1b" not in (jobs / "fleet" / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    told = "2 jobs are named '../../evil': evil-a1.yaml (id a1), evil-b2.yaml (id b2)"
    assert told in " ".join(done.output.split())
    assert "\x1b" not in done.output


def test_a_job_that_cannot_be_looked_at_keeps_no_other_from_its_file(flink, tmp_path):
    run_job(flink, "words", "a1")
    run_job(flink, "just begun", "b2")
    del flink.answers["/jobs/b2"]
    done = discover(flink, tmp_path)
    assert done.exit_code == 1
    assert [path.name for path in tmp_path.glob("*.yaml")] == ["words.yaml"]
    assert "/jobs/b2" in done.output


def test_files_are_replaced_only_when_told_and_never_in_part(flink, tmp_path):
    run_job(flink, "old", "a1")
    run_job(flink, "new", "b2")
    (tmp_path / "old.yaml").write_text("mine")
    done = discover(flink, tmp_path)
    assert done.exit_code == 2
    assert "exists already; nothing was written" in done.output
    assert "--overwrite" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["old.yaml"]
    assert (tmp_path / "old.yaml").read_text() == "mine"
    assert discover(flink, tmp_path, "--overwrite").exit_code == 0
    assert load_job(tmp_path / "old.yaml").job == "old"


def test_what_an_earlier_discovery_left_is_named_with_the_command_that_removes_it(flink, tmp_path):
    run_job(flink, "gone", "a" * 32)
    run_job(flink, "stays", "b" * 32)
    folder = tmp_path / "my jobs"
    assert discover(flink, folder).exit_code == 0
    (folder / "own.yaml").write_text("mine")  # of no discovery
    del flink.answers["/jobs/" + "a" * 32]
    overview = flink.answers["/jobs/overview"]
    overview["jobs"] = [job for job in overview["jobs"] if job["name"] != "gone"]
    done = discover(flink, folder, "--overwrite", "--json")
    assert done.exit_code == 0
    (left,) = json.loads(done.output)["remarks"]
    command = shlex.split(left[left.index("rm ") :])
    assert subprocess.run(command, check=True).returncode == 0
    assert sorted(path.name for path in folder.glob("*.yaml")) == ["own.yaml", "stays.yaml"]
    assert settings_of(str(folder)).job_name == "stays"  # shadow mode has one configuration again
    assert json.loads(discover(flink, folder, "--overwrite", "--json").output)["remarks"] == []


def test_shadow_mode_runs_the_folder_of_one_job_and_names_the_commands_of_several(flink, tmp_path):
    run_job(flink, "words", "a" * 32)
    assert discover(flink, tmp_path / "one").exit_code == 0
    settings = settings_of(str(tmp_path / "one"))
    assert (job_of(settings).job, settings.job_name, settings.where.metrics) == (
        "words", "words", "rest",
    )  # fmt: skip
    run_job(flink, "words", "b" * 32)
    assert discover(flink, tmp_path / "two").exit_code == 0
    done = run("shadow", tmp_path / "two")
    assert done.exit_code == 2
    (named, *_) = re.findall(r"dsp-gym shadow (\S+\.yaml)", "".join(done.output.split("\n")))
    assert settings_of(named).where.job_id is not None
    (tmp_path / "none").mkdir()
    assert "dsp-gym discover" in run("shadow", tmp_path / "none").output


@pytest.mark.parametrize(
    "folder", ["execution.checkpointing.savepoint-dir", "state.savepoints.dir"]
)
def test_a_configuration_says_how_its_job_is_rescaled(flink, tmp_path, folder):
    def discovered(name: str, **settings: str) -> tuple[dict[str, object], str]:
        run_job(flink, "words", settings=settings)
        assert discover(flink, tmp_path / name).exit_code == 0
        flink.answers["/jobs/overview"]["jobs"].clear()
        text = (tmp_path / name / "fleet" / "shadow.yaml").read_text()
        return yaml.safe_load(text)["where"], text

    where, text = discovered("default", **{folder: "s3://flink/savepoints"})
    assert (where["actuator"], where["savepoints"]) == ("resubmit", "s3://flink/savepoints")
    assert "entry_class: com.example.Words" in text
    assert "the cluster has no folder" not in text
    assert "the cluster has no folder of its own" in discovered("none")[1]
    where, text = discovered("adaptive", **{"jobmanager.scheduler": "adaptive"})
    assert where["actuator"] == "adaptive"
    assert "#  " not in text
    told = (tmp_path / "default" / "fleet" / "README.md").read_text()
    assert f"dsp-gym shadow {tmp_path / 'default'} --apply --sole\n" in told


def test_a_job_without_a_file_is_named_and_the_others_are_written(flink, tmp_path):
    run_job(flink)
    run_job(flink, "chained", "b2", graph=[{"name": "Source: a -> Sink: b", "busy": 1.0}])
    done = discover(flink, tmp_path, "--json")
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert [one["job"] for one in told["jobs"]] == ["words"]
    assert "chained into one vertex" in told["refused"][0]
    only = discover(flink, tmp_path, "--jobs", "chained", "--out", tmp_path / "none")
    assert only.exit_code == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "the place of the jobs is missing"),
        (["--flink", "127.0.0.1:8081"], "a URL begins with http"),
        (["--flink", "http://127.0.0.1:1"], "Connection refused"),
        (["--flink", "http://127.0.0.1:1", "--out", __file__], "is a file, not a folder"),
    ],
)
def test_what_is_wrong_is_said(words, says):
    done = run("discover", *words)
    assert (done.exit_code, says in done.output) == (2, True), done.output
