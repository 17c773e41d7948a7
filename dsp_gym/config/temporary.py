"""Temporary files beside the file that they will replace, and locks of folders.

A writer holds a lock on its temporary file for as long as it lives. So one that nobody locks, and
that is not of this minute, belongs to a process that was killed; the next one that writes into the
folder removes it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dsp_gym.config.text import in_words
from dsp_gym.errors import DspGymError, StorageError

SUFFIX = ".part"
_YOUNG_S = 60.0
_SWEPT: set[Path] = set()
_LOCK = threading.Lock()


@contextmanager
def replacing(target: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of another when the block ends, whole or not at all.

    Args:
        target: the file to be replaced; its folder is made if need be.
        private: only its owner may read it.

    Yields:
        A stream into a temporary file beside the target; it is synced before it takes its place,
        and the folder after it, so that the new name outlives a crash of the machine.

    Raises:
        StorageError: The file cannot be written; the one before is unchanged.
    """
    temporary: str | None = None
    try:
        descriptor, temporary = begun(target)
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes private files; a result is as readable as any other file of the user.
        os.chmod(temporary, 0o600 if private else 0o666 & ~_umask())
        os.replace(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        why, remedy = _obstacle(target) or (
            error.strerror or str(error),
            "Free some space, or choose a folder that can be written to.",
        )
        raise StorageError(
            f"cannot be written: {why}; nothing was left half-written", file=target, remedy=remedy
        ) from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def exchange_folder(fresh: Path, target: Path, aside: Path) -> None:
    """Put a folder in the place of another; if that is interrupted, the other one is back.

    Args:
        fresh: the folder to put in place.
        target: its place; an older folder may be there.
        aside: folder on the same file system that receives the older one.

    Raises:
        OSError: A folder cannot be renamed.
    """
    old = aside / "old"
    try:
        if target.exists():
            target.rename(old)
        fresh.rename(target)
    except BaseException:  # Ctrl-C between the two renames, too
        if old.exists() and not target.exists():
            old.rename(target)
        raise


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
            is_old = time.time() - entry.stat().st_mtime > _YOUNG_S
            if is_old and entry.name.endswith(SUFFIX) and _is_left(Path(entry.path)):
                found.append(Path(entry.path))
    return sorted(found)


def _is_left(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _obstacle(target: Path) -> tuple[str, str] | None:
    """A file where a folder is needed, or the reverse, with the remedy: the system's words vary."""
    if target.is_dir():
        return "it is a folder", "Name a file."
    for folder in target.parents:
        if folder.is_file():
            return f"'{folder}' is a file, not a folder", "Choose another folder."
    return None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def synced(path: Path) -> None:
    """Make a file, or the names in a folder, outlive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a crash of the machine, where its file system can."""
    try:
        synced(folder)
    except OSError as error:
        # Some network and user-space file systems sync no folders, and a folder may be unreadable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM):
            raise


LOCK = ".lock"


@contextmanager
def only_writer(folder: Path, taken: DspGymError) -> Iterator[None]:
    """Keep other writers out of a folder; a killed process holds nothing.

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
