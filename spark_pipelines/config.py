"""What a dataset is made of, and how: `configs/datasets/*.yaml`."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch
from typing import Literal

from pydantic import Field, field_validator, model_validator

from dsp_gym.config.model import ConfigModel
from dsp_gym.datasets.encoding import EncodingConfig
from dsp_gym.errors import did_you_mean
from dsp_gym.experiments.experiment import TrackingConfig
from dsp_gym.loads.splits import SplitName
from dsp_gym.metrics.samples import SAMPLE_S
from dsp_gym.metrics.window import WindowConfig
from spark_pipelines.days import moment_s
from spark_pipelines.quality import CELL_CHECKS, CHECKS, OPTIONAL_CHECKS, ROW_CHECKS
from spark_pipelines.sources.config import AnySource

Table = Literal["windows", "rescales", "snapshots", "transitions"]


class WindowsConfig(WindowConfig):
    """Over which samples a window's means are taken, and how often there is one."""

    interval_s: int = Field(
        60, ge=SAMPLE_S, le=3600, description="seconds between windows, as between decisions"
    )

    @model_validator(mode="after")
    def _on_the_grid(self) -> WindowsConfig:
        for name in ("window_s", "interval_s"):
            if getattr(self, name) % SAMPLE_S:
                raise ValueError(f"{name} must be a multiple of {SAMPLE_S} s, the samples' grid")
        return self


class QualityConfig(ConfigModel):
    """How much may be wrong with a source before nothing is built from it."""

    max_quarantined: float = Field(
        0.01, ge=0, le=1, description="largest share of raw rows that all checks may keep out"
    )
    per_check: dict[str, float] = Field(
        default_factory=dict, description="the same by check, over max_quarantined"
    )
    ignored: tuple[str, ...] = Field((), description="checks that are not made")
    max_jump_factor: float = Field(
        1000.0,
        gt=1,
        description="how many times the larger of its two neighbours, 5 s before and after and "
        "taken as 1000 at least, a counter, pending records or bytes may be; a single sample above "
        "is a fault: it becomes unknown, its rows are quarantined",
    )
    max_gap_s: float = Field(
        30.0, ge=2 * SAMPLE_S, description="a longer time without samples is a gap, s"
    )
    flow_tolerance: float = Field(
        0.05, gt=0, le=1, description="records lost or made between vertices, as a share"
    )
    time_tolerance_ms: float = Field(
        100.0, gt=0, description="busy + backpressured + idle may differ from 1000 ms/s by so much"
    )

    @field_validator("per_check")
    @classmethod
    def _are_shares(cls, shares: dict[str, float]) -> dict[str, float]:
        for check, share in shares.items():
            _refuse_other(check, {**ROW_CHECKS, **CELL_CHECKS}, "keeps no row out")
            if not 0 <= share <= 1:
                raise ValueError(f"the share of {check} is {share:g}, expected 0 to 1")
        return shares

    @field_validator("ignored")
    @classmethod
    def _can_be_left_out(cls, checks: tuple[str, ...]) -> tuple[str, ...]:
        for check in checks:
            _refuse_other(check, OPTIONAL_CHECKS, "is always made")
        return checks


def _refuse_other(check: str, known: Collection[str], so: str) -> None:
    if check not in known:
        told = f"the check '{check}' {so}" if check in CHECKS else f"there is no check '{check}'"
        raise ValueError(f"{told}. {did_you_mean(check, known)}")


