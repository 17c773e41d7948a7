"""Flink's own autoscaler: facts of its unit tests, worked decisions and traces of its classes."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

from baselines.flink_autoscaler import FlinkAutoscaler
from baselines.flink_autoscaler.documents import Document
from baselines.studies.autoscaler_facts import fact
from dsp_gym.studies.reproduce.registry import Check, skipped

SOURCE = "Flink Kubernetes Operator, flink-autoscaler"
RELEASE, MAIN = "1.15.0", "main"
RATE_TOLERANCE = 1e-3
"""Tolerance of rates: sums over several inputs run in the order of a Java hash map."""

Documents = Iterable[Document]


def flink_autoscaler(data: Path | None = None) -> list[Check]:
    """Check the policy against facts, worked decisions and traces of Flink's own classes.

    Returns:
        One check per file of evidence; a skipped one where the data folder lacks them.
    """
    if data is None or not (data / "flink_autoscaler_cases.json").is_file():
        why = "the data folder has no flink_autoscaler_cases.json"
        return [skipped("flink-autoscaler/facts", SOURCE, "facts of its unit tests", 211, why)]
    cases = json.loads((data / "flink_autoscaler_cases.json").read_text(encoding="utf-8"))["cases"]
    ours = [case for case in cases if RELEASE in case["holds_in"]]
    of_main = [case for case in cases if case["holds_in"] == [MAIN]]
    decisions = _lines(data / "flink_autoscaler_decisions.jsonl")
    traces = _lines(data / "flink_autoscaler_traces.jsonl")
    return [
        _check(
            "facts",
            "facts of its unit tests that hold in 1.15.0",
            ours,
            wrong_facts(ours, RELEASE),
        ),
        _check(
            "main",
            "facts that hold on main only, through the switches",
            of_main,
            wrong_facts(of_main, MAIN),
        ),
        _check(
            "decisions",
            "worked decisions of its classes, every field",
            decisions,
            wrong_decisions(decisions),
        ),
        _check(
            "traces",
            "closed-loop traces of its classes, every field of every tick",
            traces,
            wrong_traces(traces),
        ),
    ]


def wrong_facts(cases: Documents, version: str) -> dict[str, str]:
    """Find the facts that do not hold.

    Returns:
        The first difference by id of the fact.
    """
    wrong = {}
    for case in cases:
        found = differences(case["expected"], fact(case["op"], case["input"], version))
        if found:
            wrong[case["id"]] = found[0]
    return wrong


def wrong_decisions(lines: Documents) -> dict[str, str]:
    """Find the decisions that differ from 1.15.0's in any field.

    Returns:
        The first difference by id of the decision.
    """
    wrong = {}
    for line in lines:
        asked = {name: value for name, value in line.items() if name != "expected"}
        found = differences(line["expected"][RELEASE], FlinkAutoscaler.answer(asked, "decision"))
        if found:
            wrong[line["id"]] = found[0]
    return wrong


def wrong_traces(lines: Documents) -> dict[str, str]:
    """Find the traces that differ in any field of any tick.

    Returns:
        The first difference by id of the trace.
    """
    wrong = {}
    for line in lines:
        ticks = [{"in": tick["in"]} for tick in line["ticks"]]
        expected = {"ticks": [{"out": tick["out"]} for tick in line["ticks"]]}
        found = differences(expected, FlinkAutoscaler.answer({**line, "ticks": ticks}, "trace"))
        if found:
            wrong[line["id"]] = found[0]
    return wrong


def differences(expected: object, found: object, where: str = "") -> list[str]:
    """Compare an answer with the expected one; further fields of the answer do not count.

    >>> differences({"new": 3, "rate": 2.0}, {"new": 3, "rate": 2.0004, "more": 1})
    []
    >>> differences({"new": 3}, {"new": 4})
    ['.new: 3 expected, 4 found']

    Returns:
        One sentence per difference.
    """
    if isinstance(expected, dict):
        if set(expected) == {"gt", "lt"}:
            inside = expected["gt"] < found < expected["lt"]
            return [] if inside else [f"{where}: {expected} expected, {found!r} found"]
        if not isinstance(found, dict):
            return [f"{where}: {expected!r} expected, {found!r} found"]
        return [text for name in expected for text in _field(expected, found, name, where)]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [text for i, (e, f) in pairs for text in differences(e, f, f"{where}[{i}]")]
    same = _same(expected, found)
    return [] if same else [f"{where}: {expected!r} expected, {found!r} found"]


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
        return bool(expected is found)
    if expected in ("NaN", "Infinity", "-Infinity"):
        return bool(expected == found)
    if isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        return math.isclose(expected, found, rel_tol=0.0, abs_tol=RATE_TOLERANCE)
    return bool(expected == found)


def _check(name: str, claim: str, asked: list[Document], wrong: dict[str, str]) -> Check:
    note = "; ".join(f"{key}{what}" for key, what in list(wrong.items())[:3]) or None
    return Check(
        name=f"flink-autoscaler/{name}",
        source=SOURCE,
        claim=claim,
        published=len(asked),
        ours=len(asked) - len(wrong),
        tolerance="all; parallelism exact, rates within 1e-3",
        passed=not wrong and bool(asked),
        used_in_fit=False,
        note=note,
    )


def _lines(path: Path) -> list[Document]:
    if not path.is_file():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text]
