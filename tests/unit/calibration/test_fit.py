from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.backends.simulated.recording import SimulatedRecording
from dsp_gym.calibration.config import CalibrationConfig
from dsp_gym.calibration.fit import fit
from dsp_gym.calibration.observations import MeasuredRun, observe_all
from dsp_gym.calibration.recordings import calibrate_runs, measured_runs
from dsp_gym.errors import MetricsError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.records.manifest import RecordedLoad

GRID = [(1, 0), (1, 3), (2, 1), (2, 2), (4, 0), (4, 2)]
TRUE = {
    "space_factor": 1.25,
    "read_hit_us": 6.0,
    "read_miss_us": 120.0,
    "miss_contention": 0.1,
}


UPDATE = {"churn": 0.2, "index_hits": 0.5, "write_us": 5.0}
COMPACTED = {"index_hits": 0.5, "write_us": 5.0, "compaction_us": 40.0}
ONE_LEVEL = {"level0_files": 0.0, "compaction_us": 0.0, "memtable_coverage": 1.0}


def changed(spec: JobSpec, cpu_us: float = 27.0, **state: float) -> JobSpec:
    """The job with another CPU time of, and other numbers in, its stateful vertex."""
    vertices = [
        v.model_copy(
            update={"cpu_us_per_record": cpu_us, "state": v.state.model_copy(update=state)}
            if v.state
            else {}
        )
        for v in spec.vertices
    ]
    return spec.model_copy(update={"vertices": tuple(vertices)})


def record(truth: JobSpec, folder: Path) -> list[MeasuredRun]:
    """A recording of the true job, saturated in every configuration, as it is read back."""
    recording = SimulatedRecording(folder, truth)
    names = [vertex.name for vertex in truth.vertices]
    load = RecordedLoad(name="saturate", steps=((0.0, 1e6),), saturated=True)
    for tasks, level in GRID:
        configuration = Configuration(
            {"source": 1, "split": 2, "state": tasks, "sink": 1},
            dict.fromkeys(names, -1) | {"state": level},
        )
        recording.add(f"p{tasks}-l{level}", configuration, load, 90, seed=10 * tasks + level)
    return measured_runs(truth, CalibrationConfig(job="x", recordings=(str(folder),)))


@pytest.fixture(scope="module")
def prior() -> JobSpec:
    return load_job("flink-runs-direct-read")


@pytest.fixture(scope="module")
def recorded(prior, tmp_path_factory):
    return record(changed(prior, **TRUE), tmp_path_factory.mktemp("simulated") / "recording")


def assert_recovered(spec: JobSpec, runs: list[MeasuredRun], state: dict[str, float]) -> None:
    found = {p.name: p for p in fit(spec, observe_all(runs)).parameters}
    true = {"state.cpu_us_per_record": 27.0} | {f"state.state.{k}": v for k, v in state.items()}
    for name, value in true.items():
        assert found[name].low <= value <= found[name].high, found[name]
        if name != "state.state.read_hit_us":  # with writes it hides in the CPU time
            assert found[name].identified, found[name]


@pytest.mark.slow
def test_the_numbers_of_a_simulated_job_are_recovered_within_their_intervals(prior, recorded):
    assert_recovered(prior, recorded, TRUE)


@pytest.mark.slow
def test_those_of_a_job_that_writes_too(tmp_path):
    spec = load_job("flink-runs-direct-update")
    prior = changed(spec, 20.0, **ONE_LEVEL)
    runs = record(changed(prior, **TRUE, **UPDATE), tmp_path / "recording")
    assert_recovered(prior, runs, TRUE | UPDATE)


@pytest.mark.slow
def test_a_job_whose_updates_are_compacted_is_predicted_on_a_run_left_out(tmp_path):
    spec = load_job("flink-runs-direct-update")
    runs = record(changed(spec, **TRUE, **COMPACTED), tmp_path / "recording")
    seen = observe_all(runs)
    found = fit(spec, [o for o in seen if o.run != "p2-l1"])
    held_out = next(o for o in seen if o.run == "p2-l1")
    said = found.model().predict(held_out)
    assert said.rate_per_s == pytest.approx(held_out.rate_per_s, rel=0.05)
    assert said.hit["state"] == pytest.approx(held_out.hit["state"], abs=0.03)


@pytest.mark.slow
def test_a_fit_is_closer_to_runs_it_has_not_seen_than_its_prior(prior, recorded):
    seen = observe_all(recorded)
    found = fit(prior, [o for o in seen if o.run != "p2-l1"])
    held_out = next(o for o in seen if o.run == "p2-l1")
    error = found.model().predict(held_out).rate_per_s / held_out.rate_per_s - 1
    assert abs(error) < 0.05


@pytest.mark.slow
def test_what_the_runs_cannot_fix_says_so_and_keeps_its_prior(prior, recorded):
    one_size = [o for o in observe_all(recorded) if o.run == "p1-l3"]  # everything is cached
    found = {p.name: p for p in fit(prior, one_size).parameters}
    miss = found["state.state.read_miss_us"]
    assert not miss.identified
    assert miss.value == miss.prior == 80.0
    assert miss.low < 40.0 < 160.0 < miss.high


@pytest.mark.slow
def test_runs_of_one_parallelism_do_not_fit_a_curve_over_it(prior, recorded):
    single = [o for o in observe_all(recorded) if o.run.startswith("p1")]
    names = {p.name for p in fit(prior, single).parameters}
    assert "state.state.miss_contention" not in names
    assert "state.efficiency.a" not in names


@pytest.mark.slow
@pytest.mark.validate
def test_a_corrupt_run_is_left_out_and_changes_little(prior, recorded):
    seen = observe_all(recorded)
    clean = fit(prior, seen)
    broken = [
        dataclasses.replace(o, rate_per_s=o.rate_per_s / 4) if o.run == "p4-l2" else o for o in seen
    ]
    found = fit(prior, broken)
    assert found.outliers == ("p4-l2",)
    for o in seen:
        ratio = found.model().predict(o).rate_per_s / clean.model().predict(o).rate_per_s
        assert ratio == pytest.approx(1.0, abs=0.1)


@pytest.mark.slow
@pytest.mark.validate
def test_an_aborted_run_is_not_used_and_named(prior, recorded):
    runs = [r for r in recorded if r.name in {"p1-l0", "p1-l3", "p2-l1", "p4-l2"}]
    runs = [dataclasses.replace(r, complete=r.name != "p1-l0") for r in runs]
    config = CalibrationConfig(job="x", recordings=("x",))
    report = calibrate_runs(config, prior, runs, refit=False)
    assert report.aborted == ("p1-l0",)
    assert "p1-l0" not in {c.seen.run for c in report.compared}
    assert any("p1-l0" in note for note in report.notes())


def test_nothing_to_fit_to_is_an_error_with_a_remedy(prior):
    with pytest.raises(MetricsError, match="Record runs of at least 30 s"):
        fit(prior, [])


@pytest.mark.slow
def test_a_selectivity_is_measured(prior, recorded):
    seen = [
        dataclasses.replace(o, selectivity={"split": ratio})
        for o, ratio in zip(observe_all(recorded), np.linspace(0.48, 0.52, 6), strict=True)
    ]
    assert fit(prior, seen[:2]).spec.vertex("split").selectivity == pytest.approx(0.484)
