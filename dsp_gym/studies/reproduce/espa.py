"""Six autoscalers on Nexmark Q1, Q3 and Q11, as an independent study ran them on real clusters.

Each recorded run is repeated in the simulator: the same rule with the same setting, under the
recorded load. The job comes from runs of the other policies; for tables of further runs it is the
shipped one. Nothing is fitted to a single setting.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.calibration.scaled_runs import ReadRuns, ScaledRun, read_runs
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.pages import Curve, Html, Panel, choice, curves, note, page, section, table
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.studies.reproduce.espa_jobs import FILE, TOPICS, name_of, spec_of
from dsp_gym.studies.reproduce.espa_policies import espa_policy, is_known
from dsp_gym.studies.reproduce.espa_runs import (
    LATE_S,
    SEEDS,
    RepeatedRun,
    recorded,
    refuse_too_little,
    setting_of,
    simulated,
)
from dsp_gym.studies.reproduce.registry import Check

_LOG = logging.getLogger(__name__)
SOURCE = "github.com/delftdata/espa-autoscaling at 2290fa6"
JUDGED = "q1"
"""The query of which all settings were given."""
RANK_BAR, RATIO_BAR, LATENCY_BAR, DIP_BAR_S = 0.9, 0.19, 0.65, 15.0
REPEATS = {"q1": 0.93, "q3": 0.92, "q11": 0.74}
"""Rank correlation of mean TaskManagers between the two real repeats."""
LATENCY_REPEATS = {"q1": 0.75, "q3": 0.96, "q11": 0.42}
"""The same of p95 latency."""
SEEN = "jobs of the other policies' runs; these runs were seen while the model was made"
FEWEST = 3
"""Settings whose ranks mean something."""


def espa(data: Path | None, runs: Path | None = None, report: Path | None = None) -> list[Check]:
    """Check the simulator against the real runs.

    Args:
        data: folder of measured data; its table is read where no other is given.
        runs: a table of further runs, of which nothing is checked, only told.
        report: where the page goes; None: nowhere.

    Returns:
        Ranks and errors of each query.
    """
    found = _told(data, runs, report)
    return [check for query, own in _by_query(found) for check in _checks(query, own, runs is None)]


def rows(
    data: Path | None, runs: Path | None = None, report: Path | None = None
) -> list[dict[str, object]]:
    """Real and simulated figures of every run.

    Args:
        data: as `espa` takes it.
        runs: as `espa` takes it.
        report: as `espa` takes it.

    Returns:
        A dict per run, as `RepeatedRun.to_json` gives it.
    """
    return [one.to_json() for one in _told(data, runs, report)]


def _told(data: Path | None, runs: Path | None, report: Path | None) -> list[RepeatedRun]:
    """Compare, and write the page if one is wanted."""
    found = compare(data, runs)
    if report is not None:
        write_atomic(report, page_of(found))
    return found


def compare(
    data: Path | None, runs: Path | None = None, seeds: Sequence[int] = SEEDS
) -> list[RepeatedRun]:
    """Repeat every run of a table in the simulator.

    Left out by name are unknown policies and queries, settings that a policy cannot have, and runs
    too short or too sparse to repeat.

    Args:
        data: folder of measured data; its table is read where no other is given.
        runs: a table of further runs.
        seeds: of the simulation.

    Returns:
        In the order of the table.

    Raises:
        ConfigError: The table cannot be read.
    """
    if runs is None and data is None:
        raise ConfigError(
            "no table of runs", remedy="Name one: --runs FILE, or the folder: --data FOLDER."
        )
    file = runs if runs is not None else Path(data or "") / FILE
    read = read_runs(file)
    jobs = _shipped if runs is not None else _from_others(read.runs)
    found = []
    for run, policy in _known(read, file):
        drawn = simulated(run, jobs(run), policy, seeds)
        found.append(RepeatedRun(run, recorded(run), drawn))
    return found


def _known(read: ReadRuns, file: Path) -> Iterator[tuple[ScaledRun, PolicyConfig]]:
    """Runs that can be repeated, and their policies; others are named in a warning."""
    for text in read.notes:
        _LOG.warning("%s: %s", file.name, text)
    said = set()
    for run in read.runs:
        for what, name, known in (
            ("policy", run.policy, is_known(run.policy)),
            ("query", run.query, run.query in TOPICS),
        ):
            if not known and (what, name) not in said:
                said.add((what, name))
                _LOG.warning("%s: unknown %s %r: its runs are left out", file.name, what, name)
        if not (is_known(run.policy) and run.query in TOPICS):
            continue
        try:
            refuse_too_little(run)
            yield run, espa_policy(run.policy, setting_of(run))
        except ConfigError as error:
            _LOG.warning("%s: run %r is left out: %s", file.name, run.run, error)


def _from_others(runs: Sequence[ScaledRun]) -> Callable[[ScaledRun], JobSpec]:
    """Jobs calibrated from the runs of all policies but a run's own."""

    @cache
    def calibrated(query: str, policy: str) -> JobSpec:
        return spec_of(query, runs, [policy])

    return lambda run: calibrated(run.query, run.policy)


def _shipped(run: ScaledRun) -> JobSpec:
    return load_job(name_of(run.query))


