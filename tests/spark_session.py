"""One small Spark session for all tests of a process: it takes seconds to start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_LIVED = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of a JVM that lives for minutes: C2 would compute half of the time, and save less."""

SMALL = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "true",
    # Compiling plans takes a third of the time, and saves little on so few rows. Commands that
    # tests start as a user does have it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
}
"""Settings beside those of every session."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores; skipped without PySpark, but not in CI."""
    if "CI" not in os.environ:
        pytest.importorskip("pyspark", reason="PySpark is not installed: the extra 'spark'")
    from spark_pipelines.session import spark_session

    on_interrupt = signal.getsignal(signal.SIGINT)
    with spark_session("tests", "local[2]", SMALL) as session:
        # Other tests of this process tell what Ctrl-C does to them, not to Spark.
        signal.signal(signal.SIGINT, on_interrupt)
        yield session
