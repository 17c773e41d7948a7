"""Files with credentials: of a user's own, or of a Secret."""

from __future__ import annotations

import sys
from pathlib import Path

from dsp_gym.errors import ConfigError

__all__ = ["private_text"]

_OTHERS_READ = 0o004


def private_text(file: Path, key: str) -> str:
    """What a file with credentials holds.

    Args:
        file: only its owner, and a group, may read it.
        key: of the configuration that names it.

    Returns:
        Its text, ASCII, without white space around it.

    Raises:
        ConfigError: The file cannot be read, or every user of this machine can read it.
    """
    try:
        text = file.read_text(encoding="ascii")
        mode = file.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot be read: {error}",
            file=file,
            key=key,
            remedy="Write the credentials into that file, in ASCII.",
        ) from None
    if sys.platform != "win32" and mode & _OTHERS_READ:
        raise ConfigError(
            f"every user of this machine can read it: its mode is {mode & 0o777:03o}",
            file=file,
            key=key,
            remedy=f"chmod 600 {file}; for a volume of a Secret: defaultMode: 0440",
        )
    return text.strip()
