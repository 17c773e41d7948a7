"""Where trainings stand: a folder each, `runs/NAME/2026-11-22T10-00-00`, and a link to the newest.

Before each had its own, a training wrote into `runs/NAME` itself; such folders are found too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from dsp_gym.errors import StorageError
from dsp_gym.evaluation.labels import BEGUN, LATEST, POLICY

RUNS = Path("runs")
LOCK = ".lock"


@contextmanager
def folder_of_its_own(name: str, now: datetime | None = None) -> Iterator[Path]:
    """Make the folder of a new training, and lets `runs/NAME/latest` lead to it.

    Args:
        name: Of the experiment.
        now: When it begins; None: now.

    Yields:
        The folder. If nothing was written into it when the block ends, it is removed, and the link
        leads to the newest of the others.

    Raises:
        StorageError: The folder cannot be made.
    """
    home = RUNS / name
    try:
        folder = _made(home, now or datetime.now(UTC))
        _lead(home, folder.name)
    except OSError as error:
        raise StorageError(
            f"cannot be written: {error.strerror or error}",
            file=home,
            remedy="Choose a folder that can be written to: --out FOLDER",
        ) from None
    try:
        yield folder
    finally:
        if {file.name for file in folder.iterdir()} <= {LOCK}:
            _forget(home, folder)


def newest_training(name: str) -> Path | None:
    """Return the newest training of an experiment.

    Args:
        name: Of the experiment.

    Returns:
        Its folder; None where there is none.
    """
    return next(iter(_trainings(name)), None)


def trained_policy(name: str) -> Path | None:
    """Return the policy of the newest training of an experiment that has come to its end.

    Args:
        name: Of the experiment.

    Returns:
        The policy's folder; None where there is none.
    """
    policies = (folder / POLICY for folder in _trainings(name))
    return next((policy for policy in policies if (policy / "policy.json").is_file()), None)


def _trainings(name: str) -> list[Path]:
    """Return the folders of an experiment's trainings, the newest first."""
    home = RUNS / name
    own = [folder for folder in home.glob("*") if BEGUN.fullmatch(folder.name)]
    before = [home] if (home / POLICY).is_dir() or any(home.glob("seed-*")) else []
    return [*sorted(own, key=_begun, reverse=True), *before]


def _begun(folder: Path) -> tuple[str, int]:
    """Return the time in a folder's name, and its number among those of that second."""
    return folder.name[:19], int(folder.name[20:] or 1)


def _made(home: Path, now: datetime) -> Path:
    begun = now.strftime("%Y-%m-%dT%H-%M-%S")
    home.mkdir(parents=True, exist_ok=True)
    for number in range(1, 1000):
        folder = home / (begun if number == 1 else f"{begun}-{number}")
        with suppress(FileExistsError):
            folder.mkdir()
            return folder
    raise OSError(f"a thousand trainings began at {begun}")


def _lead(home: Path, name: str) -> None:
    """Let the link lead to a training, unless something else has its name."""
    link, aside = home / LATEST, home / f".{LATEST}.{os.getpid()}"
    if link.exists() and not link.is_symlink():
        return
    aside.unlink(missing_ok=True)
    aside.symlink_to(name, target_is_directory=True)
    aside.replace(link)


def _forget(home: Path, folder: Path) -> None:
    """Remove the folder of a training that wrote nothing."""
    with suppress(OSError):
        (folder / LOCK).unlink(missing_ok=True)
        folder.rmdir()
        others = [one for one in _trainings(home.name) if one != home]
        if others:
            _lead(home, others[0].name)
        elif (home / LATEST).is_symlink():
            (home / LATEST).unlink()
            home.rmdir()
            home.parent.rmdir()
