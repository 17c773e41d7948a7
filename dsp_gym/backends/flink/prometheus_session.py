"""The HTTP session under `prometheus-api-client`: bounded in time and bytes, nothing tried twice.

The client reads bodies of any size whole, and tries three times. A process beside a job must know
at once that its metrics cannot be had, and no answer may fill its memory.
"""

from __future__ import annotations

from typing import Any, cast

from requests import Response, Session

from dsp_gym.backends.flink.answers import StatusError
from dsp_gym.backends.interpreter_turn import waiting
from dsp_gym.config.strict_json import Document, parse_json

MOST_BYTES = 128 * 2**20
"""Of an answer: ten minutes of a job with a thousand subtasks take a tenth of it."""
_PART_BYTES = 2**16


class BoundedSession(Session):
    """A session whose answers are JSON of a bounded size.

    Proxies, certificates and accounts are those of the environment and the address, as `requests`
    reads them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.takes_partial = True
        """Whether an answer may lack what a server that fans out could not reach."""

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> Response:
        """Send a request and read its answer.

        Returns:
            The answer, of status 200; its `json()` is parsed already.

        Raises:
            RequestException: The server cannot be reached, or is late.
            StatusError: It answered with an error.
            ValueError: The answer is no JSON, too large, or partial.
        """
        with waiting():
            answer = super().request(method, url, *args, **{**kwargs, "stream": True})
            with answer:
                content = _content(answer)
        if answer.status_code != 200:
            raise StatusError(answer.status_code, content, _retry_after_s(answer))
        document: Document = parse_json(content)
        warnings = None if self.takes_partial else document.get("warnings")
        if warnings:
            raise ValueError(f"the answer is partial: {'; '.join(map(str, warnings))}")
        return cast(Response, _Parsed(document))

    def log_in(self, account: str) -> None:
        """Take an account: `user:password` or a bearer token."""
        user, colon, password = account.partition(":")
        if colon:
            self.auth = (user, password)
        else:
            self.headers["Authorization"] = f"Bearer {account}"
            self.trust_env = False  # an account of ~/.netrc would take its place


class _Parsed:
    """An answer as the client takes it apart; the document is parsed once."""

    status_code = 200

    def __init__(self, document: Document) -> None:
        self._document = document

    def json(self) -> Document:
        return self._document


def _retry_after_s(answer: Response) -> float:
    """Seconds that the server asks to wait; a date counts as not said."""
    said = answer.headers.get("Retry-After", "")
    return float(said) if said.isascii() and said.isdigit() else 0.0


def _content(answer: Response) -> bytes:
    """The body, unpacked: a few bytes of gzip can stand for any number."""
    content = bytearray()
    for part in answer.iter_content(_PART_BYTES):
        content += part
        if len(content) > MOST_BYTES:
            raise ValueError(f"it answered more than {MOST_BYTES // 2**20} MiB")
    return bytes(content)
