"""The capacity estimator on a real Flink: it finds the known capacity of the job."""

from __future__ import annotations

import os
import shutil

import pytest

from baselines.streambed.bids2 import bids2
from baselines.streambed.estimator import EstimatorConfig, estimate
from baselines.streambed.live import live_testbed
from baselines.streambed.optimizer import configuration, operators
from dsp_gym.backends.flink.local.cluster import LocalCluster
from dsp_gym.backends.flink.local.settings import ClusterSettings
from dsp_gym.backends.flink.rest import ENDED
from tests.strategies import spec_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.validate,
    pytest.mark.skipif(
        shutil.which("java") is None and "CI" not in os.environ, reason="no JDK on the PATH"
    ),
]

COST_US = 2000
SPEC = spec_of(
    "planned",
    {"name": "bids", "kind": "source"},
    {
        "name": "session",
        "inputs": [{"from": "bids", "ship": "HASH"}],
        "state": {"reads": 1, "writes": 1, "keys": 2000, "value_bytes": 100},
    },
    {"name": "sink", "kind": "sink", "inputs": [{"from": "session"}], "scalable": False},
    memory={"base_mib": 32, "levels": 2},
    flink={
        "program": "q11",
        "arguments": {"gap-s": 2, "hot-bidders": 1, "cpu-us": f"session={COST_US}"},
    },
)
QUICK = EstimatorConfig(
    warm_up_s=15, warm_up_rate_per_s=20_000, cooldown_s=2, injection_s=12, observation_s=10,
    sustained_share=0.97, timeout_s=35,
)  # fmt: skip
"""Two probes: at the rate of the warm-up and at twice that. Ten seconds are counted to 1 or 2 %."""


def test_the_throughput_of_one_paid_task_is_found_and_its_rates_feed_bids2(tmp_path):
    settings = ClusterSettings(
        slots=4, managed_mib=256, task_heap_mib=256, network_mib=64, rest_port=0, prometheus=False
    )
    cluster = LocalCluster.up(settings, tmp_path / "cluster")
    try:
        with live_testbed(SPEC, tmp_path / "cluster", 48) as (testbed, slots):
            assert slots == 3  # four, less the source's
            single = configuration(SPEC, {"session": 1, "sink": 1}, 0)
            found = estimate(testbed, single, QUICK)
        # A record costs 2 ms of waiting and RocksDB's work besides: somewhat below 500/s.
        assert 300 < found.mst_per_s <= 1e6 / COST_US * 1.05
        assert [probe.sustained for probe in found.probes] == [True, False]
        session = found.seen.vertices["session"]
        assert session.ratio == pytest.approx(1.0, abs=0.1)
        assert 0.8 <= session.true_rate_per_task_per_s / (1e6 / COST_US) <= 1.05
        placed = bids2(operators(SPEC, found.seen), 3)
        assert placed.parallelism == {"session": 2, "sink": 1}
        # Nothing is left behind.
        assert all(job.state in ENDED for job in cluster.rest.jobs())
        assert not list(cluster.savepoints.glob("savepoint-*"))
    finally:
        cluster.down()
