"""Playing a batch of cells: environment, policy, exploration; what comes of it as episodes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from dsp_gym.arrays import Floats, Ints
from dsp_gym.datasets.rollouts.exploration import Explorer, RandomCapacities, RandomMoves
from dsp_gym.datasets.rollouts.format import RecordedEpisode
from dsp_gym.datasets.rollouts.plan import Batch
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.codec import Codec
from dsp_gym.envs.config import Randomisation
from dsp_gym.envs.core import BatchStep
from dsp_gym.envs.episodes import Draws
from dsp_gym.envs.reward import TERMS
from dsp_gym.guardrails.chain import build_for
from dsp_gym.loop.snapshot import PER_JOB, PER_VERTEX, MetricsSnapshot
from dsp_gym.policies.capabilities import FutureLoad, capabilities_of, without_reasons
from dsp_gym.policies.registry import make

_STREAM = zlib.crc32(b"episode")

Ticked = Callable[[float], object]
"""Told which share of the batch is played, after each decision."""


def play(batch: Batch, ticked: Ticked | None = None) -> list[RecordedEpisode]:
    """Play a batch; an episode does not depend on the others of its batch.

    Returns:
        An episode for each cell, in the order of the cells.
    """
    env, seeds = _environment(batch)
    drawn = _draws(batch, env, seeds)
    policy = make(batch.player.policy)
    env.guardrails = chain = build_for(policy, batch.player.guardrails)
    if chain is not None:
        chain.explain = False  # no reader here
    without_reasons(policy)
    if (know_future := capabilities_of(policy).know_future) is not None:
        know_future(env.topology, FutureLoad(drawn.rates, batch.env.interval_s))
    env.begin(drawn)
    policy.reset(env.topology, seeds)
    steps = batch.env.episode_s // batch.env.interval_s
    explore = _explorer(batch, env.codec, seeds.tolist(), steps)
    tape = _Tape(len(batch))
    for k in range(steps):
        snapshot = env.snapshot
        proposed, propensity = explore(k, snapshot, policy.decide(snapshot))
        tape.keep(snapshot, propensity, env.enact(proposed))
        if ticked is not None:
            ticked((k + 1) / steps)
        if tape.over:
            break
    return tape.episodes(batch, env.snapshot)


def _explorer(batch: Batch, codec: Codec, seeds: Sequence[int], steps: int) -> Explorer:
    if batch.env.action == "capacity":
        return RandomCapacities(batch.epsilon, seeds, steps, codec)
    return RandomMoves(batch.epsilon, seeds, steps, batch.env.ds2_utilization)


class _Tape:
    """What happened, decision by decision; after an episode's end nothing of it is read."""

    def __init__(self, jobs: int) -> None:
        self.snapshots: list[MetricsSnapshot] = []
        self.steps: list[BatchStep] = []
        self.propensity: list[Floats] = []
        self.length = np.zeros(jobs, np.int64)  # decisions until the end; 0: not over
        self.terminated = np.zeros(jobs, dtype=bool)

    @property
    def over(self) -> bool:
        """Whether every episode has ended."""
        return bool((self.length > 0).all())

    def keep(self, snapshot: MetricsSnapshot, propensity: Floats, step: BatchStep) -> None:
        """One more decision of every job."""
        self.snapshots.append(snapshot)
        self.propensity.append(propensity)
        self.steps.append(step)
        ends = (self.length == 0) & (step.terminated | step.truncated)
        self.length[ends] = len(self.steps)
        self.terminated[ends] = step.terminated[ends]

    def episodes(self, batch: Batch, last: MetricsSnapshot) -> list[RecordedEpisode]:
        """Every episode, cut at its end and to its vertices."""
        seen = [*self.snapshots, last]
        fields = {
            name: np.array([getattr(snapshot, name) for snapshot in seen])
            for name in (*PER_JOB, *PER_VERTEX)
        }
        guarded = [step.guarded for step in self.steps]
        decided = {
            "proposed_parallelism": np.array([g.proposed.parallelism for g in guarded]),
            "proposed_memory_level": np.array([g.proposed.memory_level for g in guarded]),
            "parallelism": np.array([g.parallelism for g in guarded]),
            "memory_level": np.array([g.memory_level for g in guarded]),
        }
        terms = {name: np.array([s.terms[name] for s in self.steps]) for name in TERMS}
        propensity = np.array(self.propensity)
        made = []
        for j, cell in enumerate(batch.cells):
            n, vertices = int(self.length[j]), len(cell.spec.vertices)
            snapshots = {name: values[: n + 1, j] for name, values in fields.items()}
            snapshots |= {name: snapshots[name][:, :vertices] for name in PER_VERTEX}
            made.append(
                RecordedEpisode(
                    run=cell.run,
                    job=cell.spec.job,
                    policy=batch.player.label,
                    guardrails=batch.player.guardrails_label,
                    snapshots=snapshots,
                    decided={name: v[:n, j, :vertices] for name, v in decided.items()},
                    propensity=propensity[:n, j],
                    terms={name: values[:n, j] for name, values in terms.items()},
                    terminated=bool(self.terminated[j]),
                )
            )
        return made


def _environment(batch: Batch) -> tuple[AutoscaleBatch, Ints]:
    """The environment of the batch, not begun yet, and the seeds of its episodes."""
    specs = list({cell.spec.job: cell.spec for cell in batch.cells}.values())
    places = {spec.job: k for k, spec in enumerate(specs)}
    env = AutoscaleBatch(
        specs,
        [places[cell.spec.job] for cell in batch.cells],
        batch.loads,
        batch.split,
        batch.env,
        base_dir=batch.base_dir,
    )
    return env, np.array([cell.seed for cell in batch.cells], dtype=np.int64)


def _draws(batch: Batch, env: AutoscaleBatch, seeds: Ints) -> Draws:
    """Loads, and how episodes differ beyond them; a cell's own depend on its seed alone."""
    sampler, duration_s = env.source.sampler, batch.env.episode_s
    shapes: dict[str, Floats] = {}
    for cell in batch.cells:
        if cell.load.label not in shapes:
            shapes[cell.load.label] = sampler.rates(cell.load, duration_s)
    factor, spread, levels, rates = [], [], [], []
    for seed, cell in zip(seeds.tolist(), batch.cells, strict=True):
        draw = np.random.Generator(np.random.Philox(key=[seed, _STREAM]))
        scales = _scales(draw, batch.env.randomise)
        factor.append(scales[0])
        spread.append(2.0 ** (2 * draw.random() - 1))
        levels.append(int(draw.integers(0, 8)))
        rates.append(shapes[cell.load.label] * (scales[1] * cell.spec.source.rate_per_s))
    return Draws(seeds, np.array(rates), np.array(factor), np.array(spread), np.array(levels))


def _scales(draw: np.random.Generator, ranges: Randomisation) -> tuple[float, float]:
    """Factors of CPU times and of the load, log-uniform in their ranges."""
    (low, high), (least, most) = ranges.service_factor, ranges.load_scale
    service = low * (high / low) ** draw.random()
    return float(service), float(least * (most / least) ** draw.random())
