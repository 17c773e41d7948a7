from __future__ import annotations

import dataclasses
import gzip
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from dsp_gym.calibration.config import CalibrationConfig, load_calibration
from dsp_gym.calibration.errors import Compared, agreement, compare, errors_of, linear_model
from dsp_gym.calibration.model import JobModel, Prediction, mixture_median
from dsp_gym.calibration.noise import noise, skew
from dsp_gym.calibration.observations import MeasuredRun, SteadyPart
from dsp_gym.calibration.recordings import calibrate, measured_runs
from dsp_gym.calibration.rescale import rescale_times
from dsp_gym.config.files import load_model
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job
from dsp_gym.job.memory import level_mib
from dsp_gym.metrics.samples import Samples

SPEC = load_job("flink-runs-direct-read")


def seen(tasks, level, rate, **rest) -> SteadyPart:
    p = {"source": 1, "split": 2, "state": tasks, "sink": 1}
    levels = {"source": -1, "split": -1, "state": level, "sink": -1}
    given = {"start_s": 0, "end_s": 35, "spread": 0.02, "drift": 0.0, "saturated": True} | rest
    return SteadyPart(f"p{tasks}-l{level}-{rate:g}", parallelism=p, level=levels,
                       offered_per_s=rest.get("offered_per_s", math.inf), rate_per_s=rate,
                       **{k: v for k, v in given.items() if k != "offered_per_s"})  # fmt: skip


def compared(tasks, level, rate, predicted, in_fit=False) -> Compared:
    said = Prediction(predicted, {}, {}, {}, {})
    return Compared(seen(tasks, level, rate), said, in_fit)


def test_the_model_says_what_dsp_gym_mst_says():
    said = JobModel(SPEC).predict(seen(2, 1, 1.0))
    assert said.rate_per_s == pytest.approx(mst(SPEC, {"state": 2}, {"state": 1}).rate_per_s)
    assert said.busy["state"] == pytest.approx(1.0)
    assert said.busy["split"] == pytest.approx(said.rate_per_s * 10e-6 / 2)


def test_a_load_the_job_can_carry_is_the_rate():
    said = JobModel(SPEC).predict(seen(2, 3, 1.0, offered_per_s=10_000.0))
    assert said.rate_per_s == 10_000.0
    assert said.busy["state"] == pytest.approx(10_000 * 24e-6 / 2)  # 20 us CPU and a 4 us read


@pytest.mark.parametrize("fast_share", [0.0, 0.2, 0.45, 0.55, 0.8, 1.0])
def test_the_median_of_a_mixture_is_that_of_its_draws(fast_share):
    rng = np.random.default_rng(1)
    fast = 4.0 * np.exp(0.3 * rng.standard_normal(200_000) - 0.5 * 0.3**2)
    slow = 80.0 * np.exp(0.6 * rng.standard_normal(200_000) - 0.5 * 0.6**2)
    drawn = np.where(rng.random(200_000) < fast_share, fast, slow)
    assert mixture_median(fast_share, 4.0, 80.0, 0.6) == pytest.approx(np.median(drawn), rel=0.03)


def test_errors_count_rates_only_at_capacity_and_busyness_only_of_operators():
    said = Prediction(900.0, {"state": 0.9, "sink": 0.5}, {"state": 0.5}, {"state": 30.0}, {})
    full = Compared(
        seen(1, 0, 1000.0, busy={"state": 1.0, "sink": 0.0}, hit={"state": 0.6},
             read_us={"state": 10.0}), said, False,
    )  # fmt: skip
    paced = Compared(seen(1, 0, 500.0, offered_per_s=500.0, saturated=False),
                     Prediction(500.0, {}, {}, {}, {}), False)  # fmt: skip
    found = errors_of(SPEC, [full, paced])
    assert (found.parts, found.rate_count) == (2, 1)
    assert found.rate_median == pytest.approx(0.1)
    assert found.busy_mean == pytest.approx(0.1)
    assert found.hit_mean == pytest.approx(0.1)
    assert found.read_within_2 == 0.0
    assert errors_of(SPEC, []).rate_median is None


def test_agreement_counts_pairs_that_differ_and_a_third_that_trade():
    # Memory matters: one task with much beats two with little; the model knows.
    cells = [
        compared(1, 0, 100.0, 105.0, in_fit=True), compared(1, 3, 300.0, 280.0),
        compared(2, 0, 200.0, 190.0), compared(2, 3, 600.0, 640.0),
    ]  # fmt: skip
    found = agreement([cells], 0.02, [linear_model(cells)])
    assert found.trades == 1
    assert found.pairs == 3  # the trade, and two of the five others
    assert found.tau == 1.0
    assert found.linear_tau_trades == -1.0
    assert found.linear_tau < found.tau


