"""Renders the kustomizations of `deploy/` as `kubectl kustomize` does, as far as they go.

Only what they use is understood; anything else is refused, so that nothing is silently left out.
`tests/packaging/test_deploy.py` holds it against kubectl where that is installed.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

__all__ = ["render"]

Resource = dict[str, Any]

_KNOWN = {"apiVersion", "kind", "resources", "components", "patches", "configMapGenerator"}


def render(folder: Path) -> list[Resource]:
    """The resources of a kustomization."""
    return copy.deepcopy(_rendered(folder))


@functools.cache
def _rendered(folder: Path) -> list[Resource]:
    document = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    unknown = set(document) - _KNOWN
    assert not unknown, f"{folder}: this renderer does not know {unknown}"
    found: list[Resource] = []
    for name in document.get("resources", ()):
        path = folder / name
        found += render(path) if path.is_dir() else _read(path)
    found += [_config_map(folder, entry) for entry in document.get("configMapGenerator", ())]
    patches = list(document.get("patches", ()))
    for name in document.get("components", ()):
        part = yaml.safe_load((folder / name / "kustomization.yaml").read_text(encoding="utf-8"))
        assert set(part) <= {"apiVersion", "kind", "patches"}, name
        patches = [*part["patches"], *patches]
    for patch in patches:
        found = [_patched(resource, patch) for resource in found]
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
