"""A source of another distribution is named in a dataset by its entry point, like a policy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: the extra 'spark'")

from dsp_gym.backends.simulated.recording import simulated_samples
from dsp_gym.config.files import parse
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import ConfigError, DatasetError
from spark_pipelines.build import build
from spark_pipelines.config import DatasetConfig
from spark_pipelines.sources import config as sources
from tests.dataset_inputs import job_file, simulated

EXAMPLE = Path(__file__).parents[1] / "json_lines.py"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Offers tests/json_lines.py as `json-lines`, and a module that does not exist as `gone`."""
    info = tmp_path / "site" / "my_sources-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sources\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[dsp_gym.sources]\njson-lines = my_source.json_lines\ngone = my_source.gone\n"
    )
    package = tmp_path / "site" / "my_source"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "json_lines.py").write_text(EXAMPLE.read_text("utf-8"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    offered = type(sources.SOURCES)(
        sources.SOURCES.group, "source", sources.SOURCES.guide, DatasetError
    )
    monkeypatch.setattr(sources, "SOURCES", offered)  # entry points are looked up once


def config_of(**source) -> DatasetConfig:
    document = {
        "name": "mine",
        "sources": [source],
        "tables": ["windows"],
        "windows": {"window_s": 60, "stabilization_s": 0, "interval_s": 60},
        "tracking": {"enabled": False},
    }
    return parse(DatasetConfig, document, "mine.yaml")


@pytest.mark.spark
@pytest.mark.slow
def test_its_rows_become_a_dataset(spark, tmp_path, installed):
    folder = tmp_path / "lines"
    folder.mkdir()
    samples = simulated_samples(simulated(), 300)
    columns = (samples.t_s, samples.vertex, samples.subtask, samples.metric, samples.value)
    lines = [
        json.dumps({"t": t, "operator": vertex, "task": task, "metric": metric, "value": value})
        for t, vertex, task, metric, value in zip(*(c.tolist() for c in columns), strict=True)
    ]
    (folder / "monday.jsonl").write_text("\n".join(lines))
    wanted = config_of(kind="json-lines", folder=str(folder), job=job_file(tmp_path))
    first = build(wanted, tmp_path / "out")
    assert first.accounting["rows"] == len(samples)
    assert first.manifest.sources[0].kind == "json-lines"
    assert first.manifest.config["sources"][0]["folder"] == str(folder)
    rows = [
        row
        for batch in Dataset.open(tmp_path / "out").table("windows")
        for row in batch.to_pylist()
    ]
    assert {row["run"] for row in rows} == {"monday"}
    last = [row for row in rows if row["vertex"] == "map"][-1]
    assert last["records_in_per_s"] == pytest.approx(1000, rel=0.02)  # one task's most
    assert not build(wanted, tmp_path / "out").is_new


def test_its_keys_are_checked_by_its_own_model(installed):
    with pytest.raises(ConfigError, match=r"unknown key 'foldr'.*Did you mean 'folder'"):
        config_of(kind="json-lines", foldr="x", job="nexmark-q11")


def test_an_unknown_source_is_refused_with_those_that_are_offered(installed):
    with pytest.raises(ConfigError, match=r"no source 'json-line'. Did you mean 'json-lines'"):
        config_of(kind="json-line", folder="x")


def test_one_that_cannot_be_imported_is_refused_with_its_entry_point(installed):
    with pytest.raises(DatasetError, match=r"'gone' cannot be loaded from 'my_source\.gone'"):
        config_of(kind="gone")
