"""The page about supported versions: of Python, of libraries, of what runs the jobs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsp_gym.version import __version__
from generator.markdown import Row, page, table

ROOT = Path(__file__).resolve().parents[2]
INTRODUCTION = """
What this release supports. Versions of libraries are those of `pyproject.toml`, and the tested ones
those of `constraints.txt`; pip refuses others.
"""

RELEASES = """
## Releases of dsp-gym

Versions follow [semantic versioning](https://semver.org) from 1.0.0 on. Within a major version the
[public API](../api/index.md), commands and their options, keys of configuration files, `--json`
documents and the schemas `dsp-gym/NAME/N` keep their meaning. Environment ids carry their own
version. The latest minor release gets fixes, those of security too.
"""


def versions() -> str:
    """What is supported, by part."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return page(
        "Supported versions",
        INTRODUCTION.strip(),
        table(["part", "supported", "tested"], _parts(project["requires-python"])),
        RELEASES.strip(),
        "## Libraries",
        table(["library", "supported", "tested", "for"], _libraries(project)),
    )


def _parts(python: str) -> list[Row]:
    chart = (ROOT / "deploy" / "helm" / "Chart.yaml").read_text("utf-8")
    kube = re.search(r'^kubeVersion: "(.*?)-0"$', chart, re.MULTILINE)
    assert kube is not None, "Chart.yaml has no kubeVersion"
    return [
        ["dsp-gym", __version__, "`make test`, `make validate`"],
        ["Python", python, "3.11; wheel and quickstart also on the newest found, `make validate`"],
        ["operating system", "Linux, macOS", "Linux"],
        ["Flink", "[by release](flink-releases.md)", "on clusters of that release"],
        ["Kubernetes", kube[1], "manifests against schemas, no cluster"],
        ["Java", "17, for the local Flink", "17"],
        ["RL libraries", "[by library](clients.md)", "a few updates of each"],
    ]


def _libraries(project: Mapping[str, Any]) -> list[Row]:
    """Name, bounds and tested version of each requirement, and who has it."""
    pins = re.findall(
        r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE
    )
    tested = {name.lower().replace("_", "-"): version for name, version in pins}
    extras = project["optional-dependencies"]
    wanted = [("core", one) for one in project["dependencies"]]
    wanted += [
        (f"`[{extra}]`", one)
        for extra in sorted(set(extras) - {"all", "dev"})
        for one in extras[extra]
        if not one.startswith("dsp-gym")
    ]
    merged: dict[tuple[str, str], list[str]] = {}
    for part, one in wanted:
        merged.setdefault(_split(one), []).append(part)
    return [
        [name, bounds, tested.get(name, "–"), ", ".join(parts)]
        for (name, bounds), parts in merged.items()
    ]


def _split(requirement: str) -> tuple[str, str]:
    """Name and bounds of a requirement."""
    found = re.match(r"([\w-]+)(?:\[[\w,]+\])?([^;]*)", requirement)
    assert found is not None, requirement
    return found[1].lower(), found[2].strip()
