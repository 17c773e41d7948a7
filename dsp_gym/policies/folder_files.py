"""Files of a policy's folder, read as what somebody else has written.

A folder comes from a registry, an archive or another user. A FIFO in it would hang its reader, a
link could show any file of the machine, and a file without an end would fill the memory.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dsp_gym.errors import PolicyError

_IRREGULAR = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device", stat.S_IFDIR: "a folder",
}  # fmt: skip


def read_regular(file: Path, most_bytes: int, folder: Path | None = None) -> bytes:
    """Read a regular file that is not too large.

    Args:
        file: the file.
        most_bytes: bytes it may have.
        folder: folder that it, or the file that it links to, has to be in; default: the file's own.

    Returns:
        Its content.

    Raises:
        PolicyError: It is no regular file, is linked from elsewhere, or is too large.
        OSError: It cannot be read.
    """
    inside, found = (folder or file.parent).resolve(), file.resolve()
    if not found.is_relative_to(inside):
        raise PolicyError(
            f"is a link out of its folder, to {found}",
            file=file,
            remedy="Put the file itself there.",
        )
    # Without O_NONBLOCK opening a FIFO waits for a writer.
    descriptor = os.open(found, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            what = _IRREGULAR.get(stat.S_IFMT(status.st_mode), "no file")
            raise PolicyError(f"is {what}, and no regular file", file=file)
        content = stream.read(most_bytes + 1)
    if len(content) > most_bytes:
        size = max(status.st_size, len(content))
        raise PolicyError(
            f"has {size:,} bytes, {most_bytes:,} are the most",
            file=file,
            remedy="Is it a policy's file?",
        )
    return content
