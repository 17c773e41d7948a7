"""The state that Flink's autoscaler stores, from ConfigMaps and from its database."""

from __future__ import annotations

import base64
import gzip
import math
import stat

import pytest
import yaml

from dsp_gym.backends.flink.autoscaler_state import (
    states_in_database,
    states_in_file,
    states_of_config_maps,
)
from dsp_gym.errors import ConfigError, SchemaError
from tests.stored_states import BEGIN_S, IDS, config_map, database, state

STORED = state(restarts_s=(40.0, "PT1M5.5S"))


def test_a_config_map_and_a_database_hold_the_same(tmp_path):
    file = tmp_path / "state.yaml"
    file.write_text(yaml.safe_dump(config_map("words", STORED)))
    (found,) = states_in_file(file)
    assert (found.name, len(found.samples), found.rescales) == ("words", 15, 1)
    assert found.vertices == set(IDS)
    assert found.parallelism == dict(zip(IDS, (1, 2, 1), strict=True))
    assert sorted(found.restarts_s) == [40.0, 65.5]
    last = found.samples[-1]
    assert last.t_s == BEGIN_S + 840
    assert last.metrics[IDS[1]]["NUM_RECORDS_IN"] == 500.0 * 840
    assert math.isnan(last.metrics[IDS[1]]["OBSERVED_TPR"])
    kept = database(tmp_path / "state.db", {"words": STORED})
    kept.chmod(stat.S_IRUSR)
    (stored,) = states_in_database(f"sqlite:///{kept}")
    assert [one.t_s for one in stored.samples] == [one.t_s for one in found.samples]
    assert stored.parallelism == found.parallelism


def test_a_list_of_config_maps_holds_several_jobs(tmp_path):
    items = [config_map(name, STORED) for name in ("one", "two")]
    items.append({"kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}, "data": {}})
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump({"kind": "List", "items": items}))
    assert [one.name for one in states_in_file(file)] == ["one", "two"]
    with pytest.raises(ConfigError, match="holds no ConfigMap autoscaler-NAME"):
        states_of_config_maps(items[2:], "here")


@pytest.mark.parametrize(
    ("packed", "says"),
    [
        ("no base64!", "not gzip in base64"),
        (base64.b64encode(b"no gzip").decode(), "not gzip in base64"),
        (base64.b64encode(gzip.compress(b"a: 1" * 99, mtime=0)[:-9]).decode(), "cut off"),
        (base64.b64encode(gzip.compress(bytes(9 * 2**20), mtime=0)).decode(), "larger than"),
        ('{"2026-03-01T00:00:00Z": {"vertexMetrics": {"map": {}}}}', "no id of a vertex"),
        ('{"yesterday": {"vertexMetrics": {}}}', "yesterday"),
        ("[1]", "not gzip"),
        (f'{{"2026-03-01T00:00:00Z": {{"vertexMetrics": {{"{IDS[0]}": {{"LAG": "x"}}}}}}}}', "'x'"),
    ],
)
def test_what_the_autoscaler_never_wrote_is_refused(packed, says):
    with pytest.raises(SchemaError, match="not written by Flink's autoscaler") as refused:
        states_of_config_maps([config_map("words", {"collectedMetrics": packed})], "here")
    assert says in str(refused.value)


def test_a_database_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        states_in_database(f"sqlite:///{tmp_path / 'none.db'}")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError) as refused:
        states_in_database("mysql+nothing://user:secret@127.0.0.1/autoscaler")
    assert "secret" not in str(refused.value)
