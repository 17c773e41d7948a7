"""`--engine` and `--master`: whether cells are played here or on the executors of a Spark."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from dsp_gym.errors import ConfigError, did_you_mean

__all__ = ["ENGINES", "ENGINE_OPTION", "MASTER_OPTION", "SETTING_OPTION", "spark_engine"]

ENGINES = ("local", "spark")

ENGINE_OPTION = typer.Option(
    help="local: this process; spark: spread over executors. The results are the same.",
    autocompletion=lambda: list(ENGINES),
)
MASTER_OPTION = typer.Option(
    help="Spark's master: local[2], spark://host:7077, yarn, k8s://... Default: local[*].",
)
SETTING_OPTION = typer.Option(
    "--setting", metavar="KEY=VALUE", help="A setting of Spark, such as spark.executor.cores=4."
)


@contextmanager
def spark_engine(
    engine: str, name: str, master: str | None, settings: Sequence[str] | None
) -> Iterator[Any]:
    """The engines of a Spark session, None for the local one; the session ends with the block."""
    if engine not in ENGINES:
        raise ConfigError(
            f"there is no engine '{engine}'", key="--engine", remedy=did_you_mean(engine, ENGINES)
        )
    if engine == "local":
        for key, given in (("--master", master), ("--setting", settings)):
            if given:
                raise ConfigError(
                    "is for Spark", key=key, value=given, remedy="Add --engine spark."
                )
        yield None
        return
    # By name: the library stands below the pipelines, and works without them and without Spark.
    sweep: Any = importlib.import_module("spark_pipelines.sweep")
    with sweep.spark_sweep(name, master, dict(map(_pair, settings or ()))) as engines:
        yield engines


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.startswith("spark."):
        raise ConfigError(
            "is no setting of Spark",
            key="--setting",
            value=setting,
            remedy="Write spark.KEY=VALUE.",
        )
    return key, value
