"""DS2 and Justin on real jobs, and on the simulation calibrated on the same jobs.

    python -m dsp_gym.studies.validation.closed_loop [--case JOB ...] [--out FILE.json]

Every case starts one real job with one task per vertex under a constant load and lets a policy
scale it, with short windows, until it has held one configuration for `QUIET` decisions. Then the
simulation of the job's file goes the same way: once on its own (which configuration does it end
with?), once along the recorded configurations (what would the policy have decided on simulated
snapshots instead of the recorded ones?).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from dsp_gym.backends.config import PlaceConfig
from dsp_gym.backends.flink.connection import Place, reach
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.config import RunConfig
from dsp_gym.control.loop import ControlLoop
from dsp_gym.control.start import started
from dsp_gym.control.turn import Turn
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.loop.protocols import Policy
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import Measurement, SimulationOptions
from dsp_gym.studies.policies_on_flink.runs import columns
from dsp_gym.studies.runner import keep_figures, run, write_figures
from dsp_gym.studies.running import WINDOW, constant_load, one_task_each, submitted

INTERVAL_S = 45
"""Decision interval: a window, its stabilisation and what a local rescale takes."""
QUIET = 3
"""Decisions in a row that ask for nothing, after which a policy has settled."""
MOST_TURNS = 12
MOST_RESCALES, MOST_SLOTS = 4, 16
POLICIES = ("ds2-local", "justin-local")


CASES = {
    "flink-q1": 4000.0,
    "flink-q11": 3000.0,
    "flink-wordcount": 2500.0,
    "flink-micro-update": 6000.0,
}
"""Constant load of each job, records/s."""


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


def real(
    place: Place, job: str, rate_per_s: float, policy: str, journal: Path
) -> tuple[LoopResult, list[Turn]]:
    """One policy on one real job; the job is cancelled afterwards.

    Returns:
        What became of the run, and its turns in order.
    """
    spec, name = load_job(job), f"{job}-{policy}"
    config = RunConfig(
        job=job,
        job_name=name,
        where=place.config,
        policy=policy,
        guardrails=None,
        interval_s=INTERVAL_S,
        window=WINDOW,
        max_slots=MOST_SLOTS,
    )
    with (
        submitted(place.rest, spec, name, constant_load(rate_per_s), one_task_each(spec)),
        started(config, mode="active", journal=journal) as run,
    ):
        run.backend.advance(INTERVAL_S)
        turns = _until_settled(run.turn)
    return _result(turns), turns


def simulated(spec: JobSpec, rate_per_s: float, policy: Policy, seed: int = 0) -> LoopResult:
    """The same policy on the simulation, from the same start under the same load.

    Returns:
        What became of the simulated run, in the same form as `real` gives it.
    """
    jobs = _simulation(spec, rate_per_s, seed)
    loop = ControlLoop(jobs, policy, None, INTERVAL_S)
    loop.reset(np.array([seed], np.int64))
    jobs.advance(INTERVAL_S)

    def turn() -> Turn:
        step = loop.step()
        return Turn(1, float(step.snapshot.t_s[0]), step.snapshot, step.guarded, None, True)

    return _result(_until_settled(turn))


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
        then = turn.guarded.proposed
        is_near = np.abs(decided.parallelism - then.parallelism).max() <= 1
        same.append(bool(is_near and np.array_equal(decided.memory_level, then.memory_level)))
        jobs.apply(turn.guarded)
        jobs.advance(INTERVAL_S)
    return same


def summary(
    job: str, rate_per_s: float, policy: str, found: LoopResult, model: LoopResult
) -> dict[str, object]:
    """Figures of one case, with what they are held to.

    Returns:
        JSON values by name; `holds` has a flag per bar.
    """
    final, predicted = found.steps[-1], model.steps[-1]
    apart = {v: predicted.parallelism[v] - p for v, p in final.parallelism.items()}
    return {
        "job": job,
        "policy": policy,
        "rate_per_s": rate_per_s,
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
            "rate": found.achieved_per_s >= 0.97 * rate_per_s,
            "parallelism": max(map(abs, apart.values())) <= 1,
            "level": dict(predicted.memory_level) == dict(final.memory_level),
        },
    }


def _simulation(spec: JobSpec, rate_per_s: float, seed: int) -> SimulatedJobs:
    measured = Measurement(
        window_s=WINDOW.window_s, stabilization_s=WINDOW.stabilization_s, counts_times=True
    )
    jobs = SimulatedJobs(Topology.of([spec]), SimulationOptions(measurement=measured))
    parallelism, level = columns(one_task_each(spec), jobs.topology)
    jobs.reset(
        np.array([seed], np.int64),
        np.full((1, 1), rate_per_s),
        parallelism=parallelism,
        memory_level=level,
    )
    return jobs


def _until_settled(turn: Callable[[], Turn]) -> list[Turn]:
    turns: list[Turn] = []
    while len(turns) < MOST_TURNS and not _is_settled(turns):
        turns.append(turn())
    return turns


def _is_settled(turns: Sequence[Turn]) -> bool:
    return len(turns) >= QUIET and not any(turn.changes for turn in turns[-QUIET:])


def _result(turns: Sequence[Turn]) -> LoopResult:
    seen = [turn.snapshot for turn in turns if turn.snapshot is not None]
    last = seen[-1]
    steps = [
        Configuration.of_row(configured, last.topology)
        for turn in turns
        for configured in (turn.snapshot, turn.guarded)
        if configured is not None
    ]
    changed = (new for old, new in pairwise(steps) if new != old)
    sources = [v.kind == "source" for v in last.topology.spec(0).topological_order()]
    return LoopResult(
        (steps[0], *changed),
        _is_settled(turns),
        float(np.nansum(last.records_in_per_s[0, sources])),
        float(np.nansum(last.pending_growth_per_s[0, sources])),
    )


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
    place, rows = reach(PlaceConfig(home=home)), []
    for one, rate_per_s in CASES.items():
        for name in policy or POLICIES:
            if case and one not in case:
                continue
            spec = load_job(str(calibrated / f"{one}.yaml"))
            found, turns = real(place, one, rate_per_s, name, journal / f"{one}-{name}")
            model = simulated(spec, rate_per_s, make(name))
            same = along(spec, rate_per_s, make(name), turns)
            row = summary(one, rate_per_s, name, found, model)
            rows.append(row | {"same_decisions": [sum(same), len(same)]})
            write_figures(rows[-1])
            keep_figures({"cases": rows, "window": WINDOW.model_dump()}, out)


if __name__ == "__main__":
    run(main)
