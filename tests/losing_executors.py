"""A program for test_sweep: two sweeps on two executors, each of which loses one in the middle.

python tests/losing_executors.py FOLDER reads rollouts.json and benchmark.json there, and writes
spread/ and scorecard.json. Prints as JSON how many tasks each sweep lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark import SparkContext

from dsp_gym.config.files import parse
from dsp_gym.datasets.rollouts.config import RolloutConfig
from dsp_gym.datasets.rollouts.run import rollout
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.run import evaluate
from spark_pipelines.sweep import spark_sweep
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


def main(folder: Path) -> None:
    rollouts = parse(RolloutConfig, json.loads((folder / "rollouts.json").read_text()), "test")
    benchmark = parse(BenchmarkConfig, json.loads((folder / "benchmark.json").read_text()), "test")
    told = {}
    options = {f"spark.{part}.extraJavaOptions": SHORT_LIVED for part in ("driver", "executor")}
    with spark_sweep("test", "local-cluster[2,1,1024]", options) as sweep:
        killer = Killer(sweep.spark.sparkContext)
        rollout(rollouts, folder / "spread", engine=sweep.rollouts(), observer=killer)
        told["rollouts"] = {"killed": killer.killed, "lost": killer.lost}
        killer = Killer(sweep.spark.sparkContext)
        card = evaluate(benchmark, spread=sweep.evaluation(killer))
        (folder / "scorecard.json").write_text(card.to_json())
        told["evaluation"] = {"killed": killer.killed, "lost": killer.lost}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
