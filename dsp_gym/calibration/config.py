"""What a calibration reads, and which runs it may fit to."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from dsp_gym.backends.flink.prometheus_api import LABELS_ARE, LabelsText
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.calibration.observations import MeasuredRun, SteadyPart, memory_of
from dsp_gym.config.environment import with_data_folder
from dsp_gym.config.files import find, load_model
from dsp_gym.config.model import ConfigModel
from dsp_gym.errors import ConfigError, did_you_mean

RunNames = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]


class PrometheusHistory(ConfigModel):
    """The history of a running job in the Prometheus that scrapes its cluster."""

    url: str = Field(pattern=r"^https?://", description="address of Prometheus")
    job_name: str | None = Field(
        None, min_length=1, description="Flink's job_name label; none: the job's name"
    )
    days: float = Field(14.0, gt=0, le=366, description="how far back, days")
    labels: LabelsText | None = Field(
        None,
        min_length=1,
        description=LABELS_ARE,
    )
    account: AccessConfig | None = Field(
        None,
        description="account, certificates and proxy, or the file of the account alone: "
        "`user:password` or a bearer token; none: that of the URL",
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
        "parallelism and memory (see dsp_gym.calibration.config); parallelism: those with at "
        "most max_parallelism subtasks at every operator that is scaled; or a list of runs' names, "
        "as globs",
    )
    max_parallelism: int | None = Field(
        None, ge=1, description="fit: parallelism only; largest parallelism in the fit"
    )

    @model_validator(mode="after")
    def _check(self) -> CalibrationConfig:
        if (self.fit == "parallelism") != (self.max_parallelism is not None):
            raise ValueError("max_parallelism belongs to 'fit: parallelism', which needs it")
        if not self.recordings and not self.datasets and self.history is None:
            raise ValueError(
                "there is nothing to fit to: give recordings, or datasets, or a history"
            )
        return self

    def folders(self) -> tuple[Path, ...]:
        """List the recordings' folders, with the data folder filled in.

        Returns:
            Folders in the configured order.
        """
        return tuple(Path(with_data_folder(name)) for name in self.recordings)

    def dataset_folders(self) -> tuple[Path, ...]:
        """List the datasets' folders, with the data folder filled in.

        Returns:
            Folders in the configured order.
        """
        return tuple(Path(with_data_folder(name)) for name in self.datasets)


def load_calibration(name: str | Path) -> CalibrationConfig:
    """Read a calibration; the path of its job counts from the calibration's folder.

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


GridPoint = tuple[float, float]


def fitted_runs(
    config: CalibrationConfig, runs: Sequence[MeasuredRun], seen: Sequence[SteadyPart]
) -> frozenset[str]:
    """Choose the runs to fit; the others are held out.

    Returns:
        Their names.

    Raises:
        ConfigError: `fit` names a run that there is not.
    """
    whole = [run for run in runs if run.complete]
    names = frozenset(run.name for run in whole)
    if config.fit == "all":
        return names
    if not isinstance(config.fit, str):
        check_names("fit", config.fit, names)
        return frozenset(n for n in names if any(fnmatchcase(n, glob) for glob in config.fit))
    scaled = _scaled(whole)
    if config.max_parallelism is not None:
        bound = config.max_parallelism
        return frozenset(
            run.name for run in whole if all(run.parallelism[name] <= bound for name in scaled)
        )
    saturated = {o.run for o in seen if o.saturated and _steps(o.run, whole) == 1}
    base = whole[0].spec.memory.base_mib if whole else 1.0
    points = {run.name: _point(run, scaled, base) for run in whole if run.name in saturated}
    return frozenset(_spread(points, max(2, round(len(whole) / 3))))


def check_names(key: str, globs: Iterable[str], names: Iterable[str]) -> None:
    """Refuse a name that no run has, rather than fit to the others in silence.

    Args:
        key: key of the calibration that holds the names.
        globs: names of runs, as globs.
        names: the runs there are.

    Raises:
        ConfigError: A glob matches no run; the error offers the nearest name.
    """
    known = sorted(names)
    for glob in globs:
        if not any(fnmatchcase(name, glob) for name in known):
            raise ConfigError(
                "no recorded run has such a name",
                key=key,
                value=glob,
                remedy=did_you_mean(glob, known),
            )


def _steps(name: str, runs: Sequence[MeasuredRun]) -> int:
    """Rates that were offered one after another; the wait for a load's first second is none."""
    return next(sum(rate > 0 for _, rate in run.offered) for run in runs if run.name == name)


def _scaled(runs: Sequence[MeasuredRun]) -> list[str]:
    """Vertices whose parallelism differs between runs."""
    names = runs[0].parallelism if runs else ()
    return [name for name in names if len({run.parallelism[name] for run in runs}) > 1]


def _point(run: MeasuredRun, scaled: Sequence[str], base_mib: float) -> GridPoint:
    tasks = sum(run.parallelism[name] for name in scaled) or 1
    return math.log2(tasks), memory_of(run.level, run.spec.memory.base_mib / base_mib)


def _spread(points: dict[str, GridPoint], count: int) -> list[str]:
    """`count` names whose points lie far from each other, by the module's rule."""
    if not points:
        return []
    lows = [min(point[axis] for point in points.values()) for axis in (0, 1)]
    widths = [max(point[axis] for point in points.values()) - lows[axis] or 1.0 for axis in (0, 1)]
    unit = {
        name: ((point[0] - lows[0]) / widths[0], (point[1] - lows[1]) / widths[1])
        for name, point in points.items()
    }
    taken: list[str] = []
    for corner in ((0.0, 0.0), (0.0, 1.0), (1.0, 1.0)):
        left = [name for name in unit if name not in taken]
        if left and len(taken) < count:
            taken.append(min(left, key=lambda name: (math.dist(unit[name], corner), name)))
    while len(taken) < min(count, len(unit)):
        left = [name for name in unit if name not in taken]
        taken.append(
            max(
                left,
                key=lambda name: (
                    round(min(math.dist(unit[name], unit[other]) for other in taken), 9),
                    -unit[name][0],
                    -unit[name][1],
                ),
            )
        )
    return taken
