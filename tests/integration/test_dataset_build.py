"""Builds from the command line: incremental, with clear errors, never half published."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DatasetError, DspGymError
from dsp_gym.metrics.samples import Samples
from spark_pipelines.build import build
from spark_pipelines.config import DatasetConfig
from spark_pipelines.faults import fault_of
from spark_pipelines.plan import specs_of
from spark_pipelines.sources import SourceFacts
from tests.dataset_inputs import (
    DAY_S,
    MARCH_1,
    archive,
    archive_file,
    day_of_samples,
    job_file,
    line_names,
    recording,
    write_journal,
)
from tests.simulating import line

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DAYS = ("2026-03-01", "2026-03-02")
WINDOWS = {"window_s": 60, "stabilization_s": 0, "interval_s": 60}


def config(*sources, **rest) -> DatasetConfig:
    document = {"name": "d", "sources": list(sources), "windows": WINDOWS, **rest}
    return parse(DatasetConfig, document, "test")


def archived(tmp_path, days=2, seconds=300, **rest) -> DatasetConfig:
    folder = tmp_path / "archive"
    if not folder.exists():
        archive(folder, days, seconds)
    source = {"kind": "archives", "folder": str(folder), "job": job_file(tmp_path)}
    return config(source, **{"tables": ["windows", "rescales"], **rest})


def rows_of(folder: Path, table: str, *columns: str) -> list[dict]:
    return pa.Table.from_batches(Dataset.open(folder).table(table, columns=columns)).to_pylist()


def adds_up(accounting: dict[str, int]) -> bool:
    parts = ("kept", "merged", "duplicates", "unused")
    quarantined = sum(n for name, n in accounting.items() if name.startswith("quarantined:"))
    return sum(accounting[name] for name in parts) + quarantined == accounting["rows"]


@pytest.mark.validate  # a new day is added in the test of journals
def test_late_rows_rewrite_just_their_partition_and_a_rebuild_says_the_same(spark, tmp_path):
    wanted, out = archived(tmp_path), tmp_path / "dataset"
    first = build(wanted, out)
    assert first.is_new
    assert [(p.job, p.day) for p in first.manifest.partitions] == [("line", day) for day in DAYS]
    given = sum(len(day_of_samples(day, 300)) for day in (0, 1))
    assert first.accounting["rows"] == given
    assert adds_up(first.accounting)
    windows = rows_of(out, "windows", "day", "vertex", "records_in_per_s", "t_s", "split")
    assert Counter(row["vertex"] for row in windows).keys() == set(line_names())
    assert {row["split"] for row in windows} == {"train"}
    steady = [row for row in windows if row["vertex"] == "map"][-1]
    assert steady["records_in_per_s"] == pytest.approx(1000, rel=0.02)  # one task's most

    again = build(wanted, out)
    assert not again.is_new
    assert again.manifest == first.manifest

    late = day_of_samples(0, 300, begin_s=7200.0)
    archive_file(tmp_path / "archive" / "late.parquet", late)
    kept = Dataset.open(out).parts("windows")["line", DAYS[1]]
    second = build(wanted, out)
    assert (second.made, second.kept) == (1, 1)
    assert [p.revision for p in second.manifest.partitions] == [2, 1]
    assert Dataset.open(out).parts("windows")["line", DAYS[1]] == kept
    assert second.manifest.content_sha256 != first.manifest.content_sha256
    assert second.manifest.accounting["rows"] == given + len(late)
    assert Dataset.open(out).problems() == []

    whole = build(wanted, tmp_path / "another")
    assert whole.manifest.content_sha256 == second.manifest.content_sha256
    assert whole.manifest.accounting == second.manifest.accounting


def test_a_journal_becomes_transitions_and_a_new_day_adds_to_them(tmp_path):
    journal, out = write_journal(tmp_path / "journal", 0), tmp_path / "dataset"
    source = {"kind": "journals", "folder": str(journal), "job": job_file(tmp_path)}
    wanted = config(source, tables=["transitions"])
    first = build(wanted, out, engine="polars")  # as Spark does: test_dataset_engines
    assert first.manifest.accounting == {
        "decisions": 8, "decisions:final": 1, "decisions:transition": 7,
    }  # fmt: skip
    learned = Dataset.open(out).transitions("train")
    assert len(learned) == 7
    assert learned.truncated.tolist() == [False] * 6 + [True]
    assert learned.terms["rescale"].tolist() == [0, 0, 1, 0, 0, 0, 0]
    write_journal(journal, 1)
    second = build(wanted, out, engine="polars")
    assert (second.made, second.kept) == (1, 1)
    assert len(Dataset.open(out).transitions()) == 14


def test_days_of_two_configurations_never_stand_in_one_dataset(tmp_path):
    """Changed settings remake closed days; days that nobody can remake are not published beside."""
    folder, out = tmp_path / "journal", tmp_path / "dataset"
    for day in (0, 5):
        write_journal(folder, day)
    job = job_file(tmp_path)
    source = {"kind": "journals", "folder": str(folder), "job": job}

    def built(to=out, **rest):
        how = {name: rest.pop(name) for name in ("rebuild", "late_s") if name in rest}
        return build(config(source, tables=["transitions"], **rest), to, engine="polars", **how)

    assert built().made == 2
    assert not built(late_s=0, rows_per_file=2000).is_new  # on which no row depends
    split = {"by": "time", "test_from": MARCH_1 + DAY_S}
    changed = built(late_s=0, splits=split)
    assert (changed.made, changed.kept, changed.late) == (2, 0, ())
    assert changed.manifest.splits["transitions"].keys() == {"train", "test"}

    shutil.rmtree(folder)
    write_journal(folder, 6)
    kept = built(splits=split)
    assert (kept.made, kept.lost) == (1, (("line", DAYS[0]), ("line", "2026-03-06")))
    written = Path(job).read_text()
    Path(job).write_text(written.replace('"slots": 4', '"slots": 8'))
    for what, rest in (
        ("splits", {}),
        ("transitions", {"splits": split, "transitions": {"gamma": 0.5}}),
        ("vertices", {"splits": split, "transitions": {"vertices": 9}}),
        ("the job file", {"splits": split}),
    ):
        text = rf"2 days of the dataset, such as {DAYS[0]} of job 'line'.*{what}.*--rebuild"
        with pytest.raises(DatasetError, match=text):
            built(**rest)
    assert Dataset.open(out).manifest == kept.manifest
    assert built(tmp_path / "another").made == 1
    anew = built(rebuild=True)
    assert (anew.made, anew.kept, anew.lost) == (1, 0, ())


def test_ctrl_c_says_whether_the_dataset_has_changed(tmp_path, monkeypatch):
    journal = write_journal(tmp_path / "journal", 0)
    (tmp_path / "datasets").mkdir()
    file = tmp_path / "datasets" / "mine.yaml"
    file.write_text(
        f"name: mine\ntables: [transitions]\ntracking: {{enabled: false}}\n"
        f"sources: [{{kind: journals, folder: {journal}, job: {job_file(tmp_path)}}}]\n"
    )

    def interrupted(*_):
        raise KeyboardInterrupt

    out = tmp_path / "out"
    line = ["dataset", "build", str(file), "--out", str(out), "--engine", "polars"]
    for place, said, there in (
        ("spark_pipelines.build._manifest", "the dataset is unchanged", False),
        ("dsp_gym.cli.dataset._record", "what was published stays", True),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, interrupted)
            found = shell(*line)
        assert found.exit_code == 130, found.output
        assert found.stderr.splitlines()[-1].startswith(f"Stopped; {said}")
        assert (out / "revisions").exists() == there


@pytest.mark.validate  # test_dataset_sources reads recordings, too
def test_a_recording_shows_windows_and_the_decisions_nobody_wrote(spark, tmp_path):
    source = {"kind": "recordings", "folder": str(recording(tmp_path / "recording", 300, 2))}
    built = build(config(source, splits={"by": "time", "validation_from": 300}), tmp_path / "out")
    rows = built.manifest.accounting
    assert rows["windows:at_split"] == 2 * 3  # those of 360 and 420 s, of each vertex
    windows = rows_of(tmp_path / "out", "windows", "run", "t_s", "split", "parallelism", "vertex")
    reach_s = 125.0  # a simulated metrics window, and the time it is late by
    for row in windows:
        assert row["t_s"] <= 300 or row["t_s"] > 300 + reach_s
        assert row["split"] == ("train" if row["t_s"] <= 300 else "validation")
        assert row["parallelism"] == {"source": 4, "map": 2, "sink": 1}[row["vertex"]]
    learned = Dataset.open(tmp_path / "out").transitions()
    assert set(learned.policy.tolist()) == {"observed"}
    page = next((tmp_path / "out").rglob("quality.html")).read_text()
    assert "line" in page
    assert '<div class="chart"' in page  # how busy vertices were
    assert "no run stands in two splits" in page
    quality = json.loads(next((tmp_path / "out").rglob("quality.json")).read_text())
    assert quality["leaks"]["reach_s"] == reach_s
    assert quality["leaks"]["apart"]["windows"] == {"runs_in_several": 0, "apart_s": None}
    assert quality["coverage"]["gap_count"] == 0


def test_rows_that_fail_are_kept_apart_with_their_reason(spark, tmp_path):
    samples = day_of_samples(0, 300)
    value = samples.value.copy()
    value[:2] = -5.0
    archive_file(tmp_path / "archive" / "a.parquet", samples, value=pa.array(value))
    built = build(archived(tmp_path, tables=["windows"]), tmp_path / "out")
    assert built.accounting["quarantined:range"] == 2
    assert adds_up(built.accounting)
    found = rows_of(tmp_path / "out", "quarantine", "check", "reason", "value", "vertex")
    assert {(row["check"], row["value"]) for row in found} == {("range", -5.0)}
    assert "-5.0" in found[0]["reason"]
    quality = json.loads(next((tmp_path / "out").rglob("quality.json")).read_text())
    assert quality["accounting"]["quarantined:range"] == 2


@pytest.mark.validate
def test_rows_that_stand_in_two_files_count_once(spark, tmp_path):
    """No worker sees both, so the build finds it out from the cells and goes row by row."""
    samples = day_of_samples(0, 300)
    archive_file(tmp_path / "archive" / "a.parquet", samples)
    once = build(archived(tmp_path, tables=["windows"]), tmp_path / "once")
    assert once.accounting["duplicates"] == 0
    half = len(samples) // 2
    again = Samples(
        *(getattr(samples, n)[:half] for n in ("t_s", "vertex", "subtask", "metric", "value"))
    )
    archive_file(tmp_path / "archive" / "b.parquet", again)
    twice = build(archived(tmp_path, tables=["windows"]), tmp_path / "twice")
    assert twice.accounting["duplicates"] == half
    assert twice.accounting["kept"] == once.accounting["kept"]
    assert adds_up(twice.accounting)
    tables = [b.manifest.partitions[0].tables["windows"].sha256 for b in (once, twice)]
    assert tables[0] == tables[1]


def test_too_many_failing_rows_publish_nothing(spark, tmp_path):
    samples = day_of_samples(0, 300)
    bad = Samples(samples.t_s, samples.vertex, samples.subtask, samples.metric, samples.value - 1e6)
    archive_file(tmp_path / "archive" / "a.parquet", bad)
    with pytest.raises(DatasetError, match=r"fail the check 'range'.*job 'line' on 2026-03-01"):
        build(archived(tmp_path), tmp_path / "out")
    assert not (tmp_path / "out" / "revisions").exists()


def test_a_damaged_file_leaves_the_dataset_as_it_was(spark, tmp_path):
    wanted, out = archived(tmp_path, tables=["windows"]), tmp_path / "out"
    first = build(wanted, out)
    file = tmp_path / "archive" / "day-1.parquet"
    content = bytearray(file.read_bytes())
    content[8:400] = bytes(392)  # pages; the footer is whole
    file.write_bytes(bytes(content))
    with pytest.raises(DatasetError, match=r"day-1\.parquet") as error:
        build(wanted, out)
    assert "archives" in str(error.value)
    assert "cannot be read" in str(error.value)
    assert "2026-03-02" in str(error.value)
    assert Dataset.open(out).manifest == first.manifest
    assert Dataset.open(out).problems() == []


def test_two_jobs_of_one_name_are_refused(tmp_path):
    facts = [
        SourceFacts(name, "archives", "x", "unix", (), {"line": line(cpu_us)})
        for name, cpu_us in (("a", 1000.0), ("b", 2000.0))
    ]
    with pytest.raises(DatasetError, match=r"two jobs are named 'line'.*'a' and 'b'"):
        specs_of(facts)


def test_the_words_of_spark_are_told_in_ours():
    text = "Job aborted.\nCaused by: java.io.IOException: No space left on device"
    assert "no space left" in str(fault_of(text, []))
    worker = "PythonException: Traceback\ndsp_gym.errors.DatasetError: there is no job file of x"
    assert str(fault_of(worker, [])) == "there is no job file of x"
    assert fault_of("reading file:///a/b.parquet. Caused", []).file == "/a/b.parquet"
    assert fault_of("reading file:/a/b.parquet. Caused", []).file == "/a/b.parquet"
    assert "Spark ended" in str(fault_of("[Errno 111] Connection refused", []))


def shell(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_the_command_line_builds_shows_and_checks(spark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive(tmp_path / "archive", 1, 120)
    (tmp_path / "datasets").mkdir()
    file = tmp_path / "datasets" / "mine.yaml"
    file.write_text(
        f"name: mine\nsources: [{{kind: archives, folder: archive, job: {job_file(tmp_path)}}}]\n"
        "tables: [windows]\nwindows: {window_s: 60, stabilization_s: 0}\n"
        "tracking: {uri: 'sqlite:///mine.db'}\n"
    )
    built = shell("dataset", "build", str(file), "--json")
    assert built.exit_code == 0, built.output
    told = json.loads(built.stdout)
    assert told["published"]
    windows = rows_of(tmp_path / "runs" / "datasets" / "mine", "windows", "vertex")
    assert told["rows"] == {"windows": len(windows)}
    assert {row["vertex"] for row in windows} == set(line_names())
    assert told["mlflow_run"]
    assert (tmp_path / "mine.db").exists()
    part = next((tmp_path / "runs").rglob("part-*.parquet"))
    left = part.with_name(".windows.parquet.k3_x9yza.part")  # of a write that was killed
    left.touch(0o600)
    os.utime(left, (0, 0))
    whole = shell("inspect", "runs/datasets/mine")
    assert whole.exit_code == 0
    assert "windows" in whole.output
    assert left.name in whole.output.replace("\n", "")
    rows = parquet.ParquetFile(part).read()
    parquet.write_table(rows.slice(1), part)
    checked = shell("inspect", "runs/datasets/mine")
    assert checked.exit_code == 2
    assert "windows, job 'line', day 2026-03-01" in checked.stderr
    assert "cannot be read" in checked.stderr  # it has another size than the log says


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("{kind: archives, folder: nowhere, job: nexmark-q11}", "no file below it"),
        ("{kind: recordings, folder: nowhere}", "holds no manifest.json"),
        ("{kind: rollouts, folder: nowhere}", "holds no rollouts"),
        ("{kind: journals, folder: nowhere, job: nexmark-q11}", "holds no journal"),
        ("{kind: series, file: nowhere.csv, job: demeter-cars}", "nowhere.csv"),
        ("{kind: magic, folder: x}", "magic"),
        ("{kind: archives, folder: x, job: nexmark-q12}", "Did you mean"),
        (
            "{kind: prometheus, url: 'http://127.0.0.1:1', job: nexmark-q11, since: 2026-03-01, "
            "until: 2026-03-02, retries: 0}",
            "day 2026-03-01",
        ),
    ],
)
def test_a_bad_source_is_named_with_exit_code_2(tmp_path, monkeypatch, source, said):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "datasets" / "bad.yaml"
    file.parent.mkdir()
    file.write_text(f"name: bad\nsources: [{source}]\ntracking: {{enabled: false}}\n")
    found = shell("dataset", "build", str(file))
    assert found.exit_code == 2, found.output
    assert said in found.stderr
    assert not list(tmp_path.glob("runs/datasets/bad/revisions"))


def test_the_first_moment_of_a_month_is_the_one_meant():
    from spark_pipelines.config import moment_s

    assert moment_s("2026-03-01") == MARCH_1
    assert moment_s("2026-03-02T00:00:00Z") == MARCH_1 + DAY_S
    assert moment_s("2026-03-01T02:00:00+02:00") == MARCH_1
    assert moment_s("2026-02-28T19:00:00-05:00") == MARCH_1


def test_a_day_that_no_calendar_has_is_refused_before_anything_is_fetched():
    source = {"kind": "prometheus", "url": "http://localhost:9090", "job": "nexmark-q11"}
    for moments in ({"since": "2026-13-01"}, {"since": "2026-03-01", "until": "2026-04-31"}):
        with pytest.raises(DspGymError, match="is no moment; write 2026-03-01"):
            config({**source, **moments})


@pytest.mark.parametrize(
    ("quality", "said"),
    [
        ({"per_check": {"rnage": 0.1}}, "there is no check 'rnage'.*'range'"),
        ({"per_check": {"gaps": 0.1}}, "the check 'gaps' keeps no row out"),
        ({"ignored": ["shraes"]}, "there is no check 'shraes'.*'shares'"),
        ({"ignored": ["identity"]}, "the check 'identity' is always made"),
        ({"ignored": ["flow"]}, "the check 'flow' is always made"),
    ],
)
def test_a_check_that_is_not_there_or_cannot_be_left_out_is_refused(quality, said):
    source = {"kind": "rollouts", "folder": "x"}
    with pytest.raises(DspGymError, match=said):
        config(source, quality=quality)
    config(source, quality={"per_check": {"time": 0.1}, "ignored": ["range", "jump"]})


def test_a_configuration_is_checked_without_spark():
    code = "import sys; import spark_pipelines.config; print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
