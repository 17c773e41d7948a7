"""An interrupted validation continues, and its figures come from the kept results."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.cli import app
from dsp_gym.errors import ConfigError, FlinkError
from dsp_gym.job.catalog import load_job
from dsp_gym.studies.policies_on_flink.command import ValidationProgress, compared, run_missing
from dsp_gym.studies.policies_on_flink.order import (
    CaseFigures,
    PolicyFigures,
    PublishedRuns,
    figures_of,
)
from dsp_gym.studies.policies_on_flink.runs import KeptRuns, RealRun, ValidationTotals, planned
from dsp_gym.studies.running import CountedRecords, expected_per_record
from tests.validating import REPORTS, SMALL, config

DOCS = Path(__file__).parents[4] / "docs"


class Clusters:
    """Clusters that only say what was asked of them."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def __call__(self, settings, home) -> Clusters:
        self.said.append(f"up {settings.scheduler} in {home.name}")
        return self

    def down(self) -> None:
        self.said.append("down")


class Flink:
    """Does runs at once; the ones named fail that often, or end the program."""

    def __init__(self, fails: dict[str, int] | None = None, ends_at: int | None = None) -> None:
        self.fails, self.ends_at = fails or {}, ends_at
        self.done: list[str] = []

    def __call__(self, run, cluster, kept, tell) -> RealRun:
        if len(self.done) == self.ends_at:
            raise KeyboardInterrupt
        tell(30.0)
        if self.fails.get(run.label, 0) > 0:
            self.fails[run.label] -= 1
            raise FlinkError("the job did not come up")
        self.done.append(run.label)
        return result(kept.depends_on(run))


def result(of: str, cost: float = 0.01, late_s: float = 2.0) -> RealRun:
    return RealRun(
        of=of, started="2026-11-22 01:00", version="1", flink="2.1.0", seconds=60.0, cost=cost,
        late_s=late_s, down_s=1.0, rescales=1, turns=12, failures=0, outages_s=(2.0, 4.0),
        due=90_000.0, emitted=90_000.0, received=5.0, expected=None,
    )  # fmt: skip


@pytest.fixture
def plan():
    return planned(config(repetitions=1), REPORTS)


@pytest.fixture
def kept(plan, tmp_path) -> KeptRuns:
    return KeptRuns(tmp_path / "runs", plan.config)


def missing(plan, kept, flink, clusters=None, tell=lambda now: None) -> dict[str, str]:
    return run_missing(
        plan, kept, kept.folder / "clusters", tell, driven=flink, up=clusters or Clusters()
    )


def test_what_was_finished_before_an_interruption_is_not_done_again(plan, kept):
    first, second, clusters = Flink(ends_at=3), Flink(), Clusters()
    with pytest.raises(KeyboardInterrupt):
        missing(plan, kept, first, clusters)
    assert clusters.said[-1] == "down"
    assert missing(plan, kept, second) == {}
    assert first.done + second.done == [run.label for run in plan.runs]
    assert missing(plan, kept, Flink(ends_at=0)) == {}  # nothing is left


def test_commands_with_a_job_each_do_all_runs_between_them(plan, kept):
    labels = dict.fromkeys(case.job.label for case in plan.cases)
    done = []
    for label in labels:
        flink = Flink()
        missing(plan.of_jobs([label]), kept, flink)
        assert all(run.startswith(f"{label} ") for run in flink.done)
        done += flink.done
    assert len(labels) > 1
    assert sorted(done) == sorted(run.label for run in plan.runs)
    assert missing(plan, kept, Flink(ends_at=0)) == {}


def test_a_job_that_is_not_validated_is_refused_with_the_nearest(plan):
    label = plan.cases[0].job.label
    with pytest.raises(ConfigError, match=f"Did you mean '{label}'"):
        plan.of_jobs([f"{label}x"])
    assert plan.of_jobs([]) is plan


def test_each_way_of_rescaling_has_its_cluster_and_none_is_left(plan, kept):
    clusters = Clusters()
    missing(plan, kept, Flink(), clusters)
    assert clusters.said == [
        "up default in savepoint", "down", "up adaptive in in-place", "down",
    ]  # fmt: skip


def test_a_cluster_that_a_killed_program_left_is_ended_first(plan, kept, monkeypatch):
    clusters = Clusters()

    def find(home):
        clusters.said.append(f"found {home.name}")
        return clusters

    monkeypatch.setattr(LocalCluster, "find", find)
    missing(plan, kept, Flink(), clusters)
    assert clusters.said[:5] == [
        "found savepoint", "down", "found in-place", "down", "up default in savepoint",
    ]  # fmt: skip


