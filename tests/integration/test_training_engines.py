"""Seeds trained side by side equal those of one process, whatever happens to a worker."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

pytest.importorskip("sb3_contrib")

from agents.checkpoint import checkpoint_steps
from agents.training import SeedProgress, TrainingInterrupted, train
from dsp_gym.engine import LocalEngine
from dsp_gym.experiments.experiment import ExperimentConfig
from dsp_gym.trackers import NullTracker
from tests.learning import small_experiment

pytestmark = pytest.mark.slow

SEEDS = (0, 1, 2)


def an_experiment(**agent: object) -> ExperimentConfig:
    return small_experiment({"seeds": SEEDS, **agent})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


class Recorded(NullTracker):
    """Keeps the figures that are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: set[tuple[str, int, float]] = set()

    def metrics(self, values, step):
        self.figures |= {(name, step, value) for name, value in values.items()}


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """Three seeds, one after the other in this process."""
    folder, recorded = tmp_path_factory.mktemp("one"), Recorded()
    result = train(an_experiment(), folder, tracker=recorded)
    return folder, result, recorded


@pytest.mark.validate
def test_two_processes_train_the_agents_of_one(one, tmp_path):
    folder, wanted, recorded = one
    told, figures = [], Recorded()

    class Heard(SeedProgress):
        def update(self, seed, stage, done, of, _figures):
            told.append((seed, stage, done))

    with LocalEngine(2) as two:
        result = train(an_experiment(), tmp_path, progress=Heard(), tracker=figures, engine=two)
    assert result.by_seed == wanted.by_seed
    assert list(result.by_seed) == list(SEEDS)
    assert contents(tmp_path) == contents(folder)
    assert {(seed, "learn", 512) for seed in SEEDS} <= set(told)
    timed = {name for name, _, _ in recorded.figures if "time/" in name or "fps" in name}
    assert {one for one in figures.figures if one[0] not in timed} == {
        one for one in recorded.figures if one[0] not in timed
    }


@pytest.mark.validate
def test_a_killed_worker_is_replaced_and_its_seed_goes_on_from_the_checkpoint(one, tmp_path):
    folder, _, _ = one
    steps: dict[int, list[int]] = {seed: [] for seed in SEEDS}
    killed = []

    class Killing(SeedProgress):
        def update(self, seed, stage, done, of, _figures):
            steps[seed].append(done)
            reached = checkpoint_steps(tmp_path / f"seed-{seed}" / "checkpoint")
            if not killed and reached >= 512:
                killed.append(seed)
                worker = next(w for w in two._started if w.number == seed)  # the first two seeds
                os.kill(worker.process.pid, signal.SIGKILL)

    with LocalEngine(2) as two:
        train(an_experiment(), tmp_path, progress=Killing(), engine=two)
        assert len(two._started) == 3
    (seed,) = killed
    assert steps[seed].count(0) == 1  # it did not begin anew
    assert contents(tmp_path) == contents(folder)


def test_ctrl_c_leaves_checkpoints_of_all_seeds_and_resume_goes_on(one, tmp_path):
    folder, _, _ = one
    pressed = []

    class Pressing(SeedProgress):
        def update(self, seed, stage, done, of, _figures):
            if not pressed and done > 0:
                pressed.append(seed)
                signal.raise_signal(signal.SIGINT)

    with LocalEngine(2) as two:
        with pytest.raises(TrainingInterrupted):
            train(an_experiment(), tmp_path, progress=Pressing(), engine=two)
        states = [tmp_path / f"seed-{seed}" / "checkpoint" / "state.json" for seed in (0, 1)]
        reached = [json.loads(file.read_text())["tree"]["steps"] for file in states]
        assert all(0 <= steps < 1024 for steps in reached)
        assert not (tmp_path / "seed-2").exists()
        train(an_experiment(), tmp_path, resume=True, engine=two)
    assert contents(tmp_path) == contents(folder)
