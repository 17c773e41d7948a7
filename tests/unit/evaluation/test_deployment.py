from __future__ import annotations

import pytest

from dsp_gym.config.files import parse
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.deployment import Deployment, compare_deployments, verdict
from dsp_gym.job.catalog import load_job
from dsp_gym.job.spec import JobSpec, Rescale


@pytest.mark.slow
def test_without_rescales_memory_per_vertex_is_no_dearer(tmp_path):
    steady = tmp_path / "steady.yaml"
    steady.write_text("load: {form: constant, rate: 0.8}\n")
    spec = load_job("nexmark-q11")
    found = compare_deployments(spec, spec.source.rate_per_s, str(steady))
    by = {(one.scheduler, one.memory_level): one for one in found}
    assert len(found) == 4
    assert by["default", None].price_per_day <= min(one.price_per_day for one in found) * 1.02
    assert [one.price_per_day for one in found] == sorted(one.price_per_day for one in found)


@pytest.mark.slow
def test_the_longer_a_redeployment_takes_the_better_is_rescaling_in_place():
    spec = load_job("nexmark-q1")
    prices = []
    for seconds in (1.0, 300.0):
        longer = spec.rescale.model_copy(update={"outage_s": (seconds, seconds, seconds)})
        slow = spec.model_copy(update={"rescale": longer})
        found = compare_deployments(slow, spec.source.rate_per_s)
        default = next(one for one in found if one.scheduler == "default")
        prices.append(default.price_per_day / found[0].price_per_day)
    assert prices[0] == pytest.approx(1.0)  # nothing to gain: the default one is first
    assert prices[1] > 1.1


def test_the_verdict_says_what_it_saves():
    found = (
        Deployment("adaptive", 1, 9.0, 0.01, 40.0, 9.0),
        Deployment("adaptive", 0, 9.5, 0.01, 40.0, 9.5),
        Deployment("default", None, 10.0, 0.01, 9.0, 10.0),
    )
    assert verdict(found) == (
        "Deploy it with the adaptive scheduler, every task with memory level 1, rescaled in place: "
        "late time priced in, 9 USD per day, 10 % less than with the default scheduler."
    )
    assert verdict((found[2], *found[:2])).startswith("Deploy it with the default scheduler, each")


def test_a_rate_of_zero_is_refused():
    spec = parse(JobSpec, load_job("nexmark-q1").model_dump(mode="json", by_alias=True), "job")
    assert spec.rescale == Rescale()
    with pytest.raises(ConfigError, match="above zero"):
        compare_deployments(spec, 0.0)
