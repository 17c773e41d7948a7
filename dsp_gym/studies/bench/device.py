"""The simulation and the environment on a GPU: checked against the CPU, then timed.

    python -m dsp_gym.studies.bench.device --out device.json

The references are computed by the CPU of the same machine, with the same seeds. Every part writes
what it found before the next one begins. None begins whose allowance of time is longer than what
is left of the seconds, and a part that cannot be done is left out with its reason.

    python -m dsp_gym.studies.bench.device --learn 200_000_000 --seconds 300 --out learned.json

learns capacity actions on the family of random graphs instead. The same command goes on from the
last checkpoint; the seconds of all commands are added up.

Both run from a copy of the source tree, which need not be installed.
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
from dsp_gym.envs.scenarios import DEFAULT_LOADS, Scenario, scenario
from dsp_gym.envs.vector import AutoscaleVectorEnv
from dsp_gym.errors import DspGymError
from dsp_gym.guardrails.chain import Chain
from dsp_gym.job.catalog import load_job, random_job
from dsp_gym.loop.topology import Topology
from dsp_gym.simulation import rescaling
from dsp_gym.simulation.capacity import packing_room
from dsp_gym.simulation.cuda.card import find_card, is_simulated
from dsp_gym.simulation.options import Faults, Measurement, SimulationOptions
from dsp_gym.studies.bench.copied_tree import offer_tree
from dsp_gym.studies.bench.device_learning import (
    FULL_LEARNING,
    TINY_LEARNING,
    LearningAmounts,
    compare_returns,
    family,
    follow,
    time_family,
    time_learning,
)

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

CAPACITY_SHARE = 0.5
"""Share of capacity actions that re-target, where that is valid."""

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
    capacity: int  # steps of capacity actions
    learning: LearningAmounts


FULL = Amounts(128, 60, 64, 60, (1024, 16_384, 131_072), 10, 60, 120, FULL_LEARNING)
TINY = Amounts(4, 3, 2, 3, (2,), 1, 12, 16, TINY_LEARNING)
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
        0; 1 where a number differs from the CPU's; 2 where there is no card; 3 where an error
        ended the learning.
    """
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--out", type=Path, default=Path("build/device.json"))
    parser.add_argument("--seconds", type=float, default=200.0, help="of all parts together")
    parser.add_argument("--parts", nargs="+", choices=list(_PARTS), help="these alone")
    parser.add_argument("--learn", type=int, metavar="DECISIONS", help="learn so many instead")
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    offer_tree(Path(__file__).parents[3])
    try:
        card = find_card()
    except DspGymError as error:
        sys.stderr.write(f"Nothing was measured: {error}\n")
        return 2
    amounts = TINY if is_simulated() else FULL
    if given.learn is not None:
        return follow(given.learn, given.seconds, given.out, str(card), amounts.learning)
    found: dict[str, object] = {
        "card": str(card),
        "simulated": is_simulated(),
        "versions": _versions(),
        "left_out": [],
    }
    for name, part in _PARTS.items():
        if given.parts and name not in given.parts:
            continue
        if not part.fits(given.seconds - (time.monotonic() - begun)):
            found["left_out"] = [*_strings(found["left_out"]), name]
            _write(given.out, found)
            continue
        found[name] = part.done(amounts)
        found["seconds"] = round(time.monotonic() - begun, 1)
        _write(given.out, found)
        sys.stdout.write(f"[{found['seconds']:>6} s] {name}: {json.dumps(found[name])}\n")
        sys.stdout.flush()
    return 0 if _agrees(found) else 1


