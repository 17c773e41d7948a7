"""`dsp-gym decide`: snapshots in, decisions out."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsp_gym.errors import ConfigError, DspGymError, MetricsError, SchemaError

if TYPE_CHECKING:
    from dsp_gym.config.strict_json import Json
    from dsp_gym.control.client_history import RequestHistory
    from dsp_gym.guardrails.chain import Chain
    from dsp_gym.loop.protocols import Policy
    from dsp_gym.loop.snapshot import MetricsSnapshot
    from dsp_gym.loop.wire import Document

STANDARD_INPUT = "-"


EXAMPLES = (
    "Examples:\n\n"
    "  dsp-gym decide snapshots.jsonl --policy ds2\n\n"
    "  dsp-gym decide snapshots.jsonl --policy learned-q11 --guardrails default "
    "--out decisions.jsonl\n\n"
    "  dsp-gym decide traces.jsonl --policy flink-autoscaler --trace"
)


def decide(
    snapshots: Annotated[
        str, typer.Argument(metavar="FILE", help="Snapshots, one per line; - is stdin.")
    ],
    policy: Annotated[str, typer.Option(help="A policy's name, YAML file, or folder.")],
    guardrails: Annotated[
        str | None, typer.Option(help="Guardrails the decisions pass: a name or YAML file.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of policies that draw random numbers.")
    ] = 0,
    trace: Annotated[
        bool, typer.Option("--trace", help="Lines are traces in the policy's own format.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write decisions there, whole or not at all."),
    ] = None,
) -> None:
    """Decide on metrics snapshots: JSON Lines in, JSON Lines out.

    Each line of the input is a `dsp-gym/snapshot/1` document. Lines of one job are its history, in
    order; each job has its own copy of the policy. Each line of the output is the
    `dsp-gym/decision/1` that answers the line of the input.

    A policy may also read documents in its own format: `flink-autoscaler` takes inputs of Flink's
    real classes (lines without a schema) and answers with their fields; with --trace a line is
    a run, tick by tick.
    """
    from dsp_gym.config.files import write_atomic

    found = answers(_lines(snapshots), _maker(policy, guardrails), seed, trace=trace)
    if out is None:
        for document in found:
            typer.echo(_line(document))
        return
    documents = list(found)
    write_atomic(out, "".join(f"{_line(document)}\n" for document in documents))
    changes = sum(document.get("changed", False) for document in documents)
    typer.echo(f"{len(documents)} answers, {changes} of them changes: {out}")


@dataclass(slots=True)
class _Job:
    """One job: its policy and guardrails, and what its next snapshot must not contradict."""

    policy: Policy
    chain: Chain | None
    history: RequestHistory


def answers(
    lines: Iterable[tuple[str, str]],
    start: Callable[[], tuple[Policy, Chain | None]],
    seed: int = 0,
    *,
    trace: bool = False,
) -> Iterator[Document]:
    """Answer each line: a snapshot by a decision, the policy's own document by its answer.

    Args:
        lines: Where each line stands, and its text.
        start: Makes the policy, and the guardrails, of one job.
        seed: Of policies that draw.
        trace: Every line is a trace of the policy's own.

    Returns:
        JSON-able documents in the order of the lines.
    """
    import numpy as np

    from dsp_gym.control.client_history import RequestHistory
    from dsp_gym.loop.turn import take_turn
    from dsp_gym.loop.wire import decision_to_json, snapshot_from_json
    from dsp_gym.policies import capabilities_of

    jobs: dict[str, _Job] = {}
    first = start()[0]
    reads = capabilities_of(first).answer
    for where, text in lines:
        document = _parsed(text, where)
        bare = reads is not None and isinstance(document, dict) and "schema" not in document
        if trace or bare:
            yield _own(reads, document, where, "trace" if trace else "decision")
            continue
        snapshot = snapshot_from_json([document], where)
        _refuse_doubtful(snapshot, where)
        key = snapshot.topology.spec(0).job
        try:
            job = jobs.get(key)
            if job is None:
                history = RequestHistory(
                    snapshot, "Sort the lines of a job by t_s, without repeats."
                )
                job = jobs[key] = _Job(*start(), history)
                job.policy.reset(snapshot.topology, np.array([seed]))
                if job.chain is not None:
                    job.chain.reset(snapshot.topology, np.array([seed]))
            job.history.take(snapshot)
            guarded = take_turn(snapshot, job.policy.decide, job.chain)
            answer = guarded if job.chain is not None else guarded.proposed
            yield decision_to_json(answer, snapshot.job(0))
        except DspGymError as error:
            raise error.in_file(where) from None


def _refuse_doubtful(snapshot: MetricsSnapshot, where: str) -> None:
    """Refuse metrics that cannot be; a loop beside a job holds instead."""
    from dsp_gym.loop.plausible import doubts, plausible

    wrong = "; ".join(filter(None, doubts(plausible(snapshot))))
    if wrong:
        raise MetricsError(
            wrong,
            file=where,
            remedy="Write null for an unknown metric; times are means over subtasks, not sums.",
        )


def _own(
    answer: Callable[[Json, str], Document] | None, document: Json, where: str, kind: str
) -> Document:
    """Let a policy answer a document in its own format."""
    if answer is None:
        raise ConfigError(
            "this policy cannot read traces",
            key="--trace",
            remedy="Leave --trace out, or take --policy flink-autoscaler.",
        )
    try:
        return answer(document, kind)
    except DspGymError as error:
        raise error.in_file(where) from None


def _maker(policy: str, guardrails: str | None) -> Callable[[], tuple[Policy, Chain | None]]:
    from dsp_gym.guardrails.chain import build_for
    from dsp_gym.policies.registry import make

    def start() -> tuple[Policy, Chain | None]:
        made = make(policy)
        return made, build_for(made, guardrails)

    start()  # a wrong name is refused before the first line is read
    return start


def _lines(source: str) -> Iterator[tuple[str, str]]:
    """Read lines that are not blank, each with the file and number that errors name."""
    from dsp_gym.config.text import decoded

    name = "standard input" if source == STANDARD_INPUT else source
    try:
        stream = sys.stdin.buffer if source == STANDARD_INPUT else open(source, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(
            f"cannot be read: {error.strerror}",
            file=source,
            remedy="Give a file of snapshots, one JSON document per line, or - for stdin.",
        ) from error
    blank = True
    with stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                blank = False
                yield f"{name}, line {number}", decoded(line, name, first_line=number)
    if blank:
        raise SchemaError(
            "is empty, expected snapshots",
            file=name,
            remedy="Give one JSON document per line.",
        )


def _parsed(text: str, where: str) -> Json:
    from dsp_gym.config.strict_json import parse_json

    try:
        return parse_json(text)
    except ValueError as error:
        said = str(error)
        if isinstance(error, json.JSONDecodeError):
            said = f"{error.msg} at column {error.colno}"
        raise SchemaError(
            f"is not valid JSON: {said}",
            file=where,
            remedy="Write one whole document per line.",
        ) from None


def _line(document: Document) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"))
