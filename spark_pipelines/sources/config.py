"""How a source is named in a dataset's configuration."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dsp_gym.config.model import ConfigModel

__all__ = [
    "AnySource",
    "ArchivesSource",
    "FlinkRunsSource",
    "JournalsSource",
    "PrometheusSource",
    "RecordingsSource",
    "RolloutsSource",
    "SeriesSource",
    "expanded",
]

_PATH = "${DSP_GYM_DATA} stands for the folder of measured data (unset: ../shared/data)"
_JOB = "job file, by name or path: its vertices, bounds, prices and SLO"


def expanded(path: str) -> Path:
    """A path of a configuration, with the data folder filled in; Spark's folder is another."""
    data = os.environ.get("DSP_GYM_DATA", "../shared/data")
    return Path(path.replace("${DSP_GYM_DATA}", data)).absolute()


class _Source(ConfigModel):
    name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="the column `source`; none: the kind, numbered where there are several",
    )


class RecordingsSource(_Source):
    """Recordings of real or simulated jobs (`dsp-gym record`)."""

    kind: Literal["recordings"]
    folder: str = Field(min_length=1, description=f"a recording; {_PATH}")
    runs: tuple[str, ...] = Field(("*",), min_length=1, description="names of runs, as globs")
    aborted: bool = Field(False, description="whether runs that ended early are taken, too")


class JournalsSource(_Source):
    """Journals of `dsp-gym run` and `dsp-gym shadow`."""

    kind: Literal["journals"]
    folder: str = Field(min_length=1, description=f"folder of the segments; {_PATH}")
    job: str = Field(min_length=1, description=_JOB)
    key: str | None = Field(None, description="what the journal calls the job; none: its name")


class RolloutsSource(_Source):
    """Simulated decisions (`dsp-gym rollout`)."""

    kind: Literal["rollouts"]
    folder: str = Field(min_length=1, description=f"folder of the rollout; {_PATH}")


class SeriesSource(_Source):
    """A CSV of means over equal steps of a whole job, as demeter_cars_*.csv."""

    kind: Literal["series"]
    file: str = Field(min_length=1, description=f"the CSV; {_PATH}")
    job: str = Field(min_length=1, description=_JOB)
    run: str | None = Field(None, description="name of its run; none: the file's name")


class FlinkRunsSource(_Source):
    """Measured runs as CSV: runs.csv and samples.csv.gz."""

    kind: Literal["flink_runs"]
    folder: str = Field(min_length=1, description=f"folder of both files; {_PATH}")
    job: str = Field(min_length=1, description=_JOB)
    runs: tuple[str, ...] = Field(("*",), min_length=1, description="names of runs, as globs")


class ArchivesSource(_Source):
    """Samples somebody kept as Parquet or CSV, one row per value (long) or per time (wide)."""

    kind: Literal["archives"]
    folder: str = Field(min_length=1, description=f"searched for files, all levels; {_PATH}")
    files: str = Field("**/*.parquet", description="glob below the folder; .parquet, .csv, .csv.gz")
    job: str = Field(min_length=1, description=_JOB)
    layout: Literal["long", "wide"] = Field(
        "long",
        description="long: columns t_s, vertex, subtask, metric, value; wide: t_s, vertex, subtask "
        "and one column per metric",
    )
    columns: dict[str, str] = Field(
        default_factory=dict,
        description="our name of a column -> the file's, where they differ; wide: of metrics, too",
    )
    run: str = Field("archive", description="name of the run; a Unix clock is cut by day")


class PrometheusSource(_Source):
    """Range queries to a Prometheus that scrapes Flink; what was fetched is kept as Parquet."""

    kind: Literal["prometheus"]
    url: str = Field(pattern=r"^https?://", description="address of Prometheus")
    job: str = Field(min_length=1, description=_JOB)
    job_name: str | None = Field(None, description="Flink's job_name label; none: the job's name")
    since: str = Field(
        pattern=r"^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z?)?$",
        description="first moment, ISO 8601, UTC, such as 2026-03-01 or 2026-03-01T12:00:00Z",
    )
    until: str | None = Field(
        None,
        pattern=r"^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d)?Z?)?$",
        description="moment after the last, ISO 8601, UTC; none: now, a later build fetches more",
    )
    chunk_s: int = Field(3600, ge=60, le=86_400, description="seconds of one query, s")
    queries_per_s: float = Field(
        5.0, gt=0, le=1000, description="most queries per second, so that a live server keeps up"
    )
    timeout_s: float = Field(30.0, gt=0, description="longest wait for an answer, s")
    retries: int = Field(3, ge=0, le=20, description="times a query is sent again after an error")
    archive: str | None = Field(
        None, description="folder of what was fetched; none: beside the dataset, in .archive/NAME"
    )

    @model_validator(mode="after")
    def _rises(self) -> PrometheusSource:
        if self.until is not None and self.until <= self.since:
            raise ValueError(f"until {self.until} must be after since {self.since}")
        return self


AnySource = Annotated[
    RecordingsSource
    | JournalsSource
    | RolloutsSource
    | SeriesSource
    | FlinkRunsSource
    | ArchivesSource
    | PrometheusSource,
    Field(discriminator="kind"),
]
