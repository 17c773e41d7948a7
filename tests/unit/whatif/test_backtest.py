"""Replays: what policies would have run, and that nothing depends on how the work is spread."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.whatif.backtest import backtest
from dsp_gym.whatif.blocks import job_replay
from dsp_gym.whatif.job_page import beside_rows
from dsp_gym.whatif.kept import KeptReplays
from dsp_gym.whatif.model import fitted
from dsp_gym.whatif.policies import named_entrants
from dsp_gym.whatif.replay import HistoryReplay
from tests.unit.whatif.histories import history

DS2 = named_entrants(("ds2",), "default")
SEEDS = 2


def replay(one, entrants=()):
    found = HistoryReplay(entrants, SEEDS)
    found.follow(one, final=True)
    return job_replay(one, found)


def run(jobs, **given):
    return backtest(jobs, "a test", entrants=DS2, seeds=SEEDS, **given)


def test_the_deployed_configurations_cost_what_was_requested():
    one = fitted(history(days=0.25, tasks=5))
    found = replay(one).policies[INCUMBENT]
    spec = one.spec
    scaled = sum(vertex.kind != "source" for vertex in spec.vertices)
    memory_mib = float(spec.memory.heap_mib + spec.memory.network_mib)
    per_hour = 5 * scaled * (spec.prices.core_hour + memory_mib / 1024 * spec.prices.gib_hour)
    assert found.of("cost").sum(axis=0) == pytest.approx(np.full(SEEDS, 6 * per_hour))
    assert one.cost_per_h == pytest.approx(np.full(len(one), per_hour))
    assert not found.changes


def test_a_model_makes_room_for_more_tasks_than_its_file_allows():
    one = fitted(history(days=0.25, tasks=40))
    assert "map ran on 40 tasks, the job file allows 24" in one.notes[0]
    assert one.spec.max_parallelism_per_vertex == 40
    assert fitted(history(days=0.25, tasks=24)).notes == ()


def test_a_deployed_rescale_lasts_as_long_as_was_observed():
    one = history(days=0.25)
    tasks = one.wanted.copy()
    tasks[40:, 1:] = 14
    outage_s = np.full(len(one), np.nan)
    outage_s[40] = 200.0
    found = replay(history(days=0.25, ran=tasks, outage_s=outage_s))
    own = found.policies[INCUMBENT]
    assert [change.t_s for change in own.changes] == [40 * 300.0]
    assert "12 → 14" in own.changes[0].what
    assert np.all((own.of("slo_s").sum(axis=0) >= 150) & (own.of("slo_s").sum(axis=0) <= 320))


def test_a_policy_fares_alone_as_it_does_beside_others():
    one = fitted(history(days=0.25))
    two = named_entrants(("ds2", "justin-paper"), "default")
    assert replay(one, two).policies["ds2"] == replay(one, DS2).policies["ds2"]


def test_a_rule_saves_on_a_job_that_is_far_too_large_and_the_model_agrees_with_itself():
    (job,) = run([history(days=2.0, tasks=40)]).jobs
    assert job.observed.cost_error < 1e-6
    assert job.claims[0].saving_per_month.low > 0
    assert job.claims[0].rescales_per_day > 0


def test_kept_replays_are_not_played_again_and_those_of_another_history_are(tmp_path):
    kept = KeptReplays(KeptResults(tmp_path / "unfinished"))
    told: list[float] = []
    jobs = [history("../../evil", days=0.25), history("<script>", days=0.25)]

    def heard(label, done, total):
        told.append(done)

    first = run(jobs, kept=kept)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["unfinished"]
    assert len(kept.folder) == 2
    again = run(jobs, kept=kept, told=heard)
    assert again.to_json() == first.to_json()
    assert told == [2.0]
    other = [history("../../evil", days=0.25, tasks=13), jobs[1]]
    told.clear()
    assert run(other, kept=kept, told=heard) != first
    assert told[-1] == 2.0
    assert told[0] == 1.0


def test_one_job_that_cannot_be_used_does_not_end_the_others():
    unknown = history("dark", days=0.25, load_per_s=np.full(72, np.nan))
    found = run([history(days=0.25), unknown])
    assert [job.name for job in found.jobs] == ["orders"]
    assert "dark: " in found.left_out[0]
    assert "the load is known in no stretch" in found.left_out[0]
    with pytest.raises(ConfigError, match="no job has a usable history"):
        run([unknown])


def test_a_job_without_prices_is_left_out_and_the_others_are_replayed():
    free = history("free", days=0.25)
    prices = free.spec.prices.model_copy(update={"core_hour": 0.0, "gib_hour": 0.0})
    free = replace(
        free,
        spec=free.spec.model_copy(update={"prices": prices}),
        cost_per_h=np.zeros(len(free)),
    )
    found = run([history(days=0.25), free])
    assert [job.name for job in found.jobs] == ["orders"]
    assert found.left_out[0].startswith("free: ")
    assert "job 'nexmark-q1' costs nothing" in found.left_out[0]
    with pytest.raises(ConfigError, match="Give the job file the price of a core"):
        run([free])


def test_a_policy_that_knows_the_future_is_refused():
    with pytest.raises(ConfigError, match="needs the future load"):
        named_entrants(("clairvoyant",), None)
    with pytest.raises(ConfigError, match="is used twice"):
        named_entrants(("ds2", "ds2"), None)


def test_an_outage_that_was_assumed_and_decides_is_data_of_the_verdict():
    """Q1 is redeployed by DS2 every few hours; nothing in the history shows what that takes."""
    (job,) = run([history(days=0.5, tasks=40)]).jobs
    (assumed,) = job.claims[0].assumed
    assert assumed.of == "outage_s"
    assert assumed.values[0] > 0
    assert assumed.late > 0
    outage_s = np.full(144, np.nan)
    outage_s[5] = 10.0
    (job,) = run([history(days=0.5, tasks=40, outage_s=outage_s)]).jobs
    assert job.claims[0].assumed == ()


AWS = named_entrants(("aws-managed-flink",), None)[0]


def test_savings_are_counted_against_a_provider_s_default_in_place_of_what_was_deployed():
    """The service leaves a job at 25 % CPU alone: what one leaves are the 40 tasks it began on."""
    jobs = [history(days=0.25, tasks=40)]
    found = run(jobs, incumbent=AWS)
    (job,) = found.jobs
    assert found.incumbent == "aws-managed-flink"
    assert job.incumbent is not None
    assert job.incumbent.rescales_per_day == 0
    assert job.incumbent.cost_per_month.value == pytest.approx(job.observed.model_cost_per_month)
    (claim,) = job.claims
    (deployed,) = run(jobs).jobs[0].claims
    assert claim.policy == "ds2"
    assert claim.saving_per_month == deployed.saving_per_month
    assert claim.assumed[-1].of == "incumbent"
    assert claim.assumed[-1].names == ("aws-managed-flink",)
    assert beside_rows(job)[1][0] == "aws-managed-flink"


def test_lateness_is_counted_against_the_incumbent_policy():
    """Two tasks are far too few: the service doubles them every 15 minutes, DS2 at once."""
    (job,) = run([history(days=0.25, tasks=2)], incumbent=AWS).jobs
    assert job.incumbent is not None
    assert job.incumbent.rescales_per_day > 0
    (claim,) = job.claims
    late = job.incumbent.late.value
    assert 0 < late < 1
    assert claim.later.value == pytest.approx(claim.late.value - late, abs=1e-3)


def test_a_policy_cannot_replace_itself():
    with pytest.raises(ConfigError, match="cannot replace itself"):
        run([history(days=0.25)], incumbent=DS2[0])


def test_a_job_whose_incumbent_fails_is_left_out(monkeypatch):
    from baselines.aws_managed_flink import AwsManagedFlink
    from dsp_gym.errors import MetricsError

    def fails(self, snapshot):
        raise MetricsError("no CPU load")

    monkeypatch.setattr(AwsManagedFlink, "decide", fails)
    with pytest.raises(ConfigError, match=r"orders: aws-managed-flink is not replayed: .*no CPU"):
        run([history(days=0.25)], incumbent=AWS)
