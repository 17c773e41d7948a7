"""The distance of a question from a job's fit, and its effect on the answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.provenance import job_hashes
from dsp_gym.config import files
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.batch_of_runs import versions
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.job.catalog import job_hash
from dsp_gym.job.evidence import Evidence, FitError
from dsp_gym.job.spec import JobSpec
from dsp_gym.job.validity import distances, half_width, validity_of

ERROR = FitError(
    left_out="slot counts",
    predictions=12,
    median=0.05,
    p90=0.1,
    within=0.1,
    per_doubling=0.2,
    per_memory_doubling=0.6,
)
SEEN = Evidence(
    command="dsp-gym calibrate",
    runs=7,
    slots=(2, 6),
    parallelism={"map": (1, 4)},
    managed_memory_mib=(128, 256),
    rate_per_s=(1000, 8000),
    skew={"map": (1, 1.25)},
    error=ERROR,
)
DOCUMENT = """
job: small
source: {rate_per_s: 1000}
vertices:
  - {name: source, kind: source, cpu_us_per_record: 1}
  - name: map
    inputs: [{from: source}]
    cpu_us_per_record: 100
    state: {reads: 1, keys: 1000, value_bytes: 100}
  - {name: sink, kind: sink, inputs: [{from: map}], cpu_us_per_record: 1}
