"""A release: one version, the same bytes from the same source, use without a checkout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from dsp_gym.version import __version__

ROOT = Path(__file__).resolve().parents[2]
LOWEST = (3, 11)


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that must succeed, without the checkout on the import path."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=kept | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def changes() -> dict[str, list[str]]:
    """Lines of the changelog by version."""
    parts = re.split(r"^## (.*)\n", text("CHANGELOG.md"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.splitlines() for part in parts[2::2]), strict=True))


def test_everything_has_one_version() -> None:
    chart = yaml.safe_load(text("deploy/helm/Chart.yaml"))
    tags = re.findall(r"--tag dsp-gym[\w-]*:(\S+)", text("deploy/Dockerfile"))
    citation = yaml.safe_load(text("CITATION.cff"))
    assert len(tags) == 3
    tags += re.findall(r"registry\.example/dsp-gym:(\S+)", text("docs/guides/shadow.md"))
    assert {chart["version"], chart["appVersion"], *tags, citation["version"]} == {__version__}
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


def test_the_changelog_has_this_version_below_what_is_unreleased() -> None:
    found = changes()
    assert list(found)[:2] == ["Unreleased", __version__]
    assert 20 < len(found[__version__]) <= 200
    # Patches find these where they were.
    assert "### Added" in found["Unreleased"]


def test_the_readme_fits_two_screens_with_one_picture() -> None:
    lines = text("README.md").splitlines()
    assert len(lines) <= 100
    assert len(re.findall(r"!\[|<img", text("README.md"))) == 1
    # Rows of tables and commands are as long as they are.
    prose = [line for line in lines if not line.startswith(("|", "![", "dsp-gym ", "make "))]
    assert max(map(len, prose)) <= 120


def test_what_the_readme_and_the_pages_for_contributors_link_to_is_there() -> None:
    for page in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text(page)):
            assert target.startswith("https://") or (ROOT / target).exists(), (page, target)
        for named in re.findall(r"`((?:docs|deploy|tests|dsp_gym)/[\w/.-]+)`", text(page)):
            assert (ROOT / named).exists(), (page, named)


def source_of(folder: Path) -> Path:
    """A copy of what goes into the distributions, with other times and in another order."""
    listed = re.findall(
        r'^    "([\w./-]+)",$', text("pyproject.toml").split("only-include")[1], re.M
    )
    names = [name for name in listed if (ROOT / name).exists()]
    names += ["pyproject.toml", "README.md", "LICENSE", ".gitignore"]
    folder.mkdir()
    for name in reversed(names):
        if (ROOT / name).is_dir():
            skipped = shutil.ignore_patterns("__pycache__", "_jars", "*.nbi", "*.nbc")
            shutil.copytree(ROOT / name, folder / name, copy_function=shutil.copy, ignore=skipped)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def built(source: Path, out: Path) -> dict[str, str]:
    """SHA-256 of wheel and source distribution."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    run(command, source, SOURCE_DATE_EPOCH="1764000000")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()}


@pytest.mark.slow
def test_the_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    first = built(source_of(tmp_path / "a"), tmp_path / "first")
    second = built(source_of(tmp_path / "elsewhere"), tmp_path / "second")
    assert {name.rpartition(".")[2] for name in first} == {"whl", "gz"}
    assert first == second


def pythons() -> dict[str, Path]:
    """The lowest and the newest Python of this machine that is supported, by version."""
    places = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    places += sorted((Path.home() / ".pyenv" / "versions").glob("*/bin"))
    found: dict[tuple[int, ...], Path] = {}
    for path in (path for place in places for path in place.glob("python3*")):
        if re.fullmatch(r"python3(\.\d+)?", path.name) and os.access(path, os.X_OK):
            asked = [str(path), "-c", "import sys; print(*sys.version_info[:4])"]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            *version, level = done.stdout.split() or [""]
            if level == "final" and tuple(map(int, version)) >= LOWEST:
                found.setdefault(tuple(map(int, version)), path)
    ends = {min(found), max(found)}
    return {".".join(map(str, version)): found[version] for version in sorted(ends)}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wheel and source distribution."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "hatchling", "build", "-d", str(out)], ROOT)
    return sorted(out.iterdir())


def quickstart(python: Path, folder: Path) -> dict[str, float]:
    """The README's commands in an empty folder; the cost of each policy."""
    cache = {"NUMBA_CACHE_DIR": str(folder / "numba")}
    program = str(python.parent / "dsp-gym")
    run([program, "train", "quickstart"], folder, **cache)
    run([program, "evaluate", "quickstart"], folder, **cache)
    results = json.loads((folder / "runs/evaluations/quickstart/results.json").read_text("utf-8"))
    return {row["policy"]: round(row["metrics"]["cost"]["value"], 4) for row in results["rows"]}


@pytest.mark.validate
@pytest.mark.parametrize("end", [0, -1], ids=["lowest", "newest"])
def test_both_distributions_install_into_an_empty_environment_and_run_the_quickstart(
    distributions: list[Path], tmp_path: Path, end: int
) -> None:
    python = list(pythons().values())[end]
    costs = []
    for file in distributions:
        home = tmp_path / file.suffix.lstrip(".")
        venv = home / "venv"
        home.mkdir()
        # Debian's Python cannot make an environment with pip in it, so ours installs.
        run([str(python), "-m", "venv", "--without-pip", str(venv)], home)
        own = venv / "bin" / "python"
        pip = [sys.executable, "-m", "pip", "--python", str(own), "install", "--quiet"]
        run([*pip, f"dsp-gym[plan] @ {file.as_uri()}"], home)
        said = run([str(venv / "bin" / "dsp-gym"), "--version"], home).stdout
        assert said == f"dsp-gym {__version__}\n"
        if file.suffix == ".whl":
            costs.append(quickstart(own, home))
    (found,) = costs
    assert found["quickstart"] < min(found["ds2"], found["justin-artifact"])
