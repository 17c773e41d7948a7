"""How a source is named in a dataset's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.environment import with_data_folder
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.plugins import Plugins
from dsp_gym.errors import ConfigError, DatasetError, did_you_mean
from dsp_gym.records.shipped import folder_of
from spark_pipelines.days import moment_s

SOURCES = Plugins("dsp_gym.sources", "source", "docs/guides/add-a-spark-source.md", DatasetError)
"""Sources that other distributions offer."""

_PATH = "${DSP_GYM_DATA} stands for the folder of measured data (unset: ../shared/data)"
_JOB = "job file, by name or path: its vertices, bounds, prices and SLO"


def expanded(path: str, shipped: str | None = None) -> Path:
    """A path of a configuration, with the data folder filled in; Spark's folder is another.

    Args:
        path: as the configuration gives it.
        shipped: `recordings` or `journals`: the path may also be the name of a shipped one.

    Returns:
        An absolute path; whether it exists is not checked.
    """
    filled = with_data_folder(path)
    return (Path(filled) if shipped is None else folder_of(shipped, filled)).absolute()


class _Source(ConfigModel):
    name: str | None = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="the column `source`; none: the kind, numbered where there are several",
    )

    def settings(self) -> ConfigModel:
        """What the source's reader is given.

        Returns:
            This model; of an installed source, its own `Config`.
        """
        return self


class RecordingsSource(_Source):
    """Recordings of real or simulated jobs (`dsp-gym record`)."""

    kind: Literal["recordings"]
    folder: str = Field(
        min_length=1, description=f"a recording, or the name of a shipped one; {_PATH}"
    )
    runs: tuple[str, ...] = Field(("*",), min_length=1, description="names of runs, as globs")
    aborted: bool = Field(False, description="whether runs that ended early are taken, too")


class JournalsSource(_Source):
    """Journals of `dsp-gym shadow`; they give transitions and snapshots alone."""

    kind: Literal["journals"]
    folder: str = Field(
        min_length=1,
        description=f"folder of the segments, or the name of a shipped journal; {_PATH}",
    )
    job: str = Field(min_length=1, description=_JOB)
    key: str | None = Field(
        None, description="name of the job in the journal; none: the job file's"
    )


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
    """Archived samples as Parquet or CSV, one row per value (long) or per time (wide)."""

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
    account: AccessConfig | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="account, certificates and proxy, or the file of the account alone: "
        "`user:password` or a bearer token; none: that of the URL",
    )
    archive: str | None = Field(
        None,
        description="folder of the fetched samples; none: beside the dataset, in .archive/NAME",
    )

    @model_validator(mode="after")
    def _rises(self) -> PrometheusSource:
        since_s = moment_s(self.since)  # the patterns allow for a 13th month
        if self.until is not None and moment_s(self.until) <= since_s:
            raise ValueError(f"until {self.until} must be after since {self.since}")
        return self


class InstalledSource(_Source):
    """A source that another distribution offers; its own keys stand beside `name` and `kind`."""

    model_config = ConfigDict(extra="allow")

    kind: str = Field(description="name of its entry point in the group dsp_gym.sources")

    @model_validator(mode="after")
    def _is_known(self) -> InstalledSource:
        if self.kind not in SOURCES:
            raise ConfigError(
                f"there is no source '{self.kind}'",
                key="sources.kind",
                remedy=did_you_mean(self.kind, [*SHIPPED, *SOURCES]),
            )
        self.settings()
        return self

    def settings(self) -> ConfigModel:
        """The `Config` of the source, made from its own keys.

        Returns:
            The checked configuration, as the source's `survey` takes it.
        """
        return SOURCES.config(self.kind, self.__pydantic_extra__ or {})


SHIPPED = (
    "recordings",
    "journals",
    "rollouts",
    "series",
    "flink_runs",
    "archives",
    "prometheus",
)
"""Kinds of sources that come with the pipeline."""

_INSTALLED = "installed"


def _tag(source: object) -> str | None:
    kind = source.get("kind") if isinstance(source, dict) else getattr(source, "kind", None)
    return None if kind is None else kind if kind in SHIPPED else _INSTALLED


AnySource = Annotated[
    Annotated[RecordingsSource, Tag("recordings")]
    | Annotated[JournalsSource, Tag("journals")]
    | Annotated[RolloutsSource, Tag("rollouts")]
    | Annotated[SeriesSource, Tag("series")]
    | Annotated[FlinkRunsSource, Tag("flink_runs")]
    | Annotated[ArchivesSource, Tag("archives")]
    | Annotated[PrometheusSource, Tag("prometheus")]
    | Annotated[InstalledSource, Tag(_INSTALLED)],
    Discriminator(
        _tag,
        custom_error_type="no_kind",
        custom_error_message="the key 'kind' is missing: it says what the source is",
    ),
]
