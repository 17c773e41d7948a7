from __future__ import annotations

import re
import shutil

import pytest

from dsp_gym.config.files import configs_root, load_model
from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.config import BenchmarkConfig
from dsp_gym.evaluation.fingerprint import fingerprint
from dsp_gym.evaluation.leaderboard import (
    render_html,
    render_markdown,
    standings,
    tuned_on,
    with_everyone,
)
from dsp_gym.evaluation.scorecard import Scorecard, ScorecardCell, score
from dsp_gym.experiments.tuning.result import write_policy
from dsp_gym.policies.config import PolicyConfig
from dsp_gym.policies.registry import installed

CONFIG = BenchmarkConfig.model_validate(
    {
        "policies": ["ds2"],
        "jobs": ["nexmark-q11"],
        "loads": {"test": {"loads": ["diurnal"], "seeds": {"from": 0, "to": 2}}},
        "episode_s": 43_200,
        "bootstrap": 200,
    }
)


def card(costs: dict[str, list[float]], late: dict[str, float]) -> Scorecard:
    """Half days of two jobs with two seeds; what could be saved is 2 to 10 on each."""
    cells = []
    for policy, values in costs.items():
        places = [(job, seed) for job in ("a", "b") for seed in (0, 1)]
        for (job, seed), cost in zip(places, values, strict=True):
            metrics = {"cost": cost, "slo_s": late[policy] * 43_200, "slo_share": late[policy]}
            if policy != "bound":
                metrics["rescales"] = 3.0
            cells.append(
                ScorecardCell(policy=policy, job=job, load="day", seed=seed, metrics=metrics,
                     bound=2.0, peak=10.0, trips={})
            )  # fmt: skip
    return Scorecard(
        reference=None,
        config=CONFIG.model_dump(mode="json", by_alias=True),
        versions={"dsp-gym": "0"},
        rows=score(cells, reference=None, confidence=0.95, resamples=200),
        cells=tuple(cells),
    )


COSTS = {
    "dear": [8.0] * 4,
    "late": [3.0] * 4,
    "cheap": [4.0, 4.0, 6.0, 6.0],
    "later": [2.5] * 4,
    "bound": [2.0] * 4,
}
LATE = {"dear": 0.0, "late": 0.2, "cheap": 0.05, "later": 0.4, "bound": 0.0}


@pytest.fixture(scope="module")
def found():
    return {one.policy: one for one in standings(card(COSTS, LATE))}


def test_the_cheapest_of_those_in_time_comes_first_then_the_least_late(found):
    assert list(found) == ["bound", "cheap", "dear", "late", "later"]
    assert [one.rank for one in found.values()] == [None, 1, 2, 3, 4]
    assert [one.keeps_slo for one in found.values()] == [True, True, True, False, False]


def test_values_are_per_job_and_day(found):
    cheap = found["cheap"]
    assert cheap.cost.value == 10.0  # 5 on the average of half a day
    assert cheap.rescales.value == 6.0
    assert cheap.slo_s.value == pytest.approx(0.05 * 86_400)
    assert cheap.by_job == {"a": (8.0, 0.05), "b": (12.0, 0.05)}


def test_the_saving_is_nothing_at_the_peak_and_all_at_the_bound(found):
    assert found["bound"].saving.value == 1.0
    assert found["dear"].saving.value == pytest.approx((10 - 8) / (10 - 2))
    assert found["cheap"].saving.value == pytest.approx((10 - 5) / (10 - 2))


def test_an_interval_comes_from_the_seeds():
    spread = card({"one": [3.0, 5.0, 3.0, 5.0]}, {"one": 0.0})
    (one,) = standings(spread)
    assert one.cost.low == 6.0
    assert one.cost.value == 8.0
    assert one.cost.high == 10.0


def test_the_page_has_a_row_per_policy_and_says_what_was_run():
    page = render_markdown(card(COSTS, LATE), "mine")
    assert "| 1 | cheap | 10 | 4,320 | 5 % |" in page
    assert "| (3) | late |" in page
    assert "| – | bound |" in page
    assert fingerprint(CONFIG) in page
    assert "| cheap | 8, 5 % | 12, 5 % |" in page
    text = render_html(card(COSTS, LATE), "<mine>")
    assert text.count("<tr") == 2 * 6
    assert '<tr class="best"><td>1</td><td>cheap</td>' in text
    assert (
        '<p class="lead">cheap is first: 10 USD a day, late 5 %; 38 % less than dear, late 0 %.'
        in text
    )
    assert "<mine>" not in text


def test_a_job_on_which_a_policy_is_dear_has_a_darker_ground():
    text = render_html(card(COSTS, LATE), "mine")
    heats = dict(re.findall(r'--heat:([\d.]+)">([\d.]+, \d+ %)', text))
    assert heats["0.00"] in {"5, 40 %", "4, 0 %"}  # the cheapest, and the bound
    assert heats["1.00"] == "16, 0 %"  # more than twice as dear


def test_everyone_installed_takes_part_once():
    names = [entrant.name for entrant in with_everyone(CONFIG, "mine").policies]
    assert len(set(names)) == len(names)
    assert set(installed()) - {"clairvoyant"} == set(names)
    assert "learned" in names


def test_tuned_ones_take_part_where_they_were_tuned_on_the_same_benchmark(tmp_path):
    record = {"fingerprint": fingerprint(CONFIG), "tuned_on": "mine", "trials": 1,
              "best_trial": 0, "within_bound": True}  # fmt: skip
    policy = PolicyConfig(policy="ds2", params={"min_down": 3})
    write_policy(tmp_path / "ds2-tuned.yaml", policy, record)
    entrants = {e.name: e for e in with_everyone(CONFIG, "mine", tmp_path).policies}
    assert entrants["ds2-tuned"].policy == str(tmp_path / "ds2-tuned.yaml")
    other = CONFIG.model_copy(update={"episode_s": 7200})
    with pytest.raises(ConfigError, match=r"not tuned on this benchmark.*Tune it again"):
        with_everyone(other, "mine", tmp_path)


def test_a_tuned_agent_is_an_experiment_and_takes_no_part(tmp_path):
    file = tmp_path / "agent-tuned.yaml"
    shutil.copy(configs_root() / "experiments" / "q11-quickstart.yaml", file)
    assert not tuned_on(file, "any")


def test_the_shipped_tuned_policies_were_tuned_on_what_core_v1_is():
    core = load_model(BenchmarkConfig, "benchmarks", "core-v1")
    for file in (configs_root() / "policies" / "tuned" / "core-v1").glob("*.yaml"):
        assert tuned_on(file, fingerprint(core))
        record = load_model(PolicyConfig, "policies", file).provenance
        assert set(record["jobs"]) == set(core.train_jobs)
        assert record["split"] == "train"
