"""`--engine`, `--master` and `--workers`: work on this machine's cores or on Spark's executors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from dsp_gym.cli.options import ENGINES
from dsp_gym.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from dsp_gym.engine import Engine

__all__ = [
    "cells_bar",
    "open_engine",
]

_SPARK_MASTER = "spark://"


@contextmanager
def open_engine(
    name: str,
    engine: str,
    master: str | None,
    settings: Sequence[str] | None,
    workers: int | None,
    decisions: int,
) -> Iterator[Engine]:
    """The engine of a command line; its workers or its Spark session end with the block.

    Args:
        name: Of Spark's application.
        engine: `local`, `spark` or `spark://HOST:PORT`.
        master: Of Spark.
        settings: Of Spark, each KEY=VALUE.
        workers: Processes of the local engine; as many as the decisions pay for when None.
        decisions: Of all the work.

    Yields:
        The engine.
    """
    from dsp_gym.engine import LocalEngine, worth

    if engine.startswith(_SPARK_MASTER) and master is None:
        engine, master = "spark", engine
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
        with LocalEngine(workers or worth(decisions)) as local:
            yield local
        return
    if workers is not None:
        raise ConfigError(
            "is of the local engine",
            key="--workers",
            value=workers,
            remedy="Set Spark's own: --master 'local[4]', or --setting spark.executor.instances=4.",
        )
    # By name: the library stands below the pipelines, and works without them and without Spark.
    sweep: Any = importlib.import_module("spark_pipelines.sweep")
    with sweep.spark_engine(name, master, dict(map(_pair, settings or ()))) as spark:
        yield spark


@contextmanager
def cells_bar(what: str) -> Iterator[Callable[[str, float, int], None]]:
    """A progress bar on stderr over cells of work; a line a minute without a terminal.

    Args:
        what: The cells in the plural: runs, episodes.

    Yields:
        A function of a label, how many cells are done (a part of one counts), and how many in all.
    """
    from dsp_gym.cli.progress import bar, cells_columns

    with bar(*cells_columns()) as shown:
        task = shown.add_task(what, total=None, start=False, said="")

        def observe(label: str, done: float, total: int) -> None:
            shown.start_task(task)
            said = f"{done:.0f} of {total} {what}"
            shown.update(task, description=label, completed=done, total=total, said=said)

        yield observe


def _pair(setting: str) -> tuple[str, str]:
    key, equals, value = setting.partition("=")
    if not equals or not key.startswith("spark."):
        raise ConfigError(
            "is not a setting of Spark",
            key="--setting",
            value=setting,
            remedy="Write spark.KEY=VALUE.",
        )
    return key, value
