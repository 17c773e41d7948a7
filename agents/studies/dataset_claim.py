"""Does learning from datasets keep its promise?

    python -m agents.studies.dataset_claim cloning q11-cloned     after dsp-gym train q11-cloned
    python -m agents.studies.dataset_claim offline q11-offline    trains; after Ctrl-C: --resume

cloning: behaviour cloning of Justin's decisions reaches its cost and its SLO seconds within 3 %
each, on loads of no split of the dataset. offline: an agent that learned from a dataset first needs
at most half the training steps of an agent from scratch to reach 95 % of the latter's final score;
interquartile means over the seeds of the experiment. Rewards are below zero: 95 % of a score is the
return that is 1 / 0.95 times as far below zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from agents.provenance import dataset_hashes
from agents.studies.claim import CONFIDENCE, card_of, paired, trained_agents
from agents.studies.learning_curve import Curve, forget, learning_curve
from agents.training import TrainingInterrupted
from dsp_gym.arrays import Floats
from dsp_gym.config.files import load_model
from dsp_gym.control.loop import LoopStep
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.evaluation.statistics import interquartile_mean
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.trainings import newest_training
from dsp_gym.studies.bench.machine import machine
from dsp_gym.studies.runner import OutOption, run, write_figures

WITHIN = 0.03
SHARE = 0.95
FEWER = 0.5
TEACHER = "justin-paper"
SCRATCH, PRETRAINED = "scratch", "pretrained"
RESAMPLES = 2000
INTERRUPTED = 130
"""Exit code, as `dsp-gym` has it."""

Say = Callable[[str], object]


def cloning(
    config: ExperimentConfig, runs: Path, say: Say = lambda text: None
) -> dict[str, object]:
    """Run the clone of every seed and its teacher on the same unseen loads, without guardrails.

    Args:
        config: The experiment.
        runs: Folder of its training.
        say: Called with a sentence on the progress.

    Returns:
        The relative change of cost and SLO seconds, and whether it is within the bar.
    """
    clones = trained_agents(config, runs, None)

    def told(label: str, done: int, of: int, step: LoopStep) -> None:
        if done == of:
            say(f"{label}: evaluated")

    entrants = (Entrant(policy=TEACHER, name=TEACHER), *clones)
    card = card_of(config, entrants, TEACHER, told)
    names = [clone.name for clone in clones]
    changes = {metric: _change(card, metric, names) for metric in ("cost", "slo_s")}
    return {
        "experiment": config.name,
        "machine": machine(),
        "data": dataset_hashes(config),
        "split": config.evaluation.split,
        "episodes": sum(cell.policy == TEACHER for cell in card.cells),
        "seeds": list(config.agent.seeds),
        "within": WITHIN,
        "confidence": CONFIDENCE,
        **changes,
        "holds": all(abs(found["change"]) <= WITHIN for found in changes.values()),
    }


def _change(card: Scorecard, metric: str, clones: Sequence[str]) -> dict[str, Any]:
    """Compare clones with the teacher, relative to the teacher; their mean, and each."""
    theirs, teacher, found = paired(card, metric, clones, TEACHER)
    return {
        "teacher": float(teacher.mean()),
        "clone": float(theirs.mean()),
        "change": found.estimate,
        "interval": [found.low, found.high],
        "by_seed": (theirs.mean(axis=0) / teacher.mean() - 1).tolist(),
    }


def offline(
    config: ExperimentConfig, runs: Path, *, resume: bool = False, say: Say = lambda text: None
) -> dict[str, object]:
    """Measure curves with and without the dataset, and the steps each needs.

    Args:
        config: The experiment.
        runs: Folder that curves and checkpoints are kept in.
        resume: Whether to continue from the files there.
        say: Called with a sentence on the progress.

    Returns:
        The figures, and whether the claim holds.

    Raises:
        TrainingInterrupted: Ctrl-C; progress is kept.
    """
    scratch = config.model_copy(
        update={"agent": config.agent.model_copy(update={"offline": None, "warm_start": None})}
    )
    if not resume:
        for seed in config.agent.seeds:
            for part in (SCRATCH, PRETRAINED):
                forget(runs / part / f"seed-{seed}")
    alone = _curves(scratch, runs / SCRATCH, config.ppo.total_steps, say)
    steps, mean = _mean_curve(alone)
    final = float(mean[-1])
    theirs = steps_to(steps, mean, final / SHARE)
    assert theirs is not None  # the last score is above it: returns are negative
    say(f"scratch ends at {final:.3f} and is at {SHARE:.0%} of it after {theirs:,.0f} steps")
    # The other curve is irrelevant beyond the steps that scratch needs.
    taught = _curves(config, runs / PRETRAINED, int(theirs), say)
    steps_ours, mean_ours = _mean_curve(taught)
    ours = steps_to(steps_ours, mean_ours, final / SHARE)
    # An untrained agent at the threshold leaves no steps to save.
    ratio = ours / theirs if theirs and ours is not None else None
    return {
        "experiment": config.name,
        "machine": machine(),
        "data": dataset_hashes(config),
        "seeds": list(config.agent.seeds),
        "eval_every": config.ppo.evaluated_every,
        "final": final,
        "threshold": final / SHARE,
        "steps": {SCRATCH: theirs, PRETRAINED: ours},
        "by_seed": {
            SCRATCH: [steps_to(*_mean_curve([curve]), final / SHARE) for curve in alone],
            PRETRAINED: [steps_to(*_mean_curve([curve]), final / SHARE) for curve in taught],
        },
        "ratio": ratio,
        "confidence": CONFIDENCE,
        "interval": _interval(alone, taught),
        "at_most": FEWER,
        "curves": {
            SCRATCH: _points(steps, mean),
            PRETRAINED: _points(steps_ours, mean_ours),
        },
        "holds": ratio is not None and ratio <= FEWER,
    }


def steps_to(steps: Sequence[float] | Floats, curve: Floats, threshold: float) -> float | None:
    """Find the first step at which the score is at the threshold or above.

    Returns:
        Steps; None if the score never gets there.

    >>> steps_to([0, 10, 20], np.array([-3.0, -2.0, -1.0]), -2.5)
    10.0
    """
    reached = np.flatnonzero(np.asarray(curve) >= threshold)
    return float(steps[reached[0]]) if len(reached) else None


def _curves(config: ExperimentConfig, folder: Path, until: int, say: Say) -> list[Curve]:
    """Return one curve per seed, each of the given length; curves in the folder are reused."""
    found = []
    for seed in config.agent.seeds:
        label = f"{folder.name}, seed {seed}"
        found.append(
            learning_curve(config, seed, folder / f"seed-{seed}", until, told=_by_tenth(label, say))
        )
        first, last = found[-1][0], found[-1][max(found[-1])]
        say(f"{label}: {first:.3f} before its first step, {last:.3f} after {max(found[-1]):,}")
    return found


def _mean_curve(curves: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Return the steps, and the interquartile mean of the validation returns over the seeds."""
    steps, scores = _scores(curves)
    return steps, np.asarray(interquartile_mean(scores))


