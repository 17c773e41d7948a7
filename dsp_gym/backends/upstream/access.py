"""How a server is reached: its account, certificates and proxy, as configurations say it.

Everything is a file or an address, never a credential itself. Files are read again when they
change, since tokens and certificates are replaced while a process runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field, model_serializer, model_validator

from dsp_gym.config.files import parse, private_text, read_yaml
from dsp_gym.config.model import ConfigModel, Url
from dsp_gym.errors import ConfigError


class AccessConfig(ConfigModel):
    """Account, certificates and proxy with which a server is asked.

    The path of a file alone is that of the account.
    """

    file: Path | None = Field(
        None,
        description="file with the account, `user:password` or a bearer token; none: that of the "
        "URL, or of the file that NETRC names",
    )
    ca_file: Path | None = Field(
        None,
        description="certificates of the authorities that the server's own is checked with, PEM; "
        "none: those of REQUESTS_CA_BUNDLE, or the public ones",
    )
    cert_file: Path | None = Field(
        None, description="certificate that this client shows, PEM; none: it shows none"
    )
    key_file: Path | None = Field(
        None, description="private key of that certificate, PEM; none: it is in the same file"
    )
    proxy: Url | None = Field(
        None,
        description="proxy through which the server is asked; none: that of HTTP_PROXY, "
        "HTTPS_PROXY and NO_PROXY",
    )

    @model_validator(mode="before")
    @classmethod
    def _of_path(cls, data: Any) -> Any:
        return {"file": data} if isinstance(data, str | Path) else data

    @model_validator(mode="after")
    def _is_complete(self) -> AccessConfig:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is the key of a certificate: give its cert_file")
        return self

    @model_serializer(mode="wrap")
    def _as_path(self, handler: Any) -> Any:
        """Write a file alone as it was given."""
        made = handler(self)
        others = {key for key, value in made.items() if value is not None and key != "file"}
        return made if others else made["file"]

    @property
    def files(self) -> tuple[tuple[str, Path], ...]:
        """Every file by the name of its key."""
        named = (
            ("file", self.file),
            ("ca_file", self.ca_file),
            ("cert_file", self.cert_file),
            ("key_file", self.key_file),
        )
        return tuple((key, file.expanduser()) for key, file in named if file is not None)


def access_of(account: Path | None) -> AccessConfig | None:
    """Read what an option `--account` names.

    Args:
        account: a file with an account; or, as its name ends in `.yaml`, with the keys of
            `AccessConfig`.

    Returns:
        How to reach the server; None where nothing is named.

    Raises:
        ConfigError: The YAML file cannot be read, or has wrong keys.
    """
    if account is None or account.suffix not in (".yaml", ".yml"):
        return None if account is None else AccessConfig(file=account)
    return parse(AccessConfig, read_yaml(account), account)


Stamp = tuple[int, int, int] | None


class Credentials:
    """The account and certificates of an access, as its files hold them now.

    Args:
        access: how the server is reached; None: nothing is configured.
        key: of the configuration, for errors.

    Raises:
        ConfigError: A file cannot be read, or every user can read the account.
    """

    def __init__(self, access: AccessConfig | None, key: str) -> None:
        self.access, self._key = access or AccessConfig(), key
        self.account = ""
        self.trouble: str | None = None
        """Why a file cannot be read; what was read of it last is used until it can."""
        self._stamps: dict[str, Stamp] = {}
        for name, file in self.access.files:
            self._stamps[name] = stamp_of(file)
            if self._stamps[name] is None:
                raise ConfigError(
                    "there is no such file",
                    file=file,
                    key=key if name == "file" else f"{key}.{name}",
                )
        self._read()

    def changed(self, *, must_read: bool = False) -> bool:
        """Read again what has changed.

        Args:
            must_read: read the account even where its file looks unchanged: a server refused it.

        Returns:
            Whether the account, or a certificate, is another one than before.
        """
        stamps = {name: stamp_of(file) for name, file in self.access.files}
        is_other = stamps != self._stamps
        if not (is_other or must_read):
            return False
        if None in stamps.values():
            missing = next(file for name, file in self.access.files if stamps[name] is None)
            self.trouble = f"{missing} is not there"
            return False
        others = {n for n, stamp in stamps.items() if stamp != self._stamps[n] and n != "file"}
        before = self.account
        try:
            self._read()
        except ConfigError as error:
            self.trouble = str(error)
            return False
        self._stamps, self.trouble = stamps, None
        return bool(others) or self.account != before

    def _read(self) -> None:
        if self.access.file is not None:
            self.account = private_text(self.access.file.expanduser(), self._key)


def stamp_of(file: Path) -> Stamp:
    """Tell one version of a file from the next.

    Returns:
        Time, size and number of the file; None where there is none.
    """
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
