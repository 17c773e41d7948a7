"""A process that scales a simulated job and dies in the middle of it, and one that takes over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.autoscaler import JobAutoscaler
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.journal_writer import JournalWriter
from dsp_gym.control.permission import Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.state_store import StateStore
from dsp_gym.guardrails.chain import build
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.outcome import Outcome
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make
from dsp_gym.simulation.options import SimulationOptions

INTERVAL_S = 60
LASTS_S = 3600
QUIET_S = 600
"""The load rises after so long, s."""

POLICIES = ("ds2", "justin-paper", "flink-autoscaler")
JOBS = ("nexmark-q11", "nexmark-q5", "nexmark-q8", "nexmark-q1")


@dataclass(frozen=True, slots=True)
class Crash:
    """When a process dies, and for how long none runs, s."""

    at_s: int
    lasts_s: int


class Job(SimulatedJobs):
    """One job that adds up what came of it."""

    def __init__(self, spec: JobSpec) -> None:
        super().__init__(Topology.of([spec]), SimulationOptions(threads=1))
        self.passed_s, self.late_s = 0, 0.0

    def advance(self, seconds: int, seen: np.ndarray | None = None) -> Outcome:
        outcome = super().advance(seconds, seen)
        self.passed_s += seconds
        self.late_s += float(outcome.slo_s[0])
        return outcome

    def now_s(self) -> float:
        return float(self.passed_s)


@dataclass(frozen=True, slots=True)
class Fate:
    """What came of a run."""

    late_s: float
    roll_backs: tuple[str, ...]  # their reasons
    rests_while_late: int  # decisions that a rest held up while the job was late


@dataclass(frozen=True, slots=True)
class Case:
    """A job, its load, and the policy that scales it."""

    job: str
    policy: str
    rates: np.ndarray  # (1, LASTS_S)
    seed: int

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> Case:
        """A load that rises to more than the job carries, at once or within minutes."""
        job = str(rng.choice(JOBS))
        spec = load_job(job)
        least = spec.source.rate_per_s * rng.uniform(0.2, 0.5)
        most = least * rng.uniform(1.2, 3.0)
        rises_s = int(rng.choice([1, 120, 900]))
        times = np.arange(LASTS_S)
        rates = least + (most - least) * np.clip((times - QUIET_S) / rises_s, 0.0, 1.0)
        return cls(job, str(rng.choice(POLICIES)), rates[None, :], int(rng.integers(2**31)))

    def run(self, folder: Path, crash: Crash | None = None) -> Fate:
        """Let it pass; a new process starts after the crash."""
        job = Job(load_job(self.job))
        job.reset(np.array([self.seed]), self.rates)
        fate: list[str] = []
        held = 0
        process = _started(job, self.policy, folder, fate)
        while job.passed_s < LASTS_S:
            decided = process.decide()
            held += decided.held_code == "rests" and bool(
                decided.snapshot is not None
                and decided.snapshot.latency_p95_s[0] > job.topology.spec(0).slo.latency_s
                and decided.changes
            )
            if crash is not None and job.passed_s <= crash.at_s < job.passed_s + INTERVAL_S:
                job.advance(crash.at_s - job.passed_s + crash.lasts_s)
                process = _started(job, self.policy, folder, fate)
                continue
            process.finish(decided, INTERVAL_S)
        return Fate(job.late_s, tuple(fate), held)


def _started(job: Job, policy: str, folder: Path, roll_backs: list[str]) -> JobAutoscaler:
    """A process that continues from what the one before kept."""

    class Writer(JournalWriter):
        def step(
            self, event: str, body: Mapping[str, object], policy: str | None = None
        ) -> int | None:
            if event == "rolled_back":
                roll_backs.append(str(body["reason"]))
            return super().step(event, body, policy)

    seat = GuardedPolicy(make(policy), build("default"), tells_range=False)
    permission, roll_back, restraint = Permission("active"), RollBack(), Restraint()
    store = StateStore(folder, job.topology, permission, roll_back, restraint, (seat,))
    autoscaler = JobAutoscaler(
        job,
        [seat],
        Writer(None, job.topology.spec(0).job, policy, job.now_s),
        permission=permission,
        roll_back=roll_back,
        restraint=restraint,
        store=store,
        interval_s=INTERVAL_S,
    )
    autoscaler.warm_up(job.snapshot())
    return autoscaler
