"""The images list their contents: the Dockerfile's step, run on an environment here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / ".venv-sbom" / "bin" / "cyclonedx-py"


def steps() -> list[str]:
    """The lines of the Dockerfile that write an SBOM, as a shell reads them."""
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if line.startswith("RUN") and "cyclonedx" in line]


def test_every_image_gets_one_after_all_is_installed_and_the_tool_is_removed() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
    stages = re.split(r"^FROM ", text, flags=re.M)[1:]
    written = {stage.split()[2]: stage for stage in stages if "sbom.cdx.json" in stage}
    assert written.keys() == {"shadow", "twins", "registry"}
    for stage in written.values():
        before, _, after = stage.partition("RUN python -m venv /tmp/sbom")
        assert "pip install" in before
        assert "pip install" not in after.partition("USER")[0].partition("&& rm -rf /tmp/sbom")[2]
        assert "rm -rf /tmp/sbom" in after
    for name in ("shadow", "twins"):
        assert "trim.py --most-mb" in written[name].partition("/tmp/sbom")[0]  # what is left


def test_the_tests_use_the_version_of_the_images() -> None:
    named = {found for step in steps() for found in re.findall(r"cyclonedx-bom==\S+", step)}
    assert set(re.findall(r"cyclonedx-bom==\S+", (ROOT / "Makefile").read_text())) == named
    assert len(named) == 1


@pytest.mark.validate
def test_the_step_writes_a_valid_sbom_of_the_environment_it_is_given(tmp_path: Path) -> None:
    """Of the tool's own: that of all tests has four hundred packages, which take half a minute."""
    if not TOOL.exists() and "CI" not in os.environ:
        pytest.skip("no cyclonedx-py: make .venv-sbom")
    commands = {
        " ".join(command.split())
        for step in steps()
        for command in re.findall(r"\S+cyclonedx-py .*?(?= &&)", step)
    }
    (command,) = commands  # the same in all images
    target = tmp_path / "sbom.cdx.json"
    for name, here in (
        ("/tmp/sbom/bin/cyclonedx-py", TOOL),
        ("/opt/dsp-gym/sbom.cdx.json", target),
        ('"$(command -v python)"', TOOL.parent / "python"),
    ):
        assert name in command
        command = command.replace(name, str(here))
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text(encoding="utf-8"))
    assert_valid(document)
    listed = {component["name"].lower(): component for component in document["components"]}
    (packages,) = TOOL.parents[1].glob("lib/python*/site-packages")
    there = {str(one.metadata["Name"]).lower(): one.version
             for one in metadata.distributions(path=[str(packages)])}  # fmt: skip
    assert {name: one["version"] for name, one in listed.items()} == there
    assert listed["cyclonedx-bom"]["purl"] == f"pkg:pypi/cyclonedx-bom@{there['cyclonedx-bom']}"
    depends = {one["ref"]: one.get("dependsOn", []) for one in document["dependencies"]}
    assert listed["packaging"]["bom-ref"] in depends[listed["cyclonedx-bom"]["bom-ref"]]
    assert "serialNumber" not in document  # of one environment there is one file


def assert_valid(document: dict[str, Any]) -> None:
    """Hold an SBOM against CycloneDX's own schema, by another validator than its writer's."""
    import jsonschema
    from referencing import Registry, Resource

    (folder,) = (ROOT / ".venv-sbom").glob("lib/python*/site-packages/cyclonedx/schema/_res")
    schemas = {
        f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json": json.loads(
            (folder / f"{name}.SNAPSHOT.schema.json").read_text(encoding="utf-8")
        )
        for name in ("bom-1.6", "spdx", "jsf-0.82")
    }
    registry: Registry[Any] = Registry().with_resources(
        (name, Resource.from_contents(schema)) for name, schema in schemas.items()
    )
    schema = schemas["http://cyclonedx.org/schema/bom-1.6.SNAPSHOT.schema.json"]
    jsonschema.Draft7Validator(schema, registry=registry).validate(document)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft7Validator(schema, registry=registry).validate(
            {**document, "components": [{"name": "nameless type"}]}
        )
