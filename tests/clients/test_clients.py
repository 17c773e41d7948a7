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
OWN = "pettingzoo_client", "sb3"
"""Clients whose libraries the extra `dev` brings."""

ELSEWHERE = {
    "cleanrl_client": ".venv-cleanrl",
    "d3rlpy_client": ".venv-d3rlpy",
    "gymnasium_client": ".venv-clients",
    "rllib_client": ".venv-rllib",
    "skrl_client": ".venv-clients",
    "tianshou_client": ".venv-clients",
    "torchrl_client": ".venv-clients",
}
"""Clients whose libraries it does not bring, and the environments that have them."""


def pins(text: str) -> dict[str, str]:
    """Versions that a text asks for, by name."""
    return dict(re.findall(r"\b([a-zA-Z][\w-]+?)(?:\[\w+\])?==([\d.]+)", text))


def test_every_client_is_tried_and_has_a_row_with_the_version_that_is_installed():
    programs = {file.stem for file in HERE.glob("*_client.py")} | {"sb3"}
    figures = json.loads(FIGURES.read_text("utf-8"))
    assert programs == {*ELSEWHERE, *OWN} == set(figures)
    makefile = MAKEFILE.read_text("utf-8")
    wanted = {
        venv: pins(text)
        for venv, text in re.findall(r"^(\.venv-\w+): WANTED := ((?:.*\\\n)*.*)", makefile, re.M)
    }
    tested = pins((ROOT / "constraints.txt").read_text("utf-8"))
    for client, told in figures.items():
        asked = wanted[ELSEWHERE[client]] if client in ELSEWHERE else tested
        found = {name: one.partition("+")[0] for name, one in told["versions"].items()}
        known = {name: one for name, one in found.items() if name in asked}
        assert known, f"{client}: none of its libraries is pinned"
        assert known == {name: asked[name] for name in known}, client


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
@pytest.mark.parametrize("client", OWN)
def test_a_library_of_the_environment_of_all_learns(client):
    found = told(Path(sys.executable), client)
    assert min(found["did"].values()) >= 2
    keep(client, found)


@pytest.mark.validate
@pytest.mark.parametrize(("client", "venv"), ELSEWHERE.items())
def test_a_library_of_its_own_environment_learns(client, venv):
    python = ROOT / venv / "bin" / "python"
    assert python.exists(), f"make {venv}"
    found = told(python, client)
    assert min(found["did"].values()) >= 2
    keep(client, found)
