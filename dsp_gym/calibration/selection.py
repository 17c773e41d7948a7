"""Which runs a calibration is fitted to: a rule that looks at configurations, never at results.

`third`: the saturated runs are points in the plane of log2 parallelism (subtasks of the operators
that are scaled) and log2 managed memory, each axis scaled to 0..1. Taken are, in this order, one
task with the least memory, one task with the most, and most tasks with the most; then always the
run farthest from all that are taken (ties: fewer tasks, then less memory), until a third of all
runs, paced ones included, is taken; never fewer than two. Runs at a given load show little about
capacity and are all held out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.observations import MeasuredRun, SteadyPart, memory_of
from dsp_gym.errors import ConfigError, did_you_mean

__all__ = ["check_names", "fitted_runs"]

GridPoint = tuple[float, float]


def fitted_runs(
    config: CalibrationConfig, runs: Sequence[MeasuredRun], seen: Sequence[SteadyPart]
) -> frozenset[str]:
    """Chooses the runs to fit; the others are held out.

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
    """Refuses a name that no run has, rather than fit to the others in silence.

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