def test_agreement_leaves_out_pairs_within_the_repeat_spread_and_fitted_pairs():
    near = [compared(1, 0, 100.0, 100.0, in_fit=True), compared(1, 1, 103.0, 90.0)]
    assert agreement([near], 0.02, [linear_model(near)]) is None
    fitted = [compared(1, 0, 100.0, 1.0, in_fit=True), compared(1, 1, 300.0, 2.0, in_fit=True)]
    assert agreement([fitted], 0.02, [linear_model(fitted)]) is None


def test_noise_comes_from_repeats_or_else_from_halves():
    repeats = [seen(1, 0, 100.0), seen(1, 0, 110.0), seen(2, 0, 200.0)]
    assert noise(repeats).repeats_from == "repeats"
    assert noise(repeats).repeat_cv == pytest.approx(math.log(1.1) / math.sqrt(2))
    halves = [seen(p, 0, 100.0, drift=0.04) for p in (1, 2, 4)]
    assert noise(halves).repeats_from == "halves"
    assert noise(halves).noise_cv == pytest.approx(0.02)


def test_skew_is_compared_with_the_models():
    even = seen(4, 0, 1.0, hottest={"state": 1.01, "split": 1.0})
    hot = seen(8, 0, 1.0, hottest={"state": 1.6})
    found = {(s.vertex, s.parallelism): s for s in skew(SPEC, [even, hot])}
    assert not found["state", 4].is_off
    assert found["state", 8].is_off
    assert found["state", 8].model == pytest.approx(1.0)  # 128 key groups on 8 subtasks


def measured(name, stop_s, state_mib=100.0) -> MeasuredRun:
    p = {"source": 1, "split": 2, "state": 1, "sink": 1}
    rows = [(30.0, "state", 0, "state_bytes", state_mib * 2**20)]
    return MeasuredRun(name, SPEC, p, dict.fromkeys(p, -1), (), Samples.of(rows),
                       start_s=3.0, stop_s=stop_s)  # fmt: skip


