"""Strings made to keep a regular expression busy, derived from the expression itself.

Backtracking takes long where a repeat can stop at many places and what follows it fails at each, or
where a search begins anew at many places. Each attack therefore repeats a repeat's own item, or all
that comes before it, and ends in a letter that cannot follow.
"""

from __future__ import annotations

import re
import re._parser as sre
from collections.abc import Iterator, Sequence
from typing import Any

_CLASSES = {
    sre.CATEGORY_DIGIT: "0",
    sre.CATEGORY_SPACE: " ",
    sre.CATEGORY_WORD: "a",
    sre.CATEGORY_NOT_DIGIT: "x",
    sre.CATEGORY_NOT_SPACE: "x",
    sre.CATEGORY_NOT_WORD: "-",
}
_LETTERS = "aA0_-.:/=@&?,;#(){}[]<>\"' \t\nx\u00e9"
"""What a class is tried with."""

_FAILING = ("", "\n", "\0", "!")
"""What an attack ends in."""

_REPEATS = (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT)


def attacks(pattern: str | bytes, flags: int = 0) -> list[tuple[str, str, str]]:
    """Attacks on an expression.

    Returns:
        Beginning, what is repeated, and end of each.
    """
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    found: dict[tuple[str, str, str], None] = {}
    for before, items in _repeats(list(sre.parse(text, flags)), ""):
        for item in items:
            for end in _FAILING:
                found[before, item, end] = None
            found["", before + item, "\0"] = None
        if before:
            found["", before, "\0"] = None
    example = _example(list(sre.parse(text, flags)))
    if example:
        found["", example, "\0"] = None
        found["", example[:-1], "\0"] = None
    return [attack for attack in found if attack[1]]


def _repeats(nodes: Sequence[Any], before: str) -> Iterator[tuple[str, list[str]]]:
    """Every repeat without a small bound: what leads to it, and what it repeats."""
    for place, (op, argument) in enumerate(nodes):
        if op in _REPEATS:
            _, most, inner = argument
            if most > 9:
                others = [_example([node]) for node in nodes[place + 1 : place + 3]]
                items = _choices(list(inner))
                # What the repeat takes, and what follows it begins with: both can take it.
                items += [one[0] for one in others if one and re.match(_of(inner), one[0])]
                yield before, list(dict.fromkeys(items))[:6]
            yield from _repeats(list(inner), before)
        elif op is sre.SUBPATTERN:
            yield from _repeats(list(argument[3]), before)
        elif op is sre.ATOMIC_GROUP:
            yield from _repeats(list(argument), before)
        elif op is sre.BRANCH:
            for branch in argument[1]:
                yield from _repeats(list(branch), before)
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repeats(list(argument[1]), before)
        before += _example([(op, argument)])


def _of(nodes: Sequence[Any]) -> str:
    """An expression for one letter that the nodes may begin with; nothing else is needed."""
    letters = {one[0] for one in _choices(list(nodes)) if one}
    return f"[{re.escape(''.join(letters))}]" if letters else r"(?!)"


def _choices(nodes: Sequence[Any]) -> list[str]:
    """Several texts that the nodes match."""
    if len(nodes) == 1 and nodes[0][0] is sre.IN:
        return _members(nodes[0][1])
    if len(nodes) == 1 and nodes[0][0] is sre.BRANCH:
        return [_example(list(branch)) for branch in nodes[0][1][1]]
    if len(nodes) == 1 and nodes[0][0] is sre.ANY:
        return ["a", " ", "/"]
    return [_example(nodes)]


def _example(nodes: Sequence[Any]) -> str:
    """A text that the nodes match, as short as may be; repeats that may be empty are."""
    text = ""
    for op, argument in nodes:
        if op is sre.LITERAL:
            text += chr(argument)
        elif op is sre.NOT_LITERAL:
            text += "b" if chr(argument) == "a" else "a"
        elif op is sre.ANY:
            text += "a"
        elif op is sre.IN:
            text += next(iter(_members(argument)), "a")
        elif op is sre.BRANCH:
            text += _example(list(argument[1][0]))
        elif op is sre.SUBPATTERN:
            text += _example(list(argument[3]))
        elif op is sre.ATOMIC_GROUP:
            text += _example(list(argument))
        elif op in _REPEATS:
            text += argument[0] * _example(list(argument[2]))
    return text


def _members(members: Sequence[Any]) -> list[str]:
    """Some letters of a class."""
    found: list[str] = []
    negated = members[0][0] is sre.NEGATE
    for op, argument in members:
        if op is sre.LITERAL:
            found.append(chr(argument))
        elif op is sre.RANGE:
            found += [chr(argument[0]), chr(argument[1])]
        elif op is sre.CATEGORY:
            found.append(_CLASSES[argument])
    if not negated:
        return found
    is_in = re.compile(sre_text(members))
    return [letter for letter in _LETTERS if is_in.fullmatch(letter)]


def sre_text(members: Sequence[Any]) -> str:
    """Write a class of a parsed expression again."""
    words = {
        sre.CATEGORY_DIGIT: r"\d",
        sre.CATEGORY_SPACE: r"\s",
        sre.CATEGORY_WORD: r"\w",
        sre.CATEGORY_NOT_DIGIT: r"\D",
        sre.CATEGORY_NOT_SPACE: r"\S",
        sre.CATEGORY_NOT_WORD: r"\W",
    }
    parts = []
    for op, argument in members:
        if op is sre.NEGATE:
            parts.append("^")
        elif op is sre.LITERAL:
            parts.append(re.escape(chr(argument)))
        elif op is sre.RANGE:
            parts.append(f"{re.escape(chr(argument[0]))}-{re.escape(chr(argument[1]))}")
        else:
            parts.append(words[argument])
    return f"[{''.join(parts)}]"
