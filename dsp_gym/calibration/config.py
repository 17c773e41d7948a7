"""What a calibration reads, and which runs it may fit to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dsp_gym.config.files import find, load_model
from dsp_gym.config.model import ConfigModel

__all__ = ["CalibrationConfig", "PrometheusHistory", "load_calibration"]

RunNames = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class PrometheusHistory(ConfigModel):
    """The history of a running job in the Prometheus that scrapes its cluster."""

    url: str = Field(pattern=r"^https?://", description="address of Prometheus")
    job_name: str | None = Field(
        None, min_length=1, description="Flink's job_name label; none: the job's name"
    )
    days: float = Field(14.0, gt=0, le=366, description="how far back, days")
    labels: str | None = Field(
        None,
        min_length=1,
        description="labels that differ from Flink's, such as job_name=flink_job,tm_id=pod",
    )
    account: Path | None = Field(
        None, description="file with `user:password` or a bearer token; none: that of the URL"
    )
    keep: Path = Field(
        Path("runs/history"), description="folder of what was fetched; each job has one in it"
    )


class CalibrationConfig(ConfigModel):
    """One calibration: recordings in, a job file and a report out."""

    job: str = Field(
        min_length=1,
        description="job file, by name or path; a path counts from the folder of this file, else "
        "from the working folder. Its graph is kept, its numbers are the priors",
    )
    recordings: tuple[str, ...] = Field(
        (),
        description="folders of recordings, or names of shipped ones, or folders of runs.csv and "
        "samples.csv.gz; "
        "${DSP_GYM_DATA} stands for the folder of measured data (unset: ../shared/data)",
    )
    datasets: tuple[str, ...] = Field(
        (), description="folders of datasets with windows, as `dsp-gym dataset build` makes them"
    )
    history: PrometheusHistory | None = Field(
        None,
        exclude_if=lambda value: value is None,
        description="what a running job left in Prometheus; each steady part of it is a run",
    )
    runs: tuple[str, ...] = Field(
        ("*",), min_length=1, description="names of the runs that belong to the job, as globs"
    )
    fit: Literal["all", "third", "parallelism"] | RunNames = Field(
        "all",
        description="which runs are fitted, the others are held out; third: spread over "
        "parallelism and memory (see dsp_gym.calibration.selection); parallelism: those with at "
        "most max_parallelism subtasks at every operator that is scaled; or a list of runs' names, "
        "as globs",
    )
    max_parallelism: int | None = Field(
        None, ge=1, description="fit: parallelism only; largest parallelism in the fit"
    )

    @model_validator(mode="after")
    def _bound_belongs(self) -> CalibrationConfig:
        if (self.fit == "parallelism") != (self.max_parallelism is not None):
            raise ValueError("max_parallelism belongs to 'fit: parallelism', which needs it")
        return self

    @model_validator(mode="after")
    def _measured(self) -> CalibrationConfig:
        if not self.recordings and not self.datasets and self.history is None:
            raise ValueError(
                "there is nothing to fit to: give recordings, or datasets, or a history"
            )
        return self

    def folders(self) -> tuple[Path, ...]:
        """Lists the recordings' folders, with the data folder filled in.

        Returns:
            Folders in the configured order.
        """
        return tuple(_folder(name) for name in self.recordings)

    def dataset_folders(self) -> tuple[Path, ...]:
        """Lists the datasets' folders, with the data folder filled in.

        Returns:
            Folders in the configured order.
        """
        return tuple(_folder(name) for name in self.datasets)


def load_calibration(name: str | Path) -> CalibrationConfig:
    """Reads a calibration; the path of its job counts from the calibration's folder.

    Args:
        name: a shipped name, or a path.

    Returns:
        The calibration, `job` a shipped name or a path that holds in the working folder.
    """
    config = load_model(CalibrationConfig, "calibrations", name)
    job = Path(config.job)
    beside = find("calibrations", name).parent / job
    is_path = job.suffix in {".yaml", ".yml"} or len(job.parts) > 1
    return (
        config.model_copy(update={"job": str(beside)}) if is_path and beside.is_file() else config
    )


def _folder(name: str) -> Path:
    data = os.environ.get("DSP_GYM_DATA", "../shared/data")
    return Path(name.replace("${DSP_GYM_DATA}", data))
