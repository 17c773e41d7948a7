"""The HTTP session under Flink's and Prometheus' clients: bounded in time and in bytes.

Nothing is tried twice but a question whose account was refused, after another one has been written
into its file. A process beside a job must know at once that its metrics cannot be had, and no
answer may fill its memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from requests import PreparedRequest, Response, Session
from requests.auth import AuthBase, HTTPBasicAuth
from requests.utils import get_netrc_auth

from dsp_gym.backends.upstream.access import AccessConfig, Credentials
from dsp_gym.backends.upstream.answers import PART_BYTES, StatusError, lag_s, refuse_page, whole
from dsp_gym.backends.upstream.connections import Adapter
from dsp_gym.backends.upstream.deadlines import is_loopback, origin, within
from dsp_gym.backends.upstream.timed_calls import deadline
from dsp_gym.config.strict_json import Document, parse_json

CONNECT_S = 3.0
"""Longest wait for a connection, s: a server that takes none within this is down."""


_SCHEMES = ("http", "https")
_OURS = frozenset({"auth", "cert", "proxies", "verify"})
"""Arguments that the client repeats, and this session fills in."""


class RawAnswer(NamedTuple):
    """What a server answered."""

    status: int
    content: bytes
    headers: Mapping[str, str]


class BoundedSession(Session):
    """A session whose questions have one deadline each, and whose answers a bounded size.

    Args:
        access: account, certificates and proxy; None: those of the environment and the address, as
            `requests` reads them.
        key: of the configuration that names them.
        connect_s: longest wait for a connection, s.
        keeps: whether a connection serves several questions.

    Raises:
        ConfigError: A file cannot be read, or every user can read the account.
    """

    def __init__(
        self,
        access: AccessConfig | None = None,
        key: str = "account",
        connect_s: float = CONNECT_S,
        *,
        keeps: bool = True,
    ) -> None:
        super().__init__()
        self.takes_partial = True
        """Whether an answer may lack what a server that fans out could not reach."""
        self._known_ways: dict[str, dict[str, Any]] = {}  # by server
        self.ahead_s = 0.0
        """How far this machine's clock is ahead of the server's, by its last answer, s."""
        self.credentials, self._connect_s = Credentials(access, key), connect_s
        access = self.credentials.access
        for scheme in ("http://", "https://"):
            self.mount(scheme, Adapter(keeps=keeps))
        if access.cert_file is not None:
            cert, key_file = access.cert_file.expanduser(), access.key_file
            self.cert = str(cert) if key_file is None else (str(cert), str(key_file.expanduser()))
        self._log_in()

    def renew(self, *, must_read: bool = False) -> bool:
        """Take over an account, or certificates, that were replaced.

        Args:
            must_read: the server has refused the account: read it whatever its file looks like.

        Returns:
            Whether they are others than before.
        """
        if not self.credentials.changed(must_read=must_read):
            return must_read and self._has_other_ways()
        self._known_ways.clear()
        self._log_in()
        for adapter in self.adapters.values():  # connections keep the certificates they began with
            adapter.close()
        return True

    def ask(self, method: str, url: str, timeout_s: float, **kwargs: Any) -> RawAnswer:
        """Send a question and read the answer, whatever its status.

        Args:
            method: of HTTP.
            url: the address.
            timeout_s: longest wait for all of the answer, s.
            **kwargs: as `requests.Session.request` takes them.

        Returns:
            The answer.

        Raises:
            LateError: There was no whole answer in time.
            RequestException: The server cannot be reached, or broke off.
            ValueError: The answer is too large.
        """
        self.renew()
        limits = {"timeout": (min(self._connect_s, timeout_s), timeout_s), "stream": True}
        given = {**kwargs, **limits}

        def asked() -> RawAnswer:
            answer = Session.request(self, method, url, **given, **self._ways(url))
            with answer:
                return RawAnswer(
                    answer.status_code, whole(answer.iter_content(PART_BYTES)), answer.headers
                )

        with deadline(timeout_s):
            found = within(url, timeout_s, asked)
            if found.status == 401 and self.renew(must_read=True):
                found = within(url, timeout_s, asked)
        self.ahead_s = lag_s(found.headers)
        return found

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> Response:
        """Send a question of `prometheus-api-client` and read its answer.

        Returns:
            The answer, of status 200; its `json()` is parsed already.

        Raises:
            LateError: As `ask`.
            RequestException: As `ask`.
            StatusError: It answered with an error.
            ValueError: The answer is no JSON, too large, or partial.
        """
        given = {name: value for name, value in kwargs.items() if name not in _OURS}
        found = self.ask(method, url, given.pop("timeout"), **given)
        if found.status != 200:
            raise StatusError(found.status, found.content, found.headers)
        refuse_page(found)
        document: Document = parse_json(found.content)
        warnings = None if self.takes_partial else document.get("warnings")
        if warnings:
            raise ValueError(f"the answer is partial: {'; '.join(map(str, warnings))}")
        return cast(Response, _Parsed(document))

    def _has_other_ways(self) -> bool:
        """Look into NETRC again; returns whether an account is another one."""
        known, self._known_ways = self._known_ways, {}
        return any(self._ways(server) != ways for server, ways in known.items())

    def _ways(self, url: str) -> dict[str, Any]:
        """Certificates, proxy and account of a question: ours, else those of the environment.

        `requests` would look at the whole environment, and into NETRC, at every question.
        """
        server = origin(url)
        if server not in self._known_ways:
            access, proxies = self.credentials.access, dict[str, str]()
            if access.proxy is not None:
                proxies = dict.fromkeys(_SCHEMES, access.proxy)
            elif is_loopback(url):
                proxies = dict.fromkeys(_SCHEMES, "")  # one for the web does not know it
            verify = None if access.ca_file is None else str(access.ca_file.expanduser())
            self.trust_env = True
            ways = self.merge_environment_settings(url, proxies, None, verify, None)
            self.trust_env = False
            ways.pop("stream")
            self._known_ways[server] = ways | {"auth": self.auth or get_netrc_auth(url)}
        return self._known_ways[server]

    def _log_in(self) -> None:
        """Sign with the account; with none, `requests` takes that of the address or of NETRC."""
        user, colon, password = self.credentials.account.partition(":")
        if colon:
            self.auth = HTTPBasicAuth(user, password)
        elif user:
            self.auth = _Bearer(user)


class _Bearer(AuthBase):
    """Signs with a token; one in the session's headers would give way to an account of NETRC."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class _Parsed:
    """An answer as the client takes it apart; the document is parsed once."""

    status_code = 200

    def __init__(self, document: Document) -> None:
        self._document = document

    def json(self) -> Document:
        return self._document
