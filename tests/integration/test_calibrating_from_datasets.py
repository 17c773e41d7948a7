"""Calibrating from a dataset of a recording equals calibrating from the recording."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.validate]

pytest.importorskip("pyspark")

from dsp_gym.backends.simulated.recording import SimulatedRecording  # noqa: E402
from dsp_gym.calibration.config import CalibrationConfig  # noqa: E402
from dsp_gym.calibration.datasets import measured_dataset  # noqa: E402
from dsp_gym.calibration.observations import observe_all  # noqa: E402
from dsp_gym.calibration.recordings import calibrate, measured_runs  # noqa: E402
from dsp_gym.config.files import parse  # noqa: E402
from dsp_gym.datasets.reader import Dataset  # noqa: E402
from dsp_gym.job.catalog import load_job  # noqa: E402
from dsp_gym.loop.configuration import Configuration  # noqa: E402
from dsp_gym.records.manifest import RecordedLoad  # noqa: E402
from dsp_gym.whatif.datasets import dataset_histories  # noqa: E402
from spark_pipelines.build import build  # noqa: E402
from spark_pipelines.config import DatasetConfig  # noqa: E402

JOB = "flink-runs-direct-read"
TASKS, LEVELS = {"source": 1, "split": 2, "sink": 1}, {"source": -1, "split": -1, "sink": -1}
CELLS = ((1, 0), (1, 3), (4, 0))


@pytest.fixture(scope="module")
def both(spark, tmp_path_factory):
    """The recording of three saturated configurations, and a dataset made of it."""
    root = tmp_path_factory.mktemp("calibration")
    recording = SimulatedRecording(root / "recording", load_job(JOB))
    load = RecordedLoad(name="full", steps=((0.0, 200_000.0),), saturated=True)
    for seed, (p, level) in enumerate(CELLS):
        configuration = Configuration(TASKS | {"state": p}, LEVELS | {"state": level})
        recording.add(f"p{p}-l{level}", configuration, load, 240, seed=seed)
    config = {
        "name": "windows",
        "sources": [{"kind": "recordings", "folder": str(root / "recording")}],
        "tables": ["windows", "rescales"],
        "windows": {"window_s": 120, "stabilization_s": 10, "interval_s": 60},
    }
    build(parse(DatasetConfig, config, "test"), root / "dataset")
    return (
        CalibrationConfig(job=JOB, recordings=(str(root / "recording"),)),
        CalibrationConfig(job=JOB, datasets=(str(root / "dataset"),)),
    )


def test_its_observations_are_those_of_the_recording(both):
    from_recording, from_dataset = both
    spec = load_job(JOB)
    seen = {o.run: o for o in observe_all(measured_runs(spec, from_recording))}
    opened = Dataset.open(from_dataset.dataset_folders()[0])
    found = {o.run: o for o in measured_dataset(opened, spec).seen}
    assert set(found) == set(seen) == {f"p{p}-l{level}" for p, level in CELLS}
    for run, o in found.items():
        assert (o.parallelism, o.level) == (seen[run].parallelism, seen[run].level)
        assert o.saturated
        assert o.rate_per_s == pytest.approx(seen[run].rate_per_s, rel=0.005)
        for name in ("split", "state"):
            assert o.busy[name] == pytest.approx(seen[run].busy[name], abs=0.005)
        assert o.hit == pytest.approx(seen[run].hit, abs=0.005)
        assert o.read_us == pytest.approx(seen[run].read_us, rel=0.01)


@pytest.mark.validate
def test_what_is_fitted_predicts_the_same_capacity(both):
    from_recording, from_dataset = both
    one = calibrate(from_recording, refit=False)
    other = calibrate(from_dataset, opened=Dataset.open, refit=False)
    assert other.runs == one.runs
    expected = {c.seen.run: c.predicted.rate_per_s for c in one.compared}
    for compared in other.compared:
        assert compared.predicted.rate_per_s == pytest.approx(
            expected[compared.seen.run], rel=0.005
        )


def test_its_histories_are_the_runs_of_the_recording(both):
    _, from_dataset = both
    histories = dataset_histories(Dataset.open(from_dataset.dataset_folders()[0]))
    assert [one.name for one in histories] == sorted(f"{JOB} p{p}-l{level}" for p, level in CELLS)
    names = [vertex.name for vertex in load_job(JOB).topological_order()]
    for one, (p, level) in zip(histories, sorted(CELLS), strict=True):
        at = names.index("state")
        assert set(one.wanted[:, at].tolist()) == {p}
        assert set(one.wanted_level[:, at].tolist()) == {level}
        assert np.isfinite(one.load_per_s).all()
        assert not one.is_dated
