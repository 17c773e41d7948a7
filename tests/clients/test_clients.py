"""RL libraries learn on the environments: a few real updates with each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAKEFILE = ROOT / "Makefile"
FIGURES = ROOT / "docs" / "figures" / "clients.json"
ELSEWHERE = {
    "d3rlpy_client": ".venv-d3rlpy",
    "rllib_client": ".venv-rllib",
    "skrl_client": ".venv-clients",
    "tianshou_client": ".venv-clients",
    "torchrl_client": ".venv-clients",
}
"""Clients whose libraries the extra `dev` does not bring, and the environments that have them."""


def test_every_client_is_tried_and_has_a_row_with_the_version_that_is_installed():
    programs = {file.stem for file in HERE.glob("*_client.py")} | {"sb3"}
    figures = json.loads(FIGURES.read_text("utf-8"))
    assert programs == {*ELSEWHERE, "sb3"} == set(figures)
    pins = dict(re.findall(r"\b([a-z][\w-]+?)(?:\[\w+\])?==([\d.]+)", MAKEFILE.read_text("utf-8")))
    for client in ELSEWHERE:
        known = {name: one for name, one in figures[client]["versions"].items() if name in pins}
        assert known, f"{client}: none of its libraries is pinned"
        assert known == {name: pins[name] for name in known}


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
@pytest.mark.parametrize(("client", "venv"), ELSEWHERE.items())
def test_a_library_of_its_own_environment_learns(client, venv):
    python = ROOT / venv / "bin" / "python"
    assert python.exists(), f"make {venv}"
    found = told(python, client)
    assert min(found["did"].values()) >= 2
    keep(client, found)
