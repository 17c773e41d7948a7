"""Temporary files beside the file that they will replace, and what killed writes leave of them.

A writer holds a lock on its temporary file for as long as it lives. So one that nobody locks, and
that is not of this minute, belongs to a process that was killed; the next one that writes into the
folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
import time
from pathlib import Path

__all__ = ["SUFFIX", "begun", "sweep"]

SUFFIX = ".part"
_YOUNG_S = 60.0
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
    removed = []
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            if not (entry.name.startswith(".") and entry.name.endswith(SUFFIX)):
                continue
            if time.time() - entry.stat().st_mtime > _YOUNG_S and _is_left(Path(entry.path)):
                removed.append(Path(entry.path))
    for file in removed:
        with contextlib.suppress(OSError):
            file.unlink()
    return removed


def _is_left(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
