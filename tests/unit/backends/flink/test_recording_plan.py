"""A recording plan names each run once, and reports mistakes before anything starts."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from dsp_gym.backends.flink.recording.plan import RecordConfig, planned, populated
from dsp_gym.cli import app
from dsp_gym.cli.errors import USER_ERROR
from dsp_gym.config import files
from dsp_gym.errors import ConfigError
from dsp_gym.job.capacity import mst
from dsp_gym.job.catalog import load_job

JOB = "flink-micro-update"
SPEC = load_job(JOB)
SATURATED = {"name": "sat", "saturate": 3}


def config(**given) -> RecordConfig:
    document = {"job": JOB, "loads": [SATURATED], "design": {"vertex": "state"}} | given
    return files.parse(RecordConfig, document, "plan.yaml")


def test_a_design_is_every_combination_and_stateless_vertices_hold_no_memory():
    runs = planned(
        config(design={"vertex": "state", "parallelism": [1, 2], "memory_level": [0, 1]}), SPEC
    )
    assert [run.name for run in runs] == [
        "state1m16-sat", "state1m32-sat", "state2m16-sat", "state2m32-sat",
    ]  # fmt: skip
    assert runs[3].configuration.parallelism == {"source": 1, "state": 2, "sink": 1}
    assert runs[3].configuration.memory_level == {"source": -1, "state": 1, "sink": -1}


def test_a_saturating_load_is_a_multiple_of_what_the_model_carries():
    (run,) = planned(config(design={"vertex": "state", "parallelism": [2]}), SPEC)
    carried = mst(SPEC, run.configuration.parallelism, run.configuration.memory_level).rate_per_s
    assert run.load.steps == ((0.0, 3 * carried),)
    assert run.load.saturated


def test_repeats_lie_far_apart_unless_listed_order_is_asked_for():
    design = {"vertex": "state", "parallelism": [1, 2]}
    far = [run.name for run in planned(config(design=design, repeat=2), SPEC)]
    assert far == ["state1m16-sat-1", "state2m16-sat-1", "state1m16-sat-2", "state2m16-sat-2"]
    near = [r.name for r in planned(config(design=design, repeat=2, order="as_listed"), SPEC)]
    assert near == ["state1m16-sat-1", "state1m16-sat-2", "state2m16-sat-1", "state2m16-sat-2"]
    seeds = [run.seed for run in planned(config(design=design, repeat=2, seed=7), SPEC)]
    assert seeds == [7, 7, 8, 8]


def test_a_shipped_load_is_scaled_and_compressed():
    loads = [{"name": "day", "load": "diurnal", "scale": 0.5, "compress": 60}]
    (run,) = planned(config(loads=loads, design={"vertex": "state", "parallelism": [1]}), SPEC)
    offered = [rate for _, rate in run.load.steps]
    assert run.load.steps[0][0] == 0
    assert len(offered) == 56  # 6 s of lead, 10 s of warm-up, 40 s
    assert max(offered) < 0.5 * SPEC.source.rate_per_s * 1.3
    assert max(offered) > 2 * min(offered)


def test_steps_stand_as_given():
    loads = [{"name": "up", "steps": [[0, 100], [20, 300.5]]}]
    (run,) = planned(config(loads=loads, design={"vertex": "state", "parallelism": [1]}), SPEC)
    assert run.load.rate_at(19) == 100
    assert run.load.rate_at(20) == 300.5


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"design": {"vertex": "stat"}}, "no vertex 'stat'.*Did you mean 'state'"),
        ({"design": {"vertex": "state", "memory_level": [4]}}, "memory levels -1..3"),
        ({"design": {"vertex": "state", "parallelism": [129]}}, r"1\.\.128 subtasks"),
        ({"design": None, "configurations": [{"parallelism": {"sink": 1}}] * 2}, "twice"),
    ],
)
def test_what_is_not_the_jobs_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        planned(config(**given), SPEC)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loads": [{"name": "x"}]}, "give one of saturate, rate_per_s, steps and load"),
        ({"loads": [SATURATED | {"rate_per_s": 5}]}, "found saturate, rate_per_s"),
        ({"loads": [SATURATED | {"compress": 2}]}, "belong to 'load'"),
        ({"loads": [SATURATED, SATURATED]}, "two loads have one name"),
        ({"design": None}, "no configuration is given"),
        ({"cluster": {"prometheus": False}}, "the cluster is without"),
    ],
)
def test_a_plan_that_contradicts_itself_is_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        config(**given)


def test_a_plan_is_the_same_plan_whatever_is_said_about_it():
    plan = config()
    assert plan.sha256(SPEC) == config(description="other", cluster={"slots": 8}).sha256(SPEC)
    assert plan.sha256(SPEC) != config(seconds=41).sha256(SPEC)
    other = SPEC.model_copy(update={"buffer_records": 1.0})
    assert plan.sha256(SPEC) != plan.sha256(other)


def test_the_state_is_filled_in_a_configuration_of_its_own():
    assert populated(config(), SPEC) is None
    plan = config(populate={"parallelism": {"state": 4}, "memory_level": {"state": 3}})
    found = populated(plan, SPEC)
    assert found is not None
    assert str(found) == "source=1 state=4@3 sink=1"


@pytest.mark.parametrize("name", files.names("recordings"))
def test_shipped_plans_are_short_and_fit_into_the_cluster(name):
    plan = files.load_model(RecordConfig, "recordings", name)
    spec = load_job(plan.job)
    runs = planned(plan, spec)
    assert len(runs) <= 20
    one_rule = {"flink-q8", "flink-q8-buffers", "flink-q8-bursts"}
    if name not in one_rule | {"flink-q11-day", "flink-q11-capacity"}:  # and what is shipped
        assert len(runs) >= 6
        assert any(run.load.saturated for run in runs)
    if name in {"flink-q1", "flink-q11", "flink-wordcount"}:  # the others are about capacity
        assert any(not run.load.saturated for run in runs)
    for run in runs:
        assert run.configuration.slots("per-vertex") <= plan.cluster.slots
        managed = run.configuration.managed_mib(spec)
        used = sum(run.configuration.parallelism[v] * mib for v, mib in managed.items())
        assert used <= plan.cluster.managed_mib
        # A steady run is one that the job can carry, except where the overload is the question.
        if not run.load.saturated and run.load.name != "over":
            carried = mst(spec, run.configuration.parallelism, run.configuration.memory_level)
            assert max(rate for _, rate in run.load.steps) < 0.9 * carried.rate_per_s


def test_the_command_shows_a_plan_and_starts_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["record", "flink-q1", "--plan", "--json"])
    assert answer.exit_code == 0, answer.output
    shown = json.loads(answer.output)
    assert shown["job"] == "flink-q1"
    assert shown["runs"][0]["run"] == "map1-sat"
    assert shown["seconds"] == len(shown["runs"]) * 60
    assert "about 8 min" in CliRunner().invoke(app, ["record", "flink-q1", "--plan"]).output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("vertex", "out", "message"),
    [("stat", "new", "no vertex 'stat'"), ("state", "kept", "is not empty"),
     ("state", "kept/a.txt/new", "cannot be made")],
)  # fmt: skip
def test_what_is_wrong_with_plan_or_folder_is_said_before_a_cluster_is_started(
    tmp_path, vertex, out, message
):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a.txt").write_text("mine")
    file = tmp_path / "plan.yaml"
    plan = {"job": JOB, "loads": [SATURATED], "design": {"vertex": vertex}}
    file.write_text(json.dumps(plan))
    home = tmp_path / "home"
    line = ["record", str(file), "--out", str(tmp_path / out), "--home", str(home)]
    answer = CliRunner().invoke(app, line)
    assert answer.exit_code == USER_ERROR
    assert message in answer.output
    assert not home.exists()
