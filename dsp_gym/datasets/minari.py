"""A dataset as Minari datasets, one for each job and policy: `dsp-gym dataset export`.

Each names its behaviour policy, the environment the decisions were made in, the environment to
evaluate in (loads that were not trained on), and two reference scores measured there: random valid
moves, and Justin's Algorithm 1.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from dsp_gym.arrays import Floats32
from dsp_gym.config import files
from dsp_gym.config.environment import variables
from dsp_gym.config.temporary import only_writer
from dsp_gym.datasets.encoding import Encoding
from dsp_gym.datasets.reader import Dataset
from dsp_gym.datasets.transitions import Transitions
from dsp_gym.envs.batch import AutoscaleBatch
from dsp_gym.envs.observation import FV, ObservationLayout
from dsp_gym.envs.registration import FROM_CONFIG
from dsp_gym.envs.reward import reward
from dsp_gym.envs.scenarios import DEFAULT_LOADS, guardrail_chain
from dsp_gym.envs.single import action_space, observation_space
from dsp_gym.errors import ConfigError, DatasetError, MissingExtraError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.job.catalog import job_hash, load_job
from dsp_gym.loads.splits import SplitName
from dsp_gym.policies.registry import make
from dsp_gym.version import __version__

if TYPE_CHECKING:
    from minari import MinariDataset
    from minari.data_collector.episode_buffer import EpisodeBuffer

EXPERT = "justin-paper"
"""The policy behind the upper reference score."""

EPISODES = 32
"""Episodes behind each reference score."""

SPLIT: SplitName = "test"
"""Loads of the environment to evaluate in."""

ASIDE = ".export"
"""Folder of datasets that are being written; Minari lists no hidden ones."""

MINARI_FOLDER = "MINARI_DATASETS_PATH"

CODE = "https://pypi.org/project/dsp-gym/"


@dataclass(frozen=True, slots=True)
class MinariExport:
    """One Minari dataset that was written."""

    id: str
    path: Path
    episodes: int
    steps: int
    random_score: float | None  # mean return of an episode; None: the environment is not known
    expert_score: float | None


def export_minari(
    folder: str | Path,
    root: str | Path,
    *,
    experiment: str | None = None,
    split: str | None = None,
    namespace: str = "dsp_gym",
    version: int = 0,
    replace: bool = False,
) -> list[MinariExport]:
    """Write the transitions of a dataset as Minari datasets.

    Args:
        folder: The dataset.
        root: Folder of Minari datasets, as MINARI_DATASETS_PATH names it for those who read them.
        experiment: Whose loads, environment and guardrails the decisions were made under; none: the
            environment the transitions were encoded for, under the loads of the registered ids.
        split: Part of the dataset; none: all.
        namespace: Before the name of each: NAMESPACE/JOB/POLICY-vVERSION.
        version: Of each.
        replace: Whether datasets of those names may be replaced.

    Returns:
        What was written, one for each job and policy.

    Raises:
        DatasetError: The dataset holds no transitions, one of such a name exists, or another export
            writes into the folder.
        MissingExtraError: Minari is not installed.
    """
    minari = minari_module()
    dataset = Dataset.open(folder)
    seen = dataset.transitions(split)
    names = {
        (job, policy): f"{_part(namespace)}/{_part(job)}/{_part(policy)}-v{version}"
        for job in np.unique(seen.job).tolist()
        for policy in np.unique(seen.policy[seen.job == job]).tolist()
    }
    where = Path(root)
    if not replace:
        refuse_existing(names.values(), where)
    taken = DatasetError(
        "another export writes into this folder", file=where, remedy="Wait for it, or give --out."
    )
    with only_writer(where, taken), written_aside(where) as aside:
        written = _written(minari, dataset, seen, names, experiment)
        for one in written:
            put_in_place(aside, where, one.id)
    return [dataclasses.replace(one, path=where / one.id) for one in written]


def _written(
    minari: ModuleType,
    dataset: Dataset,
    seen: Transitions,
    names: Mapping[tuple[str, str], str],
    experiment: str | None,
) -> list[MinariExport]:
    """Write each job and policy into Minari's folder, under its name."""
    encoding, made = dataset.encoding, []
    for job in dict.fromkeys(job for job, _ in names):
        env = _environment(dataset, encoding, job, experiment)
        scores = None if env is None else reference_scores(env)
        vertices = len(dataset.specs[job].vertices)
        for policy in (policy for one, policy in names if one == job):
            rows = np.flatnonzero((seen.job == job) & (seen.policy == policy))
            episodes = list(_episodes(seen.take(rows), encoding, vertices))
            name = names[job, policy]
            found = _write(minari, name, episodes, vertices, env, scores, policy, dataset)
            random, expert = scores or (None, None)
            made.append(
                MinariExport(
                    name, Path(name), found.total_episodes, found.total_steps, random, expert
                )
            )
    return made


