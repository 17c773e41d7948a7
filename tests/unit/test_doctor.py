from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym import doctor
from dsp_gym.cli import app
from dsp_gym.doctor import Finding, diagnose, has_problems, other_owners


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Asking every installed distribution for its packages, and Java, takes seconds."""
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))


def found(subject: str, name: str) -> Finding:
    (finding,) = [f for f in diagnose() if (f.subject, f.name) == (subject, name)]
    return finding


def test_versions_of_the_core_are_named() -> None:
    assert found("version", "gymnasium").detail == metadata.version("gymnasium")


def test_an_absent_extra_comes_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = doctor.installed_version
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: None if name == "torch" else real(name)
    )
    finding = found("extra", "train")
    assert finding.status == "missing"
    assert finding.detail == "not installed: torch"
    assert finding.remedy == "pip install 'dsp-gym[train]'"
    assert not has_problems([finding])


def test_every_extra_is_listed_with_what_it_is_for() -> None:
    listed = {f.name: f.purpose for f in diagnose() if f.subject == "extra"}
    offered = set(metadata.metadata("dsp-gym").get_all("Provides-Extra"))
    assert set(listed) == offered == set(doctor.PURPOSES)
    assert "tune" in offered
    assert all(listed.values())


def test_another_distribution_that_took_our_name_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owners = {"agents": ["dsp_gym", "openai-agents"], "baselines": ["dsp-gym"]}
    monkeypatch.setattr(metadata, "packages_distributions", lambda: owners)
    assert other_owners("agents", owners) == ["openai-agents"]
    assert other_owners("baselines", owners) == []
    finding = found("names", "agents")
    assert finding.status == "problem"
    assert finding.remedy == "pip uninstall openai-agents"
    assert has_problems([finding])


def test_a_cache_that_cannot_be_written_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    assert found("cache", "compiled code").status == "ok"
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/none")
    finding = found("cache", "compiled code")
    assert finding.status == "problem"
    assert "/proc/none" in finding.detail


def test_java_that_does_not_run_is_told_apart_from_none(tmp_path: Path) -> None:
    assert "there is no" in found("java", "java").detail
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2\n")
    java.chmod(0o755)
    assert found("java", "java").detail == f'{java}: openjdk version "17"'
    java.write_text("#!/bin/sh\nexit 3\n")
    assert "does not run" in found("java", "java").detail


def test_what_a_local_flink_lacks_comes_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = found("flink", "prometheus")
    assert finding.status == "missing"
    assert "apt-get install prometheus" in str(finding.remedy)
    java = found("java", "java")
    assert java.status == "missing"
    assert "apt-get install openjdk-17-jdk-headless" in str(java.remedy)
    assert not has_problems([finding, java])


def test_a_data_folder_that_does_not_exist_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DSP_GYM_DATA", raising=False)
    assert found("data", "DSP_GYM_DATA").status == "missing"
    monkeypatch.setenv("DSP_GYM_DATA", str(tmp_path / "none"))
    assert found("data", "DSP_GYM_DATA").status == "problem"
    monkeypatch.setenv("DSP_GYM_DATA", str(tmp_path))
    assert found("data", "DSP_GYM_DATA").status == "ok"


def test_the_command_ends_with_1_exactly_when_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSP_GYM_DATA", str(tmp_path))
    good = CliRunner().invoke(app, ["doctor", "--json"])
    problems = [f["name"] for f in json.loads(good.stdout) if f["status"] == "problem"]
    assert good.exit_code == (1 if problems else 0)
    monkeypatch.setenv("DSP_GYM_DATA", str(tmp_path / "none"))
    assert CliRunner().invoke(app, ["doctor"]).exit_code == 1


def test_the_java_of_spark_is_named_apart_from_that_of_flink(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spark_pipelines import session as java

    monkeypatch.setattr(java, "java_home", lambda: java.JavaHome(Path("/x"), "25 of a wheel"))
    assert found("spark", "java").detail == "25 of a wheel"


def test_without_any_java_the_doctor_says_what_installs_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from spark_pipelines import session as java

    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "wheel_home", lambda: None)
    finding = found("spark", "java")
    assert finding.status == "missing"
    assert "dsp-gym[spark]" in finding.remedy
