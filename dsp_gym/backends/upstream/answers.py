"""What is wrong with an answer, or why there is none: a reason, a sentence, and what to do."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import NamedTuple, Protocol

from dsp_gym.backends.upstream.timed_calls import LateError
from dsp_gym.config.text import first_line
from dsp_gym.errors import ApiReason

LAG_S = 30.0
"""Clocks that differ by more are worth a word."""

_LONGEST = 300
"""Characters of what is said of an answer."""


MOST_BYTES = 128 * 2**20
"""Of an answer: ten minutes of a job with a thousand subtasks take a tenth of it in Prometheus,
a page of 500 resources a twentieth in Kubernetes."""

PART_BYTES = 2**16


def whole(parts: Iterable[bytes]) -> bytes:
    """Join the unpacked parts of an answer: a few bytes of gzip can stand for any number.

    Returns:
        The body.

    Raises:
        ValueError: It is larger than `MOST_BYTES`.
    """
    content = bytearray()
    for part in parts:
        content += part
        if len(content) > MOST_BYTES:
            raise ValueError(f"it answered more than {MOST_BYTES // 2**20} MiB")
    return bytes(content)


class Diagnosis(NamedTuple):
    """What went wrong with a question."""

    reason: ApiReason
    said: str  # follows the address
    remedy: str | None = None


class StatusError(Exception):
    """A server answered with a status other than 200.

    Args:
        status: of HTTP.
        content: of the answer.
        headers: of the answer.
    """

    def __init__(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP status {status} ({content[:_LONGEST]!r})")
        self.status, self.content, self.headers = status, content, headers

    @property
    def retry_after_s(self) -> float:
        """Seconds that the server asks to wait; 0: it does not say, a date counts as not said."""
        said = self.headers.get("Retry-After", "")
        return float(said) if said.isascii() and said.isdigit() else 0.0


class PageError(ValueError):
    """A page for people, in place of a document.

    Args:
        content: of the page.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__("it answered with an HTML page")
        self.content = content


class _Answered(Protocol):
    """The part of an answer that is looked at here."""

    @property
    def content(self) -> bytes: ...

    @property
    def headers(self) -> Mapping[str, str]: ...


def refuse_page(answer: _Answered) -> None:
    """Refuse an HTML page, such as the one that a proxy shows to those who have not signed in.

    Raises:
        PageError: It is one.
    """
    if is_page(answer.content, answer.headers):
        raise PageError(answer.content)


def is_page(content: bytes, headers: Mapping[str, str]) -> bool:
    """Whether an answer is an HTML page."""
    kind = headers.get("Content-Type", "")
    return "text/html" in kind or content[:20].lstrip().lower().startswith((b"<!doctype", b"<html"))


def lag_s(headers: Mapping[str, str]) -> float:
    """How far this machine's clock is ahead of the server's, by the date of its answer.

    Returns:
        Seconds; 0 where the answer has no date.
    """
    try:
        return time.time() - parsedate_to_datetime(headers.get("Date", "")).timestamp()
    except (TypeError, ValueError):
        return 0.0


def of_clocks(headers: Mapping[str, str]) -> str:
    """Say that the clocks differ, where they do.

    Returns:
        The end of a sentence; empty where they agree.
    """
    ahead_s = lag_s(headers)
    if abs(ahead_s) <= LAG_S:
        return ""
    how = "ahead of" if ahead_s > 0 else "behind"
    return f"; the clock of this machine is {abs(ahead_s):.0f} s {how} the server's"


def of_status(
    status: int, content: bytes, headers: Mapping[str, str], *, key: str, trouble: str | None = None
) -> Diagnosis | None:
    """Say what a refusal means.

    Args:
        status: of HTTP.
        content: of the answer.
        headers: of the answer.
        key: of the configuration that names the account.
        trouble: why its file cannot be read.

    Returns:
        What is wrong; None for an answer of another kind than those that are known here.
    """
    if status == 401:
        said = "the account is refused (HTTP status 401): its token has expired, or is wrong"
        if not key:
            said = "an account is asked for (HTTP status 401), and none is configured"
        said += f"; its file was not read again: {trouble}" if trouble else ""
        remedy = (
            f"Write a new token into the file that {key} names; it is read at once."
            if key
            else "Name a file with the account."
        )
        return Diagnosis("Unauthorized", said + of_clocks(headers), remedy)
    if status == 403:
        said = "the account may not read there (HTTP status 403)"
        return Diagnosis("Forbidden", said, "Grant it the right to read, or name another account.")
    if status == 407:
        said = "the proxy asks for an account (HTTP status 407)"
        remedy = "Write it into the address of the proxy, or name the server in NO_PROXY."
        return Diagnosis("Unauthorized", said, remedy)
    return None


