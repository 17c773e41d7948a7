"""A program for test_sweep: a sweep on two executors that loses one of them in the middle.

python tests/losing_executors.py FOLDER KIND reads rollouts.json, benchmark.json or experiment.json
there, and writes what the kind of sweep makes: spread/, scorecard.json, trained/ or best.json.
Prints as JSON how many executors it killed and how many tasks the sweep lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from pyspark import SparkContext

from dsp_gym.config.files import parse
from dsp_gym.config.model import ConfigModel
from dsp_gym.datasets.rollouts.plan import RolloutConfig
from dsp_gym.datasets.rollouts.run import rollout
from dsp_gym.engine import Engine
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.run import evaluate
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.experiments.tuning.objective import PolicyObjective, Score
from dsp_gym.experiments.tuning.space import search_space
from dsp_gym.experiments.tuning.study import SearchResult, tune
from spark_pipelines.sweep import spark_engine
from tests.spark_session import SHORT_LIVED


def executors(application: str) -> list[int]:
    """Process ids of an application's executors."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue  # it has just ended
        backend = any(part.endswith("CoarseGrainedExecutorBackend") for part in command)
        if backend and application in command and Path(command[0]).name == "java":
            found.append(int(folder.name))
    return sorted(found)


def lost_tasks(context: SparkContext) -> int:
    """Tasks that failed so far, all jobs."""
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(None)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    return sum(stage.numFailedTasks for stage in stages if stage)


Model = TypeVar("Model", bound=ConfigModel)


class Killer:
    """Kills an executor whenever a batch is done, until a task was lost with it."""

    def __init__(self, context: SparkContext) -> None:
        self.context = context
        self.before = lost_tasks(context)
        self.killed = 0

    def __call__(self, *_: object) -> None:
        running = executors(self.context.applicationId)  # none while Spark replaces them
        if self.killed < 3 and self.lost == 0 and running:
            os.kill(running[0], signal.SIGKILL)
            self.killed += 1

    @property
    def lost(self) -> int:
        return lost_tasks(self.context) - self.before


class Silent:
    """Says nothing of a search."""

    def step(self, trial: int, taken: int, steps: int) -> None:
        pass

    def done(self, trial: int, score: Score, found: SearchResult) -> None:
        pass


def tuned(
    benchmark: BenchmarkConfig, folder: Path, engine: Engine, progress: object = None
) -> SearchResult:
    """Twelve trials of a policy, three at once after the first ten."""
    return tune(
        PolicyObjective("ds2", "test", benchmark, seeds=1),
        search_space("ds2"),
        folder / f"{type(engine).__name__}.db",
        trials=12,
        seed=0,
        resume=False,
        progress=progress or Silent(),
        engine=engine,
        at_once=3,
    )


def read(file: Path, model: type[Model]) -> Model:
    """A configuration that test_sweep wrote."""
    return parse(model, json.loads(file.read_text()), "test")


def as_json(found: SearchResult) -> str:
    return json.dumps(asdict(found), sort_keys=True)


def _rollouts(folder: Path, engine: Engine, killer: Killer) -> None:
    rollouts = read(folder / "rollouts.json", RolloutConfig)
    rollout(rollouts, folder / "spread", engine=engine, observer=killer)


def _evaluation(folder: Path, engine: Engine, killer: Killer) -> None:
    card = evaluate(read(folder / "benchmark.json", BenchmarkConfig), engine=engine, told=killer)
    (folder / "scorecard.json").write_text(card.to_json())


def _training(folder: Path, engine: Engine, killer: Killer) -> None:
    from agents.training import SeedProgress, train

    progress = SeedProgress()
    progress.update = killer
    experiment = read(folder / "experiment.json", ExperimentConfig)
    train(experiment, folder / "trained", progress=progress, engine=engine)


def _tuning(folder: Path, engine: Engine, killer: Killer) -> None:
    progress = Silent()
    progress.step = killer
    found = tuned(read(folder / "benchmark.json", BenchmarkConfig), folder, engine, progress)
    (folder / "best.json").write_text(as_json(found))


SWEEPS = {
    "rollouts": _rollouts,
    "evaluation": _evaluation,
    "training": _training,
    "tuning": _tuning,
}


def main(folder: Path, kind: str) -> None:
    options = {f"spark.{part}.extraJavaOptions": SHORT_LIVED for part in ("driver", "executor")}
    with spark_engine("test", "local-cluster[2,1,1024]", options) as engine:
        killer = Killer(engine.spark.sparkContext)
        SWEEPS[kind](folder, engine, killer)
        sys.stdout.write(json.dumps({"killed": killer.killed, "lost": killer.lost}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
