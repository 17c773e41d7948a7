"""The simulation and the environment on a GPU: checked against the CPU, then timed.

    python -m dsp_gym.studies.bench.device --out device.json

The references are computed by the CPU of the same machine, with the same seeds. Every part writes
what it found before the next one begins, and none begins that cannot be over in time.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from dsp_gym.arrays import Ints
from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.envs.action import LOGITS, MEMORY_MOVES, MOVES
from dsp_gym.envs.scenarios import DEFAULT_LOADS, scenario
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.errors import DspGymError, PolicyError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.guardrails.chain import Chain
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from dsp_gym.policies.algorithms import load_part
from dsp_gym.simulation import rescaling
from dsp_gym.simulation.capacity import packing_room
from dsp_gym.simulation.cuda.card import find_card, is_simulated
from dsp_gym.simulation.options import Faults, Measurement, SimulationOptions

JOB = "bench-8"
MIX = ("nexmark-q3", "nexmark-q5", "nexmark-q11")
KINDS = (JOB, *MIX)
INTERVAL_S = 60

FAULTY = SimulationOptions(
    threads=1,
    faults=Faults(
        failures_per_hour=3,
        slow_nodes_per_hour=2,
        metric_gaps_per_hour=2,
        failed_rescale_probability=0.2,
    ),
    measurement=Measurement(missing_probability=0.05, delay_s=15),
    warms_each_second=True,
)
"""Every fault there is, often."""

FAILING = SimulationOptions(
    threads=1,
    faults=Faults(failures_per_hour=2, failed_rescale_probability=0.2),
    measurement=Measurement(window_s=60),
)
"""Faults that leave guardrails enough metrics to do more than hold."""

GUARDED = str(Path(__file__).with_name("guarded.yaml"))
"""A chain of all guardrails that there are on a card."""

WORST = 1e-12
"""Largest relative difference to the CPU that is no mistake."""


class Amounts(NamedTuple):
    """How much is checked and timed."""

    jobs: int  # compared with the CPU, of each set of options
    decisions: int
    envs: int  # compared with the CPU
    steps: int
    timed: tuple[int, ...]  # environments
    launches: int
    guarded: int  # steps within guardrails
    learning: tuple[int, int, int]  # environments, decisions of a rollout, timed rollouts


FULL = Amounts(128, 60, 64, 60, (1024, 16_384, 131_072), 10, 60, (32_768, 32, 4))
TINY = Amounts(4, 3, 2, 3, (2,), 1, 12, (2, 2, 1))
"""For numba's simulator, which shows that the script runs, and nothing about speed."""


class BesideCpu(NamedTuple):
    """Numbers of the card beside those of the CPU."""

    bit_equal: float  # share
    worst: float  # largest relative difference

    @classmethod
    def of(cls, got: Any, wanted: Any) -> BesideCpu:
        """Compare two arrays.

        Returns:
            Shares and differences; unknown values are equal to unknown ones.
        """
        a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        apart = np.abs(a - b) / np.maximum(np.abs(b), 1e-9)
        worst = float(np.max(np.where(same, 0.0, np.nan_to_num(apart, nan=np.inf)), initial=0.0))
        return cls(float(same.mean()), worst)