def reference_scores(env: EnvSpec, episodes: int = EPISODES) -> tuple[float, float]:
    """Measure both reference policies: random valid moves, and Justin's Algorithm 1.

    Returns:
        The mean return of an episode under each.
    """
    config = files.parse(ExperimentConfig, env.kwargs["config"], "the environment's config")
    found = []
    for policy in (None, make(EXPERT)):
        batch = AutoscaleBatch(
            [load_job(config.jobs[0])],
            [0] * episodes,
            config.loads,
            SPLIT,
            config.env,
            guardrail_chain(config.guardrails, explain=False),
        )
        batch.seed(np.arange(episodes))
        batch.reset()
        rng = np.random.Generator(np.random.Philox(key=episodes))
        if policy is not None:
            policy.reset(batch.topology, batch.base_seeds)
        total, alive = np.zeros(episodes), np.ones(episodes, dtype=bool)
        while alive.any():
            if policy is None:
                choices = batch.codec.choices
                step = batch.step(rng.integers(0, choices, (episodes, len(choices))))
            else:
                step = batch.enact(policy.decide(batch.snapshot))
            total += np.where(alive, step.reward, 0.0)
            alive &= ~(step.terminated | step.truncated)
        found.append(float(total.mean()))
    return found[0], found[1]


def _write(
    minari: ModuleType,
    name: str,
    episodes: list[EpisodeBuffer],
    vertices: int,
    env: EnvSpec | None,
    scores: tuple[float, float] | None,
    policy: str,
    dataset: Dataset,
) -> MinariDataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no author, no e-mail: a dataset is its maker's
        return minari.create_dataset_from_buffers(
            name,
            episodes,
            env=env,
            eval_env=None if env is None else _evaluated(env),
            algorithm_name=policy,
            code_permalink=CODE,
            observation_space=observation_space(episodes[0].observations.shape[1]),
            action_space=_actions(dataset.encoding, vertices),
            ref_min_score=None if scores is None else scores[0],
            ref_max_score=None if scores is None else scores[1],
            num_episodes_average_score=EPISODES,
            description=f"Decisions of the autoscaling policy '{policy}', from the dataset "
            f"'{dataset.manifest.name}', content {dataset.manifest.content_sha256[:16]}.",
            requirements=[f"dsp-gym=={__version__}"],
            data_format="arrow",
        )


def _actions(encoding: Encoding, vertices: int) -> spaces.Space[Any]:
    """The space of the actions that are written."""
    if encoding.action == "capacity":
        one: spaces.Space[Any] = spaces.Discrete(1 + len(encoding.kappas))
        return one
    return action_space(vertices)


def _episodes(seen: Transitions, encoding: Encoding, vertices: int) -> Iterator[EpisodeBuffer]:
    """Every unbroken run of steps, without the padding of other jobs."""
    from minari.data_collector.episode_buffer import EpisodeBuffer

    earned = reward(seen.terms, encoding.reward).astype(np.float32)
    begin = 0
    for number, last in enumerate(np.flatnonzero(seen.ends).tolist()):
        rows = slice(begin, last + 1)
        observed = np.concatenate([seen.observation[rows], seen.next_observation[last : last + 1]])
        actions = seen.action[rows, : 2 * vertices]
        if encoding.action == "capacity":
            actions = actions[:, 0]
        else:
            observed = unpadded(observed, encoding.vertices, vertices)
        yield EpisodeBuffer(
            id=number,
            observations=observed,
            actions=actions,
            rewards=earned[rows].tolist(),
            terminations=seen.terminated[rows].tolist(),
            truncations=seen.truncated[rows].tolist(),
            # An info comes with every observation; the last one is followed by no action. A column,
            # since the Arrow storage of Minari 0.5.4 does not read scalars back.
            infos={"propensity": np.append(seen.propensity[rows], np.nan)[:, None]},
        )
        begin = last + 1


