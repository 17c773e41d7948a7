"""The header of an HTTP request: httptools, the parser of Node.js, reads it, and it is checked."""

from __future__ import annotations

import contextlib
import string
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

from dsp_gym.errors import MissingExtraError

try:
    from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
except ModuleNotFoundError:
    raise MissingExtraError("shadow", "serving over HTTP") from None

MOST_HEADER = 16_384
"""Bytes of a request's header; each line counts 32 more, for what it takes in memory."""

END = b"\r\n\r\n"
"""What ends a header."""

FIRST = frozenset(string.ascii_letters.encode() + b"\r\n")
"""Bytes that a request may begin with."""


class BadRequestError(Exception):
    """A header that is not answered.

    Args:
        status: what is wrong, as a number.
        message: what is wrong, in words.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Head(NamedTuple):
    """A request without its body."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]  # by name in lower case; of lines with one name the last

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.headers.get("content-length", "0") != "0" or self.is_unmeasured

    @property
    def is_unmeasured(self) -> bool:
        """Whether the length of the body is not given beforehand."""
        return "transfer-encoding" in self.headers


class Header(NamedTuple):
    """What a client says before the body."""

    head: Head
    is_last: bool  # the connection ends after the answer
    asks_first: bool  # the client waits for leave to send the body


def read_header(block: bytes) -> Header:
    """Read a header.

    Args:
        block: all of it, with the empty line that ends it.

    Returns:
        The request; the length of its body, where it is given, is a whole number.

    Raises:
        BadRequestError: It is not HTTP, of another version, too large, or ambiguous.
    """
    found = _Found()
    parser = HttpRequestParser(found)
    try:
        with contextlib.suppress(HttpParserUpgrade):  # which nobody has to follow
            parser.feed_data(block)
    except HttpParserError as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, f"is not valid HTTP: {error}") from None
    version = parser.get_http_version()
    if not found.is_whole or version not in ("1.0", "1.1"):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, f"HTTP/{version} is not spoken here")
    lines = found.lines
    if len(found.url) + sum(len(name) + len(value) + 32 for name, value in lines) > MOST_HEADER:
        raise too_large()
    if sum(name == b"host" for name, _ in lines) > 1:
        said = "is not valid HTTP: it names several hosts"
        raise BadRequestError(HTTPStatus.BAD_REQUEST, said)
    path, _, query = found.url.decode("latin-1").partition("?")
    headers = {name.decode("latin-1"): value.decode("latin-1").strip() for name, value in lines}
    return Header(
        Head(parser.get_method().decode("latin-1"), path, query, headers),
        "close" in headers.get("connection", "").lower() or version == "1.0",
        version == "1.1" and headers.get("expect", "").lower() == "100-continue",
    )


def too_large() -> BadRequestError:
    """Make the error for a header without end.

    Returns:
        The error, to be raised.
    """
    said = f"the header is larger than {MOST_HEADER} bytes"
    return BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, said)


class _Found:
    """What the parser finds in one header."""

    def __init__(self) -> None:
        self.url = b""
        self.lines: list[tuple[bytes, bytes]] = []
        self.is_whole = False

    def on_url(self, part: bytes) -> None:
        """Take a part of the target."""
        self.url += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a line."""
        self.lines.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Take the end."""
        self.is_whole = True
