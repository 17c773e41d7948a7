"""DS2 and Justin on real jobs, and on the simulation calibrated on the same jobs.

    python -m dsp_gym.studies.validation.closed_loop [--case JOB ...] [--out FILE.json]

Every case starts one real job with one task per vertex under a constant load and lets a policy
scale it, with short windows, until it has held one configuration for `QUIET` decisions. Then the
simulation of the job's file goes the same way: once on its own (which configuration does it end
with?), once along the recorded configurations (what would the policy have decided on simulated
snapshots instead of the recorded ones?).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import Place, reach
from dsp_gym.backends.flink.submission import Submission
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.config.files import write_atomic
from dsp_gym.control.config import RunConfig
from dsp_gym.control.loop import ControlLoop
from dsp_gym.control.start import started
from dsp_gym.control.turn import Turn
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.decision import GuardedDecision, ScalingDecision
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.snapshot import MetricsSnapshot
from dsp_gym.loop.topology import Topology
from dsp_gym.metrics.window import WindowConfig
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import Measurement, SimulationOptions

INTERVAL_S = 45
"""Decision interval: a window, its stabilisation and what a local rescale takes."""
WINDOW = WindowConfig(window_s=25, stabilization_s=10)
QUIET = 3
"""Decisions in a row that ask for nothing, after which a policy has settled."""
MOST_TURNS = 12
MOST_RESCALES, MOST_SLOTS = 4, 16
POLICIES = ("ds2-local", "justin-local")


@dataclass(frozen=True, slots=True)
class Case:
    """One job under one constant load."""

    job: str
    rate_per_s: float


CASES = (
    Case("flink-q1", 4000.0),
    Case("flink-q11", 3000.0),
    Case("flink-wordcount", 2500.0),
    Case("flink-micro-update", 6000.0),
)


@dataclass(frozen=True, slots=True)
class LoopResult:
    """Where one policy went with one job."""

    steps: tuple[Configuration, ...]  # configurations decided, in order, the start first
    settled: bool
    achieved_per_s: float  # at the sources, in the last window
    pending_growth_per_s: float

    @property
    def rescales(self) -> int:
        """Changes of configuration."""
        return len(self.steps) - 1


def start(spec: JobSpec) -> Configuration:
    """One task per vertex; level 0 where there is state.

    Returns:
        The configuration; the level of a vertex without state is -1.
    """
    return Configuration(
        {v.name: 1 for v in spec.vertices},
        {v.name: 0 if v.state is not None else -1 for v in spec.vertices},
    )


def real(
    place: Place, case: Case, policy: str, journal: Path, arguments: Mapping[str, str]
) -> tuple[LoopResult, list[Turn]]:
    """One policy on one real job; the job is cancelled afterwards.

    Returns:
        What became of the run, and its turns in order.
    """
    spec = load_job(case.job)
    name = f"{case.job}-{policy}"
    config = RunConfig(
        job=case.job,
        job_name=name,
        where=place.config,
        policy=policy,
        guardrails=None,
        interval_s=INTERVAL_S,
        window=WINDOW,
        max_slots=MOST_SLOTS,
    )
    Submission.of_spec(spec, arguments, name).submit(place.rest, start(spec))
    turns: list[Turn] = []
    try:
        with started(config, mode="active", journal=journal) as run:
            run.backend.advance(INTERVAL_S)
            while len(turns) < MOST_TURNS and not _quiet([turn.changes for turn in turns]):
                turns.append(run.turn())
    finally:
        place.rest.cancel(place.rest.find_job(name).id)
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    settled = _quiet([turn.changes for turn in turns])
    return _result(seen, [turn.guarded for turn in turns], settled), turns


def simulated(spec: JobSpec, rate_per_s: float, policy: Policy, seed: int = 0) -> LoopResult:
    """The same policy on the simulation, from the same start under the same load.

    Returns:
        What became of the simulated run, in the same form as `real` gives it.
    """
    jobs = _simulation(spec, rate_per_s, seed)
    loop = ControlLoop(jobs, policy, None, INTERVAL_S)
    loop.reset(np.array([seed], np.int64))
    jobs.advance(INTERVAL_S)
    seen: list[MetricsSnapshot] = []
    taken: list[GuardedDecision] = []
    changes: list[bool] = []
    while len(seen) < MOST_TURNS and not _quiet(changes):
        step = loop.step()
        seen.append(step.snapshot)
        taken.append(step.guarded)
        changes.append(_changes(step.snapshot, step.guarded))
    return _result(seen, taken, _quiet(changes))


def along(
    spec: JobSpec, rate_per_s: float, policy: Policy, recorded: list[Turn], seed: int = 0
) -> list[bool]:
    """Whether the policy decides the same on simulated snapshots, turn by turn.

    The simulation replays the recorded configurations, so that one different decision does not
    change what is seen afterwards. The same is: every vertex within one task, every level equal.

    Returns:
        A flag per recorded turn with a decision, in order.
    """
    jobs = _simulation(spec, rate_per_s, seed)
    policy.reset(jobs.topology, np.array([seed], np.int64))
    jobs.advance(INTERVAL_S)
    same = []
    for turn in recorded:
        if turn.guarded is None:
            continue
        decided = policy.decide(jobs.snapshot())
        same.append(_agree(decided, turn.guarded.proposed))
        jobs.apply(turn.guarded)
        jobs.advance(INTERVAL_S)
    return same


def summary(case: Case, policy: str, found: LoopResult, model: LoopResult) -> dict[str, object]:
    """Figures of one case, with what they are held to.

    Returns:
        JSON values by name; `holds` has a flag per bar.
    """
    final, predicted = found.steps[-1], model.steps[-1]
    apart = {v: predicted.parallelism[v] - p for v, p in final.parallelism.items()}
    return {
        "job": case.job,
        "policy": policy,
        "rate_per_s": case.rate_per_s,
        "steps": [str(step) for step in found.steps],
        "simulated_steps": [str(step) for step in model.steps],
        "rescales": found.rescales,
        "slots": sum(final.parallelism.values()),
        "achieved_per_s": found.achieved_per_s,
        "pending_growth_per_s": found.pending_growth_per_s,
        "holds": {
            "settled": found.settled,
            "rescales": found.rescales <= MOST_RESCALES,
            "slots": sum(final.parallelism.values()) <= MOST_SLOTS,
            "rate": found.achieved_per_s >= 0.97 * case.rate_per_s,
            "parallelism": max(map(abs, apart.values())) <= 1,
            "level": dict(predicted.memory_level) == dict(final.memory_level),
        },
    }


def _simulation(spec: JobSpec, rate_per_s: float, seed: int) -> SimulatedJobs:
    measured = Measurement(
        window_s=WINDOW.window_s, stabilization_s=WINDOW.stabilization_s, counts_times=True
    )
    jobs = SimulatedJobs(Topology.of([spec]), SimulationOptions(measurement=measured))
    names = jobs.topology.names(0)
    first = start(spec)
    parallelism = np.array([[first.parallelism[name] for name in names]], np.int64)
    level = np.array([[first.memory_level[name] for name in names]], np.int64)
    jobs.reset(
        np.array([seed], np.int64),
        np.full((1, 1), rate_per_s),
        parallelism=parallelism,
        memory_level=level,
    )
    return jobs


def _result(
    seen: Sequence[MetricsSnapshot], taken: Sequence[GuardedDecision | None], settled: bool
) -> LoopResult:
    steps: list[Configuration] = []
    for snapshot, guarded in zip(seen, taken, strict=False):
        for configured in (snapshot, guarded):
            if configured is None:
                continue
            configuration = Configuration.of_row(configured, snapshot.topology)
            if not steps or steps[-1] != configuration:
                steps.append(configuration)
    last = seen[-1]
    sources = [v.kind == "source" for v in last.topology.spec(0).topological_order()]
    return LoopResult(
        tuple(steps),
        settled,
        float(np.nansum(last.records_in_per_s[0, sources])),
        float(np.nansum(last.pending_growth_per_s[0, sources])),
    )


def _quiet(changes: list[bool]) -> bool:
    return len(changes) >= QUIET and not any(changes[-QUIET:])


def _changes(snapshot: MetricsSnapshot, guarded: GuardedDecision) -> bool:
    mask = snapshot.topology.mask
    differs = (guarded.parallelism != snapshot.parallelism) | (
        guarded.memory_level != snapshot.memory_level
    )
    return bool(np.any(differs & mask))


def _agree(one: ScalingDecision, other: ScalingDecision) -> bool:
    near = np.abs(one.parallelism - other.parallelism).max() <= 1
    return bool(near and np.array_equal(one.memory_level, other.memory_level))


def main(
    case: Annotated[list[str] | None, typer.Option(help="Jobs; default: all four.")] = None,
    policy: Annotated[list[str] | None, typer.Option(help="Policies; default: both.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where figures are written.")] = None,
    journal: Annotated[Path, typer.Option(help="Folder of journals.")] = Path("runs/closed-loop"),
    home: Annotated[Path | None, typer.Option(help="Folder of the local cluster.")] = None,
    calibrated: Annotated[
        Path, typer.Option(help="Folder of the job files that `dsp-gym calibrate` wrote.")
    ] = Path("runs/calibrated"),
) -> None:
    """Run the closed loops on the local cluster and compare them with the simulation."""
    place = reach(PlaceConfig(home=home))
    rows = []
    for one in CASES:
        if case and one.job not in case:
            continue
        for name in policy or POLICIES:
            spec = load_job(str(calibrated / f"{one.job}.yaml"))
            arguments = {
                "rate": f"{one.rate_per_s:g}",
                "epoch-ms": str(round(time.time() * 1000)),
            }
            found, turns = real(place, one, name, journal / f"{one.job}-{name}", arguments)
            model = simulated(spec, one.rate_per_s, make(name))
            same = along(spec, one.rate_per_s, make(name), turns)
            row = summary(one, name, found, model)
            row["same_decisions"] = [sum(same), len(same)]
            rows.append(row)
            typer.echo(json.dumps(row))
            if out is not None:
                write_atomic(
                    out, json.dumps({"cases": rows, "window": WINDOW.model_dump()}, indent=1)
                )


if __name__ == "__main__":
    typer.run(main)
