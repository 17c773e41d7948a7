"""Inputs of an executor that encodes decisions: tables, no simulator."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed: the extra 'spark'")

from dsp_gym.backends.simulated.jobs import SimulatedJobs
from dsp_gym.datasets.encoding import EncodingConfig
from dsp_gym.job.catalog import load_job
from dsp_gym.loop.topology import Topology
from spark_pipelines.steps.transitions import topologies

SIMULATOR = ("dsp_gym.backends.simulated.jobs", "dsp_gym.simulation.kernel")


@pytest.mark.slow
def test_the_step_that_executors_import_brings_no_simulator():
    code = (
        "import sys; import spark_pipelines.steps.transitions; "
        f"print([name for name in {SIMULATOR} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("off", ["efficiency", "cache", "skew", "windows", "contention", "backlog"])
def test_tables_are_those_of_the_environment_encoded_for(off):
    config = EncodingConfig.model_validate({"env": {"simulation": {"mechanisms": {off: False}}}})
    specs = {name: load_job(name) for name in ("nexmark-q11", "nexmark-q5")}
    for name, topology in topologies(specs, config).items():
        simulated = SimulatedJobs(Topology.of([specs[name]]), config.env.simulation).topology
        for field, table in topology.tables._asdict().items():
            np.testing.assert_array_equal(table, getattr(simulated.tables, field), err_msg=field)
