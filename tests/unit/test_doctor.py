from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dsp_gym import doctor
from dsp_gym.backends.flink.versions import supported
from dsp_gym.cli import app
from dsp_gym.doctor import Finding, diagnose, has_problems, of_cluster
from dsp_gym.shared_names import other_owners
from tests.answering import answering


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


def test_an_old_gymnasium_is_a_problem_with_the_command_that_replaces_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = doctor.installed_version
    monkeypatch.setattr(
        doctor, "installed_version", lambda name: "1.0.0" if name == "gymnasium" else real(name)
    )
    finding = found("version", "gymnasium")
    assert finding.status == "problem"
    assert "Gymnasium 1.0.0 is installed" in finding.detail
    assert "pip install 'gymnasium>=" in finding.remedy


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
    assert "Python imports ours" in finding.detail
    # Uninstalling alone takes our __init__.py away.
    assert "pip uninstall openai-agents && pip install --force-reinstall" in finding.remedy
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


def seen_of(version: str, scheduler: str | None = None) -> dict[str, Finding]:
    """What is found of a Flink that answers."""
    with answering() as flink:
        flink.answers["/overview"] = {"flink-version": version}
        if scheduler is not None:
            settings = [{"key": "jobmanager.scheduler", "value": scheduler}]
            flink.answers["/jobmanager/config"] = settings
        return {one.name: one for one in of_cluster(flink.url)}


def statuses(found: dict[str, Finding]) -> list[str]:
    return [one.status for one in found.values()]


def test_a_cluster_is_said_to_be_read_and_changed_as_it_was_tested() -> None:
    found = seen_of("2.1.0")
    names = [
        "version",
        "reading",
        "change in place",
        "change by redeploying",
        "memory per operator",
    ]
    assert list(found) == names
    assert found["version"].detail.startswith("Flink 2.1.0 at http://127.0.0.1:")
    assert statuses(found) == ["ok", "ok", "missing", "ok", "ok"]
    assert "default scheduler" in found["change in place"].detail
    assert "jobmanager.scheduler: adaptive" in str(found["change in place"].remedy)


def test_the_adaptive_scheduler_changes_parallelism_in_place_and_no_memory() -> None:
    found = seen_of("2.1.0", "Adaptive")
    assert statuses(found) == ["ok", "ok", "ok", "ok", "missing"]
    assert "same memory" in found["memory per operator"].detail


@pytest.mark.parametrize("row", supported(), ids=lambda row: row.version)
def test_a_release_is_changed_in_no_way_that_was_not_tested(row) -> None:
    found = seen_of(f"{row.version}.7", "adaptive" if row.in_place else "default")
    assert found["reading"].status == "ok"
    if not row.redeploy:
        assert statuses(found)[2:] == ["missing"] * 3
        assert f"not tested on Flink {row.version}; tested on 2.1" in (
            found["change by redeploying"].detail
        )
    assert not has_problems(list(found.values()))


@pytest.mark.parametrize("version", ["1.17.2", "3.0.0", "unknown"])
def test_a_release_that_is_not_known_is_a_problem(version) -> None:
    (found,) = seen_of(version).values()
    assert found.status == "problem"
    assert f"is Flink {version}; this release reads Flink 1.18 to 2.3" in found.detail
    assert "Update dsp-gym" in str(found.remedy)


def test_a_cluster_that_does_not_answer_is_a_problem() -> None:
    (found,) = of_cluster("http://127.0.0.1:1")
    assert found.status == "problem"
    assert "Connection refused" in found.detail


def test_the_command_shows_the_cluster_last() -> None:
    with answering() as flink:
        flink.answers["/overview"] = {"flink-version": "1.20.1"}
        done = CliRunner().invoke(app, ["doctor", "--flink", flink.url, "--json"])
        text = CliRunner().invoke(app, ["doctor", "--flink", flink.url])
    found = [(one["name"], one["status"]) for one in json.loads(done.stdout)]
    assert found[-5:-3] == [("version", "ok"), ("reading", "ok")]
    assert {status for _, status in found[-3:]} == {"missing"}
    assert "cluster: change in place" in text.stdout
