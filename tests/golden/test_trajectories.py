"""Seeded trajectories of simulation and environment, to notice unintended changes of behaviour.

A moved number here means that the same seed gives another trajectory: raise the version of the
environment ids if it was meant.
"""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.control.loop import ControlLoop
from dsp_gym.envs.action import LOGITS, MOVES
from dsp_gym.envs.single import AutoscaleEnv
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.registry import make
from tests.simulating import FAULTY

HOUR_S = 3600
FIELDS = ("processed", "pending", "latency_p95_s", "slo_s", "down_s", "cost", "rescales")


@pytest.mark.parametrize("job", ["nexmark-q1", "nexmark-q5", "nexmark-q8", "nexmark-q11"])
def test_an_hour_of_ds2_on_a_wave_of_load(job, golden):
    spec = load_job(job)
    jobs = SimulatedJobs(Topology.of([spec]))
    wave = 1 + 0.5 * np.sin(2 * np.pi * np.arange(HOUR_S) / HOUR_S)
    seeds = np.array([7])
    jobs.reset(seeds, (0.6 * spec.source.rate_per_s * wave)[None, :])
    loop = ControlLoop(jobs, make("ds2"))
    loop.reset(seeds)
    rows = []
    for _ in range(HOUR_S // 60):
        step = loop.step()
        p = step.snapshot.parallelism[0].tolist()
        rows.append([*p, *(float(getattr(step.outcome, name)[0]) for name in FIELDS)])
    golden(f"{job}-ds2", rows, rel=1e-6)


def test_every_fault_on_one_job(golden):
    spec = load_job("nexmark-q8")
    jobs = SimulatedJobs(Topology.of([spec]), FAULTY)
    jobs.reset(np.array([3]), np.full((1, 1), 0.5 * spec.source.rate_per_s))
    rows = []
    for _ in range(30):
        outcome = jobs.advance(60)
        seen = jobs.snapshot()
        busy = [None if np.isnan(x) else float(x) for x in seen.busy_ms_per_s[0]]
        rows.append([float(outcome.failures[0]), float(seen.window_fill[0]), *busy])
    golden("nexmark-q8-faults", rows, rel=1e-6)


def test_random_valid_actions_in_the_environment(golden):
    env = AutoscaleEnv("nexmark-q11")
    seen, _ = env.reset(seed=11)
    rng = np.random.Generator(np.random.Philox(key=11))
    rows = []
    for _ in range(40):
        masks = env.action_masks().reshape(-1, LOGITS)
        drawn = rng.random(masks.shape) * masks
        pairs = np.stack([drawn[:, :MOVES].argmax(1), drawn[:, MOVES:].argmax(1)], axis=1)
        seen, reward, *_ = env.step(pairs.ravel())
        rows.append([reward, *(float(x) for x in seen[env.batch.encoder.layout.job])])
    golden("nexmark-q11-random-actions", rows, rel=1e-5)  # observations are float32