def test_a_run_that_fails_is_tried_once_more_and_then_named(plan, kept):
    once, twice = plan.runs[0].label, plan.runs[1].label
    flink = Flink(fails={once: 1, twice: 2})
    failed = missing(plan, kept, flink)
    assert failed == {twice: "the job did not come up"}
    assert once in flink.done
    assert kept.read(plan.runs[1]) is None


def test_a_run_of_other_settings_or_a_torn_file_is_done_again(plan, kept):
    missing(plan, kept, Flink())
    other = KeptRuns(kept.folder, config(repetitions=1, seconds=120))
    assert other.read(plan.runs[0]) is None
    torn = kept.file(plan.runs[1])
    torn.write_text(torn.read_text(encoding="utf-8")[:50], encoding="utf-8")
    flink = Flink()
    missing(plan, kept, flink)
    assert flink.done == [plan.runs[1].label]


def test_the_time_left_falls_to_nothing(plan, kept):
    told: list[ValidationProgress] = []
    missing(plan, kept, Flink(), tell=told.append)
    left = [one.left_s for one in told]
    assert left[0] == pytest.approx(4 * (60 + 40) + 40, abs=1)  # and one more cluster
    assert left == sorted(left, reverse=True)
    assert left[-1] == 0.0
    assert [one.done for one in told if one.finished] == [1, 2, 3, 4]
    assert all(one.done_s + one.left_s == pytest.approx(480, abs=1) for one in told)


def case_figures(plan, real: dict[str, float], simulated: dict[str, float]) -> CaseFigures:
    """One case, where each policy has one price, all of it money."""
    policies = []
    for policy in plan.config.policies:
        costs = [] if policy.name not in real else [real[policy.name]]
        runs = tuple(result("x", cost=cost, late_s=0.0) for cost in costs)
        played = ValidationTotals(
            seconds=60.0,
            cost=simulated[policy.name],
            late_s=0.0,
            down_s=0.0,
            rescales=1,
            failures=0,
        )
        policies.append(PolicyFigures(policy.name, policy.rule, runs, (played,), 0.001))
    return CaseFigures(plan.cases[0], tuple(policies))


@pytest.mark.parametrize(
    ("real", "pairs", "same"),
    [
        ({"ds2-local": 1.3, "mdp": 1.0}, 1, 1),
        ({"ds2-local": 0.9, "mdp": 1.0}, 1, 0),  # dearer in the simulation, cheaper for real
        ({"mdp": 1.0}, 0, 0),  # the other has not run yet
    ],
)
def test_a_pair_has_an_order_where_its_simulated_prices_differ(plan, real, pairs, same):
    found = figures_of(plan, [case_figures(plan, real, {"ds2-local": 1.2, "mdp": 1.0})])
    assert (len(found["order"]["pairs"]), found["order"]["same"]) == (pairs, same)
    near = figures_of(plan, [case_figures(plan, real, {"ds2-local": 1.05, "mdp": 1.0})])
    assert near["order"]["pairs"] == []


def test_an_agent_is_held_against_the_rule_of_the_lowest_real_price(plan):
    simulated = {"ds2-local": 1.0, "mdp": 0.9}
    cheap = figures_of(plan, [case_figures(plan, {"ds2-local": 1.0, "mdp": 0.8}, simulated)])
    (row,) = cheap["agents"]
    assert (row["agent"], row["rule"], row["cost"]) == ("mdp", "ds2-local", 0.8)
    assert row["simulated_cost"] == pytest.approx(0.9)
    assert row["holds"]
    dear = figures_of(plan, [case_figures(plan, {"ds2-local": 1.0, "mdp": 0.95}, simulated)])
    assert not dear["agents"][0]["holds"]


def test_a_late_second_has_a_price():
    one = PolicyFigures("p", False, (result("x", cost=1.0, late_s=10.0),), (), 0.05)
    assert one.real_price == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("emitted", "received", "expected", "conserved"),
    [
        (90_000, 7.0, None, True),
        (89_998, 7.0, None, False),  # two were lost at the source
        (90_000, 900_000.0, 900_000.0, True),
        (90_000, 900_001.0, 900_000.0, False),  # one came twice
    ],
)
def test_records_are_counted_at_both_ends(emitted, received, expected, conserved):
    run = result("x").model_copy(
        update={"emitted": float(emitted), "received": received, "expected": expected}
    )
    assert run.conserved is conserved


