"""Replays: the policies' configurations, independent of how the work is spread."""

from __future__ import annotations

import numpy as np
import pytest

from dsp_gym.control.modes import INCUMBENT
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.backtest.kept import KeptReplays
from dsp_gym.evaluation.backtest.model import fitted
from dsp_gym.evaluation.backtest.replay import ReplayShare, played
from dsp_gym.evaluation.backtest.report import page_names, write_report
from dsp_gym.evaluation.backtest.run import BacktestConfig, backtest
from dsp_gym.evaluation.kept import KeptResults
from dsp_gym.policies.registry import resolve
from tests.unit.evaluation.backtest.histories import document, history

DS2 = BacktestConfig(policies=("ds2",))


def replay(*histories, policy=None):
    config = None if policy is None else resolve(policy)[1]
    return played(ReplayShare(policy or INCUMBENT, config, None, histories))


def test_the_deployed_configurations_cost_what_was_requested():
    one = fitted(history(days=0.25, tasks=5))
    found = replay(one)[0]
    spec = one.spec
    scaled = sum(vertex.kind != "source" for vertex in spec.vertices)
    memory_mib = float(spec.memory.heap_mib + spec.memory.network_mib)
    per_hour = 5 * scaled * (spec.prices.core_hour + memory_mib / 1024 * spec.prices.gib_hour)
    assert sum(block.cost for block in found.blocks) == pytest.approx(6 * per_hour)
    assert not found.changes


def test_a_model_makes_room_for_more_tasks_than_its_file_allows():
    one = fitted(history(days=0.25, tasks=40))
    assert "map ran on 40 tasks, the job file allows 24" in one.notes[0]
    assert one.spec.max_parallelism_per_vertex == 40
    assert fitted(history(days=0.25, tasks=24)).notes == ()


def test_a_deployed_rescale_lasts_as_long_as_was_observed():
    one = history(days=0.25)
    tasks = one.parallelism.copy()
    tasks[40:, 1:] = 14
    outage_s = np.full(len(one), np.nan)
    outage_s[40] = 200.0
    found = replay(history(days=0.25, parallelism=tasks, outage_s=outage_s))[0]
    assert [change.slot for change in found.changes] == [40]
    assert "12 → 14" in found.changes[0].what
    late_s = sum(block.slo_s for block in found.blocks)
    assert 150 <= late_s <= 300


def test_a_batch_gives_what_each_history_gives_alone():
    long, short = history("a", days=0.5), history("b", "nexmark-q11", days=0.25)
    gap = long.load_per_s.copy()
    gap[50:80] = np.nan
    cut = history("c", days=0.5, load_per_s=gap)
    for policy in (None, "ds2"):
        together = replay(long, short, cut, policy=policy)
        alone = tuple(replay(one, policy=policy)[0] for one in (long, short, cut))
        assert together == alone


def test_a_rule_saves_on_a_job_that_is_far_too_large_and_the_model_agrees_with_itself():
    found = backtest([history(tasks=40)], DS2, "a test")
    claim = found.jobs[0].claims[0]
    assert found.jobs[0].observed.cost_per_month == pytest.approx(
        found.jobs[0].observed.model_cost_per_month, rel=1e-6
    )
    assert claim.saving_per_month.low > 0
    assert claim.rescales_per_day > 0


def test_kept_replays_are_not_played_again_and_those_of_another_history_are(tmp_path):
    kept = KeptReplays(KeptResults(tmp_path / "unfinished"))
    told: list[float] = []
    jobs = [history("../../evil", days=0.5), history("<script>", days=0.5)]

    def heard(label, done, total):
        told.append(done)

    first = backtest(jobs, DS2, "a test", kept=kept)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["unfinished"]
    assert len(kept.folder) == 4
    again = backtest(jobs, DS2, "a test", kept=kept, told=heard)
    assert again == first
    assert told == [0.0]
    other = [history("../../evil", days=0.5, tasks=13), jobs[1]]
    told.clear()
    assert backtest(other, DS2, "a test", kept=kept, told=heard) != first
    assert told[-1] == 4.0


def test_one_job_that_cannot_be_used_does_not_end_the_others():
    unknown = history("dark", days=0.5, load_per_s=np.full(144, np.nan))
    found = backtest([history(days=0.5), unknown], DS2, "a test")
    assert [job.name for job in found.jobs] == ["orders"]
    assert "dark: " in found.left_out[0]
    assert "the load is known in no stretch" in found.left_out[0]
    with pytest.raises(ConfigError, match="no job has a usable history"):
        backtest([unknown], DS2, "a test")


def test_a_policy_that_knows_the_future_is_refused():
    with pytest.raises(ConfigError, match="needs the future load"):
        backtest([history(days=0.5)], BacktestConfig(policies=("clairvoyant",)), "a test")


def test_names_of_others_become_neither_paths_nor_markup(tmp_path):
    names = ["../../evil", "<img src=x onerror=alert(1)>", "a/b", "", "ä" * 300, "<!--<script>"]
    assert len(set(page_names(names))) == len(names)
    write_report(document(names), tmp_path / "report")
    assert [one.name for one in tmp_path.iterdir()] == ["report"]
    files = sorted(tmp_path.rglob("*.html"))
    assert len(files) == len(names) + 1
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "<img" not in text
        assert "<!--<script>" not in text
        assert "<i>1/s" not in text
