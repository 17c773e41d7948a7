"""Flink's own autoscaler: facts of its unit tests, worked decisions and traces of its classes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path

from baselines.flink_autoscaler import FlinkAutoscaler
from baselines.flink_autoscaler.documents import Document
from baselines.studies.autoscaler_facts import MAIN, RELEASE, fact
from dsp_gym.studies.reproduce.registry import Check

SOURCE = "Flink Kubernetes Operator, flink-autoscaler"
RATE_TOLERANCE = 1e-3
"""Tolerance of rates: sums over several inputs run in the order of a Java hash map."""

Answers = tuple[object, object]
"""What is expected of a document, and what was found."""


def flink_autoscaler(data: Path) -> list[Check]:
    """Check the policy against facts, worked decisions and traces of Flink's own classes.

    Returns:
        One check per file of evidence, and one for the facts of the main branch.
    """
    cases = json.loads((data / "flink_autoscaler_cases.json").read_text(encoding="utf-8"))["cases"]
    return [
        _check(
            "facts",
            "facts of its unit tests that hold in 1.15.0",
            [case for case in cases if RELEASE in case["holds_in"]],
            lambda case: fact_answers(case, RELEASE),
        ),
        _check(
            "main",
            "facts that hold on main only, through the switches",
            [case for case in cases if case["holds_in"] == [MAIN]],
            lambda case: fact_answers(case, MAIN),
        ),
        _check(
            "decisions",
            "worked decisions of its classes, every field",
            _lines(data / "flink_autoscaler_decisions.jsonl"),
            decision_answers,
        ),
        _check(
            "traces",
            "closed-loop traces of its classes, every field of every tick",
            _lines(data / "flink_autoscaler_traces.jsonl"),
            trace_answers,
        ),
    ]


def fact_answers(case: Document, version: str) -> Answers:
    """Apply the rule of a fact.

    Returns:
        The expected fields, and all fields.
    """
    return case["expected"], fact(case["op"], case["input"], version)


def decision_answers(line: Document) -> Answers:
    """Take a worked decision as 1.15.0 does.

    Returns:
        The expected decision, and ours.
    """
    asked = {name: value for name, value in line.items() if name != "expected"}
    return line["expected"][RELEASE], FlinkAutoscaler.answer(asked, "decision")


def trace_answers(line: Document) -> Answers:
    """Take the decisions of a trace, tick by tick.

    Returns:
        The expected output of every tick, and ours.
    """
    ticks = [{"in": tick["in"]} for tick in line["ticks"]]
    expected = {"ticks": [{"out": tick["out"]} for tick in line["ticks"]]}
    return expected, FlinkAutoscaler.answer({**line, "ticks": ticks}, "trace")


def wrong(documents: Iterable[Document], ask: Callable[[Document], Answers]) -> dict[str, str]:
    """Find the documents whose answer differs from the expected one in any field.

    Returns:
        The first difference by id of the document.
    """
    found = {document["id"]: differences(*ask(document)) for document in documents}
    return {key: texts[0] for key, texts in found.items() if texts}


def differences(expected: object, found: object, where: str = "") -> list[str]:
    """Compare an answer with the expected one; further fields of the answer do not count.

    >>> differences({"new": 3, "rate": 2.0}, {"new": 3, "rate": 2.0004, "more": 1})
    []
    >>> differences({"new": 3}, {"new": 4})
    ['.new: 3 expected, 4 found']

    Returns:
        One sentence per difference.
    """
    unlike = [f"{where}: {expected!r} expected, {found!r} found"]
    if isinstance(expected, dict) and set(expected) == {"gt", "lt"}:
        return [] if expected["gt"] < found < expected["lt"] else unlike
    if isinstance(expected, dict) and isinstance(found, dict):
        return [text for name in expected for text in _field(expected, found, name, where)]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [text for i, (e, f) in pairs for text in differences(e, f, f"{where}[{i}]")]
    return [] if _same(expected, found) else unlike


def _field(expected: Document, found: Document, name: str, where: str) -> list[str]:
    if name == "event_reasons_contain":
        reasons = found.get("event_reasons", [])
        return [] if expected[name] in reasons else [f"{where}: no {expected[name]} in {reasons}"]
    if name not in found:
        # An unknown metric is left out, and so is a vertex without any.
        return [] if expected[name] == "NaN" else [f"{where}.{name}: missing"]
    return differences(expected[name], found[name], f"{where}.{name}")


def _same(expected: object, found: object) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool) or expected is None:
        return expected is found
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(expected, found, rel_tol=0.0, abs_tol=RATE_TOLERANCE)
    return bool(expected == found)


def _check(
    name: str, claim: str, asked: list[Document], ask: Callable[[Document], Answers]
) -> Check:
    missed = wrong(asked, ask)
    return Check(
        name=f"flink-autoscaler/{name}",
        source=SOURCE,
        claim=claim,
        published=len(asked),
        ours=len(asked) - len(missed),
        tolerance="all; parallelism exact, rates within 1e-3",
        passed=not missed and bool(asked),
        note="; ".join(f"{key}{what}" for key, what in list(missed.items())[:3]) or None,
    )


def _lines(path: Path) -> list[Document]:
    if not path.is_file():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text]
