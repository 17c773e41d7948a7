"""`--engine` and `--master`: episodes in this process or on Spark's executors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from dsp_gym.errors import ConfigError, did_you_mean

__all__ = [
    "ENGINES",
    "ENGINE_OPTION",
    "MASTER_OPTION",
    "RESUME_OPTION",
    "SETTING_OPTION",
    "count",
    "spark_engine",
]

ENGINES = ("local", "spark")

ENGINE_OPTION = typer.Option(
    help="local: this process; spark: spread over executors. The results are the same.",
    autocompletion=lambda: list(ENGINES),
)
MASTER_OPTION = typer.Option(
    help="Spark's master: local[2], spark://host:7077, yarn, k8s://... Default: local[*].",
)
RESUME_OPTION = typer.Option("--resume", help="Continue an interrupted run, policy by policy.")
SETTING_OPTION = typer.Option(
    "--setting", metavar="KEY=VALUE", help="A setting of Spark, such as spark.executor.cores=4."
)


@contextmanager
def spark_engine(
    engine: str, name: str, master: str | None, settings: Sequence[str] | None
) -> Iterator[Any]:
    """The engines of a Spark session, None for the local one; the session ends with the block.

    Yields:
        The engines of `spark_pipelines.sweep`, or None with the local engine.
    """
    if engine not in ENGINES:
        raise ConfigError(
            f"there is no engine '{engine}'", key="--engine", remedy=did_you_mean(engine, ENGINES)
        )
    if engine == "local":
        for key, given in (("--master", master), ("--setting", settings)):
            if given:
                raise ConfigError(
                    "needs the Spark engine", key=key, value=given, remedy="Add --engine spark."
                )
        yield None
        return
    # By name: the library stands below the pipelines, and works without them and without Spark.
    sweep: Any = importlib.import_module("spark_pipelines.sweep")
    with sweep.spark_sweep(name, master, dict(map(_pair, settings or ()))) as engines:
        yield engines


@contextmanager
def count(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr; none without a terminal.

    Yields:
        A function of two numbers: how many more are done, and of how many in all.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (
        BarColumn(),
        TextColumn(f"{{task.completed:.0f}} of {{task.total:.0f}} {what}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None, start=False)

        def advance(more: int, total: int) -> None:
            bar.start_task(task)
            bar.update(task, advance=more, total=total)

        yield advance


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
