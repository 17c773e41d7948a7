"""The training of one agent of one seed, as a cell of an engine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

from agents.checkpoint import checkpoint_steps, has_checkpoint
from agents.folder import replace_folder
from agents.stages import SeedLearner, TrainingInterrupted
from dsp_gym.engine import Tell
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.policies.algorithms import load_part

CHECKPOINT, POLICY_FOLDER = "checkpoint", "policy"

RECORD = "record"
"""Stage of news that are figures to record, with their step."""

SeedNews = tuple[str, int, int, dict[str, float]]
"""A stage, the work done and in all, and figures; see `agents.stages.OnStage`."""

Files = Mapping[str, Mapping[str, bytes]]
"""Contents by folder, `checkpoint` and `policy`, and by name."""


@dataclass(frozen=True, slots=True)
class SeedCell:
    """One agent to train; with a checkpoint in its folder it continues from there."""

    config: ExperimentConfig
    seed: int
    folder: Path
    base_dir: str | Path | None
    files: Files | None = None  # of the folder, for workers without access to it

    def carried(self) -> SeedCell:
        """Return the cell for a worker without access to the folder.

        Returns:
            The cell with the present files of the folder.
        """
        return replace(self, files=_read_files(self.folder))


@dataclass(frozen=True, slots=True)
class TrainedSeed:
    """An agent at the end of its training, or, on another machine, at its next checkpoint."""

    figures: dict[str, float] | None  # figures of validation; None: the training continues
    files: Files | None  # of its folder, from workers without access to it


def train_seed(cell: SeedCell, tell: Tell[SeedNews]) -> TrainedSeed:
    """Train an agent and export it, as `policy/` and `checkpoint/` in its folder.

    Where the folder is on another machine, the agent comes back at its next checkpoint, so that a
    loss of this machine costs no more than the time since then.

    Args:
        cell: The agent to train.
        tell: Called with news; returns whether to stop.

    Returns:
        The agent's validation figures, and its files if the folder is on another machine.

    Raises:
        TrainingInterrupted: Asked to stop; a checkpoint of what was learned has been written.
    """
    if cell.files is None:
        return TrainedSeed(_trained(cell, tell, None), None)
    with TemporaryDirectory(prefix="dsp-gym-seed-") as name:
        here = replace(cell, folder=Path(name) / "seed", files=None)
        put_back(here.folder, cell.files)
        steps = max(0, checkpoint_steps(here.folder / CHECKPOINT))
        figures = _trained(here, tell, steps + cell.config.agent.checkpoint_every)
        return TrainedSeed(figures, _read_files(here.folder))


def _trained(cell: SeedCell, tell: Tell[SeedNews], until: int | None) -> dict[str, float] | None:
    """Return validation figures; None once that many steps are in a checkpoint."""
    asked = False

    def progress(stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        nonlocal asked
        asked |= tell((stage, done, of, figures))
        if asked or (until is not None and stage == "learn" and done >= until):
            learner.stop = True

    def record(figures: dict[str, float], step: int) -> None:
        tell((RECORD, step, step, figures))

    trainer = load_part(cell.config.agent.algorithm, "trainer")
    learner: SeedLearner = trainer(
        cell.config,
        cell.seed,
        cell.folder,
        progress=progress,
        record=record,
        base_dir=cell.base_dir,
    )
    try:
        with stopped_by_interrupt(learner):
            learner.run(resume=has_checkpoint(learner.checkpoint))
    except TrainingInterrupted:
        if asked or until is None or checkpoint_steps(learner.checkpoint) < until:
            raise
        return None
    export = load_part(cell.config.agent.algorithm, "export")
    export(learner, cell.folder / POLICY_FOLDER, cell.base_dir)
    return learner.figures


def _read_files(folder: Path) -> Files:
    return {
        name: {file.name: file.read_bytes() for file in sorted((folder / name).iterdir())}
        for name in (CHECKPOINT, POLICY_FOLDER)
        if (folder / name).is_dir()
    }


def put_back(folder: Path, files: Files) -> None:
    """Write the checkpoint and the policy of an agent, each whole or not at all."""
    for name, contents in files.items():
        replace_folder(folder / name, contents)


@contextmanager
def stopped_by_interrupt(learner: SeedLearner) -> Iterator[None]:
    """The first Ctrl-C sets `stop`.

    Yields:
        Nothing; the block is the training. A second Ctrl-C raises `KeyboardInterrupt` at once, and
        the former handler is restored afterwards.
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
