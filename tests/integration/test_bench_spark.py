"""The two pipelines that `dsp-gym bench spark` compares give the same results."""

from __future__ import annotations

import importlib.util

import pyarrow.compute as pc
import pytest

from dsp_gym.errors import DatasetError
from spark_pipelines.config import QualityConfig
from spark_pipelines.studies import bench, single

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_without_polars_the_row_says_what_installs_it(spark, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(single, "has_polars", lambda: False)
    rates, notes = bench.beside_polars(spark, tmp_path, [20_000], 1)
    assert [rate.name for rate in rates] == ["decision windows of 20,000 rows: Spark"]
    assert len(notes) == 1
    assert "pip install 'dsp-gym[bench]'" in notes[0]


@pytest.mark.skipif(importlib.util.find_spec("polars") is None, reason="needs the extra 'bench'")
def test_polars_makes_the_windows_that_spark_makes(spark, tmp_path) -> None:
    rates, notes = bench.beside_polars(spark, tmp_path, [400_000], 1)
    assert [rate.name.rpartition(": ")[2] for rate in rates] == ["Spark", "Polars, one process"]
    assert notes == []

    bench.make_samples(tmp_path / "again", bench.Sizes(400_000))
    files = sorted((tmp_path / "again").glob("samples/*/*.parquet"))
    found = single.polars_windows(
        files, bench.MADE_METRICS, QualityConfig(), bench.decision_span()
    ).to_arrow()
    at = found.column_names.index("records_in_per_s")
    wrong = found.set_column(at, "records_in_per_s", pc.multiply(found.column(at), 1.001))
    with pytest.raises(DatasetError, match="records_in_per_s"):
        bench.same_windows(spark, tmp_path / "again", wrong)
