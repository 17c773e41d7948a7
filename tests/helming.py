"""A renderer of the chart of `deploy/helm` with Go's text/template and Sprig, as in Helm.

Helm itself is in no package registry; its templates are. `tests/packaging/helm/render.go` holds the
few functions that Helm adds.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import yaml

__all__ = ["CHART", "WHY_NOT", "checked", "merged", "render"]

CHART = Path(__file__).parents[1] / "deploy" / "helm"
SOURCE = Path(__file__).parent / "packaging" / "helm" / "render.go"
GO_PATH = Path("/usr/share/gocode")

Values = dict[str, Any]


def _why_not() -> str | None:
    if shutil.which("go") is None:
        return "no Go: apt-get install golang-go golang-github-masterminds-sprig-dev"
    if not (GO_PATH / "src" / "github.com" / "Masterminds" / "sprig").exists():
        return "no Sprig: apt-get install golang-github-masterminds-sprig-dev"
    return None


WHY_NOT = _why_not()
"""Why no chart can be rendered here; None: one can."""


def checked(changes: Mapping[str, Any] | None = None) -> Values:
    """The chart's values with changes merged into them, as its schema allows."""
    values: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    found = merged(values, changes or {})
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, schema, jsonschema.Draft7Validator)
    return found


def render(
    changes: Mapping[str, Any] | None = None,
    release: str = "dsp-gym",
    namespace: str = "dsp-gym",
) -> dict[str, str]:
    """The rendered templates by name, notes included."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    asked = {
        "templates": _texts("templates"),
        "files": {f"files/{name}": text for name, text in _texts("files").items()},
        "context": {
            "Values": checked(changes),
            "Release": {"Name": release, "Namespace": namespace, "Service": "Helm"},
            "Chart": {key.title(): value for key, value in chart.items()},
        },
    }
    done = subprocess.run(
        [str(_built())], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered: dict[str, str] = json.loads(done.stdout)
    return {name: text for name, text in rendered.items() if not name.endswith(".tpl")}


def _texts(folder: str) -> dict[str, str]:
    files = sorted((CHART / folder).iterdir())
    return {file.name: file.read_text(encoding="utf-8") for file in files}


def merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Values:
    """As Helm merges: maps into maps, anything else in place of what was there."""
    found = dict(values)
    for key, new in changes.items():
        old = found.get(key)
        deeper = isinstance(old, dict) and isinstance(new, dict)
        found[key] = merged(old, new) if deeper else new
    return found


@functools.cache
def _built() -> Path:
    """The renderer, compiled once a machine and source."""
    folder = Path(tempfile.mkdtemp(prefix="dsp-gym-helm-"))
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": str(GO_PATH), "GOFLAGS": ""}
    environment.setdefault("GOCACHE", str(Path(tempfile.gettempdir()) / "dsp-gym-go-cache"))
    command = ["go", "build", "-o", str(folder / "render"), str(SOURCE)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "render"
