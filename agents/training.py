"""Training an experiment: one agent per seed, the best of them exported and recorded."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from agents.checkpoint import checkpoint_steps, has_checkpoint
from agents.export import config_text, data_hashes, export, job_hashes, versions
from agents.folder import POLICY, read_folder, replace_folder
from agents.learner import Learner, OnStage, TrainingInterrupted
from agents.offline import dataset_hashes
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.experiment import ExperimentConfig
from dsp_gym.trackers import NullTracker, Tracker

__all__ = [
    "SeedProgress",
    "TrainingInterrupted",
    "TrainingResult",
    "stopped_by_interrupt",
    "train",
]


class SeedProgress:
    """Hears the progress of a training; the base class ignores it."""

    def begin(self, seed: int, index: int, seeds: int) -> None:
        """An agent begins."""

    def update(self, stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        """An agent has got so far in a stage: "imitate", "offline", "learn"."""


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The result of a training."""

    name: str
    policy: Path
    seed: int
    validation: dict[str, float]
    by_seed: dict[int, dict[str, float]]
    run_id: str | None
    model: str | None


def train(
    config: ExperimentConfig,
    out: Path,
    *,
    resume: bool = False,
    progress: SeedProgress | None = None,
    tracker: Tracker | None = None,
    base_dir: str | Path | None = None,
) -> TrainingResult:
    """Trains the agents of an experiment and exports the best.

    Args:
        config: The experiment.
        out: Folder of checkpoints, of one policy per seed, and of the best as `policy/`.
        resume: Go on from the checkpoints in `out`.
        progress: Hears the progress.
        tracker: Records the run.
        base_dir: Folder that relative trace paths start from.

    Returns:
        The best seed's policy folder, the validation figures of every seed, the recorded run and
        the registered model.

    Raises:
        TrainingInterrupted: Ctrl-C; a checkpoint has been written.
    """
    for needed in ("train", "validation"):
        if getattr(config.loads, needed) is None:
            raise ConfigError(
                f"training needs a {needed} split", key="loads", remedy=f"Add loads.{needed}."
            )
    tracker, progress = tracker or NullTracker(), progress or SeedProgress()
    if resume and not any(
        has_checkpoint(out / f"seed-{seed}" / "checkpoint") for seed in config.agent.seeds
    ):
        raise ConfigError(
            "there is no checkpoint to resume from",
            file=out,
            remedy="Leave --resume out, or name the folder of the training with --out.",
        )
    tracker.start(config.name, {"kind": "train", **_hash_tags(config, base_dir)})
    try:
        result = _train(config, out, resume, progress, tracker, base_dir)
    except BaseException as error:
        stopped = isinstance(error, TrainingInterrupted | KeyboardInterrupt)
        tracker.end("KILLED" if stopped else "FAILED")
        raise
    tracker.end()
    return result


def _train(
    config: ExperimentConfig,
    out: Path,
    resume: bool,
    progress: SeedProgress,
    tracker: Tracker,
    base_dir: str | Path | None,
) -> TrainingResult:
    tracker.params(config.model_dump(mode="json", by_alias=True))
    resolved = write_atomic(out / "config.yaml", config_text(config))
    tracker.artifact(resolved)
    by_seed: dict[int, dict[str, float]] = {}
    for index, seed in enumerate(config.agent.seeds):
        folder = out / f"seed-{seed}"
        if resume and _is_finished(folder, config.agent.total_steps):
            by_seed[seed] = read_folder(folder / "policy")[0].validation
            continue
        progress.begin(seed, index, len(config.agent.seeds))
        prefix = f"seed-{seed}/" if len(config.agent.seeds) > 1 else ""
        learner = Learner(
            config,
            seed,
            folder,
            progress=_forwarded(progress),
            record=lambda figures, step, prefix=prefix: tracker.metrics(  # type: ignore[misc]
                {f"{prefix}{key}": value for key, value in figures.items()}, step
            ),
            base_dir=base_dir,
        )
        with stopped_by_interrupt(learner):
            best = learner.run(resume=resume and has_checkpoint(learner.checkpoint))
        export(learner, folder / "policy", base_dir)
        by_seed[seed] = best.figures
    seed = max(by_seed, key=lambda s: by_seed[s]["return"])
    return _publish(config, out, seed, by_seed, tracker)


def _publish(
    config: ExperimentConfig,
    out: Path,
    seed: int,
    by_seed: dict[int, dict[str, float]],
    tracker: Tracker,
) -> TrainingResult:
    """Copies the best policy to its place, and puts it into the registry."""
    source = out / f"seed-{seed}" / "policy"
    policy = replace_folder(
        out / "policy", {file.name: file.read_bytes() for file in sorted(source.iterdir())}
    )
    tracker.metrics({f"best/{key}": value for key, value in by_seed[seed].items()}, 0)
    tracking = config.tracking
    model = tracker.register(policy, tracking.model or config.name, tracking.alias)
    result = TrainingResult(
        config.name, policy, seed, by_seed[seed], by_seed, tracker.run_id, model
    )
    summary = {
        "name": result.name,
        "seed": seed,
        "validation": result.validation,
        "by_seed": {str(key): value for key, value in by_seed.items()},
        "run_id": result.run_id,
        "model": result.model,
        "versions": versions(),
    }
    tracker.artifact(
        write_atomic(out / "training.json", json.dumps(summary, indent=2, allow_nan=False) + "\n")
    )
    return result


def _forwarded(progress: SeedProgress) -> OnStage:
    return lambda stage, done, of, figures: progress.update(stage, done, of, figures)


def _is_finished(folder: Path, total_steps: int) -> bool:
    exported = (folder / "policy" / POLICY).is_file()
    return exported and checkpoint_steps(folder / "checkpoint") >= total_steps


def _hash_tags(config: ExperimentConfig, base_dir: str | Path | None) -> dict[str, str]:
    hashes = {
        **{f"job.{name}": value for name, value in job_hashes(config).items()},
        **{f"data.{name}": value for name, value in data_hashes(config, base_dir).items()},
        **{f"data.{name}": value for name, value in dataset_hashes(config).items()},
        **{f"version.{name}": value for name, value in versions().items()},
    }
    return {key.replace(":", "_"): value for key, value in hashes.items()}


@contextmanager
def stopped_by_interrupt(learner: Learner) -> Iterator[None]:
    """The first Ctrl-C lets the update under way finish and a checkpoint be written.

    Yields:
        Nothing; the block is the training. A second Ctrl-C raises `KeyboardInterrupt` at once, and
        the former handler is back in place afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def ask(number: int, frame: FrameType | None) -> Any:
        if learner.stop:
            raise KeyboardInterrupt
        learner.stop = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
