"""Another package named `agents`, installed beside ours or found before it, is named at once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "their-agents"
version = "0.24.0"
[tool.hatch.build.targets.wheel]
packages = ["agents"]
"""
IMPORT = """
from dsp_gym.errors import ImportNameError
from dsp_gym.shared_names import import_ours
try:
    import_ours("agents.folder")
except ImportNameError as error:
    print(error)
"""


def run(command: list[str], folder: Path, path: list[Path]) -> subprocess.CompletedProcess[str]:
    """Runs Python with an import path; the dependencies come from this Python."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def wheel(project: Path, out: Path) -> Path:
    done = run(["-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], project, [])
    assert done.returncode == 0, done.stderr
    (built,) = out.iterdir()
    return built


def install(built: Path, site: Path) -> None:
    """As pip does it in an environment: packages of one name are merged, the later wins."""
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    # Two --target installations into one folder would not merge.
    prefix = ["--prefix", str(site), "--ignore-installed"]
    done = run([*command, *prefix, str(built)], site.parent, [])
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Ours, and a distribution whose package `agents` needs what is not installed."""
    project = tmp_path_factory.mktemp("their")
    (project / "agents").mkdir()
    (project / "pyproject.toml").write_text(FOREIGN, "utf-8")
    (project / "agents" / "__init__.py").write_text("import openai_that_is_absent\n", "utf-8")
    out = tmp_path_factory.mktemp("wheels")
    return wheel(ROOT, out / "ours"), wheel(project, out / "theirs")


def site_of(prefix: Path) -> Path:
    (site,) = prefix.rglob("site-packages")
    return site


def command(line: str) -> list[str]:
    return ["-c", f"import sys; sys.argv = {['dsp-gym', *line.split()]!r}\n"
            "import dsp_gym.cli as c; c.main()"]  # fmt: skip


@pytest.mark.slow
@pytest.mark.validate
def test_a_distribution_that_took_the_name_is_named_with_the_remedy(
    wheels: tuple[Path, Path], tmp_path: Path
) -> None:
    ours, theirs = wheels
    prefix = tmp_path / "env"
    install(ours, prefix)
    install(theirs, prefix)
    path = [site_of(prefix)]
    done = run(command("train quickstart"), tmp_path, path)
    assert done.returncode == 2, done.stdout + done.stderr
    said = done.stderr.splitlines()[0]
    assert "their-agents 0.24.0" in said
    assert "pip uninstall their-agents && pip install --force-reinstall" in said
    assert "openai_that_is_absent" not in done.stderr
    # Rules are in `baselines`, which is still ours.
    done = run(command("list policies --json"), tmp_path, path)
    about = {row["name"]: row["about"] for row in json.loads(done.stdout)}
    assert "their-agents 0.24.0" in about["mdp"]
    assert "DS2" in about["ds2"]

    # The other order: ours is imported, and the doctor says that theirs is not.
    install(ours, prefix)
    done = run(command("list policies --json"), tmp_path, path)
    assert "cannot be loaded" not in done.stdout
    done = run(command("doctor"), tmp_path, path)
    assert "Python imports ours" in " ".join(done.stdout.split())

    # As after `pip uninstall their-agents`, which takes the shared file away.
    (site_of(prefix) / "agents" / "__init__.py").unlink()
    shutil.rmtree(next(site_of(prefix).glob("their_agents-*.dist-info")))
    alone = (
        "import sys; from pathlib import Path\n"
        f"own = {str(path[0])!r}\n"
        "sys.path[:] = [p for p in sys.path if p == own or not Path(p, 'agents').is_dir()]\n"
    )
    done = run(["-c", alone + IMPORT], tmp_path, path)
    assert "has lost its __init__.py" in done.stdout
    assert "Install it anew: pip install --force-reinstall" in done.stdout


def test_a_folder_that_is_found_first_is_named(tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("raise SystemExit('imported')\n", "utf-8")
    done = run(command("train quickstart"), tmp_path, [tmp_path, ROOT])
    assert done.returncode == 2
    assert f"Python finds {tmp_path / 'agents'} first, which no distribution installed. " \
        "Rename that" in done.stderr  # fmt: skip


def test_a_module_of_the_name_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text("raise SystemExit('imported')\n", "utf-8")
    assert "agents.py first" in run(["-c", IMPORT], tmp_path, [tmp_path, ROOT]).stdout


def test_ours_are_ours() -> None:
    code = (
        "from dsp_gym.shared_names import SHARED_NAMES, import_ours, is_ours\n"
        "assert all(is_ours(name) for name in SHARED_NAMES)\n"
        "print(import_ours('agents.folder').__name__)"
    )
    done = run(["-c", code], ROOT, [ROOT])
    assert done.stdout.strip() == "agents.folder", done.stderr
