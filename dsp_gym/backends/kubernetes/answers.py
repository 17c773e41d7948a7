"""What went wrong with a call to an API server, as one kind of error.

The client raises its own errors, those of urllib3 and, while it reads a stream, those of sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dsp_gym.backends.upstream.answers import is_page, of_error, of_page
from dsp_gym.backends.upstream.timed_calls import LateError
from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.config.text import first_line
from dsp_gym.errors import ApiReason, KubernetesError

_LONGEST = 1000
"""Characters of what a server says."""

_REASONS: dict[int, ApiReason] = {
    400: "Invalid",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "Unsupported",
    406: "Unsupported",
    409: "Conflict",
    410: "Gone",
    415: "Unsupported",
    422: "Invalid",
    504: "Timeout",
}

_REMEDIES = {
    "Unauthorized": "Its token is wrong or has expired; sign in again.",
    "Forbidden": "Give the account the right, or name another account's kubeconfig or context.",
    "Unreachable": "Does the API server run, and is it the one of this context?",
    "Timeout": "Does the API server hang? A longer timeout_s waits longer.",
    "Unsupported": "Is the Flink Kubernetes Operator installed there, with its resource "
    "definitions?",
}


def refused(method: str, url: str, status: int, content: bytes) -> KubernetesError:
    """A call that was answered with an error.

    The server answers an undefined kind in plain text, a missing object by a document.

    Returns:
        The error to raise, with the server's reason and message.
    """
    reason = _REASONS.get(status, "Other")
    try:
        document = parse_json(content)
        said = str(document["message"])[:_LONGEST]
    except (ValueError, KeyError, TypeError):
        said = content[:200].decode(errors="replace").strip() or "nothing"
        if status == 404:
            reason = "Unsupported"
            said = "there is no such kind of resource"
        elif is_page(content, {}):
            reason, said = "Other", of_page(content).said
    return KubernetesError(
        f"{method} {url} answered {status}: {said}",
        reason=reason,
        may_have_acted=method != "GET" and status >= 500,
        remedy=_REMEDIES.get(reason),
    )


def unanswered(method: str, url: str, error: Exception) -> KubernetesError:
    """A call without an answer; a change may have been made all the same, if it was sent.

    Returns:
        The error to raise; `may_have_acted` is set for a change that was sent.
    """
    from urllib3 import exceptions

    cause: BaseException = error
    while isinstance(cause, exceptions.MaxRetryError) and cause.reason is not None:
        cause = cause.reason
    refused_connection = isinstance(cause, exceptions.NewConnectionError)  # a kind of Timeout there
    is_timeout = isinstance(cause, exceptions.TimeoutError | TimeoutError | LateError)
    late = is_timeout and not refused_connection
    unsent = refused_connection or isinstance(cause, exceptions.ConnectTimeoutError)
    said = "no answer in time" if late else first_line(cause, 300)
    reason: ApiReason = "Timeout" if late else "Unreachable"
    remedy: str | None = _REMEDIES[reason]
    known = of_error(error, key="the kubeconfig")
    if known.remedy is not None:  # such as a certificate that is not trusted
        reason, said, remedy = known
        unsent = unsent or reason != "Timeout"
    return KubernetesError(
        f"{method} {url}: {said}",
        reason=reason,
        may_have_acted=method != "GET" and not unsent,
        remedy=remedy,
    )


def unreadable(method: str, url: str, content: bytes) -> KubernetesError:
    """An answer that is no document.

    Returns:
        The error to raise, with the first 80 bytes of the answer.
    """
    if is_page(content, {}):
        page = of_page(content)
        return KubernetesError(
            f"{method} {url} {page.said}",
            reason=page.reason,
            may_have_acted=method != "GET",
            remedy=page.remedy,
        )
    return KubernetesError(
        f"{method} {url} answered with something other than a JSON document: {content[:80]!r}",
        reason="Other",
        may_have_acted=method != "GET",
        remedy="Another program listens there; name the address of an API server.",
    )


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Take answers apart in this block: one of another shape is a `KubernetesError`.

    Yields:
        None.
    """
    try:
        yield
    except MISFITS as error:
        raise KubernetesError(
            f"{url} answered with something other than a Kubernetes object: {error!r}"[:300],
            reason="Other",
            remedy="Another program listens there; name the address of an API server.",
        ) from error
