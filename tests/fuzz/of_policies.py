"""Readers of learned policies, checkpoints and the memory of a run, and requests over HTTP."""

from __future__ import annotations

import hashlib
import json
import socket
import zlib
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from agents import checkpoint
from dsp_gym.control import state_store
from dsp_gym.control.guarded_policy import GuardedPolicy
from dsp_gym.control.modes import CanaryConfig, RollBackConfig
from dsp_gym.control.permission import Permission
from dsp_gym.control.restraint import Restraint
from dsp_gym.control.roll_back import RollBack
from dsp_gym.control.serve.decide import Question
from dsp_gym.guardrails.chain import build
from dsp_gym.guardrails.config import GuardrailsConfig
from dsp_gym.policies.pins import split_pin
from dsp_gym.policies.registry import make, resolve
from tests.fuzz.cases import Tree, as_json
from tests.fuzz.documents import snapshot_document
from tests.fuzz.readers import Reader, file_of, folder, json_reader
from tests.living import Living
from tests.unit.control.serve.conftest import TOKEN, session_of

__all__ = ["READERS"]

PRETRAINED = Path(__file__).resolve().parents[2] / "agents" / "pretrained"
KINDS = ("planning", "q11")


# Policies


def _policy(kind: str, name: str, data: bytes) -> object:
    where = f"policies/{kind}"
    contents = {file.name: file.read_bytes() for file in (PRETRAINED / kind).iterdir()}
    if name == "weights.safetensors":  # their sum is right, as of a policy that somebody made
        document = json.loads(contents["policy.json"])
        document["weights_sha256"] = hashlib.sha256(data).hexdigest()
        contents["policy.json"] = as_json(document)
    for file, content in (contents | {name: data}).items():
        file_of(f"{where}/{file}", content)
    resolve(folder() / where)
    made = make(folder() / where)
    living = Living()
    made.reset(living.topology, np.array([0]))
    with np.errstate(all="ignore"):  # huge weights give huge numbers
        return made.decide(living.seen())


def _of_policy(kind: str, name: str, **rest: Any) -> Reader:
    return Reader(
        f"{name} of {kind}",
        partial(_policy, kind, name),
        lambda: [(PRETRAINED / kind / name).read_bytes()],
        **rest,
    )


POLICIES = [
    *(_of_policy(kind, "policy.json", share=0.4) for kind in KINDS),
    *(_of_policy(kind, "weights.safetensors", dump=None, share=0.2) for kind in KINDS),
    Reader(
        "name with a digest",
        lambda data: split_pin(data.decode("utf-8", "replace")),
        lambda: [b"runs/q11/policy@sha256:" + b"0" * 64],
        None,
    ),
]


# Checkpoints


def _checkpoint(data: bytes, which: str) -> object:
    for name, known in _made_checkpoint().items():
        file_of(f"checkpoint/{name}", data if name == which else known)
    where = folder() / "checkpoint"
    return checkpoint.read_checkpoint(where), checkpoint.checkpoint_steps(where)


@cache
def _made_checkpoint() -> dict[str, bytes]:
    where = folder() / "made-checkpoint"
    tree = {"steps": 7, "net": {"w": np.ones((2, 3)), "list": [np.zeros(2), 1, "x"]}}
    checkpoint.write_checkpoint(where, tree)
    return {file.name: file.read_bytes() for file in where.iterdir()}


CHECKPOINTS = [
    Reader(
        "state.json of a checkpoint",
        partial(_checkpoint, which=checkpoint.STATE),
        lambda: [_made_checkpoint()[checkpoint.STATE]],
    ),
    Reader(
        "tensors of a checkpoint",
        partial(_checkpoint, which=checkpoint.TENSORS),
        lambda: [_made_checkpoint()[checkpoint.TENSORS]],
        None,
        share=0.4,
    ),
]


# The memory of a run

GUARDRAILS = {
    "guardrails": [{"kind": "cool_down"}, {"kind": "excess_budget", "policy": "justin-paper"}]
}


@cache
def _process() -> state_store.StateStore:
    living = Living()
    chain = build(GuardrailsConfig.model_validate(GUARDRAILS))
    seat = GuardedPolicy(make("ds2"), chain)
    seat.reset(living.topology, np.array([0]))
    permission, back = Permission("canary", CanaryConfig(share=0.5)), RollBack(RollBackConfig())
    return state_store.StateStore(folder(), living.topology, permission, back, Restraint(), (seat,))


def _memory(data: bytes) -> object:
    file_of(state_store.MEMORY, data)
    return state_store.problem_of(folder()), _process().restore(300.0), _process().save(300.0)


def _kept_memory() -> list[bytes]:
    _process().save(200.0)
    return [(folder() / state_store.MEMORY).read_bytes()]


def _summed(tree: Tree) -> bytes:
    if not isinstance(tree, dict):
        return as_json(tree)
    body = {key: value for key, value in tree.items() if key != "crc32"}
    crc = zlib.crc32(json.dumps(body, sort_keys=True).encode())
    return as_json({**body, "crc32": crc})


# `inspect` reads it, and so does the start of a run.
MEMORY = [Reader("memory.json", _memory, _kept_memory, _summed, share=0.4, reads=2)]


# Requests


class FaultError(Exception):
    """The server says that the fault is its own."""


@cache
def _served() -> Any:
    stack = ExitStack()
    where = folder() / "served"
    where.mkdir()
    return stack, stack.enter_context(session_of(where, timeout_s=0.3))


def close() -> None:
    """End the server, if there is one."""
    if _served.cache_info().currsize:
        _served()[0].close()
        _served.cache_clear()


def _request(data: bytes) -> object:
    """Send bytes to the server and read all that it answers."""
    parts = urlsplit(_served()[1].server.url)
    answered = bytearray()
    with socket.create_connection((parts.hostname, parts.port), timeout=5) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                answered += part
        except ConnectionError:
            pass  # it does not read on
    if b"HTTP/1.1 500" in answered or (answered and not answered.startswith(b"HTTP/1.1 ")):
        raise FaultError(bytes(answered[:500]))
    return len(answered)


def _requests() -> list[bytes]:
    body = as_json(snapshot_document() | {"t_s": 1000.0})
    head = f"Host: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
    post = f"POST /v1/decide?policy=ds2 HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    return [
        f"GET /v1/status HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode(),
        f"GET /metrics HTTP/1.1\r\n{head}\r\nHEAD / HTTP/1.0\r\n\r\n".encode(),
        post.encode() + body,
    ]


def _asked(document: Any) -> object:
    """As the server answers: together with others, else alone."""
    from dsp_gym.control.serve import server as serving

    decisions = _served()[1].server.decisions
    question = Question(as_json(document), "ds2", "fuzz", True)
    (at_once,) = decisions.answer_batch([question])
    if at_once is not None:
        return at_once
    answer = serving._tried(lambda: serving._json(decisions.answer(question)))
    if answer.status == 500:
        raise FaultError(answer.body[:500])
    return answer.status


HTTP = [
    Reader("request over HTTP", _request, _requests, None, share=0.4, is_bounded=False),
    json_reader(
        "request for a decision",
        _asked,
        lambda: snapshot_document() | {"t_s": 1000.0},
        share=0.4,
        is_bounded=False,
    ),
]

READERS: list[Reader] = [*POLICIES, *CHECKPOINTS, *MEMORY, *HTTP]
