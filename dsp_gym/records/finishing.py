"""A lock beside a journal: a second process stands by to finish the rescale that is under way.

It is not the lock of the journal's writer, which the first process holds until it ends. The second
holds this one from before the job is stopped until the rescale has ended, so that a restarted
process knows whether somebody finishes what its predecessor began.
"""

from __future__ import annotations

import fcntl
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dsp_gym.errors import StorageError

_LOG = logging.getLogger(__name__)

_FILE = "finishing"
_LOOK_S = 0.1
_PATIENCE_S = 1.0
"""For how long a restarted process may look at the lock."""


def stood_by(folder: Path) -> IO[bytes]:
    """Take the lock; it is held until every process that was given the file has closed it.

    Args:
        folder: of the journal.

    Returns:
        The file, open.

    Raises:
        StorageError: Another process finishes a rescale.
    """
    until_s = time.monotonic() + _PATIENCE_S
    while True:
        if (file := _taken(folder)) is not None:
            return file
        if time.monotonic() > until_s:
            raise StorageError("another process finishes a rescale of this journal", file=folder)
        time.sleep(_LOOK_S / 10)


def is_stood_by(folder: Path) -> bool:
    """Find out whether a second process stands by, or finishes a rescale.

    Args:
        folder: of the journal.

    Returns:
        False also where none ever has.
    """
    if not (folder / _FILE).exists():
        return False
    file = _taken(folder)
    if file is not None:
        file.close()
    return file is None


def wait_until_finished(folder: Path, stopped: Callable[[], bool]) -> None:
    """Wait while a second process finishes a rescale; it has its time limits.

    Args:
        folder: of the journal.
        stopped: whether to wait no longer.
    """
    is_told = False
    while is_stood_by(folder) and not stopped():
        if not is_told:
            _LOG.warning("%s: a second process finishes the last rescale; waiting", folder)
            is_told = True
        time.sleep(_LOOK_S)


def _taken(folder: Path) -> IO[bytes] | None:
    file = (folder / _FILE).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file
