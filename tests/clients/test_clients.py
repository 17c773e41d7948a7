"""RL libraries learn on the environments: a few real updates with each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
FIGURES = ROOT / "docs" / "figures" / "clients.json"
ELSEWHERE = ("torchrl_client", "skrl_client", "tianshou_client")
"""Clients whose libraries the extra `dev` does not bring."""


def told(python: Path, client: str) -> dict:
    """Run a client's program; what it says in its last line."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [str(python), str(HERE / f"{client}.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def keep(client: str, found: dict) -> None:
    """Write what a client did for the table on the page of recipes."""
    figures = json.loads(FIGURES.read_text("utf-8")) if FIGURES.exists() else {}
    figures[client] = found
    FIGURES.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@pytest.mark.validate
def test_stable_baselines_learns_in_one_process_and_in_workers():
    found = told(Path(sys.executable), "sb3")
    assert min(found["did"].values()) >= 2
    keep("sb3", found)


@pytest.mark.validate
@pytest.mark.parametrize("client", ELSEWHERE)
def test_a_library_of_its_own_environment_learns(client):
    assert PYTHON.exists(), "make .venv-clients"
    found = told(PYTHON, client)
    assert min(found["did"].values()) >= 2
    keep(client, found)
