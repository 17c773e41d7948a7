"""One writer of a folder at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsp_gym.config.text import in_words
from dsp_gym.errors import DspGymError, StorageError

__all__ = ["only_writer"]

LOCK = ".lock"


@contextmanager
def only_writer(folder: Path, taken: DspGymError) -> Iterator[None]:
    """Keeps other writers out of a folder; a killed process holds nothing.

    Args:
        folder: it is made if need be.
        taken: raised where another process holds the folder.

    Yields:
        Nothing; the folder is held until the block or the process ends.

    Raises:
        DspGymError: Another process writes into the folder: `taken`.
        StorageError: The folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("ab")
    except OSError as error:
        why = "it is a file" if folder.is_file() else in_words(error)
        raise StorageError(
            f"cannot be written: {why}",
            file=folder,
            remedy="Choose a folder that can be written to: --out FOLDER",
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            raise taken from None
        except OSError:
            pass  # a file system without locks: nobody can be kept out
        yield
