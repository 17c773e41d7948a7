"""Malformed requests, each with a single defect."""

from __future__ import annotations

TOKEN = "0123456789abcdef0123456789abcdef"


def get(line: str, *headers: str, host: str | None = "127.0.0.1") -> bytes:
    """A request without a body."""
    lines = [line, *([] if host is None else [f"Host: {host}"]), *headers]
    return "\r\n".join([*lines, "\r\n"]).encode("latin-1")


def decide(*headers: str) -> bytes:
    """A request for a decision with these headers beside those it needs."""
    return get("POST /v1/decide HTTP/1.1", f"Authorization: Bearer {TOKEN}", *headers)


ROOT = "GET / HTTP/1.1"

MALFORMED = {
    "no HTTP at all": b"hello\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(40)) + b"\r\n\r\n",
    "no version": get("GET /v1/status"),
    "another version": get("GET /v1/status HTTP/3.0"),
    "a version in words": get("GET /v1/status HTTP/one"),
    "a blank in the path": get("GET /v1/ status HTTP/1.1"),
    "zeros": bytes(64) + b"\r\n\r\n",
    "no host": get("GET /v1/status HTTP/1.1", host=None),
    "no host, old version": get("GET /v1/status HTTP/1.0", host=None),
    "two hosts": get(ROOT, "Host: 127.0.0.1"),
    "an empty host": get(ROOT, host=""),
    "another's host": get(ROOT, host="evil.example"),
    "a host with a word for a port": get(ROOT, host="localhost:http"),
    "a header without a colon": get(ROOT, "nonsense"),
    "a blank before the colon": get(ROOT, "Host : 127.0.0.1", host=None),
    "a header without a name": get(ROOT, ": x"),
    "a zero in a header": get(ROOT, "X: a\0b"),
    "a header without end": get(ROOT, "X: " + "a" * 20_000),
    "a path without end": b"GET /" + b"a" * 20_000,
    "headers without end": get(ROOT, *["X: a"] * 4_000),
    "an unknown path": get("GET /v2/status HTTP/1.1"),
    "a path of dots": get("GET /../../etc/passwd HTTP/1.1"),
    "an unknown method": get("BREW /v1/status HTTP/1.1"),
    "a method that is not for it": get("GET /v1/decide HTTP/1.1"),
    "a probe elsewhere": get("GET /healthz HTTP/1.1"),
    "a GET with a body": get(ROOT, "Content-Length: 2") + b"hi",
    "no length": decide(),
    "a negative length": decide("Content-Length: -1"),
    "a length in words": decide("Content-Length: ten"),
    "two lengths": decide("Content-Length: 1", "Content-Length: 2"),
    "a length beyond all": decide("Content-Length: 99999999999999"),
}
