"""How processor time grows with the number of jobs, the size of a job and the length of a run.

Jobs and vertices: a step of the vector environment with the guardrails of the shipped experiments,
60 s of simulation, every action to hold. Jobs are random graphs (`dsp_gym.job.random_dag`). Days: a
whole run of one job under a daily load, decided on by DS2 once a minute.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import yaml

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import write_atomic
from dsp_gym.control.loop import ControlLoop
from dsp_gym.envs.config import EnvConfig
from dsp_gym.envs.scenarios import DEFAULT_LOADS
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.job.catalog import load_job
from dsp_gym.job.random_dag import random_dag
from dsp_gym.loop.topology import Topology
from dsp_gym.pages import COLOURS, figure
from dsp_gym.policies.capabilities import without_reasons
from dsp_gym.policies.registry import make
from dsp_gym.studies.bench.environment import GUARDRAILS

__all__ = ["GrowthLine", "GrowthPoint", "GrowthSizes", "bench_growth", "plot_growth", "slope"]

Quantity = Literal["jobs", "vertices", "days"]


class GrowthSizes(NamedTuple):
    """The sizes that are measured, rising."""

    jobs: tuple[int, ...]
    vertices: tuple[int, ...]
    days: tuple[int, ...]


FULL = GrowthSizes(
    (1, 4, 16, 64, 256, 1024, 4096, 16_384), (2, 4, 8, 16, 32, 64), (1, 2, 4, 7, 14, 30)
)
QUICK = GrowthSizes((1, 16, 256), (2, 8, 32), (1, 2, 4))

VERTICES = 8
"""Of each job, where their number grows."""
JOBS = 64
"""In the batch, where their vertices grow."""
SHAPES = 4
"""Different random graphs in a batch."""
RUN_JOB = "bench-8"
"""The job of a run of days."""

EPISODE_S, DECISION_S, DAY_S = 1800, 60, 86_400
LEAST_CPU_S = 0.2
"""Processor time of a run of steps, at least."""

TITLES = {
    "jobs": f"a step of all jobs, {VERTICES} vertices each",
    "vertices": f"a step of {JOBS} jobs",
    "days": "a run of one job, a decision a minute",
}


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """Time at one size; medians over runs."""

    size: int
    cpu_s: float  # of all threads
    wall_s: float


@dataclass(frozen=True, slots=True)
class GrowthLine:
    """Time over one quantity, the others held.

    A slope is the exponent: with 1, twice the size takes twice the time; with 0, as much.
    """

    quantity: Quantity
    what: str  # takes the time
    points: tuple[GrowthPoint, ...]
    slope_small: float  # of processor time over the smaller half of the sizes
    slope_large: float  # over the larger half


OnPoint = Callable[[Quantity, GrowthPoint], None]


def bench_growth(
    sizes: GrowthSizes = FULL, runs: int = 3, progress: OnPoint = lambda quantity, point: None
) -> list[GrowthLine]:
    """Measures all lines.

    Args:
        sizes: What is measured; at least two of each quantity.
        runs: Runs per point.
        progress: Called after each point.

    Returns:
        A line for jobs, vertices and days.
    """
    with tempfile.TemporaryDirectory() as folder:
        graphs = {v: _jobs(Path(folder), v) for v in (*sizes.vertices, VERTICES)}
        jobs = graphs[VERTICES]
        return [
            _line("jobs", sizes.jobs, lambda n: _steps(n, jobs, n, runs), progress),
            _line("vertices", sizes.vertices, lambda v: _steps(v, graphs[v], JOBS, runs), progress),
            _line("days", sizes.days, lambda days: _run(days, runs), progress),
        ]


def slope(points: Sequence[GrowthPoint]) -> float:
    """The exponent of processor time over size, by least squares of the logarithms.

    >>> slope([GrowthPoint(n, 0.5 * n**2, 0.0) for n in (1, 10, 100)])
    2.0

    Returns:
        The slope; 0 where time does not depend on the size.
    """
    sizes = np.log([point.size for point in points])
    seconds = np.log([point.cpu_s for point in points])
    return round(float(np.polyfit(sizes, seconds, 1)[0]), 3)


def plot_growth(lines: Sequence[GrowthLine], file: Path) -> None:
    """Draws time over size on logarithmic axes, a panel per quantity, as an SVG file.

    Raises:
        MissingExtraError: Matplotlib is not installed.
    """
    wide = 3.4 * len(lines)
    with figure(wide, 3.2, salt="growth", extra="train", purpose="drawing growth") as drawn:
        panels = drawn.subplots(1, len(lines), squeeze=False)[0]
        for axis, line, colour in zip(panels, lines, COLOURS, strict=False):
            sizes = [point.size for point in line.points]
            axis.loglog(sizes, [p.cpu_s for p in line.points], color=colour, marker="o", ms=4)
            axis.set_title(line.what, loc="left", fontsize="small")
            axis.set_xlabel(f"{line.quantity}; slopes {line.slope_small:g}, {line.slope_large:g}")
            axis.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
            axis.minorticks_off()
            axis.grid(visible=True)
        panels[0].set_ylabel("processor seconds")
        stream = io.StringIO()
        drawn.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    write_atomic(file, stream.getvalue())


def _line(
    quantity: Quantity,
    sizes: Sequence[int],
    measure: Callable[[int], GrowthPoint],
    progress: OnPoint,
) -> GrowthLine:
    points = []
    for size in sizes:
        points.append(measure(size))
        progress(quantity, points[-1])
    half = max(2, (len(points) + 1) // 2)
    return GrowthLine(
        quantity, TITLES[quantity], tuple(points), slope(points[:half]), slope(points[-half:])
    )


def _jobs(folder: Path, vertices: int) -> list[str]:
    """Job files of random graphs of that many vertices."""
    files = []
    for seed in range(SHAPES):
        name = f"random-{vertices}-{seed}"
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(random_dag(seed, name, vertices)), encoding="utf-8")
        files.append(str(file))
    return files


def _steps(size: int, jobs: Sequence[str], count: int, runs: int) -> GrowthPoint:
    """Times steps of a batch within an episode; its reset is left out."""
    env = EnvConfig(episode_s=EPISODE_S).model_dump(mode="json")
    config: dict[str, object] = {
        "name": "growth",
        "jobs": list(jobs),
        "loads": DEFAULT_LOADS,
        "env": env,
    }
    envs = AutoscaleVectorEnv(count, config=config, guardrails=GUARDRAILS)
    held = np.zeros(envs.action_space.shape or (), np.int64)
    most = EPISODE_S // DECISION_S - 2  # the last step would begin an episode
    found = []
    for run in range(runs):
        envs.reset(seed=run)
        envs.step(held)
        cpu, wall, steps = time.process_time(), time.perf_counter(), 0
        while steps < most and time.process_time() - cpu < LEAST_CPU_S:
            envs.step(held)
            steps += 1
        found.append(((time.process_time() - cpu) / steps, (time.perf_counter() - wall) / steps))
    cpu_s, wall_s = (statistics.median(one[way] for one in found) for way in (0, 1))
    return GrowthPoint(size, cpu_s, wall_s)


def _run(days: int, runs: int) -> GrowthPoint:
    """Times whole runs of days."""
    spec = load_job(RUN_JOB)
    seconds = np.arange(days * DAY_S)
    rates = spec.source.rate_per_s * (0.6 + 0.35 * np.sin(2 * np.pi * seconds / DAY_S))
    jobs = SimulatedJobs(Topology.of([spec]))
    loop = ControlLoop(jobs, without_reasons(make("ds2")), interval_s=DECISION_S)
    found = []
    for run in range(runs):
        jobs.reset(np.array([run]), rates[None])
        loop.reset(np.array([run]))
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(days * DAY_S // DECISION_S):
            loop.step()
        found.append((time.process_time() - cpu, time.perf_counter() - wall))
    cpu_s, wall_s = (statistics.median(one[way] for one in found) for way in (0, 1))
    return GrowthPoint(days, cpu_s, wall_s)
