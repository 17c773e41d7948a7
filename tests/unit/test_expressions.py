"""Every regular expression of the code takes time in proportion to the text, whatever the text."""

from __future__ import annotations

import ast
import functools
import math
import re
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsp_gym.metrics.flink import FLINK_METRICS, SOURCE_METRICS, prometheus_names
from dsp_gym.redaction import redacted, redacted_values
from tests.attacks import attacks

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "baselines", "dsp_gym", "spark_pipelines")
METHODS = ("match", "fullmatch", "search", "sub", "split", "findall", "finditer", "subn")
CALLS = {f"re.{method}" for method in (*METHODS, "compile")}
FLAGS = {"re.IGNORECASE": re.IGNORECASE, "re.MULTILINE": re.MULTILINE}

MOST_RATIO, MOST_BYTES = 2.5, 2**20
SHORT_BYTES, SLOW_S = 2**12, 2e-3
"""Up to this size every attack is tried; from this time on it is measured whether it grows too
fast. Beyond, the slowest attack is."""

LONG_S = 1.0
"""Time that is too long for a mebibyte or less: a longer text is not tried then."""

NOTICED_S = 0.02
"""Time from which on a mebibyte is compared with a half and a quarter of it."""

SHORT_S = 0.05
"""Time that the longest text of a bounded expression may take."""

BOUNDED = {
    "dsp_gym/backends/kubernetes/config.py": 4096,  # max_length of the selector
    "dsp_gym/studies/fitting/fitted_values.py": 2000,  # lines of this project's own job files
}
"""Characters of the texts that the expressions of a module meet, which bounds their time."""

OF_VALUES = {
    "prometheus_names(metric)": [prometheus_names(m) for m in (*FLINK_METRICS, *SOURCE_METRICS)],
    "pattern": [],  # of a table in the same module, whose rows are found themselves
    "names": [],  # of a stand-in for Prometheus: the client's own selector
    "_pattern": [],
    'f\'[{{,]{label}=~("(?:[^"\\\\\\\\]|\\\\\\\\.)*")\'': [],
}
"""Expressions that are computed, and what comes of it."""


class Expression(NamedTuple):
    """An expression of the code, and how it is applied."""

    file: str
    line: int
    pattern: str | bytes
    flags: int
    method: str

    @property
    def at(self) -> str:
        """Where it stands."""
        return f"{self.file}:{self.line} re.{self.method}({self.pattern!r})"


