from __future__ import annotations

import gzip

import pytest

from dsp_gym.errors import SchemaError
from dsp_gym.job.catalog import load_job
from dsp_gym.records.flink_runs import is_flink_runs, read_flink_runs

SPEC = load_job("flink-runs-direct-read")


def test_the_measured_runs_are_runs_of_the_job(data_folder):
    runs = {run.name: run for run in read_flink_runs(data_folder / "flink_runs", SPEC)}
    assert len(runs) == 52
    run = runs["direct-read-p4-m32-sat"]
    assert run.configuration.parallelism == {"source": 1, "split": 2, "state": 4, "sink": 1}
    assert run.configuration.memory_level["state"] == 1  # 32 MiB of 16 * 2^x
    assert run.configuration.memory_level["split"] == -1
    _, subtasks, values = run.samples().grid("state", "state_read_latency_p50_ms")
    assert len(subtasks) == 4
    assert 0.001 < values[-1].mean() < 0.1  # ms
    assert runs["dyn-a-0"].offered == ((0.0, 3000.0), (60.0, 9000.0), (120.0, 14000.0))


def test_a_folder_without_the_files_is_told_apart_and_refused(tmp_path):
    assert not is_flink_runs(tmp_path)
    with pytest.raises(SchemaError, match=r"samples\.csv\.gz"):
        read_flink_runs(tmp_path, SPEC)


def test_a_truncated_file_is_refused(tmp_path):
    whole = gzip.compress(b"run,vertex\n" + b"a,state\n" * 10_000)
    (tmp_path / "samples.csv.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "runs.csv").write_text("run\n")
    with pytest.raises(SchemaError, match=r"samples\.csv\.gz"):
        read_flink_runs(tmp_path, SPEC)


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "samples.csv.gz").write_bytes(gzip.compress(b"run,t_s\n"))
    (tmp_path / "runs.csv").write_text("run,submit_to_running_s\na,3.0\n")
    with pytest.raises(SchemaError, match="state_managed_memory_mib"):
        read_flink_runs(tmp_path, SPEC)