def of_page(content: bytes) -> Diagnosis:
    """Say what an HTML page in place of a document means.

    Returns:
        What is wrong.
    """
    return Diagnosis(
        "Other",
        f"answered something that is not JSON: {content[:80]!r}, an HTML page: a proxy in front of "
        "it wants you to sign in, or another program listens there",
        "Name the address behind the proxy, an account that the proxy takes, or the server's own "
        "address.",
    )


def of_error(error: BaseException, *, key: str = "account") -> Diagnosis:
    """Say why there is no answer.

    Args:
        error: of `requests`, `urllib3` or a socket, or a late call's.
        key: of the configuration that names the account and the certificates.

    Returns:
        What is wrong; the first line of the error where it is none that is known here.
    """
    if isinstance(error, PageError):
        return of_page(error.content)
    if isinstance(error, LateError):
        return Diagnosis("Timeout", f"no answer in time: {error}")
    causes = list(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return _of_tls(cause, key)
    for cause in causes:
        if isinstance(cause, socket.gaierror):
            said = f"its name cannot be looked up: {cause.strerror}"
            return Diagnosis("Unreachable", said, "Is the name right, and does DNS answer?")
    names = {type(cause).__name__ for cause in causes}
    if "ProxyError" in names:
        said = f"the proxy did not let us through: {_innermost(causes)}"
        return Diagnosis("Unreachable", said, "Check the proxy, or name the server in NO_PROXY.")
    if any(isinstance(c, ConnectionRefusedError) for c in causes):
        return Diagnosis("Unreachable", "Connection refused")
    is_late = any("Timeout" in name for name in names) or any(
        isinstance(cause, TimeoutError) for cause in causes
    )
    if is_late and "NewConnectionError" not in names:
        return Diagnosis("Timeout", "no answer in time")
    # `requests` counts what is no HTTP among lost connections.
    is_foreign = any(
        isinstance(cause, HTTPException) and not isinstance(cause, OSError) for cause in causes
    )
    is_lost = not is_foreign and any(isinstance(cause, OSError) for cause in causes)
    return Diagnosis("Unreachable" if is_lost else "Other", _innermost(causes))


def _of_tls(error: ssl.SSLError, key: str) -> Diagnosis:
    """Say why no secure connection was made."""
    verify = getattr(error, "verify_message", "") or ""
    said = first_line(error, _LONGEST)
    if "not yet valid" in verify or "has expired" in verify:
        what = "is not valid yet" if "yet" in verify else "has expired"
        return Diagnosis(
            "Other",
            f"its certificate {what}, by the clock of this machine "
            f"({time.strftime('%Y-%m-%d %H:%M', time.gmtime())} UTC)",
            "Renew the certificate; where it is valid, set the clock of this machine.",
        )
    if "ostname mismatch" in verify or "IP address mismatch" in verify:
        said = f"its certificate is for another name: {verify}"
        return Diagnosis("Other", said, "Write the name of the certificate into the address.")
    if verify:
        return Diagnosis(
            "Other",
            f"its certificate is signed by no authority that is known here: {verify}",
            f"Name the authority's certificate: {key}.ca_file",
        )
    if "WRONG_VERSION_NUMBER" in said or "HTTP_REQUEST" in said:
        return Diagnosis("Other", "it does not speak TLS", "Begin the address with http://")
    if "ALERT" in said.upper() and "CERTIFICATE" in said.upper():
        return Diagnosis(
            "Unauthorized",
            f"it does not take the certificate of this client: {said}",
            f"Name one that it takes: {key}.cert_file and {key}.key_file",
        )
    return Diagnosis("Other", f"no secure connection was made: {said}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was made of, outermost first."""
    seen: set[int] = set()
    waiting: list[object] = [error]
    while waiting:
        one = waiting.pop(0)
        if not isinstance(one, BaseException) or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        waiting += [getattr(one, "reason", None), *one.args, one.__cause__, one.__context__]


def _innermost(causes: list[BaseException]) -> str:
    """What the innermost error says, as far as it says anything."""
    for cause in reversed(causes):
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[:_LONGEST]
    said = [first_line(cause, _LONGEST) for cause in causes if str(cause).strip()]
    return said[-1] if said else repr(causes[0])[:_LONGEST]
