"""Commands and imports that an earlier release documented: each is refused with its new name."""

from __future__ import annotations

import importlib
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dsp_gym.config.moved import MOVED, refusal

ROOT = Path(__file__).parents[2]

COMMANDS = (
    "agents.claim",
    "agents.dataset_claim",
    "dsp_gym.calibration.flink_runs",
    "spark_pipelines.scale",
)
"""Run with `python -m` in the pages and the Makefile of the first release."""

COMMANDS_OF_PACKAGES = (
    "dsp_gym.fitting.justin_micro",
    "dsp_gym.fitting.nexmark",
    "dsp_gym.fitting.streambed",
    "dsp_gym.reproduce.demeter_jobs",
    "dsp_gym.validation.closed_loop",
    "dsp_gym.validation.counterfactual",
    "dsp_gym.validation.drive",
    "dsp_gym.validation.overhead",
)
"""The same, in a package that has moved as a whole; `fit_script` of older job files names some."""

IMPORTS = (
    "dsp_gym.collectors",
    "dsp_gym.experiment",
    "dsp_gym.live",
    "dsp_gym.loop.control",
    "dsp_gym.shadow",
    "dsp_gym.simulation.simulated",
    "dsp_gym.tuning",
)
"""Imported by the examples of the first release, or by code written after them."""


@pytest.mark.parametrize("old", COMMANDS)
def test_an_earlier_command_ends_with_the_new_one(old):
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(old, run_name="__main__", alter_sys=True)
    assert ended.value.code == f"python -m {old} is now: python -m {MOVED[old]}"


@pytest.mark.parametrize("old", COMMANDS_OF_PACKAGES)
def test_an_earlier_command_of_a_package_names_the_package_s_new_place(old):
    package = old.rpartition(".")[0]
    with pytest.raises(ImportError) as ended:
        runpy.run_module(old, run_name="__main__", alter_sys=True)
    assert f"'{package}' is now '{MOVED[package]}'" in str(ended.value)
    assert importlib.util.find_spec(f"{MOVED[package]}.{old.rpartition('.')[2]}") is not None


def test_python_itself_says_so_in_one_line():
    for old, said in (
        ("agents.claim", "python -m agents.claim is now: python -m agents.studies.claim"),
        ("dsp_gym.fitting.nexmark", "'dsp_gym.fitting' is now 'dsp_gym.studies.fitting'"),
    ):
        ran = subprocess.run(
            [sys.executable, "-m", old], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 1
        assert said in ran.stderr
        assert len(ran.stderr.splitlines()) == 1


@pytest.mark.parametrize("old", [*COMMANDS, *IMPORTS])
def test_an_earlier_import_names_the_new_place(old):
    with pytest.raises(ModuleNotFoundError) as failed:
        importlib.import_module(old)
    assert str(failed.value).startswith(f"'{old}' is now '{MOVED[old]}'")
    assert failed.value.name == old


def test_a_module_of_a_package_that_went_elsewhere_is_named_apart():
    with pytest.raises(ModuleNotFoundError) as failed:
        importlib.import_module("dsp_gym.live.jobs")
    assert str(failed.value).startswith("'dsp_gym.live' is now 'dsp_gym.control'; ")
    assert "'dsp_gym.live.jobs' is now 'dsp_gym.backends.flink.backend'" in str(failed.value)
    assert "'dsp_gym.live.seat'" not in str(failed.value)


def test_a_file_at_an_old_place_holds_nothing_but_the_refusal():
    found = {
        old: file.read_text()
        for old in MOVED
        if (file := ROOT / f"{old.replace('.', '/')}.py").exists()
    }
    documented = {*COMMANDS, *IMPORTS, *(old.rpartition(".")[0] for old in COMMANDS_OF_PACKAGES)}
    assert set(found) == documented
    for old, text in found.items():
        assert text == (
            f'"""Moved to `{MOVED[old]}`; an import is refused with the new name."""\n\n'
            "from dsp_gym.config.moved import refusal\n\n"
            f'raise refusal("{old}", __name__)\n'
        )


def test_an_error_is_returned_not_raised():
    assert isinstance(refusal("dsp_gym.tuning", "dsp_gym.tuning"), ModuleNotFoundError)
