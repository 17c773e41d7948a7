"""The World Cup experiment, shortened: trained on one recorded day, compared on another."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml

from dsp_gym.config.files import find, read_yaml

pytest.importorskip("sb3_contrib")
pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-c", "from dsp_gym.cli import main; main()")


@pytest.mark.validate
def test_an_agent_learns_on_one_day_and_is_compared_on_another(tmp_path, data_folder):
    config = read_yaml(find("experiments", "q11-worldcup"))
    config["agent"] |= {
        "n_envs": 32, "total_steps": 4096, "eval_every": 4096, "eval_episodes": 4,
    }  # fmt: skip
    config["evaluation"]["seeds"] = 1
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(config))

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env=os.environ | {"DSP_GYM_DATA": str(data_folder.resolve())},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("train", "short.yaml", "--out", "trained", "--track", "none")
    card = json.loads(run("evaluate", "short.yaml", "--policies", "all,trained/policy", "--json"))
    rows = {row["policy"]: row["metrics"] for row in card["rows"]}
    assert {"static-peak", "hpa-cpu", "ds2", "justin-paper", "justin-artifact"} < set(rows)
    assert len(rows) == 8  # the five, what was trained, and the clairvoyant bound and plan
    assert {cell["load"] for cell in card["cells"]} == {"worldcup98-test"}
    # The flash crowds of 23 June cost every policy that follows the load some SLO seconds; one that
    # knows them may have none.
    followers = [m for name, m in rows.items() if name not in {"bound", "clairvoyant"}]
    assert all(metrics["slo_s"]["value"] > 0 for metrics in followers)