class SplitsConfig(ConfigModel):
    """Which rows are for training, validation and test; by default all are for training."""

    by: Literal["none", "job", "time", "load"] = Field(
        "none", description="key that separates the splits"
    )
    validation: tuple[str, ...] = Field((), description="by job or load: names, as globs")
    test: tuple[str, ...] = Field((), description="by job or load: names, as globs")
    validation_from: float | str | None = Field(
        None, description="by time: second of the run's clock, or ISO 8601 in UTC"
    )
    test_from: float | str | None = Field(None, description="by time: as validation_from, later")
    lag_s: float = Field(
        SAMPLE_S, ge=0, description="how old a sample may be when it is seen, s; see the gap below"
    )

    @model_validator(mode="after")
    def _belong(self) -> SplitsConfig:
        moments = (self.validation_from, self.test_from)
        if (self.by == "time") != any(moment is not None for moment in moments):
            raise ValueError("validation_from and test_from belong to 'by: time', which needs one")
        if (self.by in ("job", "load")) != bool(self.validation or self.test):
            raise ValueError("validation and test name jobs or loads, for 'by: job' or 'by: load'")
        first, last = (None if m is None else moment_s(m) for m in moments)
        if first is not None and last is not None and last <= first:
            raise ValueError("test_from must be later than validation_from")
        return self

    def named(self, name: str) -> SplitName:
        """The split of a job or a load.

        Returns:
            "test" before "validation"; "train" for a name that no pattern matches.
        """
        if any(fnmatch(name, pattern) for pattern in self.test):
            return "test"
        return "validation" if any(fnmatch(name, p) for p in self.validation) else "train"

    def boundaries(self) -> tuple[tuple[float, SplitName], ...]:
        """List the splits by time.

        Returns:
            (second, the split that begins there), rising.
        """
        found: list[tuple[float, SplitName]] = []
        if self.validation_from is not None:
            found.append((moment_s(self.validation_from), "validation"))
        if self.test_from is not None:
            found.append((moment_s(self.test_from), "test"))
        return tuple(found)


class DatasetConfig(ConfigModel):
    """One dataset: sources in; windows, rescales and transitions out."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9._-]+$", description="of the dataset; its folder is runs/datasets/NAME"
    )
    description: str = Field("", description="purpose, for lists")
    sources: tuple[AnySource, ...] = Field(min_length=1, description="where rows come from")
    tables: tuple[Table, ...] = Field(
        ("windows", "rescales", "transitions"), min_length=1, description="tables to build"
    )
    windows: WindowsConfig = Field(default_factory=WindowsConfig, description="decision windows")
    transitions: EncodingConfig = Field(
        default_factory=EncodingConfig,
        description="environment that encodes observations, actions and rewards",
    )
    quality: QualityConfig = Field(
        default_factory=QualityConfig, description="limits on rejected and missing values"
    )
    splits: SplitsConfig = Field(default_factory=SplitsConfig, description="train and test")
    rows_per_file: int = Field(
        1_000_000,
        ge=1000,
        description="largest number of rows of a Parquet file of the build; published files are "
        "cut at 100 MiB",
    )
    late_s: float = Field(
        2 * 86_400.0,
        ge=0,
        description="`--follow` closes a day so many seconds before the newest one began; what "
        "arrives for a closed day waits for the next plain build",
    )
    spark: dict[str, str] = Field(
        default_factory=dict,
        description="settings of Spark, over $SPARK_CONF_DIR/spark-defaults.conf",
    )
    tracking: TrackingConfig = Field(
        default_factory=TrackingConfig, description="where the build is recorded"
    )

    @field_validator("spark", mode="before")
    @classmethod
    def _as_text(cls, settings: object) -> object:
        if not isinstance(settings, dict):
            return settings
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in settings.items()}

    @model_validator(mode="after")
    def _sources_have_names(self) -> DatasetConfig:
        names = self.source_names()
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two sources are named {twice[0]!r}; give each its own name")
        return self

    def source_names(self) -> list[str]:
        """Name the sources as the column `source` does.

        Returns:
            One name per source, in their order.
        """
        kinds = [source.kind for source in self.sources]
        names, seen = [], dict.fromkeys(kinds, 0)
        for source in self.sources:
            seen[source.kind] += 1
            several = kinds.count(source.kind) > 1
            names.append(
                source.name or f"{source.kind}{f'-{seen[source.kind]}' if several else ''}"
            )
        return names
