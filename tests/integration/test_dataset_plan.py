"""The plan given to Spark: every step once, and nothing that hinders its optimiser."""

from __future__ import annotations

import contextlib
import io
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: the extra 'spark'")

from dsp_gym.config.files import parse
from spark_pipelines import pipeline
from spark_pipelines.config import DatasetConfig
from spark_pipelines.pipeline import made_of
from spark_pipelines.plan import specs_of
from spark_pipelines.sources import reader_of
from tests.dataset_inputs import archive, job_file, recording, write_journal

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def made(spark, tmp_path, keep=lambda frame, name: frame, scanned=True, **document):
    """Tables of a configuration, planned and not computed."""
    config = parse(DatasetConfig, {"name": "d", **document}, "test")
    facts = [
        reader_of(source.kind).survey(source, name, tmp_path / ".staging" / name)
        for source, name in zip(config.sources, config.source_names(), strict=True)
    ]
    inputs = [reader_of(source.kind).read(spark, source, None) for source in facts]
    if not scanned:  # as sources whose rows stand in no Parquet files
        inputs = [replace(one, scan=None) for one in inputs]
    return made_of(spark, inputs, config, specs_of(facts), keep)


def optimized(frame) -> str:
    """The optimized plan, out of what `explain` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain("extended")
    _, _, optimized_on = printed.getvalue().partition("== Optimized Logical Plan ==")
    found, _, physical = optimized_on.partition("== Physical Plan ==")
    assert physical
    return found


@pytest.fixture
def archives(tmp_path):
    """Three sources of samples."""
    job = job_file(tmp_path)
    return [
        {"kind": "archives", "name": name, "folder": str(archive(tmp_path / name, 1, 60)),
         "job": job}
        for name in ("one", "two", "three")
    ]  # fmt: skip


def test_a_filter_reaches_the_files_of_the_sources_it_is_about(spark, tmp_path, archives):
    failures = made(spark, tmp_path, sources=archives, tables=["windows"]).failures()
    assert optimized(failures).count("Relation [") == 3
    of_one = optimized(failures.where("source = 'two'"))
    assert of_one.count("Relation [") == 1
    assert "rand(" not in of_one


@pytest.mark.parametrize(
    ("scanned", "once"),
    [(True, ("MapInArrow ", "Aggregate [", "Window ")), (False, ("Window ",))],
)
@pytest.mark.validate
def test_steps_are_planned_once_however_many_sources_there_are(
    spark, tmp_path, archives, scanned, once
):
    grids = {}

    def keep(frame, name):
        return grids.setdefault(name, frame)

    for sources in (archives[:1], archives):
        grids.clear()
        made(spark, tmp_path, keep, scanned, sources=sources, tables=["windows"])
        plan = optimized(grids["grid"])
        assert [plan.count(step) for step in once] == [1] * len(once), plan
        assert not scanned or "Relation [" not in plan, plan  # workers read the files


@pytest.mark.validate
def test_the_split_of_a_decision_is_computed_once(spark, tmp_path, monkeypatch):
    calls = []

    def counting(*arguments):
        calls.append(arguments)
        return given(*arguments)

    given = pipeline.with_split
    monkeypatch.setattr(pipeline, "with_split", counting)
    journal = write_journal(tmp_path / "journal", 0)
    found = made(
        spark,
        tmp_path,
        sources=[{"kind": "journals", "folder": str(journal), "job": job_file(tmp_path)}],
        tables=["transitions"],
        splits={"by": "job", "test": ["line"]},
    )
    rows = found.tables["transitions"].select("split").collect()
    assert len(calls) == 1
    assert {row["split"] for row in rows} == {"test"}
    assert len(rows) == 7


@pytest.mark.validate
def test_a_mixed_dataset_has_one_unit_of_cost(spark, tmp_path):
    """A journal and a recording of one configuration cost the same, whatever the headroom is."""
    sources = [
        {"kind": "journals", "folder": str(write_journal(tmp_path / "j", 0, 3)),
         "job": job_file(tmp_path)},
        {"kind": "recordings", "folder": str(recording(tmp_path / "r", 300, 1, maps=1))},
    ]  # fmt: skip
    costs = {}
    for headroom in (0.7, 0.2):
        found = made(
            spark,
            tmp_path,
            sources=sources,
            tables=["transitions"],
            transitions={"env": {"start_headroom": headroom}},
        )
        rows = found.tables["transitions"].where("step < 2").select("source", "cost").collect()
        by_source = {source: {row["cost"] for row in rows if row["source"] == source}
                     for source in ("journals", "recordings")}  # fmt: skip
        journals, recordings = (sorted(found) for found in by_source.values())
        costs[headroom] = recordings[0]
        for seen in (journals, recordings):
            assert seen == pytest.approx([recordings[0]] * len(seen), rel=0.05)
    assert costs[0.2] == pytest.approx(costs[0.7] / 2)  # maps: 2 at 0.7, 5 at 0.2; one sink