def unpadded(observation: Floats32, columns: int, vertices: int) -> Floats32:
    """Cut the padding of other jobs off observations.

    Returns:
        Observations (N, size) with room for this job's vertices.
    """
    if columns == vertices:
        return observation
    layout, n = ObservationLayout(columns), len(observation)
    edges = observation[:, layout.adjacency].reshape(n, columns, columns)
    return np.concatenate(
        [
            observation[:, : vertices * FV],
            observation[:, layout.job],
            observation[:, layout.mask][:, :vertices],
            edges[:, :vertices, :vertices].reshape(n, -1),
        ],
        axis=1,
    )


def _environment(
    dataset: Dataset, encoding: Encoding, job: str, experiment: str | None
) -> EnvSpec | None:
    """What the environment is made from; None where its job is not a shipped one as it is now."""
    try:
        shipped = job_hash(load_job(job)) == encoding.jobs[job]
    except ConfigError:
        shipped = False
    if not shipped:
        return None
    if experiment is None:
        encoded = dataset.manifest.config.get("transitions")
        env = encoded.get("env", {}) if isinstance(encoded, dict) else {}
        document: Mapping[str, object] = {"name": "export", "loads": DEFAULT_LOADS, "env": env}
    else:
        chosen = files.load_model(
            ExperimentConfig, "experiments", files.find("experiments", experiment)
        )
        document = chosen.model_dump(mode="json", by_alias=True)
        _refuse_other(chosen, encoding, dataset.folder)
    kept = {key: document[key] for key in ("name", "loads", "env", "guardrails") if key in document}
    return _spec({"config": {**kept, "jobs": [job]}, "split": "train"})


def _evaluated(env: EnvSpec) -> EnvSpec:
    return _spec({**env.kwargs, "split": SPLIT})


def _spec(kwargs: dict[str, object]) -> EnvSpec:
    spec = deepcopy(gymnasium.spec(FROM_CONFIG))  # the registry's own stays as it is
    spec.kwargs = kwargs
    return spec


def _refuse_other(chosen: ExperimentConfig, encoding: Encoding, folder: str) -> None:
    """The experiment's environment must give what the dataset holds."""
    env = chosen.env
    if env.action == "capacity":
        same = encoding.sizing == env.capacity
    else:
        same = encoding.ds2_utilization == env.ds2_utilization
    if same and env.action == encoding.action and env.reward == encoding.reward:
        return
    raise DatasetError(
        "its actions or rewards differ from this experiment's environment",
        file=folder,
        key="experiment",
        value=chosen.name,
        remedy="Give the experiment whose action, ds2_utilization, capacity and reward it was "
        "encoded with, or none.",
    )


def refuse_existing(names: Iterable[str], root: Path) -> None:
    """Refuse to replace Minari datasets below a root.

    Raises:
        DatasetError: There is one of these names.
    """
    for name in names:
        if (root / name).exists():
            raise DatasetError(
                f"there is a Minari dataset '{name}' already",
                file=root,
                remedy="Write it elsewhere with --out, or replace it with --overwrite.",
            )


@contextmanager
def written_aside(root: Path) -> Iterator[Path]:
    """Let Minari write into a hidden folder of the root, which is gone when the block ends.

    Minari finds its folder through the environment only. A relative one it resolves twice.
    """
    aside = (root / ASIDE).absolute()
    shutil.rmtree(aside, ignore_errors=True)  # of an export that was killed
    aside.mkdir()
    try:
        with variables(**{MINARI_FOLDER: str(aside)}):
            yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_in_place(aside: Path, root: Path, name: str) -> None:
    """Move a whole dataset below the root, with the marks of its namespaces."""
    target = root / name
    target.parent.mkdir(parents=True, exist_ok=True)
    for parent in Path(name).parents:
        for mark in (aside / parent).glob("*.json"):
            if not (root / parent / mark.name).exists():
                shutil.copyfile(mark, root / parent / mark.name)
    if target.exists():
        target.rename((aside / name).with_suffix(".replaced"))
    (aside / name).rename(target)


def _part(name: str) -> str:
    """A name as Minari allows it in an id."""
    return re.sub(r"[^-\w]+", "-", name)


def minari_module() -> ModuleType:
    """Import Minari.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module("minari")
    except ModuleNotFoundError:
        raise MissingExtraError("offline", "exporting for Minari") from None
