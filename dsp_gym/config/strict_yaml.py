"""YAML read strictly: no duplicate keys, and scalars as YAML 1.2 reads them.

PyYAML follows YAML 1.1, where `1e6` is a string, `off` is false and `12:30` is 750. A rate, a
switch and a clock time written in a configuration mean what they look like instead.

Why not ruamel.yaml: docs/adr/0013-strict-yaml.md.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

import yaml
from yaml.constructor import SafeConstructor

from dsp_gym.errors import ConfigError

__all__ = ["parse_yaml"]

_CORE_SCALARS: tuple[tuple[str, str, str], ...] = (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9][0-9_]*$", "-+0123456789"),
    (
        "tag:yaml.org,2002:float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+.0123456789",
    ),
)
_REPLACED = {tag for tag, _, _ in _CORE_SCALARS} | {"tag:yaml.org,2002:timestamp"}


class _StrictLoader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012  # as PyYAML declares it, which mypy holds us to
        first: [(tag, regexp) for tag, regexp in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        _refuse_duplicates(node)
        return SafeConstructor.construct_mapping(
            self, node, deep=deep
        )  # super() would tie it to this class


for _tag, _pattern, _first in _CORE_SCALARS:
    _StrictLoader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first))


def _construct_int(loader: _StrictLoader, node: yaml.ScalarNode) -> int:
    # YAML 1.1 would read a leading zero as octal.
    return int(loader.construct_scalar(node).replace("_", ""))


_StrictLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)


class _DuplicateKeyError(Exception):
    def __init__(self, key: str, first_line: int, line: int) -> None:
        super().__init__(key)
        self.key, self.first_line, self.line = key, first_line, line


def _refuse_duplicates(node: yaml.MappingNode) -> None:
    seen: dict[str, int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            continue
        line = key.start_mark.line + 1
        if key.value in seen:
            raise _DuplicateKeyError(key.value, seen[key.value], line)
        seen[key.value] = line


class _CompiledLoader(yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader):  # type: ignore[misc]  # a base chosen at run time
    """As strict, over libyaml's parser: eight times as fast, with blunter messages."""

    yaml_implicit_resolvers = _StrictLoader.yaml_implicit_resolvers
    yaml_constructors = _StrictLoader.yaml_constructors
    construct_mapping = _StrictLoader.construct_mapping


def parse_yaml(text: str, *, file: str) -> object:
    """Reads one YAML document.

    Args:
        text: The document.
        file: The name used in errors.

    Returns:
        What the text holds: mappings, lists, strings, numbers, booleans and None; an empty text
        is None.

    Raises:
        ConfigError: The text is not YAML, or gives a key twice; with file and line.
    """
    try:
        return _read(text, file, _CompiledLoader)
    except yaml.YAMLError:
        pass
    try:
        return _read(text, file, _StrictLoader)  # whose messages name the character
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        problem = error.problem or error.context or "unreadable"
        raise ConfigError(f"{line}is not valid YAML: {problem}", file=file) from None
    except yaml.YAMLError as error:
        raise ConfigError(f"is not valid YAML: {error}", file=file) from None


def _read(text: str, file: str, loader: type[yaml.SafeLoader]) -> object:
    try:
        return yaml.load(text, Loader=loader)
    except _DuplicateKeyError as error:
        raise ConfigError(
            f"line {error.line}: already given in line {error.first_line}",
            file=file,
            key=error.key,
            remedy="Keep one of the two.",
        ) from None
