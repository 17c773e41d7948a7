"""A real build, stopped or killed: the dataset is whole, and the same line finishes it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dsp_gym.datasets.delta import REVISIONS
from dsp_gym.datasets.reader import Dataset
from tests.dataset_inputs import job_file, write_journal

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("DSP_GYM_KILLS", "2"))
"""How often; `make validate` asks for ten."""

_LONGEST_S = 300.0


def command(folder: Path) -> list[str]:
    code = "from dsp_gym.cli import main; main()"
    config, out = str(folder / "datasets" / "d.yaml"), str(folder / "dataset")
    rest = ["--out", out, "--master", "local[1]", "--track", "none"]
    return [sys.executable, "-c", code, "dataset", "build", config, *rest]


def run_to_end(folder: Path) -> list[tuple[float, str]]:
    """Builds; when each stage began, and at last when all was over."""
    begun, stages = time.monotonic(), []
    with subprocess.Popen(command(folder), stderr=subprocess.PIPE, text=True) as process:
        for said in process.stderr:
            stages.append((time.monotonic() - begun, said.strip()))
        assert process.wait(_LONGEST_S) == 0, stages
    return [*stages, (time.monotonic() - begun, "end")]


def configured(folder: Path) -> Path:
    """Writes a configuration; returns the folder of its journal."""
    journal = write_journal(folder / "journal", 0)
    (folder / "datasets").mkdir()
    (folder / "datasets" / "d.yaml").write_text(
        f"name: d\ntables: [transitions]\nspark: {{spark.driver.memory: 512m}}\nsources:\n"
        f"  - {{kind: journals, folder: {journal}, job: {job_file(folder)}}}\n"
    )
    return journal


@pytest.mark.parametrize(
    "stage", [pytest.param("spark", marks=pytest.mark.validate), "transitions"]
)
def test_ctrl_c_ends_it_with_one_sentence_and_publishes_nothing(tmp_path, stage) -> None:
    configured(tmp_path)
    with subprocess.Popen(
        command(tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        for said in process.stderr:
            if said.startswith(stage):
                break
        if stage == "spark":
            time.sleep(1.0)  # the JVM is starting
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the JVM, too
        rest = process.stderr.read()
        assert process.wait(_LONGEST_S) == 130
    assert rest.splitlines()[-1].startswith("Stopped; the dataset is unchanged")
    assert not [line for line in rest.splitlines() if line.startswith(("Traceback", "\tat "))]
    assert not (tmp_path / "dataset" / REVISIONS).exists()


@pytest.mark.validate
def test_killed_at_random_moments_it_is_whole_and_the_next_build_finishes(tmp_path) -> None:
    journal = configured(tmp_path)
    stages = run_to_end(tmp_path)
    begin_s = next(at_s for at_s, said in stages if said.startswith("spark"))
    before = Dataset.open(tmp_path / "dataset").manifest
    shutil.copytree(tmp_path / "dataset", tmp_path / "first")
    write_journal(journal, 1)
    moments = random.Random(7)
    for _ in range(KILLS):
        process = subprocess.Popen(
            command(tmp_path), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        try:
            process.wait(moments.uniform(begin_s, 1.2 * stages[-1][0]))
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        dataset = Dataset.open(tmp_path / "dataset")
        assert dataset.problems() == []
        assert dataset.manifest.revision in (1, 2)
        if dataset.manifest.revision == 2:  # it was over before: begin anew
            shutil.rmtree(tmp_path / "dataset")
            shutil.copytree(tmp_path / "first", tmp_path / "dataset")
        else:
            assert dataset.manifest == before
    run_to_end(tmp_path)
    finished = Dataset.open(tmp_path / "dataset")
    assert finished.problems() == []
    assert [p.day for p in finished.manifest.partitions] == ["2026-03-01", "2026-03-02"]
    assert not list((tmp_path / "dataset").glob(".building-*"))
