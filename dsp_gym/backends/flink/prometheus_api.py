"""One question to Prometheus' HTTP interface, which is all that this package asks of it.

A process beside a job lives for months in a small container. The general client brings pandas and
matplotlib along wherever they are installed; `requests` alone is what it would use here.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dsp_gym.backends.documents import Document
from dsp_gym.backends.turns import waiting
from dsp_gym.config.private import private_text
from dsp_gym.errors import MissingExtraError

if TYPE_CHECKING:
    from requests import Response

__all__ = ["PrometheusApi", "StatusError"]

_CONNECT_S = 1.0
"""A Prometheus that takes no connection within this is down."""


class StatusError(Exception):
    """Prometheus answered with a status other than 200."""

    def __init__(self, answer: Response) -> None:
        super().__init__(f"HTTP status {answer.status_code} ({answer.content[:300]!r})")


class PrometheusApi:
    """Instant queries to one server, over connections that stay open; nothing is tried twice.

    Proxies, certificates and accounts are those of the environment and the address, as `requests`
    reads them.

    Args:
        url: its address.
        timeout_s: longest wait for an answer, s.
        account: file with `user:password` or a bearer token; None: as above.

    Raises:
        ConfigError: The file cannot be read, or every user can read it.
        MissingExtraError: requests is not installed.
    """

    def __init__(self, url: str, timeout_s: float, account: Path | None = None) -> None:
        try:
            from requests import Session
        except ImportError as error:
            raise MissingExtraError("flink", "reading metrics from Prometheus") from error
        self.session = Session()
        if account is not None:
            self._log_in(private_text(account, "prometheus_account"))
        self._asked = f"{url}/api/v1/query"
        self._timeout_s = min(_CONNECT_S, timeout_s), timeout_s

    def _log_in(self, account: str) -> None:
        user, colon, password = account.partition(":")
        if colon:
            self.session.auth = (user, password)
        else:
            self.session.headers["Authorization"] = f"Bearer {account}"
            self.session.trust_env = False  # an account of ~/.netrc would take its place

    def query(self, expression: str, at_s: float) -> list[Document]:
        """Evaluate an expression at one moment.

        Args:
            expression: in PromQL.
            at_s: Unix seconds.

        Returns:
            The series of the answer, each with `metric` and `value` or `values`.

        Raises:
            RequestException: The server cannot be reached, or is late.
            StatusError: It answered with an error.
            ValueError: The answer is no JSON.
            KeyError: The answer is not Prometheus'.
        """
        with waiting():
            answer = self.session.post(
                self._asked,
                params={"query": expression, "time": f"{at_s:.3f}"},
                timeout=self._timeout_s,
            )
        if answer.status_code != 200:
            raise StatusError(answer)
        series: list[Document] = answer.json()["data"]["result"]
        return series
