from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dsp_gym.backends.flink.local import distribution
from dsp_gym.backends.flink.local.distribution import find_java, find_libraries, find_prometheus
from dsp_gym.errors import FlinkError, MissingExtraError


def java_in(folder: Path, version: str, status: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{version}' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


def test_java_of_java_home_goes_before_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = java_in(tmp_path / "home", 'openjdk version "21.0.2" 2024-01-16')
    other = java_in(tmp_path / "path", 'openjdk version "21.0.1"')
    monkeypatch.setenv("PATH", f"{other.parent}:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java().path == named
    monkeypatch.delenv("JAVA_HOME")
    assert find_java().path == other


def test_no_java_is_named_with_the_command_that_installs_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlinkError, match=r"no Java.*apt-get install openjdk-17-jdk-headless"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(FlinkError, match=r"JAVA_HOME is .*gone, but there is no"):
        find_java()


def test_a_java_too_old_or_broken_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java_in(tmp_path / "old", 'java version "1.8.0_392"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(FlinkError, match=r'"1\.8\.0_392"; Flink 2\.1 and its jobs need Java 17'):
        find_java()
    java_in(tmp_path / "broken", "cannot", status=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    with pytest.raises(FlinkError, match="does not run"):
        find_java()


def test_the_installed_libraries_are_found_without_importing_them() -> None:
    before = "pyflink" in sys.modules
    libraries = find_libraries()
    assert ("pyflink" in sys.modules) == before
    assert libraries.version.startswith("2.1.")
    assert f"flink-dist-{libraries.version}.jar" in libraries.class_path
    assert (libraries.plugins / "metrics-prometheus").is_dir()


def test_absent_or_doubled_libraries_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(distribution.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsp-gym\[flink\]'"):
        find_libraries()
    monkeypatch.undo()
    lib = tmp_path / "pyflink" / "lib"
    lib.mkdir(parents=True)
    (tmp_path / "pyflink" / "__init__.py").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "pyflink", raising=False)
    with pytest.raises(FlinkError, match="holds no flink-dist in lib"):
        find_libraries()
    for version in ("2.0.0", "2.1.0"):
        (lib / f"flink-dist-{version}.jar").touch()
    with pytest.raises(FlinkError, match=r"several versions \(2\.0\.0, 2\.1\.0\)"):
        find_libraries()


def test_no_prometheus_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FlinkError, match="apt-get install prometheus, or go without"):
        find_prometheus()