class _Names(ast.NodeVisitor):
    """Texts that a module gives names to, and what is asked of named expressions."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.texts: dict[str, str] = {}
        self.asked: dict[str, set[str]] = {"": set()}
        """Methods by the name they are called on; under no name: all of the module's."""
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and (module := _module(node.module)) is not None:
                theirs = {name.asname or name.name: name.name for name in node.names}
                wanted = {ours for ours, name in theirs.items() if name.isupper()}
                known = _names(module).texts if wanted else {}
                self.texts |= {one: known[theirs[one]] for one in wanted if theirs[one] in known}
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name) and (text := self.text(node.value)) is not None:
                self.texts[target.id] = text
        self.visit(tree)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in METHODS:
            self.asked[""].add(node.attr)
            self.asked.setdefault(ast.unparse(node.value), set()).add(node.attr)
        self.generic_visit(node)

    def text(self, node: ast.AST) -> Any:
        """The value of an expression of texts; None where it has to be computed."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            return node.value
        if isinstance(node, ast.Name):
            return self.texts.get(node.id)
        if isinstance(node, ast.JoinedStr):
            parts = [
                self.text(p.value if isinstance(p, ast.FormattedValue) else p) for p in node.values
            ]
            return None if None in parts else "".join(parts)
        return None


@functools.cache
def _names(file: Path) -> _Names:
    """The names of a module, which many others import."""
    return _Names(ast.parse(file.read_text("utf-8")))


def _module(name: str | None) -> Path | None:
    """The file of a module of ours."""
    file = ROOT / f"{(name or '').replace('.', '/')}.py"
    return file if (name or "").split(".")[0] in PACKAGES and file.is_file() else None


def _is_of_re(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and f"{node.value.id}.{node.attr}" in CALLS
    )


def expressions(file: Path) -> Iterator[Expression]:
    """The expressions of a module, by every way in which they may be applied."""
    names, at = _names(file), str(file.relative_to(ROOT))
    tree = names.tree
    named = {
        id(node.value): node.targets[0].id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and node.args and _is_of_re(node.func)):
            continue
        called = ast.unparse(node.func)
        pattern, said = names.text(node.args[0]), ast.unparse(node.args[0])
        given = [*node.args[1:], *(keyword.value for keyword in node.keywords)]
        flags = sum(FLAGS.get(ast.unparse(one), 0) for one in given)
        method = called.removeprefix("re.")
        for one in OF_VALUES[said] if pattern is None else [pattern]:
            asked = names.asked.get(named.get(id(node), ""), names.asked[""])
            for applied in sorted(asked) if method == "compile" else [method]:
                yield Expression(at, node.lineno, one, flags, applied)


@functools.cache
def all_expressions() -> list[Expression]:
    """Those of all packages; not read before a test needs them, as every worker collects tests."""
    return [
        one
        for package in PACKAGES
        for file in sorted((ROOT / package).rglob("*.py"))
        for one in expressions(file)
    ]


def applied(expression: Expression) -> Callable[[str], object]:
    """An expression as the code applies it."""
    compiled = re.compile(expression.pattern, expression.flags)
    method, is_bytes = getattr(compiled, expression.method), isinstance(expression.pattern, bytes)
    if expression.method in ("sub", "subn"):
        of_text: Callable[[Any], object] = lambda text: method(b"" if is_bytes else "", text)  # noqa: E731
    elif expression.method == "finditer":
        of_text = lambda text: sum(1 for _ in method(text))  # noqa: E731
    else:
        of_text = method
    return (lambda text: of_text(text.encode("latin-1", "replace"))) if is_bytes else of_text


def seconds(function: Callable[[str], object], text: str) -> float:
    """Time of this thread's own that a call takes, s: other work on the machine does not count.

    Nor, in a call of 50 ms or more, do the pages that the kernel hands out for the stack of a long
    text; it accounts for them in steps of some milliseconds.
    """
    begun, kernel = time.thread_time(), _kernel_seconds()
    function(text)
    took = time.thread_time() - begun
    return took - (_kernel_seconds() - kernel) if took >= 0.05 else took


def _kernel_seconds() -> float:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_stime


def made(attack: tuple[str, str, str], size: int) -> str:
    """The text of an attack, of about so many characters."""
    before, item, end = attack
    return before + item * max(1, size // len(item)) + end


def grows(function: Callable[[str], object], attack: tuple[str, str, str], size: int) -> bool:
    """Whether time grows faster than the text, from once to twice and from twice to four times.

    A text that has outgrown a cache is slow once; a search that grows with the square of its text
    is at every length. Each time is the best of several, since other work only adds.
    """
    texts = [made(attack, size << k) for k in range(3)]
    best = [math.inf] * len(texts)
    for turn in range(3):
        best = [
            min(so_far, *(seconds(function, text) for _ in range(2)))
            for so_far, text in zip(best, texts, strict=True)
        ]
        once, twice, four_times = (max(took, 1e-6) for took in best)
        is_growing = twice / once > MOST_RATIO and four_times / twice > MOST_RATIO
        if turn and not is_growing:
            break
    return is_growing


def worst_of(one: Expression) -> str | None:
    """Attack an expression, with ever longer texts.

    Returns:
        An attack under which time grows faster than the text; None where there is none.
    """
    function, most = applied(one), BOUNDED.get(one.file, MOST_BYTES)
    slowest, slowest_s = None, 0.0
    for attack in attacks(one.pattern, one.flags):
        size, took_s = 12, 0.0
        while 3 * size <= min(most, SHORT_BYTES) and took_s < SLOW_S:
            size = 3 * size // 2 if size < 64 else 3 * size
            took_s = seconds(function, made(attack, size))
        if took_s >= SLOW_S:
            is_short = (
                most < MOST_BYTES
                and min(seconds(function, made(attack, most)) for _ in range(3)) < SHORT_S
            )
            if size < 64 or (not is_short and grows(function, attack, size)):
                return f"{one.at}: {attack!r}: {size} characters take {took_s:.3g} s"
        if took_s / size > slowest_s:
            slowest, slowest_s = attack, took_s / size
    # What takes 2.5 times as long for twice the text needs 80 ms for a mebibyte, at a nanosecond
    # for the first character. Below that a cold cache makes the longer text look slow.
    if slowest is None or most < MOST_BYTES:
        return None
    size = SHORT_BYTES
    while size < MOST_BYTES:
        size *= 4
        if (took_s := seconds(function, made(slowest, size))) > LONG_S:
            return f"{one.at}: {slowest!r}: {size} characters take {took_s:.3g} s"
    if took_s < NOTICED_S:
        return None
    if grows(function, slowest, MOST_BYTES // 4):
        return f"{one.at}: {slowest!r}: 1 MiB takes too long beside a half and a quarter of it"
    return None


def test_the_expressions_are_found() -> None:
    assert len(all_expressions()) > 100
    assert {one.file for one in all_expressions()} >= {*BOUNDED, "dsp_gym/redaction.py"}


# Half a minute, and what it measures are times.
@pytest.mark.validate
@pytest.mark.parametrize("package", PACKAGES)
def test_every_expression_takes_time_in_proportion_to_the_text(package: str) -> None:
    of_package = {one[2:]: one for one in all_expressions() if one.file.startswith(f"{package}/")}
    assert [said for one in of_package.values() if (said := worst_of(one)) is not None] == []


@pytest.mark.parametrize(
    "pattern", [r"://[^\s\"<>]*@", r"(a+)+b", r"\s*x?\s*y", r",(?![^(]*\))", r"file:.*?size=\d"]
)
def test_an_expression_that_takes_longer_is_found(pattern: str) -> None:
    assert worst_of(Expression("x", 1, pattern, 0, "findall")) is not None


@pytest.mark.parametrize(
    "part",
    [
        *("://", "://a@", "a://", "@://", "?token=", "Bearer ", "basic a", "e"),
        # Twenty seconds together.
        *(pytest.param(part, marks=pytest.mark.validate) for part in ("&token", "?key=:// ")),
    ],
)
def test_credentials_are_hidden_in_time_in_proportion_to_the_text(part: str) -> None:
    def hide(text: str) -> object:
        return redacted_values({"said": text + "@=?Bearer"})

    assert not grows(hide, ("", part, ""), 2**18)
    assert seconds(redacted, "://" * 83_000) < 0.5  # once a minute


def test_models_leave_their_patterns_to_an_engine_in_linear_time() -> None:
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            assert "regex_engine" not in file.read_text("utf-8"), file  # pydantic's own is Rust's
