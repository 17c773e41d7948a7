"""Training an experiment: one agent per seed, the best of them exported and recorded."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from agents.checkpoint import (
    checkpoint_config,
    checkpoint_steps,
    has_checkpoint,
    refuse_other_config,
)
from agents.folder import POLICY, PolicyDocument, read_any, replace_folder
from agents.provenance import config_text, data_hashes, dataset_hashes, job_hashes, versions
from agents.seeds import (
    CHECKPOINT,
    POLICY_FOLDER,
    RECORD,
    SeedCell,
    SeedNews,
    put_back,
    stopped_by_interrupt,
    train_seed,
)
from agents.stages import TrainingInterrupted
from dsp_gym.config.files import write_atomic
from dsp_gym.config.temporary import only_writer
from dsp_gym.engine import HERE, Engine
from dsp_gym.errors import ConfigError, StorageError
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.trackers import NullTracker, Tracker

__all__ = [
    "SeedProgress",
    "TrainingInterrupted",
    "TrainingResult",
    "learned_steps",
    "stopped_by_interrupt",
    "train",
]


SUMMARY = "training.json"
"""File with the figures of every seed."""


class SeedProgress:
    """A listener to the progress of a training; the base class ignores it."""

    def begin(self, seed: int, index: int, seeds: int) -> None:
        """Announce the start of an agent."""

    def update(self, seed: int, stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        """Report progress of a seed in a stage: "watch", "imitate", "count", "learn", ...."""


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
    has_learned: bool = True
    """Whether an update beat the untrained network on the validation loads."""


def train(
    config: ExperimentConfig,
    out: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    progress: SeedProgress | None = None,
    tracker: Tracker | None = None,
    base_dir: str | Path | None = None,
    engine: Engine = HERE,
) -> TrainingResult:
    """Train the agents of an experiment and export the best.

    Args:
        config: The experiment.
        out: Folder of checkpoints, of one policy per seed, and of the best as `policy/`.
        resume: Whether to continue from the checkpoints in `out`.
        overwrite: Whether to remove the training in `out` and start over.
        progress: Listener to the progress.
        tracker: Tracker that records the run.
        base_dir: Folder that relative trace paths start from.
        engine: Engine that trains the seeds; the agents do not depend on it.

    Returns:
        The best seed's policy folder, the validation figures of every seed, the recorded run and
        the registered model.

    Raises:
        ConfigError: There is nothing to resume, a checkpoint was made with another experiment, or
            both `resume` and `overwrite` are given.
        StorageError: The folder holds a training, and neither `resume` nor `overwrite` is given; or
            another training writes into it.
        DeviceError: The experiment asks for a GPU, and there is none; or it was lost.
        TrainingInterrupted: Ctrl-C; a checkpoint of what was learned has been written.
    """
    _check(config, out, resume=resume, overwrite=overwrite)
    if engine.shares_disk and config.agent.kind == "ppo" and config.agent.device == "cuda":
        from agents.device import find_device

        find_device()  # before anything is written
    tracker, progress = tracker or NullTracker(), progress or SeedProgress()
    taken = StorageError(
        "another training writes into this folder",
        file=out,
        remedy="Wait for it, or train into another folder: --out FOLDER",
    )
    with only_writer(out, taken):
        if not resume:
            _make_room(config, out, overwrite)
        tracker.start(config.name, {"kind": "train", **_hash_tags(config, base_dir)})
        try:
            result = _train(config, out, resume, progress, tracker, base_dir, engine)
        except BaseException as error:
            stopped = isinstance(error, TrainingInterrupted | KeyboardInterrupt)
            tracker.end("KILLED" if stopped else "FAILED")
            raise
        tracker.end()
    return result


def _check(config: ExperimentConfig, out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse loads that no training can use, and to continue what is not there or is to go."""
    for needed in ("train", "validation"):
        if getattr(config.loads, needed) is None:
            raise ConfigError(
                f"training needs a {needed} split", key="loads", remedy=f"Add loads.{needed}."
            )
    if resume and overwrite:
        raise ConfigError(
            "--resume continues what --overwrite removes", file=out, remedy="Give one of them."
        )
    if not resume:
        return
    learned = learned_steps(config, out)
    if not learned:
        raise ConfigError(
            "there is no checkpoint to resume from",
            file=out,
            remedy="Leave --resume out, or name the folder of the training with --out.",
        )
    for seed in learned:  # the finished ones, too: nobody else looks at theirs
        folder = out / f"seed-{seed}" / CHECKPOINT
        if saved := checkpoint_config(folder):
            refuse_other_config(folder, saved, config)


def learned_steps(config: ExperimentConfig, out: Path) -> dict[int, int]:
    """Read how far the checkpoints of a folder are.

    Returns:
        The steps that each has learned from, by seed.
    """
    folders = {seed: out / f"seed-{seed}" / CHECKPOINT for seed in config.agent.seeds}
    return {
        seed: checkpoint_steps(folder) for seed, folder in folders.items() if has_checkpoint(folder)
    }


