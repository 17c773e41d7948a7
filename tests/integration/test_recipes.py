"""Every recipe of the documentation runs, and its result can be imported."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym.cli import app

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.py"))
LEAVES = {
    "a2c": "a2c.zip",
    "trpo": "trpo.zip",
    "maskable_ppo": "maskable.zip",
    "dqn": "dqn.zip",
    "cleanrl_ppo": "agent.pt",
    "recurrent_ppo": "recurrent.zip",
}
LEAVES_NO_POLICY = "frame_stack", "operators_ppo"
STEPS = {
    "dqn": "96",
    "frame_stack": "256",
    "recurrent_ppo": "512",
    "cleanrl_ppo": "1024",
    "operators_ppo": "1536",
}


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_runs_and_its_model_can_be_imported(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(recipe), STEPS.get(recipe.stem, "2048")])
    runpy.run_path(str(recipe), run_name="__main__")
    left = LEAVES.get(recipe.stem)
    for file in (left,) if left else tmp_path.glob("*.zip"):
        run = CliRunner().invoke(app, ["policy", "import", str(file), "--job", "nexmark-q11"])
        assert run.exit_code == (0 if left else 2), run.output
        if left:
            assert (tmp_path / "policies" / Path(left).stem / "policy.json").is_file()
        else:
            assert "Frames are not stacked" in " ".join(run.output.split())


def test_every_recipe_is_shown_with_the_command_that_imports_it():
    page = (ROOT / "docs" / "guides" / "recipes.md").read_text("utf-8")
    for recipe in RECIPES:
        assert f'--8<-- "docs/recipes/{recipe.name}"' in page
        left = LEAVES.get(recipe.stem)
        assert left is None or f"dsp-gym policy import {left} --job" in recipe.read_text("utf-8")
    assert {*LEAVES, *LEAVES_NO_POLICY} == {recipe.stem for recipe in RECIPES}