def test_a_saturated_stop_drains_buffers_and_a_calm_one_is_the_savepoint():
    calm, full = seen(1, 0, 500.0, saturated=False), seen(1, 0, 1000.0)
    found = rescale_times([measured(calm.run, 0.5), measured(full.run, 8.5)], [calm, full])
    assert found.outage_s == (3.0, 3.0, 3.0)
    assert found.savepoint_mib_per_s == pytest.approx(200.0)
    assert found.buffer_records == pytest.approx((8.5 - 0.5) * 1000 / 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs in the columns of the measured data: 20 us and a read per record."""
    root = tmp_path_factory.mktemp("flink_runs")
    (root / "runs.csv").write_text(
        "run,mode,direct_io,split_parallelism,state_parallelism,state_managed_memory_mib,keys,"
        "value_bytes,split_cpu_us,state_cpu_us,schedule,submit_to_running_s,stop_with_savepoint_s\n"
        "p1-sat,read,1,2,1,128,100000,1000,10,20,1000000:100000,3.0,1.5\n"
        "p2-r500,read,1,2,2,16,100000,1000,10,20,500:100000,3.0,0.4\n"
    )
    columns = (
        "run,t_s,vertex,subtask,records_in,records_out,emitted,busy_ms_per_s,"
        "backpressured_ms_per_s,idle_ms_per_s,block_cache_hit,block_cache_miss,"
        "block_cache_usage_bytes,live_data_bytes,read_latency_ns_p50,read_latency_ns_p99,"
        "write_latency_ns_p50,write_latency_ns_p99\n"
    )
    lines = [columns]
    for run, rate, tasks in (("p1-sat", 40_000, 1), ("p2-r500", 500, 2)):
        for t in range(5, 50, 5):
            n = rate * t
            lines.append(f"{run},{t},source,0,0,{n},{n},0,1000,0,,,,,,,,\n")
            for i in range(tasks):
                m = n // tasks
                lines.append(f"{run},{t},state,{i},{m},{m},{m},1000,0,0,{m},0,1,1e8,4000,9000,,\n")
    with gzip.open(root / "samples.csv.gz", "wt") as stream:
        stream.writelines(lines)
    return root


def config(folder, **rest) -> CalibrationConfig:
    return CalibrationConfig(job="flink-runs-direct-read", recordings=(str(folder),), **rest)


def test_calibrate_writes_a_job_file_that_is_read_back_and_carries_what_was_measured(
    folder, tmp_path
):
    out = tmp_path / "job.yaml"
    report = calibrate(config(folder, runs=("*-sat",)), out)
    calibrated = load_job(out)
    rate = mst(calibrated, {"state": 1}, {"state": 3}).rate_per_s
    assert rate == pytest.approx(40_000, rel=0.03)
    document = parse_yaml(out.read_text(), file="job.yaml")
    cpu = document["vertices"][2]["cpu_us_per_record"]
    assert cpu["source"] == "fit to 1 recorded runs"
    assert cpu["ci"][0] < cpu["value"] < cpu["ci"][1]
    miss = document["vertices"][2]["state"]["read_miss_us"]
    assert (miss["value"], "not identified" in miss["source"]) == (80.0, True)
    assert report.spec.rescale.outage_s == (3.0, 3.0, 3.0)


@pytest.mark.slow
def test_the_report_is_valid_json_and_one_page_without_outside_references(folder):
    report = calibrate(config(folder, runs=("*-sat",)))
    document = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert document["schema"] == "dsp-gym/calibration/1"
    assert document["fitted_runs"] == ["p1-sat"]
    assert document["errors"]["held_out"]["rate_median"] is None
    assert "state.state.read_miss_us" in document["not_identified"]
    page = report.render_html()
    assert page.count('class="chart"') == 4  # rate, busyness, hit rate, read latency
    assert '"name":"fitted"' in page
    assert '"name":"held out"' not in page  # every run is in the fit
    assert "state.state.read_miss_us" in page
    for outside in ("<script src", "<link", 'src="', "@import"):
        assert outside not in page
    assert len(report.facts()[0]) == 3


@pytest.mark.parametrize("runs", [("p3-sat",), ("p1-sat", "p3-sat")])
def test_a_name_no_run_has_is_an_error_that_offers_one(folder, runs):
    with pytest.raises(ConfigError, match=r"no recorded run has such a name.*'p1-sat'") as error:
        calibrate(config(folder, runs=runs))
    assert "p3-sat" in str(error.value)


def test_a_job_beside_its_calibration_is_found_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "mine" / "jobs").mkdir(parents=True)
    (tmp_path / "mine" / "jobs" / "own.yaml").write_text("job: own\n")
    file = tmp_path / "mine" / "calibration.yaml"
    file.write_text("job: jobs/own.yaml\nrecordings: [x]\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Path(load_calibration(file).job) == tmp_path / "mine" / "jobs" / "own.yaml"


def test_a_job_given_from_the_working_folder_is_still_found(tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "calibration.yaml"
    file.write_text("job: jobs/own.yaml\nrecordings: [x]\n")
    monkeypatch.chdir(tmp_path)
    assert load_calibration(file).job == "jobs/own.yaml"
    assert load_calibration("flink-q1").job == "flink-q1"


def test_memory_between_two_levels_stays_what_it_was(folder, tmp_path):
    text = (
        (folder / "runs.csv")
        .read_text()
        .replace("p2-r500,read,1,2,2,16,", "p2-r500,read,1,2,2,24,")
    )
    (tmp_path / "runs.csv").write_text(text)
    shutil.copy(folder / "samples.csv.gz", tmp_path)
    runs = measured_runs(SPEC, config(tmp_path))
    found = {run.name: level_mib(run.spec.memory.base_mib, run.level["state"]) for run in runs}
    assert found == {"p1-sat": 128.0, "p2-r500": 24.0}


def test_the_model_predicts_memory_between_two_levels():
    of = {
        mib: JobModel(SPEC).predict(dataclasses.replace(seen(1, 0, 1.0), base_mib=mib)).hit["state"]
        for mib in (16.0, 24.0, 32.0)
    }
    assert of[16.0] < of[24.0] < of[32.0]
    assert of[24.0] == pytest.approx(0.5 * (of[16.0] + of[32.0]))  # uniform: in proportion
    assert of[32.0] == JobModel(SPEC).predict(seen(1, 1, 1.0)).hit["state"]


def test_the_data_folder_is_filled_in(monkeypatch, tmp_path):
    shipped = load_model(CalibrationConfig, "calibrations", "flink-runs-read")
    monkeypatch.setenv("DSP_GYM_DATA", str(tmp_path))
    assert shipped.folders() == (tmp_path / "flink_runs",)


def test_what_is_compared_remembers_which_runs_were_fitted():
    one, two = seen(1, 3, 30_000.0), seen(2, 3, 60_000.0)
    flags = [c.in_fit for c in compare(JobModel(SPEC), [one, two], frozenset({one.run}))]
    assert flags == [True, False]
