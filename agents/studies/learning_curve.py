"""The return of an agent by its training steps, kept so that learning can be resumed.

FOLDER/curve.json     the experiment, and the returns on the validation loads so far
FOLDER/checkpoint/    what learning continues from, bit for bit
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agents.checkpoint import Tree, checkpoint_steps, has_checkpoint, refuse_other_config
from agents.learner import Learner
from agents.provenance import dataset_hashes
from agents.training import stopped_by_interrupt
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import ConfigError, SchemaError
from dsp_gym.experiments.experiment import ExperimentConfig

SCHEMA = "dsp-gym/learning-curve/1"
CURVE = "curve.json"

Curve = dict[int, float]
"""Return on the validation loads by steps; 0: before the first."""

OnCurveStage = Callable[[str, int, int, float | None], object]
"""Callback with a stage ("offline", "learn"), the work done, the work in all, the best return."""


class _Enough(Exception):
    """The curve has the length asked for."""


def learning_curve(
    config: ExperimentConfig,
    seed: int,
    folder: Path,
    until: int,
    *,
    told: OnCurveStage = lambda stage, done, of, best: None,
) -> Curve:
    """Learn for a number of steps, with the returns on the validation loads in between.

    Continues from the folder's content, if there is any; see `forget`.

    Args:
        config: The experiment.
        seed: Seed of the agent.
        folder: Folder of the curve and the checkpoints.
        until: Steps; the curve ends with the first evaluation there or after.
        told: Called with the progress.

    Returns:
        The mean return on the validation loads by steps.

    Raises:
        TrainingInterrupted: Ctrl-C; a checkpoint has been written.
        ConfigError: The content of `folder` was learned by another experiment, or from other data.
        SchemaError: The content of `folder` cannot be read.
    """
    file = folder / CURVE
    seen = _kept(file, config, seed)
    if seen and max(seen) >= until:
        return seen
    learned = checkpoint_steps(folder / "checkpoint") if seen else -1
    # Points beyond the checkpoint are dropped: they will be learned again, to the bit.
    seen = {step: value for step, value in seen.items() if step <= learned}

    def record(figures: dict[str, float], step: int) -> None:
        if "validation/return" in figures:
            seen[step] = figures["validation/return"]
            document = {
                "schema": SCHEMA,
                "seed": seed,
                "data": dataset_hashes(config),
                "config": config.model_dump(mode="json", by_alias=True),
                "returns": sorted(seen.items()),
            }
            write_atomic(file, json.dumps(document, indent=1, allow_nan=False) + "\n")
            if step >= until:
                raise _Enough

    def progress(stage: str, done: int, of: int, figures: dict[str, float]) -> None:
        told(stage, done, until if stage == "learn" else of, figures.get("best_return"))

    learner = Learner(config, seed, folder, progress=progress, record=record)
    with suppress(_Enough), stopped_by_interrupt(learner):
        learner.run(resume=bool(seen) and has_checkpoint(learner.checkpoint))
    return seen


def forget(folder: Path) -> None:
    """Remove the curve in a folder, so that the next one starts from the beginning."""
    (folder / CURVE).unlink(missing_ok=True)


def _kept(file: Path, config: ExperimentConfig, seed: int) -> Curve:
    """Read the curve of an earlier call, for the same experiment, seed and data; empty if none."""
    if not file.exists():
        return {}
    try:
        document: Tree = parse_json(file.read_text(encoding="utf-8"))
        if document.get("schema") != SCHEMA:
            raise ValueError(f"expected '{SCHEMA}', found {document.get('schema')!r}")
        returns = {int(step): float(value) for step, value in document["returns"]}
        before: Tree = document["config"]
        # The learning rate falls over all steps: another total would be another curve.
        learned_from = document["seed"], before["agent"]["total_steps"], document["data"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SchemaError(
            f"the curve cannot be read: {error}",
            file=file,
            remedy="Leave --resume out, which begins again.",
        ) from error
    refuse_other_config(file.parent, before, config)
    asked = seed, config.ppo.total_steps, dataset_hashes(config)
    for key, was, now in zip(
        ("seed", "agent.total_steps", "dataset"), learned_from, asked, strict=True
    ):
        if was != now:
            raise ConfigError(
                f"the curve was learned with {was!r}",
                file=file,
                key=key,
                value=now,
                remedy="Leave --resume out, which begins again, or name another folder.",
            )
    return returns
