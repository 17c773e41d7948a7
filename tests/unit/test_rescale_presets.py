"""The cost of a rescale by name."""

from __future__ import annotations

from typing import get_args

import pytest

from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError
from dsp_gym.job.catalog import load_job
from dsp_gym.job.deployment import deployed, rescaled_in_place
from dsp_gym.job.rescale_presets import RESCALE_PRESETS, RescalePreset
from dsp_gym.job.spec import JobSpec, Rescale

JOB = """
job: pair
source: {rate_per_s: 1000}
vertices:
  - {name: source, kind: source, cpu_us_per_record: 1}
  - {name: sink, kind: sink, inputs: [{from: source}], cpu_us_per_record: 1}
"""


def test_every_name_has_a_cost_that_fits_the_model():
    assert set(get_args(RescalePreset)) == set(RESCALE_PRESETS)
    for name, cost in RESCALE_PRESETS.items():
        found = Rescale(preset=name)
        assert (found.mode, found.outage_s) == (cost.mode, cost.outage_s)
        assert cost.source


def test_a_section_without_a_preset_costs_a_redeployment():
    named, default = Rescale(preset="redeploy"), Rescale()
    assert (default.mode, default.outage_s) == (named.mode, named.outage_s)


def test_what_the_section_gives_itself_stands():
    found = Rescale.model_validate({"preset": "espa", "outage_s": [1, 2, 3]})
    assert (found.mode, found.outage_s) == ("in_place", (1.0, 2.0, 3.0))


def test_a_job_file_takes_a_preset_and_its_dump_gives_the_same_job(tmp_path):
    file = tmp_path / "pair.yaml"
    file.write_text(JOB + "rescale: {preset: netflix, restore_mib_per_s: 50}\n")
    job = load_job(file)
    assert job.rescale.outage_s == (60.0, 120.0, 180.0)
    assert job.rescale.restore_mib_per_s == 50.0
    assert JobSpec.model_validate(job.model_dump(mode="json", by_alias=True)) == job


def test_a_wrong_name_is_told_all_names():
    with pytest.raises(ConfigError) as refused:
        parse(Rescale, {"preset": "drs"}, "job.yaml")
    for name in RESCALE_PRESETS:
        assert f"'{name}'" in str(refused.value)
    assert "preset" in str(refused.value)


def test_dumps_of_jobs_without_a_preset_do_not_mention_it():
    assert "preset" not in load_job("nexmark-q11").model_dump(mode="json")["rescale"]


def test_another_scheduler_leaves_the_preset_behind():
    spec = load_job("nexmark-q11")
    slow = spec.model_copy(update={"rescale": Rescale(preset="eks")})
    quick = spec.model_copy(update={"rescale": Rescale(preset="drrs")})
    assert rescaled_in_place(slow).rescale.preset is None
    assert rescaled_in_place(slow).rescale.outage_s == (6.0, 10.0, 20.0)
    assert deployed(quick, "default").rescale.preset is None
    assert rescaled_in_place(quick) is quick
