"""Commands, scorecards and the status report the distance of an answer from the fit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app
from dsp_gym.config import files
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.report import validity_notes
from dsp_gym.evaluation.run import evaluate
from dsp_gym.evaluation.scorecard import Scorecard
from dsp_gym.job.catalog import list_jobs, load_job
from dsp_gym.job.validity import Extremes, distances, validity_of
from tests.unit.test_validity import DOCUMENT, job

SECTION = """\
fitted:
  command: mine
  runs: 7
  slots: [2, 6]
  parallelism: {map: [1, 4]}
  managed_memory_mib: [32, 64]
  rate_per_s: [1000, 1000000]
  error: {left_out: tasks, predictions: 12, median: 0.05, p90: 0.1, within: 0.1, per_doubling: 0.2}
"""


@pytest.fixture
def fitted_job(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(DOCUMENT + SECTION)
    return str(file)


def said(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def test_mst_says_its_interval_and_what_lies_beyond_the_fit(fitted_job):
    text = said("plan", fitted_job, "--configuration", "map=20,sink=1")
    assert "90 % interval: " in text
    assert "beyond the fit: 20 tasks at 'map'; fitted on 1 to 4 (5.0 times the largest)" in text
    document = json.loads(said("plan", fitted_job, "--configuration", "map=20,sink=1", "--json"))
    rate, found = document["mst"]["rate_per_s"], document["validity"]
    assert found["doublings"] == pytest.approx(np.log2(5))
    low, high = found["interval"]["low_per_s"], found["interval"]["high_per_s"]
    assert low * high == pytest.approx(rate**2)
    assert np.log(high / rate) == pytest.approx(0.1 + 0.2 * np.log2(5))
    assert found["beyond"][0]["vertex"] == "map"


def test_mst_inside_the_fit_says_its_interval_alone(fitted_job):
    text = said("plan", fitted_job, "--configuration", "map=4")
    assert "90 % interval: " in text
    assert "beyond" not in text


def test_mst_of_a_job_nobody_fitted_says_so():
    assert "no evidence of a fit in the job file of 'bench-8'" in said("plan", "bench-8")


def benchmark(job_file, policies):
    document = {
        "description": "x",
        "policies": policies,
        "reference": None,
        "clairvoyant": False,
        "jobs": [job_file],
        "loads": {"test": {"loads": ["constant"], "seeds": {"from": 0, "to": 2}}},
        "episode_s": 300,
        "interval_s": 60,
    }
    return files.parse(BenchmarkConfig, document, "x")


def test_a_scorecard_says_which_policy_left_the_fit(fitted_job, tmp_path):
    one = tmp_path / "one.yaml"
    one.write_text((DOCUMENT + SECTION).replace("map: [1, 4]", "map: [4, 8]"))
    card = evaluate(benchmark(str(one), ["static"]))
    (found,) = card.validity
    assert (found.policy, found.job) == ("static", "small")
    assert found.doublings == pytest.approx(2.0)  # one task of four
    notes = validity_notes(card, "small")
    assert notes[0] == "capacities of the model hold within a factor of 1.65 (90 % interval)"
    assert "beyond the fit: 1 task at 'map'; fitted on 4 to 8" in notes[1]
    assert Scorecard.from_json(card.to_json()).validity == card.validity


def test_a_scorecard_of_jobs_nobody_fitted_is_as_before(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(DOCUMENT)
    card = evaluate(benchmark(str(file), ["static"]))
    assert card.validity == ()
    assert "validity" not in json.loads(card.to_json())


def test_extremes_of_many_steps_are_as_far_as_the_farthest_step():
    spec, rng = job(), np.random.default_rng(3)
    seen, worst = Extremes([spec, spec]), 0.0
    for _ in range(30):
        p = np.stack([np.ones(2), rng.integers(1, 24, 2), rng.integers(1, 8, 2)], 1).astype(int)
        level, rate = rng.integers(-1, 5, p.shape), rng.uniform(1, 1e5, 2)
        seen.take(p, level, rate)
        worst = max(worst, float(distances(spec, p, level, rate).worst.max()))
    assert seen.validity(np.arange(2)).doublings == pytest.approx(worst)


def test_every_shipped_job_that_names_a_fit_says_what_it_was_fitted_to():
    # wordcount's and DS2's assumptions, and jobs whose costs are arguments, were not fitted.
    for spec in list_jobs():
        if spec.fit_script is not None:
            assert spec.fitted is not None, spec.job
            assert spec.fitted.command == spec.fit_script


def test_the_reference_rate_of_the_shipped_streambed_jobs_lies_in_their_fit():
    for name in ("q1", "q5", "q11"):
        spec = load_job(f"streambed-{name}")
        beyond = validity_of(spec, rate_per_s=spec.source.rate_per_s).beyond
        assert "rate_per_s" not in [one.quantity for one in beyond]
        assert spec.fitted.error.within < 0.3
