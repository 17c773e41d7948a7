"""Does learning from datasets hold what it promises?

    python -m agents.dataset_claim cloning q11-cloned --runs runs/q11-cloned
    python -m agents.dataset_claim offline q11-offline

cloning: behaviour cloning of Justin's decisions reaches his cost and his SLO seconds within 3 %
each, on loads of no split of the dataset. offline: an agent that learned from a dataset first needs
at most half the steps of its own that one from scratch needs, until its score is 95 % of what the
latter ends with; interquartile means over the seeds of the experiment. Rewards are below zero:
95 % of a score is the return that is 1 / 0.95 times as far below it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.learner import Learner, TrainingInterrupted
from dsp_gym.config.files import find, load_model, write_atomic
from dsp_gym.evaluation.config import Entrant
from dsp_gym.evaluation.run import evaluate
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.evaluation.statistics import interquartile_mean
from dsp_gym.experiment import ExperimentConfig

__all__ = ["cloning", "offline", "steps_to"]

WITHIN = 0.03
SHARE = 0.95
FEWER = 0.5
TEACHER = "justin-paper"

Floats = NDArray[np.float64]


def cloning(config: ExperimentConfig, runs: Path) -> dict[str, Any]:
    """The clone of every seed and its teacher on the same unseen loads, without guardrails."""
    clones = [
        Entrant(policy=str(runs / f"seed-{seed}" / "policy"), name=f"seed-{seed}")
        for seed in config.agent.seeds
    ]
    benchmark = config.benchmark().model_copy(
        update={
            "policies": (Entrant(policy=TEACHER, name=TEACHER), *clones),
            "reference": TEACHER,
            "clairvoyant": False,
        }
    )
    card = evaluate(benchmark)
    found: dict[str, Any] = {
        "experiment": config.name,
        "episodes": len(_column(card, TEACHER, "cost")),
        "seeds": list(config.agent.seeds),
        "within": WITHIN,
    }
    for metric in ("cost", "slo_s"):
        teacher = float(_column(card, TEACHER, metric).mean())
        clone = float(np.mean([_column(card, c.name, metric).mean() for c in clones]))
        change = clone / teacher - 1
        found[metric] = {"teacher": teacher, "clone": clone, "change": change}
    found["holds"] = all(abs(found[m]["change"]) <= WITHIN for m in ("cost", "slo_s"))
    return found


def offline(
    config: ExperimentConfig, told: Callable[[str], object] = lambda text: None
) -> dict[str, Any]:
    """Curves with and without the dataset, and the steps each needs."""
    scratch = config.model_copy(
        update={"agent": config.agent.model_copy(update={"offline": None, "warm_start": None})}
    )
    steps, mean = _mean_curve(scratch, config.agent.total_steps, told)
    final = float(mean[-1])
    theirs = steps_to(steps, mean, final / SHARE)
    assert theirs is not None  # its last score is above
    # Beyond what scratch needs, the other curve has nothing to say.
    steps_ours, mean_ours = _mean_curve(config, int(theirs), told)
    ours = steps_to(steps_ours, mean_ours, final / SHARE)
    ratio = None if ours is None else ours / theirs
    return {
        "experiment": config.name,
        "seeds": list(config.agent.seeds),
        "final": final,
        "threshold": final / SHARE,
        "steps": {"scratch": theirs, "pretrained": ours},
        "ratio": ratio,
        "at_most": FEWER,
        "curves": {
            "scratch": _points(steps, mean),
            "pretrained": _points(steps_ours, mean_ours),
        },
        "holds": ratio is not None and ratio <= FEWER,
    }


def steps_to(steps: Sequence[float] | Floats, curve: Floats, threshold: float) -> float | None:
    """The first of the steps from which the score is at the threshold or above; None: never.

    >>> steps_to([0, 10, 20], np.array([-3.0, -2.0, -1.0]), -2.5)
    10.0
    """
    reached = np.flatnonzero(np.asarray(curve) >= threshold)
    return float(steps[reached[0]]) if len(reached) else None


def _mean_curve(
    config: ExperimentConfig, until: int, told: Callable[[str], object]
) -> tuple[Floats, Floats]:
    """Own steps, and the interquartile mean over the seeds of the validation returns there."""
    curves = []
    for seed in config.agent.seeds:
        seen = _curve(config, seed, until)
        curves.append(seen)
        first, last = seen[min(seen)], seen[max(seen)]
        told(f"seed {seed}: {first:.3f} before its first step, {last:.3f} after {max(seen):,}")
    steps = sorted(set.intersection(*map(set, curves)))
    scores = np.array([[seen[step] for seen in curves] for step in steps])
    return np.array(steps, dtype=np.float64), np.asarray(interquartile_mean(scores))


def _curve(config: ExperimentConfig, seed: int, until: int) -> dict[int, float]:
    """Returns on the validation loads by own steps, 0 before any, until so many were taken."""
    seen: dict[int, float] = {}

    def record(figures: dict[str, float], step: int) -> None:
        if "validation/return" in figures:
            seen[step] = figures["validation/return"]
            learner.stop = step >= until

    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(config, seed, Path(folder), record=record)
        with suppress(TrainingInterrupted):
            learner.run()
    return seen


def _points(steps: Floats, curve: Floats) -> list[list[float]]:
    return [[int(step), round(float(value), 4)] for step, value in zip(steps, curve, strict=True)]


def _column(card: Scorecard, policy: str, metric: str) -> Floats:
    return np.array([cell.metrics[metric] for cell in card.cells if cell.policy == policy])


def main(arguments: list[str] | None = None) -> int:
    """Command line; exit code 1 where the claim does not hold."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("claim", choices=("cloning", "offline"))
    parser.add_argument("config", help="the experiment")
    parser.add_argument("--runs", type=Path, help="cloning: folder it was trained into")
    parser.add_argument("--seeds", type=int, nargs="*", help="these, not those of the experiment")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    given = parser.parse_args(arguments)
    config = load_model(ExperimentConfig, "experiments", find("experiments", given.config))
    if given.seeds:
        agent = config.agent.model_copy(update={"seeds": tuple(given.seeds)})
        config = config.model_copy(update={"agent": agent})
    if given.claim == "cloning":
        result = cloning(config, given.runs or Path("runs") / config.name)
    else:
        result = offline(config, lambda text: sys.stderr.write(text + "\n"))
    text = json.dumps(result, indent=2) + "\n"
    if given.out is not None:
        write_atomic(given.out, text)
    sys.stdout.write(text)
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