def main(arguments: list[str] | None = None) -> int:
    """Check, time, and write what was found.

    Returns:
        0; 1 where a number differs from the CPU's; 2 where there is no card.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("build/device.json"))
    parser.add_argument("--seconds", type=float, default=200.0, help="no part begins after these")
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        card = find_card()
    except DspGymError as error:
        sys.stderr.write(f"Nothing was measured: {error}\n")
        return 2
    amounts = TINY if is_simulated() else FULL
    found: dict[str, object] = {
        "card": str(card),
        "simulated": is_simulated(),
        "versions": _versions(),
        "left_out": [],
    }
    for name, part in _PARTS.items():
        if time.monotonic() - begun > given.seconds:
            found["left_out"] = [*_strings(found["left_out"]), name]
            continue
        found[name] = part(amounts)
        found["seconds"] = round(time.monotonic() - begun, 1)
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
        sys.stdout.write(f"[{found['seconds']:>6} s] {name}: {json.dumps(found[name])}\n")
        sys.stdout.flush()
    return 0 if _agrees(found) else 1


def check_jobs(amounts: Amounts) -> dict[str, object]:
    """Compare outcomes and state of four kinds of jobs, rescaled now and then.

    Returns:
        Comparisons, without faults and with all of them.
    """
    return {
        name: _compared_jobs(options, amounts)
        for name, options in (("plain", SimulationOptions(threads=1)), ("faulty", FAULTY))
    }


def _compared_jobs(options: SimulationOptions, amounts: Amounts) -> dict[str, object]:
    from dsp_gym.simulation.cuda.batch import DeviceBatch

    draw = np.random.default_rng(5)
    seconds, kinds = amounts.decisions * INTERVAL_S, len(KINDS)
    topology = Topology.of([load_job(k) for k in KINDS], [j % kinds for j in range(amounts.jobs)])
    jobs = SimulatedJobs(topology, options)
    phase = draw.uniform(0.0, 2 * np.pi, (amounts.jobs, 1))
    mean = draw.uniform(0.4, 1.0, (amounts.jobs, 1))
    wave = 1 + 0.6 * np.sin(phase + np.arange(seconds)[None] * 2 * np.pi / 3600)
    noise = np.exp(0.05 * draw.standard_normal((amounts.jobs, seconds)))
    rates = topology.tables.rate_per_s[topology.row][:, None] * mean * wave * noise
    jobs.reset(draw.integers(0, 2**62, amounts.jobs), rates)
    model, state = jobs._held()
    card = DeviceBatch(model.arrays, state.arrays, jobs.rates, jobs._view)
    got, wanted = [], []
    for decision in range(amounts.decisions):
        if decision % 10 == min(5, amounts.decisions - 2):
            highest = np.clip(topology.tables.max_parallelism[topology.row], 1, 40)
            p = draw.integers(1, highest + 1)
            level = draw.integers(-1, topology.tables.levels[topology.row][:, None], p.shape)
            runs = packing_room(topology.max_vertices)
            asked, counted = jobs._asked, jobs._outcome
            rescaling.ask(model, state, p, level, 0, len(jobs), asked, counted, runs)
            card.ask(p, level)
        wanted.append(jobs.advance(INTERVAL_S).columns.copy())
        got.append(card.advance(INTERVAL_S).columns.copy())
    at_end = card.state_on_host()
    return {
        "jobs": amounts.jobs,
        "decisions": amounts.decisions,
        "rescales": int(jobs.state.rescales.sum()),
        "outcomes": BesideCpu.of(got, wanted)._asdict(),
        "state": BesideCpu.of(
            np.concatenate([np.ravel(one).astype(float) for one in at_end]),
            np.concatenate([np.ravel(one).astype(float) for one in jobs.state]),
        )._asdict(),
    }


def check_environment(amounts: Amounts) -> dict[str, object]:
    """Compare observations, rewards, ends and masks over an episode and the next one's beginning.

    Returns:
        Comparisons.
    """
    return _compared_envs(amounts, None)


def check_guardrails(amounts: Amounts) -> dict[str, object]:
    """Compare the same within guardrails that often step in.

    Returns:
        Comparisons, and the number of decisions that each guardrail changed.
    """
    return _compared_envs(amounts._replace(steps=amounts.guarded), GUARDED)


def _compared_envs(amounts: Amounts, guardrails: str | None) -> dict[str, object]:
    from dsp_gym.envs.cuda.device_env import DeviceEnv

    steps, options = amounts.steps, FAULTY if guardrails is None else FAILING
    document: dict[str, object] = {
        "name": "device",
        "jobs": [JOB],
        "loads": DEFAULT_LOADS,
        "env": {
            "episode_s": INTERVAL_S * max(2, steps // 2 if guardrails is None else steps - 2),
            "simulation": options.model_dump(exclude={"threads"}, exclude_none=True),
        },
    }
    if guardrails is not None:
        document["guardrails"] = guardrails
    count = amounts.envs
    cpu = AutoscaleVectorEnv(count, config=document, explain=False)
    card = DeviceEnv(scenario(config=document, explain=False), count, rows=count, episodes=3)
    changed: Counter[str] = Counter()
    draw = np.random.default_rng(3)
    first, _ = cpu.reset(seed=11)
    begun = card.reset(11 + np.arange(amounts.envs))
    pairs: dict[str, list[tuple[Any, Any]]] = {
        "observations": [(begun.observation.to_host(), first)],
        "rewards": [],
        "ends": [],
        "masks": [(begun.mask.to_host(), cpu.action_masks())],
    }
    for step in range(steps):
        if step == steps // 3:  # some begin early, in the middle of an episode
            some = np.arange(count) % 2 == 0
            first, begun = cpu.reset(options={"reset_mask": some})[0], card.begin(some)
            pairs["observations"].append((begun.observation.to_host(), first))
        actions = moves(draw, cpu.action_masks(), share=0.1 if guardrails is None else 0.4)
        observation, reward, terminated, truncated, info = cpu.step(actions)
        if isinstance(chain := cpu.batch.guardrails, Chain):
            changed.update(dict(zip(chain.names, np.sum(info["trips"], axis=0), strict=True)))  # type: ignore[call-overload]  # an array
        done = card.step(actions)
        pairs["observations"].append((done.observation.to_host(), observation))
        pairs["rewards"].append((done.reward.to_host(), reward))
        pairs["ends"].append((done.terminated.to_host(), terminated))
        pairs["ends"].append((done.truncated.to_host(), truncated))
        pairs["masks"].append((done.mask.to_host(), cpu.action_masks()))
    return {
        "environments": amounts.envs,
        "steps": steps,
        "rescales": int(cpu.batch.jobs.state.rescales.sum()),
        "changed": {name: int(times) for name, times in changed.items()},
        **{
            name: BesideCpu.of(*map(np.array, zip(*both, strict=True)))._asdict()
            for name, both in pairs.items()
        },
    }


def moves(draw: np.random.Generator, masks: Any, share: float) -> Ints:
    """Draw valid actions, most of which hold.

    Args:
        draw: Source of randomness.
        masks: (J, V * choices) valid choices.
        share: Share of single moves that are not holding.

    Returns:
        Actions (J, 2 V).
    """
    valid = masks.reshape(len(masks), -1, LOGITS)
    parts = []
    for some in (slice(0, MOVES), slice(MOVES, MOVES + MEMORY_MOVES)):
        of_part = valid[..., some]
        wanted = np.where(of_part, draw.random(of_part.shape), -1.0).argmax(axis=2)
        parts.append(np.where(draw.random(wanted.shape) < share, wanted, 0))
    return np.stack(parts, axis=2).reshape(len(masks), -1).astype(np.int64)


def time_advance(amounts: Amounts) -> dict[str, object]:
    """Time a decision interval of the simulation alone, one job and a mix of three.

    Returns:
        Decisions per second by jobs and their number.
    """
    from dsp_gym.simulation.cuda.batch import advance_kernel
    from dsp_gym.simulation.cuda.kernels import Kernel
    from dsp_gym.simulation.cuda.threads import threads

    found: dict[str, object] = {}
    for name, jobs in ((JOB, [JOB]), ("Nexmark mix", list(MIX))):
        for count in amounts.timed[-1:] if name != JOB else amounts.timed:
            env = _environment(jobs, count)
            env.reset()
            handles = env._model, env._state, env._loads
            advance = threads(env.vertices).advance
            kernel = Kernel(advance_kernel(advance, INTERVAL_S), handles, (INTERVAL_S,))
            rate = _rate(lambda k=kernel, n=count, h=handles: k.launch(n, *h), count, amounts)  # type: ignore[misc]  # bound at once
            found[f"{name}, {count}"] = rate
            found["local bytes of a thread"] = kernel.local_bytes
            del env, kernel, handles
    return found


def time_environment(amounts: Amounts) -> dict[str, object]:
    """Time whole steps: decode, advance, score, autoreset, observe, masks; and count the memory.

    Returns:
        Steps per second by number of environments, and bytes of each.
    """
    return _timed_steps(amounts, None)


def time_guardrails(amounts: Amounts) -> dict[str, object]:
    """Time whole steps within the chain of the shipped experiments.

    Returns:
        Steps per second by number of environments, and bytes of each.
    """
    return _timed_steps(amounts, "floor")


def _timed_steps(amounts: Amounts, guardrails: str | None) -> dict[str, object]:
    found: dict[str, object] = {}
    for count in amounts.timed:
        env = _environment([JOB], count, guardrails)
        env.reset()
        env.step(np.zeros((count, 2 * env.vertices), np.int64))
        found[f"{JOB}, {count}"] = _rate(lambda e=env: e.launch(e._moves), count, amounts)  # type: ignore[misc]  # bound at once
        found["bytes per environment"] = env.bytes_per_env
        del env
    return found


def time_learning(amounts: Amounts) -> dict[str, object]:
    """Time PPO, nothing of which leaves the card: rollouts and updates by epochs, and returns.

    Returns:
        Decisions per second, and the mean return of the last episodes that ended; why not where
        torch or Stable-Baselines3 is missing.
    """
    from dsp_gym.simulation.cuda.kernels import synchronize

    found: dict[str, object] = {}
    jobs, steps, rollouts = amounts.learning
    for epochs in (4, 1):
        try:
            trainer = load_part("maskable-ppo", "trainer")
        except PolicyError as error:
            return {"left out": str(error)}
        config = _experiment_of_learning(jobs, steps, epochs)
        with TemporaryDirectory() as folder:
            model = trainer(config, 0, Path(folder)).model
        model.begin()
        model.collect()
        told = [model.update(config.ppo.learning_rate)]
        seconds = {"rollouts": 0.0, "updates": 0.0}
        for _ in range(rollouts):
            begun = time.perf_counter()
            model.collect()
            synchronize()
            rolled = time.perf_counter()
            told.append(model.update(config.ppo.learning_rate))
            seconds["rollouts"] += rolled - begun
            seconds["updates"] += time.perf_counter() - rolled
        found[f"{JOB}, {jobs}, {epochs} epochs"] = {
            "decisions/s": round(jobs * steps * rollouts / sum(seconds.values())),
            "share of rollouts": round(seconds["rollouts"] / sum(seconds.values()), 3),
            "returns of episodes": [one.get("rollout/ep_rew_mean") for one in told],
        }
    return found


def _experiment_of_learning(jobs: int, steps: int, epochs: int) -> ExperimentConfig:
    """Return an experiment that learns on the card: the default network, episodes of an hour."""
    return ExperimentConfig.model_validate(
        {
            "name": "device",
            "jobs": [JOB],
            "loads": DEFAULT_LOADS,
            "env": {"episode_s": 3600},
            "agent": {
                "device": "cuda",
                "n_envs": jobs,
                "n_steps": steps,
                "n_epochs": epochs,
                "batch_size": max(1, jobs * steps // 16),
                "eval_episodes": 1,
            },
        }
    )


def _environment(jobs: list[str], count: int, guardrails: str | None = None) -> Any:
    from dsp_gym.envs.cuda.device_env import DeviceEnv

    document = {"name": "device", "jobs": jobs, "loads": DEFAULT_LOADS}
    made = scenario(config=document, guardrails=guardrails, explain=False)
    return DeviceEnv(made, count, rows=128, episodes=2)


def _rate(launch: Callable[[], None], count: int, amounts: Amounts) -> float:
    """Return jobs per second of a launch, after two that warm up."""
    from dsp_gym.simulation.cuda.kernels import synchronize

    for _ in range(2):
        launch()
    synchronize()
    begun = time.perf_counter()
    for _ in range(amounts.launches):
        launch()
    synchronize()
    return round(count * amounts.launches / (time.perf_counter() - begun))


_PARTS: Mapping[str, Callable[[Amounts], dict[str, object]]] = {
    "jobs beside the CPU's": check_jobs,
    "environments beside the CPU's": check_environment,
    "guardrails beside the CPU's": check_guardrails,
    "advance, decisions/s": time_advance,
    "environment, steps/s": time_environment,
    "environment with floor, steps/s": time_guardrails,
    "PPO, decisions/s": time_learning,
}


def _versions() -> dict[str, str | None]:
    names = ("numba-cuda", "numba", "llvmlite", "numpy", "torch", "cuda-bindings", "cuda-core")
    known: dict[str, str | None] = {"python": platform.python_version()}
    for name in names:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            known[name] = None
    return known


def _strings(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def _agrees(found: object) -> bool:
    """Return whether no comparison exceeds `WORST`."""
    if not isinstance(found, Mapping):
        return True
    worst = found.get("worst")
    if isinstance(worst, float) and not worst <= WORST:
        return False
    return all(_agrees(one) for one in found.values())


if __name__ == "__main__":
    sys.exit(main())
