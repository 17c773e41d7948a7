"""The shipped job files."""

from __future__ import annotations

import pytest

from dsp_gym.config.files import names
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import list_jobs, load_job

PROMISED = {
    *(f"nexmark-q{n}" for n in (1, 2, 3, 5, 8, 11)),
    *(f"ds2-q{n}" for n in (1, 2, 3, 5, 8, 11)),
    *(f"streambed-q{n}" for n in (1, 2, 5, 8, 11, "5-large", "11-large")),
    "wordcount-heron",
    "wordcount-flink",
    "justin-read",
    "justin-write",
    "justin-update",
}


def test_every_promised_job_ships():
    assert {spec.job for spec in list_jobs()} >= PROMISED


@pytest.mark.parametrize("name", names("jobs"))
def test_a_job_is_named_as_its_file_and_says_what_it_is(name):
    spec = load_job(name)
    assert spec.job == name
    assert spec.description.endswith(".")


@pytest.mark.parametrize("name", names("jobs"))
def test_some_configuration_within_the_quota_carries_the_reference_rate(name):
    spec = load_job(name)
    top = {
        v.name: min(v.max_parallelism, spec.max_parallelism_per_vertex)
        for v in spec.vertices
        if v.kind != "source" and v.scalable
    }
    levels = {v.name: spec.memory.levels - 1 for v in spec.vertices}
    assert mst(spec, top, levels).rate_per_s > spec.source.rate_per_s


def test_a_fitted_file_says_what_it_was_fitted_to():
    fitted = [spec for spec in list_jobs() if spec.fit_script is not None]
    assert {spec.job for spec in fitted} >= {"streambed-q1", "streambed-q5", "streambed-q11"}
    assert all(spec.used_in_fit for spec in fitted)


def test_an_unknown_job_gets_a_suggestion():
    with pytest.raises(ConfigError, match="Did you mean 'nexmark-q11'"):
        load_job("nexmrk-q11")


def test_a_job_is_read_from_a_path(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "job: mine\nsource: {rate_per_s: 10}\nvertices:\n"
        "  - {name: a, kind: source, cpu_us_per_record: 1}\n"
        "  - {name: b, kind: sink, inputs: [{from: a}], cpu_us_per_record: {value: 2, source: x}}\n"
    )
    assert load_job(path).vertex("b").cpu_us_per_record == 2


def test_a_random_graph_has_as_many_vertices_as_its_name_says():
    assert len(load_job("random-dag:7:12").vertices) == 12
    assert load_job("random-dag:7").job == load_job("random-dag:7:12").job == "random-dag-7"


@pytest.mark.parametrize("wrong", ["random-dag:7:1", "random-dag:7:many", "random-dag:7:-3"])
def test_a_random_graph_of_no_size_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"no number of vertices.*random-dag:7:12"):
        load_job(wrong)
