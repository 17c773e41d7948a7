"""The study of shifts at equal lateness."""

from __future__ import annotations

import pytest
import yaml

from dsp_gym.errors import ConfigError
from dsp_gym.evaluation.frontier.config import FrontierConfig
from dsp_gym.studies.shifted import main, shifts_of, swept
from tests.frontiers import FRONTIER


@pytest.fixture
def document():
    found = yaml.safe_load(FRONTIER)
    found["policies"] += [
        {"policy": "justin-artifact", "knob": "ds2/target_utilization", "values": [0.4, 0.79]},
        {"policy": "clairvoyant", "knob": "slo_weight", "values": [1, 4]},
    ]
    found["shifts"] = {
        "policies": {"ds2": 0.5},
        "shifts": [{"name": "slow", "outage": 3}, {"name": "old", "metric_delay_s": 60}],
    }
    return found


def test_shifts_come_after_the_jobs_as_they_are(document):
    config = FrontierConfig.model_validate(document)
    assert [one.name for one in shifts_of(config, [])] == ["as they are", "slow", "old"]
    assert [one.name for one in shifts_of(config, ["old"])] == ["as they are", "old"]
    with pytest.raises(ConfigError, match="no shift 'slwo'"):
        shifts_of(config, ["slwo"])


def test_tuned_rules_and_the_clairvoyant_policy_always_run_at_every_setting(document):
    config = FrontierConfig.model_validate(document)
    assert [one.name for one in swept(config, [])] == ["ds2", "clairvoyant"]
    found = {one.name: one.values for one in swept(config, ["justin-artifact"])}
    assert found["justin-artifact"] == (0.4, 0.79)
    with pytest.raises(ConfigError, match="no policy 'justin'"):
        swept(config, ["justin"])


def test_a_policy_has_a_row_for_each_shift_with_its_rise(document, tmp_path, capsys):
    file = tmp_path / "small.yaml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    line = [str(file), "--shift", "slow", "--policies", "justin-artifact", "--late", "0.95"]
    main(line)
    rows = [row.strip("| ").split(" | ") for row in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["shift", "policy", "cost per day", "of ds2"]
    shown = {(row[0], row[1]): row[3] for row in rows[2:]}
    names = ["justin-artifact", "clairvoyant"]
    assert list(shown) == [(shift, name) for shift in ("as they are", "slow") for name in names]
    plain, slow = shown["as they are", "clairvoyant"], shown["slow", "clairvoyant"]
    rise = float(slow.split()[0]) - float(plain.split()[0])
    assert float(slow.split(", ")[-1]) == pytest.approx(rise, abs=0.0015)
