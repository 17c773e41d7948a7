"""Offline datasets in Minari's form that anyone makes alike.

`python -m dsp_gym.studies.offline_datasets` makes them.

Episodes of one environment's training loads, in which a third each of the decisions are random, a
rule's and those of `learned-q11`; every decision is an action of the environment. Three
sizes, of which each begins with the episodes of the smaller one. The metadata have the reference
scores on the loads to evaluate in, the licence, and a digest of the content.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import gymnasium
import numpy as np

from dsp_gym.arrays import Bools, Floats, Floats32, Ints
from dsp_gym.config.temporary import only_writer
from dsp_gym.datasets.minari import (
    CODE,
    SPLIT,
    minari_module,
    put_in_place,
    refuse_existing,
    written_aside,
)
from dsp_gym.envs import action
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.scenarios import scenario
from dsp_gym.envs.single import action_space, observation_space
from dsp_gym.errors import ConfigError, DatasetError, did_you_mean
from dsp_gym.loads.splits import SplitName
from dsp_gym.policies.registry import make
from dsp_gym.version import __version__

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from minari.data_collector.episode_buffer import EpisodeBuffer

ENVIRONMENT, JOB = "dsp_gym/Nexmark-Q11-v1", "nexmark-q11"
SIZES = {"small": 60, "medium": 600, "large": 3000}
"""Episodes of each dataset, of 120 decisions."""

RANDOM, RULE, BEST = "random", "ds2", "learned-q11"
BEHAVIOURS = (RANDOM, RULE, BEST)
"""Policies whose episodes take turns."""

LICENSE = "Apache-2.0"
"""Of the datasets, as of the project: they are simulated from its own job and load files."""

VERSION = 0
ROWS = 60
"""Episodes that are simulated together; a divisor of every size."""

SCORED = 60
"""Episodes behind each reference score."""


@dataclass(frozen=True, slots=True)
class PublishedDataset:
    """One dataset that was written."""

    id: str
    path: Path
    episodes: int
    steps: int
    content_sha256: str
    scores: dict[str, float]
    """Mean return of an episode by policy, on the loads to evaluate in."""


@dataclass(frozen=True, slots=True)
class _Rolled:
    """Episodes that ran side by side; one that ended early is cut by its last step."""

    observation: Floats32  # (T + 1, J, size)
    action: Ints  # (T, J, 2 V)
    reward: Floats  # (T, J)
    terminated: Bools  # (T, J)
    truncated: Bools  # (T, J)

    def steps(self, job: int) -> int:
        """Return the steps of one episode."""
        ends = self.terminated[:, job] | self.truncated[:, job]
        return int(ends.argmax()) + 1 if ends.any() else len(ends)

    def returns(self) -> Floats:
        """Return the sum of rewards of each episode."""
        jobs = range(self.reward.shape[1])
        return np.array([self.reward[: self.steps(job), job].sum() for job in jobs])


def publish(
    root: str | Path, sizes: Sequence[str] = tuple(SIZES), *, replace_them: bool = False
) -> list[PublishedDataset]:
    """Simulate the episodes, and write the datasets.

    Args:
        root: Folder of Minari datasets, as MINARI_DATASETS_PATH names it for those who read them.
        sizes: Which of `SIZES`.
        replace_them: Whether datasets of these names may be replaced.

    Returns:
        What was written, by size.

    Raises:
        ConfigError: There is no such size.
        DatasetError: A dataset of such a name exists, or another export writes into the folder.
        MissingExtraError: Minari is not installed.
    """
    for size in sizes:
        if size not in SIZES:
            raise ConfigError(
                f"there is no size '{size}'", key="sizes", remedy=did_you_mean(size, SIZES)
            )
    minari, where = minari_module(), Path(root)
    names = {size: f"dsp_gym/{JOB}/mixed-{size}-v{VERSION}" for size in sizes}
    if not replace_them:
        refuse_existing(names.values(), where)
    taken = DatasetError(
        "another export writes into this folder", file=where, remedy="Wait for it, or give --out."
    )
    scores = reference_scores()
    with only_writer(where, taken), written_aside(where) as aside:
        made = [_write(minari, name, SIZES[size], scores) for size, name in names.items()]
        for one in made:
            put_in_place(aside, where, one.id)
    return [replace(one, path=where / one.id) for one in made]


def reference_scores() -> dict[str, float]:
    """Run each behaviour on the loads to evaluate in.

    Returns:
        Mean return of an episode by policy.
    """
    return {
        name: float(_rolled(_batch(SPLIT, SCORED), name, 0).returns().mean()) for name in BEHAVIOURS
    }


def _batch(split: SplitName, jobs: int) -> AutoscaleBatch:
    made = scenario(JOB)
    return AutoscaleBatch(made.specs, [0] * jobs, made.loads, split, made.env)


def _rolled(batch: AutoscaleBatch, name: str, first: int) -> _Rolled:
    """Run an episode of each row; the seeds are `first` and the following ones."""
    policy = None if name == RANDOM else make(name)
    batch.seed(first + np.arange(len(batch)))
    batch.episodes[:] = 0
    seen = [batch.reset()]
    if policy is not None:
        policy.reset(batch.topology, batch.base_seeds)
    rng = np.random.Generator(np.random.Philox(key=first))
    size = (len(batch), len(batch.codec.choices))
    acts, steps = [], []
    for _ in range(batch.config.max_steps):
        if policy is None:
            chosen = rng.integers(0, batch.codec.choices, size)
        else:
            led = action.targets(batch.snapshot, batch.config.ds2_utilization)
            chosen = action.encode(policy.decide(batch.snapshot), led.parallelism, led.level)
        step = batch.step(chosen)
        acts.append(chosen)
        seen.append(step.observation.copy())
        steps.append((step.reward.copy(), step.terminated.copy(), step.truncated.copy()))
    reward, terminated, truncated = (np.stack(part) for part in zip(*steps, strict=True))
    return _Rolled(np.stack(seen), np.stack(acts), reward, terminated, truncated)


def _episodes(count: int) -> Iterator[EpisodeBuffer]:
    """Simulate episodes, behaviour by behaviour, in blocks; a smaller count is the beginning."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    batch = _batch("train", ROWS // len(BEHAVIOURS))
    for block in range(count // ROWS):
        for place, name in enumerate(BEHAVIOURS):
            rolled = _rolled(batch, name, block * len(batch))
            for job in range(len(batch)):
                steps = rolled.steps(job)
                yield EpisodeBuffer(
                    id=block * ROWS + place * len(batch) + job,
                    observations=rolled.observation[: steps + 1, job],
                    actions=rolled.action[:steps, job],
                    rewards=rolled.reward[:steps, job].tolist(),
                    terminations=rolled.terminated[:steps, job].tolist(),
                    truncations=rolled.truncated[:steps, job].tolist(),
                    # A column, since the Arrow storage of Minari 0.5.4 reads no scalars back.
                    infos={"behaviour": np.full((steps + 1, 1), place)},
                )


def _write(
    minari: ModuleType, name: str, count: int, scores: Mapping[str, float]
) -> PublishedDataset:
    """Write one dataset into Minari's folder, with its metadata."""
    episodes = list(_episodes(count))
    content = _digest(episodes)
    vertices = len(scenario(JOB).specs[0].vertices)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no author, no e-mail
        dataset = minari.create_dataset_from_buffers(
            name,
            episodes,
            env=_spec("train"),
            eval_env=_spec(SPLIT),
            algorithm_name=" and ".join(BEHAVIOURS),
            code_permalink=CODE,
            observation_space=observation_space(episodes[0].observations.shape[1]),
            action_space=action_space(vertices),
            ref_min_score=scores[RANDOM],
            ref_max_score=scores[BEST],
            num_episodes_average_score=SCORED,
            description=f"Autoscaling of {JOB}: a third each of the episodes decided by "
            f"{', '.join(BEHAVIOURS)} (info 'behaviour': 0, 1, 2). Licence {LICENSE}. "
            f"Made by `python -m dsp_gym.studies.offline_datasets`.",
            requirements=[f"dsp-gym=={__version__}"],
            data_format="arrow",
        )
    dataset.storage.update_metadata(
        {
            "license": LICENSE,
            "reference_scores": dict(scores),
            "behaviours": list(BEHAVIOURS),
            "content_sha256": content,
        }
    )
    return PublishedDataset(
        name, Path(name), dataset.total_episodes, int(dataset.total_steps), content, dict(scores)
    )


def _digest(episodes: Iterable[EpisodeBuffer]) -> str:
    """Hash what is in the episodes; two machines that simulate alike get the same."""
    found = hashlib.sha256()
    for one in episodes:
        for values in (one.observations, one.actions, one.infos["behaviour"]):
            found.update(np.ascontiguousarray(values).tobytes())
        for flags in (one.rewards, one.terminations, one.truncations):
            found.update(json.dumps(flags).encode())
    return found.hexdigest()


def _spec(split: SplitName) -> EnvSpec:
    spec = deepcopy(gymnasium.spec(ENVIRONMENT))  # the registry's own stays as it is
    spec.kwargs["split"] = split
    return spec
