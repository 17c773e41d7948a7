"""Renders the kustomizations of `deploy/` as `kubectl kustomize` does, as far as they go.

Only what they use is understood; anything else is refused, so that nothing is silently left out.
`tests/packaging/test_deploy.py` holds it against kubectl where that is installed.
"""

from __future__ import annotations

import copy
import functools
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

__all__ = ["agree_with_kubectl", "render"]

Resource = dict[str, Any]

_IN_A_COMPONENT = {"apiVersion", "kind", "resources", "patches", "images"}
_KNOWN = _IN_A_COMPONENT | {"components", "configMapGenerator"}


def render(folder: Path) -> list[Resource]:
    """The resources of a kustomization."""
    return copy.deepcopy(_rendered(folder))


@functools.cache
def _rendered(folder: Path) -> list[Resource]:
    document = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    unknown = set(document) - _KNOWN
    assert not unknown, f"{folder}: this renderer does not know {unknown}"
    found = _resources(folder, document)
    found += [_config_map(folder, entry) for entry in document.get("configMapGenerator", ())]
    for name in document.get("components", ()):
        part = yaml.safe_load((folder / name / "kustomization.yaml").read_text(encoding="utf-8"))
        assert set(part) <= _IN_A_COMPONENT, name
        found = _transformed(found + _resources(folder / name, part), part)
    return _transformed(found, document)


def _resources(folder: Path, document: dict[str, Any]) -> list[Resource]:
    found: list[Resource] = []
    for name in document.get("resources", ()):
        path = folder / name
        found += render(path) if path.is_dir() else _read(path)
    return found


def _transformed(found: list[Resource], document: dict[str, Any]) -> list[Resource]:
    """Patched first, then with images replaced."""
    for patch in document.get("patches", ()):
        found = [_patched(resource, patch) for resource in found]
    for image in document.get("images", ()):
        assert set(image) == {"name", "newName", "digest"}, image
        for resource in found:
            pod = resource.get("spec", {}).get("template", {}).get("spec", {})
            for container in pod.get("initContainers", []) + pod.get("containers", []):
                if re.split("[:@]", container["image"])[0] == image["name"]:
                    container["image"] = f"{image['newName']}@{image['digest']}"
    return found


def _read(path: Path) -> list[Resource]:
    # Aliases are one object in memory, and a patch of one must not change the other.
    return [copy.deepcopy(d) for d in yaml.safe_load_all(path.read_text(encoding="utf-8"))]


def _config_map(folder: Path, entry: dict[str, Any]) -> Resource:
    assert set(entry) <= {"name", "namespace", "files", "options"}, entry
    options = entry.get("options", {})
    assert options.get("disableNameSuffixHash"), "names with hashes are not rendered here"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": entry["name"],
            "namespace": entry["namespace"],
            "labels": options.get("labels", {}),
        },
        "data": {name: (folder / name).read_text(encoding="utf-8") for name in entry["files"]},
    }


def _patched(resource: Resource, patch: dict[str, Any]) -> Resource:
    target = patch["target"]
    if (resource["kind"], resource["metadata"]["name"]) != (target["kind"], target["name"]):
        return resource
    changed: Resource = jsonpatch.apply_patch(resource, yaml.safe_load(patch["patch"]))
    return changed


def agree_with_kubectl(folder: Path) -> None:
    """Hold this renderer against kubectl's."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl on the PATH")
    command = ["kubectl", "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unknown field" in done.stderr:  # kubectl before 1.21 knows no `patches`
        pytest.skip("this kubectl is too old")
    assert done.returncode == 0, done.stderr

    def keyed(resources: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
        return {(r["kind"], r["metadata"]["name"]): r for r in resources}

    assert keyed(list(yaml.safe_load_all(done.stdout))) == keyed(render(folder))
