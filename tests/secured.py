"""An HTTPS server in front of another: an authority of its own, accounts, and pages to sign in."""

from __future__ import annotations

import base64
import datetime
import http.client
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = datetime.timedelta(days=1)


class Authority:
    """Signs certificates; its own is in `file`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(name, self._key, is_authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(self._certificate))

    def issue(self, name: str, begins: int = -1, ends: int = 1) -> tuple[Path, Path]:
        """Issue a certificate for 127.0.0.1, valid for some days; returns it and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        cert, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        cert.write_bytes(_pem(self._signed(name, key, begins=begins, ends=ends)))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert, key_file

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        *,
        is_authority: bool = False,
        begins: int = -1,
        ends: int = 1,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject, issuer = (
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, self._name)
        )
        made = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins * _DAY)
            .not_valid_after(now + ends * _DAY)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )
        if is_authority:
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
                key_encipherment=False, data_encipherment=False, key_agreement=False,
                encipher_only=False, decipher_only=False,
            )  # fmt: skip
            made = made.add_extension(usage, critical=True)
        return made.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


@dataclass
class Front:
    """What a server in front of another asks of its clients."""

    url: str = ""
    token: str | None = None  # that is valid; None: every one
    status: int = 401  # for the others
    page: bytes = b""  # shown to everybody in place of an answer
    ahead_s: float = 0.0  # of its clock
    asked: list[str] = field(default_factory=list)  # targets, in order
    basic: str | None = None  # user and password that are valid in place of a token
    refused: int = 0
    on_question: Callable[[], None] = lambda: None  # called before each is answered

    def account(self) -> str | None:
        """What must stand in Authorization; None: anything may."""
        if self.basic is not None:
            return f"Basic {base64.b64encode(self.basic.encode()).decode()}"
        return None if self.token is None else f"Bearer {self.token}"


class Rotating:
    """An account whose token is another one after some questions, as a Secret that is renewed."""

    def __init__(self, told: Front, file: Path, every: int) -> None:
        self._told, self.file, self._every = told, file, every
        self.times = 0
        self._renew()
        told.on_question = self._count

    def _count(self) -> None:
        if len(self._told.asked) % self._every == 0:
            self.times += 1
            self._renew()

    def _renew(self) -> None:
        self._told.token = f"token-number-{self.times}"
        self.file.write_text(self._told.token)
        self.file.chmod(0o600)


@contextmanager
def front(
    behind: str | None, certificate: tuple[Path, Path] | None = None, clients_of: Path | None = None
) -> Iterator[Front]:
    """Serve HTTPS, or HTTP without a certificate, and hand on what is allowed.

    Args:
        behind: the address of the other server; None: this is a proxy, which asks whom it is told.
        certificate: of this server, and its key.
        clients_of: certificate of the authority whose clients alone are let in.

    Yields:
        What is asked of clients.
    """
    told = Front()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            told.asked.append(self.path)
            told.on_question()
            if told.page:
                self._send(200, told.page, "text/html")
            elif told.account() not in (None, self.headers.get("Authorization")):
                told.refused += 1
                self._send(told.status, b"no", "text/plain")
            else:
                self._hand_on(body)

        do_POST = do_GET

        def _hand_on(self, body: bytes) -> None:
            target = urlsplit(behind or self.path)
            path = self.path if behind else f"{target.path}?{target.query}"
            link = http.client.HTTPConnection(str(target.hostname), target.port, timeout=10)
            kind = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            link.request(self.command, path, body or None, kind)
            answer = link.getresponse()
            self._send(answer.status, answer.read(), answer.headers.get("Content-Type", ""))
            link.close()

        def _send(self, status: int, content: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def date_time_string(self, timestamp: float | None = None) -> str:
            now = datetime.datetime.now(datetime.UTC).timestamp() + told.ahead_s
            return super().date_time_string(now if timestamp is None else timestamp)

        def log_message(self, format: str, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            return  # such as a client that does not trust us

    server = Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*map(str, certificate))
        if clients_of is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(str(clients_of))
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "http" if certificate is None else "https"
    told.url = f"{scheme}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
