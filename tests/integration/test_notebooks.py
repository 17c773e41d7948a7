"""The notebooks run from top to bottom, and hold the outputs of such a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
NAMES = sorted(file.stem for file in FOLDER.glob("*.ipynb"))
QUICK = ("first-environment",)
"""The others train, calibrate or start Spark, and wait for `make validate`."""


def code_cells(name: str) -> list[dict]:
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def run(name: str) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "execute_notebooks.py", name, "--check"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    sys.stdout.write(done.stdout)  # its time, which is aimed to be below a minute
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_five_and_the_page_names_each():
    assert len(NAMES) == 5
    page = (FOLDER / "index.md").read_text("utf-8")
    assert all(f"({name}.ipynb)" in page for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_cell_holds_what_it_gave(name):
    for number, cell in enumerate(code_cells(name), 1):
        assert cell["outputs"], f"code cell {number} gave nothing"
        assert not [out for out in cell["outputs"] if out["output_type"] == "error"]


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_small_and_name_no_folder_of_a_machine(name):
    text = (FOLDER / f"{name}.ipynb").read_text("utf-8")
    assert len(text) < 300_000
    assert "/tmp/" not in text
    assert "/home/" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_notebook_gives_the_kinds_of_output_that_it_holds(name):
    run(name)


@pytest.mark.validate
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(QUICK)))
def test_a_notebook_gives_the_kinds_of_output_that_it_holds(name):
    run(name)
