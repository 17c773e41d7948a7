"""The validation of the scorecard: its model is the calibrated one, its journals are read again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from dsp_gym.calibration.reread import calibrated
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.start import started
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.studies.validation.counterfactual import (
    LOADS,
    compared,
    configured,
    modelled,
    newest,
    rising_and_falling,
)

REPORTS = Path("docs/figures/validation")
JOB = "flink-wordcount"


@pytest.mark.parametrize("job", LOADS)
def test_the_model_holds_the_numbers_of_the_job_s_calibration(job):
    report = json.loads((REPORTS / f"calibrate-{job}.json").read_text(encoding="utf-8"))
    fitted = {one["name"]: one["value"] for one in report["parameters"]}
    spec = calibrated(job, REPORTS)
    assert fitted
    for vertex in spec.vertices:
        found = fitted[f"{vertex.name}.cpu_us_per_record"]
        assert float(vertex.cpu_us_per_record) == pytest.approx(found)
    assert spec.rescale.outage_s == pytest.approx(report["rescale"]["outage_s"])
    assert spec != load_job(job)


def test_a_job_without_a_calibration_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="dsp-gym calibrate flink-q1"):
        calibrated("flink-q1", tmp_path)


def test_the_load_doubles_for_a_third_of_the_time():
    assert rising_and_falling(7, 10.0) == [10.0, 10.0, 20.0, 20.0, 10.0, 10.0, 10.0]


@pytest.mark.slow
def test_journals_are_scored_with_the_calibrated_job(tmp_path):
    """Of the simulated calibrated job itself the model is right, and so is what DS2 costs."""
    root = tmp_path / JOB / "1"
    root.mkdir(parents=True)
    file = tmp_path / f"{JOB}.yaml"
    document = calibrated(JOB, REPORTS).model_dump(
        mode="json", by_alias=True, exclude_defaults=True
    )
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    for acting in ("justin", "ds2"):
        config = configured(str(file), acting)
        place = Substitute(load="diurnal", duration_s=1800)
        with started(config, mode="active", substitute=place, journal=root / acting) as run:
            run.run(steps=40)
    assert newest(tmp_path / JOB) == root
    model = modelled(root, JOB, REPORTS)
    found = compared(root, model, seeds=4)
    for one in found["model"].values():
        assert one["trusted"]
        assert all(one["holds"].values())
    assert {policy: one["beside"] for policy, one in found["policies"].items()} == {
        "ds2": "justin", "justin": "ds2",
    }  # fmt: skip
    for one in found["policies"].values():
        assert one["holds"]["cost"]
        assert one["did"]["cost_per_h"] > 0
    with pytest.raises(ConfigError, match="Leave --rescore out"):
        newest(tmp_path / "nothing")
