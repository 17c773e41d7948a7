"""Temporary files beside the file that they will replace, and locks of folders.

A writer holds a lock on its temporary file for as long as it lives. So one that nobody locks, and
that is not of this minute, belongs to a process that was killed; the next one that writes into the
folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsp_gym.config.text import in_words
from dsp_gym.errors import DspGymError, StorageError

__all__ = ["SUFFIX", "begun", "left_in", "only_writer", "sweep"]

SUFFIX = ".part"
_YOUNG_S, _YOUNG_UNLOCKED_S = 60.0, 86_400.0
_EARLIER = re.compile(
    r"\..+\.(?:csv|html|json|jsonl|md|parquet|safetensors|sig|svg|yaml)\."
    r"(?=.*[0-9_])(?=.*[a-z])[a-z0-9_]{8}"
)
"""What earlier releases called their temporary files: hidden, and eight letters and digits last."""

_SWEPT: set[Path] = set()
_LOCK = threading.Lock()


def begun(target: Path) -> tuple[int, str]:
    """Begin a file that is to replace another; what killed writes left in its folder is removed.

    Args:
        target: the file to be replaced; its folder is made if need be.

    Returns:
        An open descriptor, and the path of the temporary file.

    Raises:
        OSError: The file cannot be made.
    """
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _LOCK:
        is_first = folder not in _SWEPT
        _SWEPT.add(folder)
    if is_first:
        sweep(folder)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=f".{target.name}.", suffix=SUFFIX)
    with contextlib.suppress(OSError):  # a file system without locks: nobody sweeps there
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor, name


def sweep(folder: Path) -> list[Path]:
    """Remove temporary files whose writers are gone.

    Args:
        folder: looked through, without the folders in it.

    Returns:
        The files that were removed.
    """
    removed = left_in(folder)
    for file in removed:
        with contextlib.suppress(OSError):
            file.unlink()
    return removed


def left_in(folder: Path) -> list[Path]:
    """Find temporary files whose writers are gone.

    Args:
        folder: looked through, without the folders in it.

    Returns:
        The files, in the order of their names; none where the folder cannot be read.
    """
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") or not entry.is_file(follow_symlinks=False):
                continue
            status = entry.stat()
            age_s = time.time() - status.st_mtime
            if entry.name.endswith(SUFFIX):
                is_left = age_s > _YOUNG_S and _is_left(Path(entry.path))
            else:  # such a file was its owner's alone until it was whole
                is_private = stat.S_IMODE(status.st_mode) == 0o600
                is_old = age_s > _YOUNG_UNLOCKED_S
                is_left = is_old and is_private and _EARLIER.fullmatch(entry.name) is not None
            if is_left:
                found.append(Path(entry.path))
    return sorted(found)


def _is_left(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


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
