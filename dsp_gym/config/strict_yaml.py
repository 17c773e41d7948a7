"""YAML read strictly: no duplicate keys, scalars as YAML 1.2 reads them, and bounds.

PyYAML follows YAML 1.1, where `1e6` is a string, `off` is false and `12:30` is 750. A rate, a
switch and a clock time written in a configuration mean what they look like instead.

A document is bounded in bytes, in levels, and in what its aliases stand for: without bounds libyaml
ends the process where one is nested too deep, and a few lines of aliases stand for billions of
values. Nodes are composed here and not by libyaml, so that bounds are met while they are composed.

Why not ruamel.yaml: docs/adr/0013-strict-yaml.md.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from dsp_gym.config.strict_json import MOST_DEPTH, refuse_halves
from dsp_gym.errors import ConfigError

MOST_BYTES = 512 * 1024
"""Of a document; a job of a thousand vertices takes half of it."""

MOST_NODES = 100_000
"""Keys and values that a document with aliases stands for."""

_EXPLAINED_BYTES = 16 * 1024
"""Up to here a document that libyaml refuses is read again by the parser with better words; it is
fifty times as slow."""

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


class _BoundError(Exception):
    """A document goes beyond a bound, in words, and where."""

    def __init__(self, said: str, line: int) -> None:
        super().__init__(said)
        self.said, self.line = said, line


def _line(event: yaml.Event) -> int:
    return 0 if event.start_mark is None else event.start_mark.line + 1


class _BoundedComposer(Composer):
    """Composes nodes and counts levels, and what aliases stand for."""

    def begin(self) -> None:
        """Count from 0."""
        self._depth = self._deepest = self._nodes = 0
        self._has_alias = False
        # Nodes and levels of each anchored node, by its identity; `anchors` keeps them alive.
        self._anchored: dict[int, tuple[int, int]] = {}

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[attr-defined]  # of the parser it stands beside
        nodes, deepest = self._nodes, self._deepest
        self._depth += 1
        self._deepest = self._depth
        self._refuse_more(event)
        node = super().compose_node(parent, index)
        if isinstance(event, yaml.AliasEvent):
            self._take_alias(node, event)
        else:
            self._nodes += 1
            if event.anchor is not None:
                self._anchored[id(node)] = self._nodes - nodes, self._deepest - self._depth
        self._depth -= 1
        self._deepest = max(deepest, self._deepest)
        return node

    def _take_alias(self, node: yaml.Node | None, event: yaml.AliasEvent) -> None:
        if id(node) not in self._anchored:
            raise _BoundError(f"*{event.anchor} stands for what it is part of", _line(event))
        nodes, levels = self._anchored[id(node)]
        self._has_alias = True
        self._nodes += nodes
        self._deepest = self._depth + levels
        self._refuse_more(event)

    def _refuse_more(self, event: yaml.Event) -> None:
        if self._deepest > MOST_DEPTH:
            raise _BoundError(f"it is nested deeper than {MOST_DEPTH} levels", _line(event))
        if self._has_alias and self._nodes > MOST_NODES:
            raise _BoundError(
                f"its aliases stand for more than {MOST_NODES:,} values", _line(event)
            )


class _StrictLoader(_BoundedComposer, yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012  # as PyYAML declares it, which mypy holds us to
        first: [(tag, regexp) for tag, regexp in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        yaml.SafeLoader.__init__(self, text)
        self.begin()

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


if yaml.__with_libyaml__:
    from yaml._yaml import CParser

    class _CompiledLoader(_BoundedComposer, CParser, SafeConstructor, Resolver):
        """As strict, over libyaml's parser: several times as fast, with blunter messages."""

        yaml_implicit_resolvers = _StrictLoader.yaml_implicit_resolvers
        yaml_constructors = _StrictLoader.yaml_constructors
        construct_mapping = _StrictLoader.construct_mapping

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            Composer.__init__(self)
            SafeConstructor.__init__(self)
            Resolver.__init__(self)
            self.begin()


def parse_yaml(text: str, *, file: str) -> object:
    """Read one YAML document.

    Args:
        text: The document.
        file: The name used in errors.

    Returns:
        What the text holds: mappings, lists, strings, numbers, booleans and None; an empty text
        is None.

    Raises:
        ConfigError: The text is not YAML, gives a key twice, or is larger or deeper than any
            configuration; with file and line.
    """
    if len(text) > MOST_BYTES:
        raise ConfigError(
            f"is too large: {len(text):,} characters, {MOST_BYTES:,} are the most",
            file=file,
            remedy="Is it a configuration?",
        )
    if yaml.__with_libyaml__:
        try:
            return _read(text, file, _CompiledLoader)
        except yaml.YAMLError as error:
            if len(text) > _EXPLAINED_BYTES:
                raise _invalid(error, file) from None
    try:
        return _read(text, file, _StrictLoader)  # whose messages name the character
    except yaml.YAMLError as error:
        raise _invalid(error, file) from None


def _invalid(error: yaml.YAMLError, file: str) -> ConfigError:
    if not isinstance(error, yaml.MarkedYAMLError):
        return ConfigError(f"is not valid YAML: {error}", file=file)
    mark = error.problem_mark or error.context_mark
    line = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    problem = error.problem or error.context or "unreadable"
    return ConfigError(f"{line}is not valid YAML: {problem}", file=file)


def _read(text: str, file: str, loader: type[_BoundedComposer]) -> object:
    try:
        document = yaml.load(text, Loader=loader)  # type: ignore[arg-type]  # both are loaders
        if "\\" in text:
            refuse_halves(document)
    except _DuplicateKeyError as error:
        raise ConfigError(
            f"line {error.line}: already given in line {error.first_line}",
            file=file,
            key=error.key,
            remedy="Keep one of the two.",
        ) from None
    except _BoundError as error:
        raise ConfigError(
            f"line {error.line}: {error.said}", file=file, remedy="Is it a configuration?"
        ) from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # PyYAML's own, of tags such as `!!timestamp x`, and Python's of a number of 5,000 digits.
        raise ConfigError(
            f"holds a value that cannot be read: {error}",
            file=file,
            remedy="Leave out tags, and write very large numbers as 1e300.",
        ) from None
    return document


class _Dumper(yaml.SafeDumper):
    """Quotes a text that `parse_yaml` would take for something else, such as `1e6`."""


def _quoted(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_other = any(re.match(pattern, text) for _, pattern, _ in _CORE_SCALARS)
    style = '"' if is_other else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quoted)


def dump_yaml(data: object, *, flow: bool | None = False) -> str:
    r"""Write data as YAML that `parse_yaml` reads back as it was.

    Args:
        data: dictionaries, lists, texts, numbers, truth values and None.
        flow: None: what holds no other collection stands on one line; False: nothing does.

    Returns:
        Text of at most 100 columns, keys in their order, that ends with a newline.

    >>> dump_yaml({"name": "1e6"})
    'name: "1e6"\n'
    """
    text: str = yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        width=100,
        allow_unicode=True,
        default_flow_style=flow,
    )
    return text
