"""Who may ask: bearer tokens from a file, and the names by which this server may be addressed."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from dsp_gym.backends.upstream.access import stamp_of
from dsp_gym.config.files import private_text
from dsp_gym.errors import ConfigError

_LOG = logging.getLogger(__name__)
_NUMBERED = re.compile(r"client \d+")

SHORTEST = 16
"""Characters of a token."""


class Tokens:
    """The tokens of the clients.

    Args:
        of: token by the name of its client.
        file: they are read from; None: they do not change.
    """

    def __init__(self, of: Mapping[str, str], file: Path | None = None) -> None:
        self._file, self._read = file, None if file is None else stamp_of(file)
        self._numbered = len(of)  # clients without a name that there ever were, at most
        self._take(of)

    def client(self, authorization: str | None) -> str | None:
        """Find out whose token a request shows.

        Args:
            authorization: the header; None: there was none.

        Returns:
            Name of the client, compared in constant time; None for no token of theirs.
        """
        self._look()
        if authorization is None:
            return None
        scheme, _, shown = authorization.partition(" ")
        given = shown.strip().encode("utf-8", "replace")
        found = [name for name, token in self._of if hmac.compare_digest(given, token)]
        return found[0] if found and scheme.lower() == "bearer" else None

    def _take(self, of: Mapping[str, str]) -> None:
        self._names = {token: name for name, token in of.items()}
        self._of = [(name, token.encode()) for name, token in of.items()]

    def _look(self) -> None:
        """Take over another version of the file: a token that is not in it is revoked at once.

        Of a file that cannot be read, or is wrong, nobody is let in by a token that may have been
        revoked in it.
        """
        if self._file is None or (stamp := stamp_of(self._file)) == self._read:
            return
        self._read = stamp
        try:
            found = _parsed(self._file, private_text(self._file, "serve.token_file"))
        except ConfigError as error:
            self._of = []
            _LOG.error("no client is let in until the file of the tokens is right: %s", error)
            return
        self._take(dict(self._named(found)))
        _LOG.warning("the tokens of the clients were read again: %d", len(found))

    def _named(self, found: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Leave a client without a name its number: under it stands what is known of its jobs."""
        for name, token in found.items():
            if not _NUMBERED.fullmatch(name):
                yield name, token
            elif token in self._names:
                yield self._names[token], token
            else:
                self._numbered += 1
                yield f"client {self._numbered}", token


def read_tokens(file: Path | None) -> Tokens | None:
    """Read the tokens of a file: one a line, after the name of its client if it has one.

    Args:
        file: only its owner, and a group, may read it; None: there is none.

    Returns:
        The tokens; None where no file is configured.

    Raises:
        ConfigError: The file cannot be read, is open to everybody, or holds no usable token.
    """
    if file is None:
        return None
    return Tokens(_parsed(file, private_text(file, "serve.token_file")), file)


def _parsed(file: Path, text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    lines = [line.split() for line in text.splitlines() if line.strip()]
    for words in lines or [[""]]:
        name, token = words[0] if len(words) > 1 else f"client {len(found) + 1}", words[-1]
        if len(words) > 2 or name in found:
            raise ConfigError(
                f"line {len(found) + 1} is not a token, or not a new client's name and its token",
                file=file,
                remedy="Write one token per line; a client's name and a space may precede it.",
            )
        if len(token) < SHORTEST:
            raise ConfigError(
                f"holds a token of {len(token)} characters, expected {SHORTEST} or more",
                file=file,
                remedy="Make one: openssl rand -hex 32",
            )
        found[name] = token
    if len(set(found.values())) < len(found):
        raise ConfigError("two clients have the same token", file=file, remedy="Give each its own.")
    return found


@lru_cache(maxsize=256)
def is_addressed(host: str | None, names: tuple[str, ...]) -> bool:
    """Check that a request is meant for this server: no other site's page may reach it.

    A browser names the site in `Host`. A name that was made to point here is no name of ours; an
    address cannot be made to.

    Args:
        host: the header.
        names: by which this server may be addressed, beside its addresses and localhost.

    Returns:
        True for an address, for localhost, and for one of the names.
    """
    if host is None:
        return False
    name = host.strip().lower()
    name, _, port = (
        name.rpartition(":") if ":" in name and not name.endswith("]") else (name, "", "")
    )
    if port and not port.isdigit():
        return False
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name.rstrip(".") in {"localhost", *(one.lower() for one in names)}
    return True