memory: {base_mib: 64, levels: 5}
"""


def job(fitted=SEEN):
    spec = files.parse(JobSpec, parse_yaml(DOCUMENT, file="small.yaml"), "small.yaml")
    return spec.model_copy(update={"fitted": fitted})


def test_inside_every_range_the_distance_is_zero():
    found = validity_of(job(), {"map": 4, "sink": 2}, {"map": 2}, rate_per_s=10)
    assert (found.doublings, found.beyond, found.sentences()) == (0.0, (), [])


def test_the_worst_quantity_stands_first_with_its_distance():
    found = validity_of(job(), {"map": 16, "sink": 1}, {"map": 1}, rate_per_s=16_000)
    assert [(one.quantity, one.vertex) for one in found.beyond] == [
        ("parallelism", "map"),
        ("slots", None),
        ("rate_per_s", None),
    ]
    assert found.doublings == pytest.approx(2.0)
    assert found.sentences()[1] == (
        "beyond the fit: 17 slots; fitted on 2 to 6 (2.8 times the largest)"
    )


def test_too_little_memory_is_beyond_and_none_at_all_is_farther():
    little = validity_of(job(), {"map": 4}, {"map": 0})
    assert little.beyond[0].sentence == (
        "64 MiB of managed memory per task; fitted on 128 to 256 (0.5 of the smallest)"
    )
    assert validity_of(job(), {"map": 4}, {"map": -1}).doublings == pytest.approx(7.0)


def test_skew_counts_where_rounding_to_key_groups_is_worse_than_seen():
    # 128 key groups on 3 tasks: 43 on the fullest, 1.008 times the mean; on 24: 6, 1.125 times.
    spec = job(SEEN.model_copy(update={"skew": {"map": (1.0, 1.05)}}))
    beyond = validity_of(spec, {"map": 24}).beyond
    assert "skew" in [one.quantity for one in beyond]
    assert "skew" not in [one.quantity for one in validity_of(spec, {"map": 3}).beyond]


def test_less_load_than_seen_is_inside():
    assert validity_of(job(), {"map": 2}, {"map": 1}, rate_per_s=0.0).doublings == 0.0


def test_many_configurations_give_what_each_gives_alone():
    spec, rng = job(), np.random.default_rng(0)
    p = np.stack([np.ones(50), rng.integers(1, 24, 50), rng.integers(1, 8, 50)], 1).astype(int)
    level = rng.integers(-1, 5, p.shape)
    rate = rng.uniform(1, 1e5, 50)
    many = distances(spec, p, level, rate)
    assert many.doublings.shape == (50, 5)
    for n in range(50):
        one = validity_of(
            spec,
            dict(zip(("source", "map", "sink"), p[n].tolist(), strict=True)),
            dict(zip(("source", "map", "sink"), level[n].tolist(), strict=True)),
            float(rate[n]),
        )
        assert one.doublings == pytest.approx(float(many.worst[n]))
        assert one.beyond == many.beyond(n)


@given(st.integers(1, 24), st.integers(1, 24))
@settings(max_examples=20, deadline=None)
def test_the_interval_never_narrows_with_the_distance(p, q):
    near, far = sorted(
        (validity_of(job(), {"map": tasks}, {"map": 1}) for tasks in (p, q)),
        key=lambda one: one.doublings,
    )
    (a, b), (c, d) = near.interval(100.0), far.interval(100.0)
    assert c <= a <= 100.0 <= b <= d


def test_the_interval_is_the_measured_line():
    far, memory = np.array([0.0, 1.0, 2.5]), np.array([0.0, 0.0, 0.5])
    assert half_width(ERROR, far, memory).tolist() == pytest.approx([0.1, 0.3, 0.9])
    # Two doublings of tasks.
    low, high = validity_of(job(), {"map": 16}, {"map": 1}).interval(1000.0)
    assert (low, high) == pytest.approx((1000 * math.exp(-0.5), 1000 * math.exp(0.5)))


def test_memory_has_a_slope_of_its_own():
    # One doubling too little: 0.1 + 0.6.
    low, _ = validity_of(job(), {"map": 4}, {"map": 0}).interval(1000.0)
    assert low == pytest.approx(1000 * math.exp(-0.7))


def test_a_job_nobody_fitted_says_so_and_gives_no_interval():
    found = validity_of(job(None))
    assert found.interval(10.0) is None
    assert "no evidence of a fit" in found.sentences()[0]
    assert found.to_json(10.0)["interval"] is None


def test_a_fit_that_nobody_tested_gives_no_interval():
    found = validity_of(job(SEEN.model_copy(update={"error": None})), {"map": 2}, {"map": 1})
    assert found.interval(10.0) is None
    assert found.sentences() == [
        "no error was measured on what the fit left out: no interval is known"
    ]


def test_evidence_does_not_change_which_job_it_is(tmp_path, monkeypatch):
    with_evidence, without = job(), job(None)
    assert job_hash(with_evidence) == job_hash(without)
    assert versions((with_evidence,)) == versions((without,))
    hashes = []
    for spec in (with_evidence, without):
        monkeypatch.setattr("agents.provenance.load_job", lambda name, spec=spec: spec)
        config = type("Config", (), {"jobs": ("small",)})
        hashes.append(job_hashes(config))
    assert hashes[0] == hashes[1]


def test_evidence_does_not_change_what_a_benchmark_measures(tmp_path):
    prints = set()
    for name, section in (("a", ""), ("b", "fitted: {command: mine, runs: 3, slots: [1, 4]}\n")):
        file = tmp_path / f"{name}.yaml"
        file.write_text(DOCUMENT + section)
        document = {
            "description": "x",
            "policies": ["static"],
            "reference": None,
            "jobs": [str(file)],
            "loads": {"test": {"loads": ["constant"], "seeds": {"from": 0, "to": 1}}},
            "episode_s": 600,
            "interval_s": 60,
        }
        prints.add(fingerprint(files.parse(BenchmarkConfig, document, "x")))
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("{runs: 3}", "the key 'command' is missing"),
        ("{command: x, runs: 0}", "fitted.runs"),
        ("{command: x, runs: 3, slots: [6, 2]}", r"must be \[smallest, largest\], found \[6, 2\]"),
        ("{command: x, runs: 3, slots: [0, 2]}", "must be above 0"),
        ("{command: x, runs: 3, parallelism: {mapp: [1, 2]}}", "Did you mean 'map'"),
        ("{command: x, runs: 3, slot: [1, 2]}", "Did you mean 'slots'"),
        (
            "{command: x, runs: 3, error: {left_out: r, predictions: 4, median: 0.2, p90: 0.1, "
            "within: 0.1}}",
            "below the median",
        ),
    ],
)
def test_a_wrong_section_names_key_and_remedy(section, says):
    text = f"{DOCUMENT}fitted: {section}\n"
    with pytest.raises(ConfigError, match=says):
        files.parse(JobSpec, parse_yaml(text, file="small.yaml"), "small.yaml")


def test_a_job_file_without_the_section_is_written_without_it():
    assert "fitted" not in job(None).model_dump(mode="json", by_alias=True)
    again = JobSpec.model_validate(job().model_dump(mode="json", by_alias=True))
    assert again == job()
