"""A served loop on a simulated job, and a client of it."""

from __future__ import annotations

import gc
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from dsp_gym.config.files import parse
from dsp_gym.control.backend_of import Substitute
from dsp_gym.control.config import RunConfig
from dsp_gym.control.serve.session import Session, session

TOKEN = "0123456789abcdef0123456789abcdef"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def ask(
    url: str, body: bytes | None = None, headers: dict[str, str] | None = None, method=None
) -> Answer:
    """One request; a refusal is an answer, too."""
    request = urllib.request.Request(url, data=body, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return Answer(answer.status, dict(answer.headers), answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), error.read().decode())


def condition(shown: Session, name: str) -> dict[str, Any]:
    """A condition as a served session shows it."""
    found = ask(f"{shown.server.url}/v1/status").json["conditions"]
    return next(c for c in found if c["type"] == name)


def has(shown: Session, name: str, status: str) -> Callable[[], bool]:
    """Tells whether a condition has a status."""
    return lambda: condition(shown, name)["status"] == status


def config(tmp_path, **given) -> RunConfig:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    document = {
        "job": "flink-wordcount",
        "policies": [
            {"name": "network", "policy": "learned-q11"},
            {"name": "ds2", "policy": "ds2-local"},
            "incumbent",
        ],
        "acting": "ds2",
        "guardrails": "deployed",
        "interval_s": 30,
        "window": {"window_s": 30, "stabilization_s": 20},
        "journal": str(tmp_path / "journal"),
        "serve": {
            "port": 0,
            "token_file": str(token),
            "public": True,
            "timeout_s": given.pop("timeout_s", 5.0),
        },
        **given,
    }
    return parse(RunConfig, document, "shadow.yaml")


@contextmanager
def session_of(tmp_path, load: str = "flash-crowd", **given) -> Iterator[Session]:
    """A served session in mode shadow on a simulated job under a load."""
    substitute = Substitute(load=load, duration_s=7200)
    with session(
        config(tmp_path, **given), serve=True, substitute=substitute, mode="shadow"
    ) as made:
        yield made


@pytest.fixture
def serving(tmp_path) -> Iterator[Callable[..., Session]]:
    """Starts sessions; all are closed in the end."""
    with ExitStack() as stack:
        yield lambda load="flash-crowd", **given: stack.enter_context(
            session_of(tmp_path, load, **given)
        )
    # A session gives up its own freeze; the next would look through all that pytest has imported.
    gc.freeze()