def _scores(curves: Sequence[Curve]) -> tuple[Floats, Floats]:
    """Return the steps (N,) common to all curves, and the returns there (N, curves)."""
    steps = sorted(set.intersection(*map(set, curves)))
    scores = np.array([[seen[step] for seen in curves] for step in steps])
    return np.array(steps, dtype=np.float64), scores


def _interval(alone: Sequence[Curve], taught: Sequence[Curve]) -> list[float | None]:
    """Return the bootstrap interval of the ratio over seeds; None: the threshold is not reached."""
    (steps, of_alone), (steps_ours, of_taught) = _scores(alone), _scores(taught)
    # A fixed key: the interval is reproducible.
    stream = np.random.Generator(np.random.Philox(0))
    ratios = []
    for _ in range(RESAMPLES):
        mean, ours = (
            np.asarray(interquartile_mean(scores[:, stream.integers(len(alone), size=len(alone))]))
            for scores in (of_alone, of_taught)
        )
        theirs = steps_to(steps, mean, mean[-1] / SHARE)
        own = steps_to(steps_ours, ours, mean[-1] / SHARE)
        ratios.append(np.inf if own is None or not theirs else own / theirs)
    ends = np.quantile(ratios, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], method="nearest")
    return [float(end) if np.isfinite(end) else None for end in ends]


def _points(steps: Floats, curve: Floats) -> list[list[float]]:
    return [[int(step), round(float(value), 4)] for step, value in zip(steps, curve, strict=True)]


def _by_tenth(label: str, say: Say) -> Callable[[str, int, int, float | None], None]:
    """Return a callback that reports each tenth of each stage, with the time it took."""
    begun, said = time.monotonic(), set[tuple[str, int]]()

    def told(stage: str, done: int, of: int, best: float | None) -> None:
        if (tenth := (stage, 10 * done // max(of, 1))) not in said:
            said.add(tenth)
            score = "" if best is None else f", best return {best:.3f}"
            say(
                f"{label}: {stage} {10 * tenth[1]} % of {of:,} after "
                f"{time.monotonic() - begun:,.0f} s{score}"
            )

    return told


def main(
    claim: Annotated[Literal["cloning", "offline"], typer.Argument(help="What is claimed.")],
    config: Annotated[str, typer.Argument(help="The experiment.")],
    runs: Annotated[
        Path | None,
        typer.Option(
            help="cloning: folder it was trained into, its newest training's by default; offline: "
            "folder for what it trains, runs/NAME-claim."
        ),
    ] = None,
    split: Annotated[
        Literal["train", "validation", "test"] | None,
        typer.Option(help="cloning: on these loads; the experiment's, test, by default."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="offline: continue after Ctrl-C.")
    ] = False,
    seeds: Annotated[
        str, typer.Option(metavar="A,B,C", help="These, not those of the experiment.")
    ] = "",
    out: OutOption = None,
) -> None:
    """Hold a claim about learning from datasets; exit with 1 where it fails."""
    experiment = load_model(ExperimentConfig, "experiments", config)
    if seeds:
        agent = experiment.agent.model_copy(update={"seeds": tuple(map(int, seeds.split(",")))})
        experiment = experiment.model_copy(update={"agent": agent})
    if split:
        evaluation = experiment.evaluation.model_copy(update={"split": split})
        experiment = experiment.model_copy(update={"evaluation": evaluation})
    try:
        if claim == "cloning":
            newest = runs or newest_training(experiment.name) or Path("runs")
            result = cloning(experiment, newest, _say)
        else:
            folder = runs or Path("runs") / f"{experiment.name}-claim"
            result = offline(experiment, folder, resume=resume, say=_say)
    except (TrainingInterrupted, KeyboardInterrupt):
        kept = " What was learned is kept; continue with the same line and --resume."
        _say("Stopped." + (kept if claim == "offline" else ""))
        raise typer.Exit(INTERRUPTED) from None
    write_figures(result, out, indent=2)
    if not result["holds"]:
        raise typer.Exit(1)


def _say(text: str) -> None:
    typer.echo(text, err=True)


if __name__ == "__main__":
    run(main)
