"""Images are named by digest: `deploy/pin.py` writes it, and without it no pod starts."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.kustomizing import agree_with_kubectl, render

DEPLOY = Path(__file__).parents[2] / "deploy"
PINS = {"registry.example/team/dsp-gym": "sha256:" + 64 * "a",
        "registry.example/team/dsp-gym-twins": "sha256:" + 64 * "c",
        "registry.example/team/dsp-gym-registry": "sha256:" + 64 * "b"}  # fmt: skip


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The folder `deploy` with an overlay of a site's own that fetches a policy."""
    folder = tmp_path / "deploy"
    shutil.copytree(DEPLOY, folder, symlinks=True)
    (folder / "overlays" / "mine").mkdir()
    (folder / "overlays" / "mine" / "kustomization.yaml").write_text(
        yaml.safe_dump({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
            "resources": ["../active"],
            "components": ["../../components/policy-from-registry", "../../components/twins"],
        }), encoding="utf-8",
    )  # fmt: skip
    return folder


def pin(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DEPLOY / "pin.py"), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def images(folder: Path) -> set[str]:
    """Of all containers of the site's overlay."""
    (found,) = (r for r in render(folder / "overlays" / "mine") if r["kind"] == "StatefulSet")
    spec = found["spec"]["template"]["spec"]
    return {container["image"] for container in spec["initContainers"] + spec["containers"]}


def test_an_image_that_nobody_has_pinned_does_not_start(copied: Path) -> None:
    for image in images(copied):
        name, _, digest = image.partition("@")
        assert name.startswith("registry.invalid/")  # RFC 2606: it is never resolved
        assert digest == "sha256:" + 64 * "0"
    done = pin(copied, "--check")
    assert done.returncode == 1
    for file in ("base/kustomization.yaml", "helm/values.yaml", "policy-from-registry"):
        assert file in done.stderr


def test_digests_are_written_into_manifests_and_chart(copied: Path) -> None:
    before = (copied / "base" / "kustomization.yaml").read_text(encoding="utf-8")
    done = pin(copied, *(f"{name}@{digest}" for name, digest in PINS.items()))
    assert (done.returncode, done.stdout) == (0, "6 places pinned\n"), done.stderr
    assert images(copied) == {f"{name}@{digest}" for name, digest in PINS.items()}
    values = yaml.safe_load((copied / "helm" / "values.yaml").read_text(encoding="utf-8"))
    written = [values[key]["image"] for key in ("twins", "registry")]
    written.append({key: values["image"][key] for key in ("repository", "digest")})
    assert {one["repository"]: one["digest"] for one in written} == PINS
    assert pin(copied, "--check").returncode == 0
    after = (copied / "base" / "kustomization.yaml").read_text(encoding="utf-8")
    assert len(set(before.splitlines()) - set(after.splitlines())) == 2  # comments stay


@pytest.mark.parametrize(
    "image",
    ["registry.example/dsp-gym:0.1.0", "registry.example/dsp-gym@sha256:abc",
     "registry.example/dsp-gym@sha256:" + 64 * "0", "registry.example/other@sha256:" + 64 * "a"],
)  # fmt: skip
def test_what_pins_nothing_is_refused_and_changes_nothing(copied: Path, image: str) -> None:
    before = (copied / "helm" / "values.yaml").read_bytes()
    done = pin(copied, image)
    assert done.returncode == 2
    assert image in done.stderr
    assert (copied / "helm" / "values.yaml").read_bytes() == before


def test_a_site_of_its_own_renders_as_kubectl_does(copied: Path) -> None:
    agree_with_kubectl(copied / "overlays" / "mine")


def test_the_recipe_for_ci_builds_what_there_is_and_pins_it() -> None:
    jobs = yaml.safe_load((DEPLOY / "image-workflow.yaml").read_text(encoding="utf-8"))["jobs"]
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    built = {one["image"]: one["target"] for one in jobs["build"]["strategy"]["matrix"]["include"]}
    assert {name.rpartition("/")[2] for name in PINS} == built.keys()
    for target in built.values():
        assert f" AS {target}\n" in dockerfile
    (push,) = (one["with"] for one in jobs["build"]["steps"] if one.get("id") == "push")
    assert (push["file"], push["sbom"], push["push"]) == ("deploy/Dockerfile", True, True)
    said = "\n".join(one.get("run", "") for job in jobs.values() for one in job["steps"])
    (sbom,) = set(re.findall(r"/opt/dsp-gym/\S+\.json", said))
    assert f"--output-file {sbom}" in dockerfile
    assert "python deploy/pin.py $(cat pushed/*/*.txt)\npython deploy/pin.py --check" in said


def test_what_the_images_are_built_with_cannot_be_moved() -> None:
    recipe = (DEPLOY / "image-workflow.yaml").read_text(encoding="utf-8")
    actions = re.findall(r"uses: *(\S+)", recipe)
    assert len(actions) == 9
    assert not [name for name in actions if not re.search(r"@[0-9a-f]{40}$", name)]
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON=\S+@sha256:[0-9a-f]{64}$", dockerfile, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)) == {"python:${PYTHON}"}


def test_runbooks_are_named_in_alerts_and_chart(copied: Path) -> None:
    page = "https://docs.example/dsp-gym/alerts/"
    assert pin(copied, "--runbooks", page).returncode == 0
    (rules,) = (r for r in render(copied / "monitoring") if r["kind"] == "PrometheusRule")
    named = [r["annotations"]["runbook_url"] for g in rules["spec"]["groups"] for r in g["rules"]]
    assert {url.partition("#")[0] for url in named} == {page}
    values = yaml.safe_load((copied / "helm" / "values.yaml").read_text(encoding="utf-8"))
    assert values["monitoring"]["runbooks"] == page
    done = pin(copied, "--runbooks", "docs.example/alerts")
    assert done.returncode == 2
    assert "'docs.example/alerts' is no page" in done.stderr