def test_what_a_sink_is_to_receive_follows_from_the_graph():
    assert expected_per_record(load_job("flink-wordcount")) == 10.0
    assert expected_per_record(load_job("flink-large-update")) == 1.0
    assert expected_per_record(load_job("flink-q11")) is None  # windows count
    assert not CountedRecords(10.0, 99.0, 0.0, 100.0).arrived
    assert not CountedRecords(10.0, 100.0, 3.0, 100.0).arrived
    assert CountedRecords(10.0, 100.0, 0.0, 100.0).arrived


@pytest.fixture(scope="module")
def page():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))  # a page may import its sections
        return loaded_page()


def loaded_page():
    spec = importlib.util.spec_from_file_location("validation_page", DOCS / "validation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_tells_what_was_kept(plan, kept, page, tmp_path, monkeypatch):
    """From kept runs over the simulation and the figures to the page."""
    for run in plan.runs[:2]:
        kept.write(run, result(kept.depends_on(run), cost=0.005, late_s=1.0))
    found = figures_of(plan, compared(plan, kept))
    monkeypatch.setattr(page, "FIGURES", tmp_path)
    (tmp_path / "policies.json").write_text(json.dumps(found), encoding="utf-8")
    text = page.policies()
    assert "2 of 4 real runs" in text
    assert "| `flink-q11` | flat | `mdp` |" in text
    assert "flink-q11-in-place" not in text  # nothing of it has run


def test_published_real_runs_are_compared_with_the_simulation_anew(plan, kept, tmp_path):
    for place, run in enumerate(plan.runs[:3]):
        kept.write(run, result(kept.depends_on(run), cost=0.004 + 0.001 * place, late_s=place))
    found = figures_of(plan, compared(plan, kept))
    file = tmp_path / "figures.json"
    file.write_text(json.dumps(found), encoding="utf-8")
    published, none = PublishedRuns.of(file), KeptRuns(tmp_path / "none", plan.config)
    assert figures_of(plan, compared(plan, none, published=published)) == found
    assert figures_of(plan, compared(plan, kept, published=published)) == found
    for run in plan.runs[:3]:
        kept.file(run).unlink()
    kept.write(plan.runs[0], result(kept.depends_on(plan.runs[0]), cost=0.009, late_s=0.0))
    shown = [
        [one.real for one in case.policies] for case in compared(plan, kept, published=published)
    ]
    assert [run.cost for runs in shown[0] for run in runs] == [0.009, 0.005]  # kept, published
    assert [run.cost for runs in shown[1] for run in runs] == [0.006]
    document = SMALL | {"repetitions": 1}
    (tmp_path / "v.yaml").write_text(json.dumps(document), encoding="utf-8")
    line = ["validate", str(tmp_path / "v.yaml"), "--published", str(file)]
    again = CliRunner().invoke(app, [*line, "--simulate", "--json"])
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["agents"] == found["agents"]
    assert "Add --simulate" in CliRunner().invoke(app, line).stderr
    for wrong in ({}, found | {"recorded": []}, found | {"cases": [{}]}):
        file.write_text(json.dumps(wrong), encoding="utf-8")
        refused = CliRunner().invoke(app, [*line, "--simulate"])
        assert refused.exit_code == 2
        assert "holds no figures of a validation" in refused.stderr


def test_a_page_without_figures_names_the_command(page, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "FIGURES", tmp_path)
    assert "dsp-gym validate policies" in page.policies()


def test_the_command_plans_and_simulates_without_a_flink(tmp_path):
    file = tmp_path / "v.json"
    document = SMALL | {"repetitions": 1, "jobs": [{"job": "flink-wordcount"}]}
    (tmp_path / "v.yaml").write_text(json.dumps(document), encoding="utf-8")
    line = ["validate", str(tmp_path / "v.yaml"), "--runs", str(tmp_path / "runs")]
    shown = CliRunner().invoke(app, [*line, "--plan"])
    assert "2 runs of 60 s, 2 missing: about 4 min." in shown.output
    done = CliRunner().invoke(app, [*line, "--simulate", "--json", "--out", str(file)])
    assert done.exit_code == 0, done.output
    figures = json.loads(file.read_text(encoding="utf-8"))
    assert figures["runs"] == {"done": 0, "planned": 2}
    for policy in figures["cases"][0]["policies"]:
        assert policy["real"]["price"] is None
        assert policy["simulated"]["price"] > 0


def test_a_wrong_file_ends_with_a_sentence(tmp_path):
    (tmp_path / "v.yaml").write_text(json.dumps(SMALL | {"compression": 7}), encoding="utf-8")
    done = CliRunner().invoke(app, ["validate", str(tmp_path / "v.yaml"), "--plan"])
    assert done.exit_code == 2
    assert "8.57143 real seconds" in done.stderr