def _by_query(found: Sequence[RepeatedRun]) -> Iterator[tuple[str, list[RepeatedRun]]]:
    for query in TOPICS:
        own = [one for one in found if one.run.query == query]
        if own:
            yield query, own


def _checks(query: str, own: Sequence[RepeatedRun], judged: bool) -> Iterator[Check]:
    real, ours = (np.array(values) for values in zip(*(one.figures() for one in own), strict=True))
    told = judged and query == JUDGED
    what = f"{query}, {len(own)} settings"
    between = f"{REPEATS[query]:g} between two real repeats"
    if len(own) >= FEWEST:
        rank = rank_correlation(real[:, 0], ours[:, 0])
        yield _check(f"{query}-rank", f"{what}: rank of mean TaskManagers", between, rank,
                     f"at least {RANK_BAR:g}", rank >= RANK_BAR if told else None)  # fmt: skip
    ratio = float(np.median(np.abs(np.log(ours[:, 0] / real[:, 0]))))
    yield _check(f"{query}-ratio", f"{what}: median absolute log ratio of mean TaskManagers",
                 "0.19 between two real repeats", ratio, f"at most {RATIO_BAR:g}",
                 ratio <= RATIO_BAR if told else None)  # fmt: skip
    if len(own) >= FEWEST:
        rank = rank_correlation(real[:, 3], ours[:, 3])
        yield _check(f"{query}-latency", f"{what}: rank of p95 latency",
                     f"{LATENCY_REPEATS[query]:g} between two real repeats", rank,
                     f"at least {LATENCY_BAR:g}",
                     rank >= LATENCY_BAR if told else None)  # fmt: skip
    off = np.abs(ours[:, 2] - real[:, 2]) / np.maximum(real[:, 2], 1.0)
    yield _check(f"{query}-changes", f"{what}: median error of the number of changes",
                 "–", float(np.median(off)), "reported", None)  # fmt: skip
    seen = [s for one in own for s in one.real.outages_s]
    drawn = [s for one in own for course in one.simulated for s in course.outages_s]
    if seen and drawn:
        dips = float(np.median(seen)), float(np.median(drawn))
        yield _check(f"{query}-dip", f"{what}: median outage of a change, s", round(dips[0], 1),
                     dips[1], f"within {DIP_BAR_S:g} s",
                     abs(dips[1] - dips[0]) <= DIP_BAR_S if told else None)  # fmt: skip


def _check(
    name: str, claim: str, published: str | float, ours: float, bar: str, passed: bool | None
) -> Check:
    tolerance = bar if passed is not None else "reported"
    note = SEEN if passed is not None else None
    return Check(
        f"espa/{name}", SOURCE, claim, published, round(ours, 3), tolerance, passed, note=note
    )


def rank_correlation(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation; ties have their mean rank.

    >>> round(rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 30.0, 20.0])), 3)
    0.5

    Returns:
        -1..1; 0 where all values of one are equal.
    """

    def ranks(values: Floats) -> Floats:
        below = (values[None, :] < values[:, None]).sum(axis=1)
        equal = (values[None, :] == values[:, None]).sum(axis=1)
        return np.asarray(below + (equal - 1) / 2)

    a, b = ranks(x), ranks(y)
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def page_of(found: Sequence[RepeatedRun]) -> str:
    """One page: the figures of all runs, and real and simulated course over each other.

    Returns:
        HTML without outside references.
    """
    parts: Mapping[str, Html] = {one.run.run: _course(one) for one in found}
    columns = ("run", "TaskManagers", "peak", "changes", "p95 latency, s", "late")
    lines = []
    for one in found:
        real, ours = one.figures()
        cells = [
            f"{real[i]:{form}} / {ours[i]:{form}}"
            for i, form in enumerate((".2f", ".0f", ".0f", ".1f", ".0%"))
        ]
        lines.append((one.run.run, *cells))
    return page(
        "Autoscalers of real runs, repeated in the simulator",
        f"Real / simulated, median of {len(SEEDS)} seeds. Runs of {SOURCE}; a sample is late above "
        f"{LATE_S:g} s.",
        section("Figures", table(columns, lines)),
        section("Courses", choice("Run", parts)) if parts else note("No run."),
    )


def _course(one: RepeatedRun) -> Html:
    real, ours = one.real, one.simulated[0]
    panels = [
        Panel(
            "load",
            [Curve("load", one.run.input_per_s.tolist())],
            unit="records/s",
            height=100,
        ),
        Panel(
            "TaskManagers",
            [
                Curve("real", real.taskmanagers.tolist(), "step"),
                Curve("simulated", ours.taskmanagers.tolist(), "step"),
            ],
        ),
        Panel(
            "latency",
            [Curve("real", real.latency_s.tolist()), Curve("simulated", ours.latency_s.tolist())],
            unit="s",
            bound=LATE_S,
        ),
        Panel(
            "lag",
            [
                Curve("real", real.lag_records.tolist()),
                Curve("simulated", ours.lag_records.tolist()),
            ],
            unit="records",
        ),
    ]
    text = f"{one.run.run}: load, TaskManagers, latency and lag, real and simulated"
    return curves(text, real.t_s.tolist(), panels)
