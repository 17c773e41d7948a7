"""The wheel works without the checkout: exact names, data inside, extras absent."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"agents", "baselines", "dsp_gym", "spark_pipelines"}
EXTRAS = (
    "torch",
    "stable_baselines3",
    "sb3_contrib",
    "mlflow",
    "matplotlib",
    "pandas",
    "scipy",
    "PIL",
    "moviepy",
    "pygame",
    "imageio_ffmpeg",
)

WITHOUT_EXTRAS = f"""
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, NotInstalled())
"""


def build(target: str, folder: Path, source: Path = ROOT) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with nothing but the installed wheel; its dependencies come from this Python."""
    site = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True, capture_output=True)
    return site


def python(installed: Path, code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks plain files and folders that stay inside; `filter="data"` exists from 3.11.4 only."""
    root = folder.resolve()
    with tarfile.open(archive) as opened:
        for member in opened.getmembers():
            assert member.isfile() or member.isdir(), f"unsafe: {member.name}"
            assert (root / member.name).resolve().is_relative_to(root), f"unsafe: {member.name}"
        if hasattr(tarfile, "data_filter"):
            opened.extractall(root, filter="data")
        else:
            opened.extractall(root)


def members(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_has_exactly_our_top_level_names(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in members(wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_every_configuration_travels_inside_and_nothing_compiled_does(wheel: Path) -> None:
    shipped = {f"dsp_gym/_{path.relative_to(ROOT)}" for path in ROOT.glob("configs/**/*.yaml")}
    inside = {name for name in members(wheel) if name.startswith("dsp_gym/_configs/")}
    assert shipped
    assert shipped <= inside
    assert not [name for name in members(wheel) if name.endswith((".pyc", ".nbi", ".nbc"))]


def test_the_recordings_and_the_journal_of_a_real_job_travel_inside(wheel: Path) -> None:
    shipped = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "dsp_gym" / "samples").rglob("*")
        if path.is_file()
    }
    assert {Path(name).parts[2] for name in shipped} == {"recordings", "journals"}
    assert shipped <= set(members(wheel))


def test_the_wheel_says_what_it_needs_and_under_which_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
        assert any(n.endswith("/licenses/LICENSE") for n in archive.namelist())
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    core = [r for r in metadata.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert not [r for r in core if r.startswith(("torch", "mlflow", "scipy", "matplotlib"))]


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    sdist = build("sdist", tmp_path / "sdist")
    unpack(sdist, tmp_path / "source")
    (source,) = (tmp_path / "source").iterdir()
    again = build("wheel", tmp_path / "wheel", source)
    assert sorted(members(again)) == sorted(members(wheel))


@pytest.mark.parametrize(
    ("name", "kind"), [("../out", tarfile.REGTYPE), ("/out", tarfile.REGTYPE),
                       ("in", tarfile.SYMTYPE), ("in", tarfile.CHRTYPE)],
)  # fmt: skip
@pytest.mark.parametrize("filters", [True, False])
def test_a_source_distribution_that_reaches_outside_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: bytes, filters: bool
) -> None:
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter", raising=False)
    archive, member = tmp_path / "s.tar", tarfile.TarInfo(name)
    member.type, member.linkname = kind, "../../out"
    with tarfile.open(archive, "w") as written:
        written.addfile(member)
    with pytest.raises(AssertionError, match="unsafe"):
        unpack(archive, tmp_path / "source")
    assert not (tmp_path / "source").exists()


def test_the_installed_wheel_is_imported_from_elsewhere(installed: Path, tmp_path: Path) -> None:
    code = (
        "import dsp_gym, agents, baselines, spark_pipelines\n"
        "from dsp_gym.config import configs_root, names\n"
        "print(dsp_gym.__file__, configs_root(), len(names('jobs')))"
    )
    module, configs, jobs = python(installed, code, tmp_path).split()
    assert Path(module) == installed / "dsp_gym" / "__init__.py"
    assert Path(configs) == installed / "dsp_gym" / "_configs"
    assert int(jobs) == len(list(ROOT.glob("configs/jobs/*.yaml")))


@pytest.mark.parametrize("imports", ["dsp_gym, gymnasium", "gymnasium, dsp_gym"])
def test_the_installed_wheel_registers_its_environments(
    installed: Path, tmp_path: Path, imports: str
) -> None:
    code = f"import {imports}\nprint([name for name in gymnasium.registry if 'dsp_gym' in name])"
    assert "dsp_gym/Autoscale-v1" in python(installed, code, tmp_path)


@pytest.mark.parametrize(
    "line", [["--help"], *(["list", kind, "--json"] for kind in ("jobs", "policies", "envs"))]
)
def test_the_command_line_works_without_any_extra(
    installed: Path, tmp_path: Path, line: list[str]
) -> None:
    code = f"{WITHOUT_EXTRAS}\nsys.argv = ['dsp-gym', *{line!r}]\nimport dsp_gym.cli as c\nc.main()"
    answer = python(installed, code, tmp_path)
    assert answer
    assert "cannot be loaded" not in answer


def test_the_core_and_the_policies_import_without_any_extra(
    installed: Path, tmp_path: Path
) -> None:
    code = (
        f"{WITHOUT_EXTRAS}\n"
        "import importlib, pkgutil, dsp_gym, baselines\n"
        "for package in (dsp_gym, baselines):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        importlib.import_module(found.name)\n"
        "print('all')"
    )
    assert python(installed, code, tmp_path) == "all"


def test_an_absent_extra_is_named_with_the_command_that_installs_it(
    installed: Path, tmp_path: Path
) -> None:
    code = (
        f"{WITHOUT_EXTRAS}\n"
        "from dsp_gym.cli.errors import as_user_error\n"
        "try:\n"
        "    import torch\n"
        "except ImportError as error:\n"
        "    print(as_user_error(error))"
    )
    assert "pip install 'dsp-gym[train]'" in python(installed, code, tmp_path)
