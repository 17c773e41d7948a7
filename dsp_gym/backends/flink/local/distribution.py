"""What a local cluster runs on: Flink's libraries, a Java, Prometheus, and the jar of our jobs."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.errors import FlinkError, MissingExtraError

OLDEST_JAVA = 17
"""Flink 2.1 does not start on an older one; it recommends 17."""

INSTALL_JAVA = "Install one: apt-get install openjdk-17-jdk-headless"
INSTALL_PROMETHEUS = "Install it: apt-get install prometheus, or go without: --no-prometheus"

# Flink reaches into these packages; its own start scripts open them the same way.
_OPENED = (
    "java.util",
    "java.lang",
    "java.time",
    "java.nio",
    "sun.nio.ch",
    "java.lang.reflect",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "java.util.concurrent.locks",
    "java.net",
    "java.io",
    "java.text",
)


@dataclass(frozen=True, slots=True)
class FlinkLibraries:
    """The unpacked package `apache-flink-libraries`."""

    folder: Path
    version: str

    @property
    def lib(self) -> Path:
        """Jars of the class path."""
        return self.folder / "lib"

    @property
    def plugins(self) -> Path:
        """Plugins; the Prometheus reporter is one."""
        return self.folder / "plugins"

    @property
    def class_path(self) -> str:
        """What `java -cp` is given."""
        return os.pathsep.join(str(jar) for jar in sorted(self.lib.glob("*.jar")))


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs."""

    path: Path
    version: str  # first line of `java -version`

    @property
    def flags(self) -> list[str]:
        """What Flink needs of it, whatever the process."""
        opened = (f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED)
        return ["-XX:+IgnoreUnrecognizedVMOptions", *opened]


def find_libraries() -> FlinkLibraries:
    """Find Flink's jars without importing anything of Flink.

    Returns:
        Their folders and class path.

    Raises:
        MissingExtraError: Flink's libraries are not installed.
        FlinkError: Something else took the name, or parts are missing.
    """
    spec = importlib.util.find_spec("pyflink")
    places = list(spec.submodule_search_locations or []) if spec else []
    if not places:
        raise MissingExtraError("flink", "a local Flink cluster")
    folder = Path(places[0])
    found = [re.fullmatch(r"flink-dist-(.+)\.jar", jar.name) for jar in folder.glob("lib/*.jar")]
    versions = [match[1] for match in found if match]
    if len(versions) != 1:
        wrong = f"several versions ({', '.join(sorted(versions))})" if versions else "no flink-dist"
        raise FlinkError(
            f"holds {wrong} in lib/, expected one",
            file=folder,
            remedy="Install Flink's libraries again: "
            "pip install --force-reinstall 'dsp-gym[flink]'",
        )
    return FlinkLibraries(folder, versions[0])


def find_java() -> Java:
    """Find the Java of JAVA_HOME, else the one on the PATH.

    Returns:
        The command and its major version.

    Raises:
        FlinkError: No Java is found, or it does not run, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    named = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if named is None:
        raise FlinkError(
            "no Java: JAVA_HOME is not set and no 'java' is on the PATH", remedy=f"{INSTALL_JAVA}."
        )
    if not Path(named).is_file():
        raise FlinkError(
            f"JAVA_HOME is {home}, but there is no {named}",
            remedy=f"Point JAVA_HOME to a JDK, or unset it. {INSTALL_JAVA}.",
        )
    try:
        answer = subprocess.run(
            [named, "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FlinkError(f"{named} does not run: {error}", remedy=f"{INSTALL_JAVA}.") from error
    lines = (answer.stderr or answer.stdout).splitlines()
    version = next((line for line in lines if "version" in line), "version unknown")
    major = java_major(version)
    if major is None or major < OLDEST_JAVA:
        raise FlinkError(
            f"{named} is {version}; Flink 2.1 and its jobs need Java {OLDEST_JAVA} or newer",
            remedy=f"{INSTALL_JAVA}, or point JAVA_HOME to one.",
        )
    return Java(Path(named), version)


def java_major(version: str) -> int | None:
    """The major version in a line of `java -version`; None where there is none.

    Returns:
        The number, 8 for the old form `1.8`; None where the line holds no version.

    >>> java_major('openjdk version "17.0.15" 2025-04-15'), java_major('java version "1.8.0_392"')
    (17, 8)
    """
    match = re.search(r'"(?:1\.)?(\d+)', version)
    return int(match[1]) if match else None


def find_prometheus() -> Path:
    """The Prometheus on the PATH.

    Returns:
        Path of the program.

    Raises:
        FlinkError: No `prometheus` is on the PATH.
    """
    found = shutil.which("prometheus")
    if found is None:
        raise FlinkError("no 'prometheus' is on the PATH", remedy=f"{INSTALL_PROMETHEUS}.")
    return Path(found)


def same_minor(one: str, other: str) -> bool:
    """Whether two versions of Flink differ in their last part at most.

    Returns:
        True where major and minor version are equal.

    >>> same_minor("2.1.0", "2.1.1"), same_minor("2.1.0", "2.0.0")
    (True, False)
    """
    return one.split(".")[:2] == other.split(".")[:2]


JAR = Path(__file__).resolve().parents[3] / "_jars" / "flink-jobs.jar"
"""Where `make flink-jobs` puts the jar, and a wheel carries it."""


def jobs_jar() -> Path:
    """Find the jar with the jobs of configs/jobs/flink-*.yaml.

    Returns:
        Its path.

    Raises:
        FlinkError: The jar was not built: a checkout before `make flink-jobs`, or a wheel of one.
    """
    if not JAR.is_file():
        raise FlinkError(
            "the jar with the Flink jobs has not been built",
            file=JAR,
            remedy="Build it in a checkout of dsp-gym, with a JDK 17: make flink-jobs",
        )
    return JAR
