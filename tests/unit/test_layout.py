"""The layout of the four packages: folders, imports, and the bars that keep signatures short."""

from __future__ import annotations

import ast
import gc
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("agents", "baselines", "dsp_gym", "spark_pipelines")
STUDIES = re.compile(rf"({'|'.join(PACKAGES)})\.studies(\.\w+)*(:\w+)?")
MOST_SUBPACKAGES = 22
MOST_ARGUMENTS, MANY_ARGUMENTS, MOST_FUNCTIONS_WITH_MANY = 12, 9, 5
MOST_UNFORMATTED, MOST_ANY = 80, 250
CLASSES_OF_ONE_NAME = {
    # A vertex and a job as a feature sees them, beside the job file's.
    "Vertex": 3,
    "Job": 2,
    # The port of Flink's autoscaler keeps the names of the classes that it ports.
    "Memory": 2,
    "Outcome": 2,
    "Trace": 2,
    "Window": 2,
    # What each policy remembers, and its configuration for compiled code: one meaning, one name.
    "Remembered": 5,
    "Rules": 2,
}
"""Public classes that several modules may define, and how many."""


@dataclass(frozen=True)
class Module:
    """One file of a package, read and parsed."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        return self.name if self.path.stem == "__init__" else self.name.rpartition(".")[0]

    @property
    def is_study(self) -> bool:
        return self.name.split(".")[1:2] == ["studies"]

    @property
    def is_command(self) -> bool:
        return self.name.split(".")[:2] == ["dsp_gym", "cli"]

    def imported(self, known: dict[str, Module]) -> Iterator[str]:
        """Names of the known modules it imports, in functions and for type checking too."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in known)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = self.package.split(".")
                    above = parts[: len(parts) - node.level + 1]
                    base = ".".join([*above, base] if base else above)
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    found = inner if inner in known else base
                    if found in known:
                        yield found

    def argument_counts(self) -> Iterator[tuple[int, str]]:
        """Arguments of every function, `self` and `cls` left out, and its address."""
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                names = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                count = len(names) - (names[:1] in (["self"], ["cls"]))
                yield count, f"{self.name}.{node.name}"

    def unformatted(self) -> int:
        """Statements kept from the formatter."""
        return self.path.read_text().count("# fmt: skip")

    def lines_naming_any(self) -> set[int]:
        """Numbers of the lines whose code names `Any`; imports and prose do not count."""
        if "Any" not in self.path.read_text():
            return set()
        imports = {
            line
            for node in self.nodes
            if isinstance(node, ast.Import | ast.ImportFrom)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        with tokenize.open(self.path) as stream:
            tokens = list(tokenize.generate_tokens(stream.readline))
        named = {t.start[0] for t in tokens if t.type == tokenize.NAME and t.string == "Any"}
        return named - imports

    def named_studies(self) -> Iterator[tuple[int, str]]:
        """Line and text of every string that is the address of a study, docstrings left out."""
        for node in self.nodes:
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and STUDIES.fullmatch(node.value)
            ):
                yield node.lineno, node.value


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    found = {_name(path): Module(_name(path), path) for path in paths}
    assert len(found) > 300
    gc.disable()  # a million nodes, and no garbage among them
    for module in found.values():
        module.nodes  # noqa: B018  # read once here
    gc.enable()
    return found


def _circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for other in edges[module]:
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            group = [stack.pop()]
            while group[-1] != module:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for module in edges:
        if module not in order:
            visit(module)
    return found


def test_a_circle_of_three_modules_is_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"a"}}
    assert _circles(edges) == [["a", "b", "c"]]


def test_an_import_in_a_function_and_a_relative_one_count(tmp_path):
    path = tmp_path / "series.py"
    path.write_text("from .report import x\ndef f():\n    from p import other\n    import q.r\n")
    module = Module("p.series", path)
    known = dict.fromkeys(["p", "p.series", "p.report", "p.other", "q.r"], module)
    assert list(module.imported(known)) == ["p.report", "p.other", "q.r"]


def test_the_library_has_at_most_twenty_two_subpackages():
    found = sorted(path.parent.name for path in (ROOT / "dsp_gym").glob("*/__init__.py"))
    assert "studies" in found
    assert len(found) <= MOST_SUBPACKAGES, found


def test_no_modules_import_each_other_in_a_circle(modules):
    edges = {name: set(module.imported(modules)) - {name} for name, module in modules.items()}
    assert sum(map(len, edges.values())) > 1000
    assert _circles(edges) == []


def test_only_the_command_line_and_studies_themselves_import_studies(modules):
    product = [m for m in modules.values() if not (m.is_study or m.is_command)]
    imported = [
        f"{module.name} imports {other}"
        for module in product
        for other in module.imported(modules)
        if modules[other].is_study
    ]
    named = [
        f"{module.name}:{line} names {text!r}"
        for module in product
        for line, text in module.named_studies()
    ]
    assert imported + named == []


def test_a_study_is_imported_by_the_command_line(modules):
    """So the test above would see an import if there was one."""
    commands = [m for m in modules.values() if m.is_command]
    assert any(modules[other].is_study for m in commands for other in m.imported(modules))


def test_a_public_class_has_a_name_of_its_own(modules):
    found = Counter(
        node.name
        for module in modules.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(found) > 500
    assert {name: n for name, n in found.items() if n > 1} == CLASSES_OF_ONE_NAME


def test_functions_take_few_arguments(modules):
    counts = [
        found
        for module in modules.values()
        if not module.is_command
        for found in module.argument_counts()
    ]
    assert len(counts) > 2000
    assert [found for found in counts if found[0] > MOST_ARGUMENTS] == []
    many = sorted(found for found in counts if found[0] > MANY_ARGUMENTS)
    assert len(many) <= MOST_FUNCTIONS_WITH_MANY, many


def test_the_formatter_lays_out_the_code(modules):
    found = {m.name: m.unformatted() for m in modules.values()}
    assert sum(found.values()) <= MOST_UNFORMATTED, {name: n for name, n in found.items() if n}


def test_types_are_named(modules):
    found = {m.name: len(m.lines_naming_any()) for m in modules.values()}
    assert any(found.values())
    assert sum(found.values()) <= MOST_ANY, {name: n for name, n in found.items() if n}


def test_arguments_and_lines_that_name_any_are_counted_as_they_are_meant(tmp_path):
    path = tmp_path / "one.py"
    path.write_text(
        "from typing import Any\n"
        "class A:\n"
        "    def f(self, a, /, b, *args, c=1, **more): pass\n"
        "    @classmethod\n"
        "    def g(cls, a: Any) -> Any: pass  # Any other\n"
        "async def h(): pass\n"
        "x = 1  # fmt: skip\n"
    )
    module = Module("one", path)
    assert sorted(module.argument_counts()) == [(0, "one.h"), (1, "one.g"), (3, "one.f")]
    assert module.lines_naming_any() == {5}
    assert module.unformatted() == 1