def _write(out: Path, found: dict[str, object]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


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
    return _compared_envs(amounts, None, amounts.steps // 2, lambda d, m: moves(d, m, share=0.1))


def check_guardrails(amounts: Amounts) -> dict[str, object]:
    """Compare the same within guardrails that often step in.

    Returns:
        Comparisons, and the number of decisions that each guardrail changed.
    """
    amounts = amounts._replace(steps=amounts.guarded)
    guarded: dict[str, object] = {"guardrails": GUARDED, "env": {"simulation": _dumped(FAILING)}}
    last = amounts.guarded - 2
    return _compared_envs(amounts, guarded, last, lambda d, m: moves(d, m, share=0.4))


def check_capacity(amounts: Amounts) -> dict[str, object]:
    """Compare the same for capacity actions: another random graph in every episode.

    One of the loads is a recorded one.

    Returns:
        Comparisons.
    """
    with TemporaryDirectory() as folder:
        recorded = Path(folder, "recorded.csv")
        rows = (f"{60 * t},{2 + np.sin(t / 9):.3f}\n" for t in range(300))
        recorded.write_text("t_seconds,rate\n" + "".join(rows), "utf-8")
        trace = {"form": "trace", "path": str(recorded), "divide_by_peak": True, "start": "random"}
        loads = [{"name": "recorded", "load": trace}, "diurnal-bursts"]
        graphs = [random_job(1000 + i, 2 + i % 7) for i in range(min(8, amounts.envs))]
        env = {
            "action": "capacity",
            "start": "random",
            "randomise": {"job": True, "late_price": [0.75, 8], "load_start": "any"},
            "simulation": _dumped(FAILING),
        }
        given = {"loads": {"train": {"loads": loads, "seeds": {"from": 0, "to": 99}}}}
        document = {"jobs": graphs, "env": env, **given}
        amounts = amounts._replace(steps=amounts.capacity)
        return _compared_envs(amounts, document, amounts.steps * 3 // 4, capacities)


def capacities(draw: np.random.Generator, masks: Any) -> Ints:
    """Draw valid capacity actions, most of which hold.

    Returns:
        Actions (J, 1).
    """
    wanted = np.where(masks, draw.random(masks.shape), -1.0).argmax(axis=1)
    return np.where(draw.random(len(masks)) < CAPACITY_SHARE, wanted, 0)[:, None].astype(np.int64)


def _dumped(options: SimulationOptions) -> dict[str, object]:
    return options.model_dump(exclude={"threads"}, exclude_none=True)


def _document(changes: Mapping[str, object] | None, episode: int) -> dict[str, object]:
    """Return an experiment of episodes of so many decisions."""
    usual: dict[str, Any] = {
        "name": "device",
        "jobs": [JOB],
        "loads": DEFAULT_LOADS,
        "env": {"simulation": _dumped(FAULTY)},
        **(changes or {}),
    }
    return usual | {"env": usual["env"] | {"episode_s": INTERVAL_S * max(2, episode)}}


def _compared_envs(
    amounts: Amounts,
    changes: Mapping[str, object] | None,
    episode: int,
    drawn: Callable[[np.random.Generator, Any], Ints],
) -> dict[str, object]:
    """Compare whole steps.

    Args:
        amounts: How many.
        changes: Sections of the experiment beside the usual ones.
        episode: Decisions of an episode.
        drawn: Draws valid actions.

    Returns:
        Comparisons.
    """
    from dsp_gym.envs.cuda.device_env import DeviceEnv

    steps, count, document = amounts.steps, amounts.envs, _document(changes, episode)
    cpu = AutoscaleVectorEnv(count, config=document, explain=False)
    card = DeviceEnv(scenario(config=document, explain=False), count, rows=count, episodes=3)
    changed, acted, draw = Counter[str](), 0, np.random.default_rng(3)
    first, _ = cpu.reset(seed=11)
    begun = card.reset(11 + np.arange(count))
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
        actions = drawn(draw, cpu.action_masks())
        acted += int(np.count_nonzero(actions))
        observation, reward, terminated, truncated, info = cpu.step(actions)
        if isinstance(chain := cpu.batch.guardrails, Chain):
            changed.update(dict(zip(chain.names, np.sum(info["trips"], axis=0), strict=True)))  # type: ignore[call-overload]  # an array
        done = card.step(actions)
        pairs["observations"].append((done.observation.to_host(), observation))
        pairs["rewards"].append((done.reward.to_host(), reward))
        for ends, wanted in ((done.terminated, terminated), (done.truncated, truncated)):
            pairs["ends"].append((ends.to_host(), wanted))
        pairs["masks"].append((done.mask.to_host(), cpu.action_masks()))
    return {
        "environments": amounts.envs,
        "steps": steps,
        "acted": acted,
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


def time_capacity(amounts: Amounts) -> dict[str, object]:
    """Time whole steps of capacity actions over the family of random graphs, two hours long.

    Returns:
        Steps per second by number of environments, and bytes of each.
    """
    from dsp_gym.envs.cuda.device_env import DeviceEnv

    config = family(amounts.learning, epochs=1)
    hours = config.env.model_copy(update={"episode_s": min(7200, config.env.episode_s)})
    made = Scenario(tuple(config.training_specs()), config.loads, hours, None, None, None)
    found: dict[str, object] = {}
    for count in amounts.timed:
        env = DeviceEnv(made, count)
        env.reset()
        env.step(np.zeros((count, 1), np.int64))
        found[f"family, {count}"] = _rate(lambda e=env: e.launch(e._moves), count, amounts)  # type: ignore[misc]  # bound at once
        found["bytes per environment"] = env.bytes_per_env
        del env
    return found


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


class BenchPart(NamedTuple):
    """A part of the script."""

    do: Callable[[Amounts], dict[str, object]]
    allowed_s: float
    """Seconds that have to be left for it: an allowance, not a measurement."""

    def fits(self, left_s: float) -> bool:
        """Return whether it may begin; numba's simulator has no use for allowances of a card.

        Args:
            left_s: Seconds that are left.

        Returns:
            Whether its allowance is no longer than these.
        """
        return left_s >= (0.0 if is_simulated() else self.allowed_s)

    def done(self, amounts: Amounts) -> dict[str, object]:
        """Do it.

        Args:
            amounts: How much is checked and timed.

        Returns:
            What was found; or why it was left out, such as for too little memory.
        """
        try:
            return self.do(amounts)
        except DspGymError as error:
            return {"left out": str(error)}


_PARTS: Mapping[str, BenchPart] = {
    "jobs beside the CPU's": BenchPart(check_jobs, 20),
    "environments beside the CPU's": BenchPart(check_environment, 20),
    "guardrails beside the CPU's": BenchPart(check_guardrails, 20),
    "capacity actions beside the CPU's": BenchPart(check_capacity, 20),
    "advance, decisions/s": BenchPart(time_advance, 20),
    "environment, steps/s": BenchPart(time_environment, 20),
    "environment with floor, steps/s": BenchPart(time_guardrails, 20),
    "capacity actions, steps/s": BenchPart(time_capacity, 20),
    "PPO, decisions/s": BenchPart(lambda amounts: time_learning(amounts.learning), 40),
    "PPO on capacity actions, decisions/s": BenchPart(
        lambda amounts: time_family(amounts.learning), 60
    ),
    "policies on both devices": BenchPart(lambda amounts: compare_returns(amounts.learning), 100),
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
    """Return whether no comparison exceeds `WORST`, and all intervals of returns overlap."""
    if not isinstance(found, Mapping):
        return True
    worst = found.get("worst")
    if isinstance(worst, float) and not worst <= WORST:
        return False
    if found.get("overlap") is False:
        return False
    return all(_agrees(one) for one in found.values())


if __name__ == "__main__":
    sys.exit(main())
