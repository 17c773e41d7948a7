"""What polars builds of decisions is what Spark builds, to the last bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config.files import parse
from dsp_gym.datasets.rollouts.plan import RolloutConfig
from dsp_gym.datasets.rollouts.run import rollout
from dsp_gym.envs.reward import TERMS
from spark_pipelines.build import build
from spark_pipelines.config import DatasetConfig
from tests.dataset_inputs import archive, job_file, write_journal
from tests.deciding import decisions_table

pytestmark = [pytest.mark.spark, pytest.mark.slow]

pytest.importorskip("pyspark")
pl = pytest.importorskip("polars")

from spark_pipelines import on_polars  # noqa: E402
from spark_pipelines.splits import reach_s, with_split  # noqa: E402
from spark_pipelines.steps.transitions import segments  # noqa: E402

ROLLOUTS = {
    "policies": ["static", "ds2"],
    "jobs": ["nexmark-q11", "nexmark-q3"],
    "loads": {"train": {"loads": ["diurnal-bursts"], "seeds": {"from": 0, "to": 2}}},
    "env": {"episode_s": 600},
}
SPLITS = (
    {"by": "none"},
    {"by": "job", "validation": ["jo*"], "test": ["job-1"]},
    {"by": "load", "validation": ["day*"], "test": ["night"]},
    {"by": "time", "validation_from": 300, "test_from": 700},
)


def config(*sources, **rest) -> DatasetConfig:
    return parse(DatasetConfig, {"name": "d", "sources": list(sources), **rest}, "test")


def test_rollouts_and_a_journal_become_the_same_dataset(spark, tmp_path, monkeypatch):
    rollout(parse(RolloutConfig, ROLLOUTS, "test"), tmp_path / "rollouts")
    journal = write_journal(tmp_path / "journal", 0)
    wanted = config(
        {"kind": "rollouts", "folder": str(tmp_path / "rollouts")},
        {"kind": "journals", "folder": str(journal), "job": job_file(tmp_path)},
        tables=["snapshots", "transitions"],
        splits={"by": "time", "validation_from": 300},
        transitions={"env": {"start_headroom": 0.7}},  # costs come in another unit
    )
    ours = build(wanted, tmp_path / "polars", engine="polars").manifest
    theirs = build(wanted, tmp_path / "spark").manifest
    assert ours.tables.keys() == theirs.tables.keys() == {"snapshots", "transitions"}
    assert ours.partitions == theirs.partitions
    assert len(ours.partitions) == 3
    assert ours.accounting == theirs.accounting
    assert ours.accounting["decisions:at_split"] > 0
    assert ours.splits["transitions"].keys() == {"train", "validation"}
    assert "polars" in ours.versions
    assert "pyspark" in theirs.versions

    write_journal(journal, 1)  # each goes on with what the other published
    ours = build(wanted, tmp_path / "spark", engine="polars")
    assert (ours.made, ours.kept) == (1, 3)
    monkeypatch.setattr(on_polars, "_ROWS_AT_ONCE", 1)  # each run by itself
    write = on_polars.write_rows
    monkeypatch.setattr(on_polars, "write_rows", lambda *args: write(*args[:-1], 10))
    anew = build(wanted, tmp_path / "polars", engine="polars", rebuild=True).manifest
    assert anew.content_sha256 == ours.manifest.content_sha256


def test_a_killed_build_is_finished_by_the_same_command(tmp_path, monkeypatch):
    journal = write_journal(tmp_path / "journal", 0)
    write_journal(journal, 1)
    source = {"kind": "journals", "folder": str(journal), "job": job_file(tmp_path)}
    wanted = config(source, tables=["snapshots", "transitions"])
    whole = build(wanted, tmp_path / "whole", engine="polars").manifest
    write, written = on_polars.write_rows, []

    def interrupted(rows, building, table, partition, rows_per_file):
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(partition)
        write(rows, building, table, partition, rows_per_file)

    monkeypatch.setattr(on_polars, "write_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(wanted, tmp_path / "out", engine="polars")
    monkeypatch.setattr(on_polars, "write_rows", write)
    assert not (tmp_path / "out" / "revisions").exists()
    found = build(wanted, tmp_path / "out", engine="polars").manifest
    assert found.content_sha256 == whole.content_sha256


def drawn(rng: np.random.Generator, job: str, run: str, every_s: float) -> list[dict]:
    """Decisions of a run with gaps, repeated steps, and parts that nobody knows."""
    rows, step = [], int(rng.integers(0, 3))
    for _ in range(int(rng.integers(1, 25))):
        row = {
            "source": "s",
            "job": job,
            "run": run,
            "day": "0000-00-00",
            "step": step,
            "t_s": every_s * step + float(rng.uniform(0, 1)),
            "snapshot": {"t_s": every_s * step, "parallelism": [1, 2]},
            "proposed_parallelism": [1, 2],
            **dict.fromkeys(TERMS, 0.5),
        }
        match rng.integers(0, 20):
            case 0:
                row["snapshot"] = None
            case 1:
                row["snapshot"] = {"t_s": every_s * step}
            case 2:
                row["proposed_parallelism"] = None
            case 3:
                row[TERMS[0]] = None
            case 4:
                row[TERMS[-1]] = float("nan")
        rows.append(row)
        step += int(rng.choice([0, 1, 1, 1, 1, 1, 1, 1, 2]))
    return rows


@pytest.mark.parametrize(
    ("splits", "every_s"),
    [*((splits, 60.0) for splits in SPLITS), (SPLITS[-1], 300.0)],  # the last: beyond the reach
    ids=[*(splits["by"] for splits in SPLITS), "time, decisions far apart"],
)
def test_every_decision_has_the_split_the_segment_and_the_use_that_spark_gives_it(
    spark, splits, every_s
):
    rng = np.random.default_rng(7)
    wanted = config({"kind": "rollouts", "folder": "x"}, splits=splits)
    runs = [(f"job-{n % 3}", f"run-{n}" + "@2026-03-01" * (n % 2)) for n in range(60)]
    loads = {f"run-{n}": ("day", "day-off", "night", "")[n % 4] for n in range(50)}
    rows = [row for job, run in runs for row in drawn(rng, job, run, every_s)]
    random.Random(0).shuffle(rows)
    marked = with_split(
        spark.createDataFrame(decisions_table(rows)), wanted.splits, loads, reach_s(wanted)
    )
    kept = segments(marked.where("split is not null"))
    names = ("job", "run", "t_s", "split", "segment", "use")
    theirs = {tuple(row) for row in kept.select(*names).collect()}
    outside = {(row.job, row.run, row.t_s) for row in marked.where("split is null").collect()}

    ours, left = set(), set()
    for job in sorted({job for job, _ in runs}):
        table = decisions_table([row for row in rows if row["job"] == job])
        table = table.sort_by([(name, "ascending") for name in ("run", "step", "t_s")])
        told = on_polars.used(table, wanted, loads)
        timed = told.with_columns(t_s=pl.from_arrow(table["t_s"]))
        ours |= set(timed.filter(pl.col("split").is_not_null()).select(names).iter_rows())
        left |= set(timed.filter(pl.col("split").is_null()).select(names[:3]).iter_rows())
    assert ours == theirs
    assert left == outside
    assert bool(left) == (splits["by"] == "time")
    assert {use for *_, use in ours} == {
        "transition", "final", "no_next", "no_reward", "no_snapshot", "duplicate",
    }  # fmt: skip


def test_no_run_goes_on_across_a_boundary_however_far_apart_its_decisions_are():
    rng, splits = np.random.default_rng(3), SPLITS[-1]
    for every_s in (60.0, 150.0, 300.0, 650.0):
        wanted = config({"kind": "rollouts", "folder": "x"}, splits=splits)
        rows = [row for n in range(30) for row in drawn(rng, "job", f"run-{n:02d}", every_s)]
        table = decisions_table(rows)
        table = table.sort_by([(name, "ascending") for name in ("run", "step", "t_s")])
        told = on_polars.used(table, wanted, {}).filter(pl.col("use").is_in(on_polars.ENCODED))
        of = told.group_by("run", "segment").agg(
            splits=pl.col("split").n_unique(),
            cut=(pl.col("use") != "transition").sum(),
        )
        assert len(of) > 30
        assert set(of["splits"]) == {1}
        assert set(of["cut"]) == {1}  # the last decision of a segment has no next observation


def test_samples_and_a_stream_are_left_to_spark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    archive(tmp_path / "archive", 1, 60)
    file = tmp_path / "mine.yaml"
    file.write_text(
        f"name: mine\nsources: [{{kind: archives, folder: archive, job: {job_file(tmp_path)}}}]\n"
        "tracking: {enabled: false}\n"
    )
    for more, key, said in (
        ((), "--engine", "of kind 'archives', which Spark alone reads"),
        (("--follow", "0"), "--engine", "does not apply to --follow"),
    ):
        found = CliRunner().invoke(
            app, ["dataset", "build", str(file), "--engine", "polars", *more]
        )
        assert found.exit_code == 2, found.output
        assert key in found.stderr
        assert said in found.stderr
    assert not (tmp_path / "runs" / "datasets" / "mine" / "revisions").exists()
