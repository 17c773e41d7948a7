"""`--workers` and `--master`: work on this machine's cores or on Spark's executors."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dsp_gym.cli.progress import bar, cells_columns
from dsp_gym.engine import Engine, LocalEngine, worth
from dsp_gym.errors import ConfigError

if TYPE_CHECKING:
    from dsp_gym.evaluation.kept import KeptResults


@contextmanager
def open_engine(
    name: str, master: str | None, workers: int | None, decisions: int
) -> Iterator[Engine]:
    """Open the engine of a command line; its workers or its Spark session end with the block.

    Args:
        name: Name of Spark's application.
        master: Master of Spark; None runs on this machine.
        workers: Processes on this machine; None starts as many as the decisions pay for.
        decisions: Number of decisions in the whole work.

    Yields:
        The engine.
    """
    if master is None:
        with LocalEngine(workers or worth(decisions)) as local:
            yield local
        return
    if workers is not None:
        raise ConfigError(
            "counts processes on this machine, and --master names Spark",
            key="--workers",
            value=workers,
            remedy="Write --master 'local[4]', or set spark.executor.instances in "
            "$SPARK_CONF_DIR/spark-defaults.conf.",
        )
    # By name: the library stands below the pipelines, and works without them and without Spark.
    sweep: Any = importlib.import_module("spark_pipelines.sweep")
    with sweep.spark_engine(name, master) as spark:
        yield spark


@contextmanager
def cells_bar(what: str) -> Iterator[Callable[[str, float, int], None]]:
    """Draw a progress bar on stderr over cells of work; without a terminal, print a line a minute.

    Args:
        what: The cells in the plural: runs, episodes.

    Yields:
        A function of a label, how many cells are done (a part of one counts), and how many in all.
    """
    with bar(*cells_columns()) as shown:
        task = shown.add_task(what, total=None, start=False, said="")

        def observe(label: str, done: float, total: int) -> None:
            shown.start_task(task)
            said = f"{done:.0f} of {total} {what}"
            shown.update(task, description=label, completed=done, total=total, said=said)

        yield observe


@contextmanager
def kept_beside(
    folder: Path | None, resume: bool, overwrite: bool, what: str
) -> Iterator[KeptResults | None]:
    """Keep finished parts beside the results, and say so where Ctrl-C ends the block.

    Args:
        folder: Folder of the results; None: nothing is kept.
        resume: Whether parts that are there are taken over.
        overwrite: Whether parts that are there are removed.
        what: The kept parts with a place for their number, such as "{} replays".

    Yields:
        The kept parts.
    """
    from dsp_gym.evaluation.kept import KeptResults

    if folder is None:
        yield None
        return
    kept = KeptResults.beside(folder, resume=resume, overwrite=overwrite)
    try:
        yield kept
    except KeyboardInterrupt:
        if len(kept):
            typer.echo(
                f"Stopped; {what.format(len(kept))} are kept in {kept.folder}. "
                "Continue with the same command and --resume.",
                err=True,
            )
        raise
