"""The file of a token: read again whenever it changes, since tokens of service accounts rotate."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class _Settings(Protocol):
    """What is signed with, of the client's configuration."""

    api_key: dict[str, str]


class TokenFile:
    """Signs calls with what the file says now; called by the client before each.

    Args:
        file: holds a token and nothing else.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.trouble: str | None = None
        """Why the file cannot be read; the token that was read last is used until it can."""
        self._read: tuple[int, int, int] | None = None

    def renew(self, settings: _Settings) -> bool:
        """Read the file again, although it looks unchanged: the server has refused the token.

        Returns:
            Whether it holds another token.
        """
        before, self._read = settings.api_key.get("BearerToken"), None
        self(settings)
        return settings.api_key.get("BearerToken") != before

    def __call__(self, settings: _Settings) -> None:
        """Give the client the token."""
        try:
            stat = self.file.stat()
            seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if seen != self._read:
                text = self.file.read_text(encoding="utf-8").strip()
                if not text:
                    self.trouble = "it is empty"
                    return
                settings.api_key["BearerToken"] = f"Bearer {text}"
                self._read = seen
            self.trouble = None
        except (OSError, UnicodeDecodeError) as error:
            said = error.strerror if isinstance(error, OSError) else None
            self.trouble = said or type(error).__name__
