"""Releases of Flink: which are read, and on which a job is changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from dsp_gym.backends.flink.rest import FlinkRest
from dsp_gym.backends.flink.versions import (
    WAYS,
    allowing,
    check_told_version,
    check_version,
    supported,
)
from dsp_gym.cli import app
from dsp_gym.errors import FlinkError
from tests.answering import Answering, answering


@pytest.fixture
def flink() -> Iterator[Answering]:
    with answering() as told:
        yield told


def of(flink: Answering, version: str) -> FlinkRest:
    flink.answers["/overview"] = {"flink-version": version}
    return FlinkRest(flink.url)


def test_every_release_of_the_table_is_read_or_refused_as_it_says(flink):
    for row in supported():
        rest = of(flink, f"{row.version}.3")
        assert row.reading
        check_version(rest)
        check_told_version(rest)


def test_a_job_is_changed_in_the_ways_that_were_tested_alone(flink):
    for row in supported():
        rest = of(flink, f"{row.version}.3")
        for way in WAYS:
            if row.allows(way):
                check_version(rest, way)
                continue
            with pytest.raises(FlinkError, match="watched, not changed") as refused:
                check_version(rest, way)
            assert f"tested on Flink {', '.join(allowing(way))}" in str(refused.value)


@pytest.mark.parametrize("version", ["1.17.2", "3.0.0", "2.10.0"])
def test_a_release_without_a_row_is_refused(flink, version):
    rest = of(flink, version)
    for check in (check_version, check_told_version):
        with pytest.raises(FlinkError, match=f"is Flink {version}; this release reads Flink"):
            check(rest)


def test_discover_refuses_a_newer_release_and_writes_nothing(flink, tmp_path):
    of(flink, "3.0.0")
    out = tmp_path / "jobs"
    done = CliRunner().invoke(app, ["discover", "--flink", flink.url, "--out", str(out)])
    assert done.exit_code == 2
    assert "is Flink 3.0.0; this release reads Flink" in done.output
    assert not out.exists()


def test_a_cluster_that_does_not_tell_its_release_is_looked_at(flink):
    check_told_version(FlinkRest(flink.url))
    flink.answers["/overview"] = {"taskmanagers": 1}
    check_told_version(FlinkRest(flink.url))