def _make_room(config: ExperimentConfig, out: Path, overwrite: bool) -> None:
    """Remove the former training if asked to; otherwise refuse a folder with checkpoints."""
    learned = {} if overwrite else learned_steps(config, out)
    if learned:
        total = config.agent.total_steps
        found = (f"seed {seed} at {steps:,} of {total:,}" for seed, steps in learned.items())
        raise StorageError(
            f"there is a training already: {', '.join(found)}",
            file=out,
            remedy="Continue it with --resume, remove it with --overwrite, or train into another "
            "folder: --out FOLDER",
        )
    if overwrite:  # with its seeds that are trained no more: a comparison takes every seed-*/policy
        (out / SUMMARY).unlink(missing_ok=True)
        for parts in (POLICY_FOLDER, f"seed-*/{POLICY_FOLDER}", f"seed-*/{CHECKPOINT}"):
            for former in out.glob(parts):
                shutil.rmtree(former, ignore_errors=True)
    for seed in config.agent.seeds:
        shutil.rmtree(out / f"seed-{seed}" / CHECKPOINT, ignore_errors=True)


def _train(
    config: ExperimentConfig,
    out: Path,
    resume: bool,
    progress: SeedProgress,
    tracker: Tracker,
    base_dir: str | Path | None,
    engine: Engine,
) -> TrainingResult:
    tracker.params(config.model_dump(mode="json", by_alias=True))
    resolved = write_atomic(out / "config.yaml", config_text(config))
    tracker.artifact(resolved)
    seeds = config.agent.seeds
    figures: dict[int, dict[str, float]] = {}
    cells = []
    for index, seed in enumerate(seeds):
        folder = out / f"seed-{seed}"
        if resume and _is_finished(folder, config.agent.total_steps):
            figures[seed] = read_any(folder / "policy")[0].validation
            continue
        # A policy here is an older one. If this training is killed between its last checkpoint and
        # its export, the older policy would make the seed look finished.
        shutil.rmtree(folder / POLICY_FOLDER, ignore_errors=True)
        progress.begin(seed, index, len(seeds))
        cells.append(SeedCell(config, seed, folder, base_dir))

    def heard(place: int, news: SeedNews) -> None:
        (stage, done, of, told), seed = news, cells[place].seed
        if stage != RECORD:
            progress.update(seed, stage, done, of, told)
            return
        prefix = f"seed-{seed}/" if len(seeds) > 1 else ""
        tracker.metrics({f"{prefix}{key}": value for key, value in told.items()}, done)

    try:
        while cells:  # once; with remote workers once per checkpoint
            if not engine.shares_disk:
                cells = [cell.carried() for cell in cells]
            for place, trained in engine.map(train_seed, cells, heard, patient=True):
                if trained.files is not None:
                    put_back(cells[place].folder, trained.files)
                if trained.figures is not None:
                    figures[cells[place].seed] = trained.figures
            cells = [cell for cell in cells if cell.seed not in figures]
    except KeyboardInterrupt:
        if any(has_checkpoint(out / f"seed-{seed}" / CHECKPOINT) for seed in seeds):
            raise TrainingInterrupted from None
        raise
    by_seed = {seed: figures[seed] for seed in seeds}
    # By the return on the validation loads, the figure that agents are selected by everywhere.
    seed = max(by_seed, key=lambda s: by_seed[s]["return"])
    return _publish(config, out, seed, by_seed, tracker, base_dir)


def _publish(
    config: ExperimentConfig,
    out: Path,
    seed: int,
    by_seed: dict[int, dict[str, float]],
    tracker: Tracker,
    base_dir: str | Path | None,
) -> TrainingResult:
    """Copy the best policy to its place, or join all, and put it into the registry."""
    source = out / f"seed-{seed}" / "policy"
    # The best first: its document is the template of the ensemble's.
    if config.agent.kind == "ppo" and config.agent.ensemble and len(by_seed) > 1:
        from agents.ensemble import join

        best_first = sorted(by_seed, key=lambda one: one != seed)
        folders = [out / f"seed-{one}" / "policy" for one in best_first]
        policy = join(config, folders, out / "policy", base_dir)
        figures = read_any(policy)[0].validation
    else:
        policy = replace_folder(
            out / "policy", {file.name: file.read_bytes() for file in sorted(source.iterdir())}
        )
        figures = by_seed[seed]
    tracker.metrics({f"best/{key}": value for key, value in figures.items()}, 0)
    learned = _has_learned(config, policy)
    result = TrainingResult(config.name, policy, seed, figures, by_seed, None, None, learned)
    _write_summary(out, result)  # before the store, which may not answer
    tracking = config.tracking
    # A network as it was drawn is kept with its run, and never becomes the champion by itself.
    alias = tracking.alias if learned else None
    model = tracker.register(policy, tracking.model or config.name, alias)
    result = replace(result, run_id=tracker.run_id, model=model)
    tracker.artifact(_write_summary(out, result))
    return result


def _has_learned(config: ExperimentConfig, policy: Path) -> bool:
    """Return whether the best network is another than the untrained one."""
    agent = config.agent
    if agent.kind != "ppo" or not agent.total_steps:
        return True
    if agent.warm_start is not None or agent.offline is not None:
        return True  # it had learned before the first update
    document = read_any(policy)[0]
    return not isinstance(document, PolicyDocument) or document.steps > 0


def _write_summary(out: Path, result: TrainingResult) -> Path:
    summary = {
        "name": result.name,
        "seed": result.seed,
        "has_learned": result.has_learned,
        "validation": result.validation,
        "by_seed": {str(key): value for key, value in result.by_seed.items()},
        "run_id": result.run_id,
        "model": result.model,
        "versions": versions(),
    }
    return write_atomic(out / SUMMARY, json.dumps(summary, indent=2, allow_nan=False) + "\n")


# Exported, and trained as far as the experiment asks now.
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
