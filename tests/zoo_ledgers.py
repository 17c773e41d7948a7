"""What the sinks of the zoo have written, exactly once: each record that is due, and no other.

A job of the zoo that is started with `--lines true` writes every record that a sink has taken in by
Flink's exactly-once file sink. Its sources number their records, those of partition p of 8 are p,
p + 8, p + 16, ..., so that a record which is lost or written twice shows. Of the join that is what
arrives on the left, of a window what it sums: with eight records a second, one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["Ledger"]

PARTITIONS = 8
OF_TWO_SINKS = ("side-output", "window")
LEFT_KEYS, RIGHT_KEYS = 50, 40
CYCLE = math.lcm(LEFT_KEYS, PARTITIONS)
"""Numbers that differ by this are of one key and one partition, which are read in order."""
TABLE = range(1, 101)
"""Numbers of the source of `bounded` that ends."""


class Ledger:
    """The lines of one job.

    Args:
        kind: of the job.
        folder: of its truth.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self._kind, self._folder = kind, folder

    def read(self) -> tuple[int, dict[str, int], list[str]]:
        """Read all lines that are visible.

        Returns:
            How many there are; how far each partition of a source was read; and what is lost, or
            there more often than it is due.
        """
        if self._kind == "file-sink":
            sinks = [_lines(self._folder / "lines")]
        else:
            many = 2 if self._kind in OF_TWO_SINKS else 1
            sinks = [_lines(self._folder / "ledger" / str(k)) for k in range(many)]
        last, wrong = CHECKS[self._kind](sinks)
        return sum(len(one) for one in sinks), last, wrong


def _lines(folder: Path) -> list[str]:
    files = (one for one in folder.rglob("part-*") if not one.name.startswith("."))
    return [line for file in sorted(files) for line in file.read_text("utf-8").splitlines()]


Check = Callable[[Sequence[Sequence[str]]], tuple[dict[str, int], list[str]]]
Rule = Callable[[int], bool]


def one_in(many: int) -> Rule:
    """The rule of the same name in Steps.java."""
    return lambda number: (number // 8 + number % 8 * many // 8) % many == 0


def every(number: int) -> bool:
    return True


def _each_once(
    counts: Mapping[int, int], rule: Rule, name: str = ""
) -> tuple[dict[str, int], list[str]]:
    """Numbers by which a rule goes are there once, up to the last of each partition."""
    last: dict[str, int] = {}
    wrong = [f"{number} is negative" for number in counts if number < 0]
    for partition in range(PARTITIONS):
        own = [number for number in counts if number % PARTITIONS == partition]
        top = max(own, default=-1)
        last[f"{name}{partition}"] = top
        for number in range(partition, top + 1, PARTITIONS):
            if counts.get(number, 0) != rule(number):
                wrong.append(f"{number} is written {counts.get(number, 0)} times")
    return last, wrong


def _numbers(lines: Iterable[str]) -> Counter[int]:
    return Counter(int(line) for line in lines)


def by_rules(*rules: Rule) -> Check:
    """Every sink writes the numbers by which its rule goes."""

    def check(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
        last: dict[str, int] = {}
        wrong: list[str] = []
        for k, (lines, rule) in enumerate(zip(sinks, rules, strict=True)):
            more, others = _each_once(_numbers(lines), rule, f"sink {k}, partition ")
            last |= more
            wrong += others
        return last, wrong

    return check


def together(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """All sinks together write every number."""
    return _each_once(_numbers(line for lines in sinks for line in lines), every)


def tens(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """Of every number there are ten."""
    (lines,) = sinks
    counts = _numbers(lines)
    last, _ = _each_once(Counter(number // 10 for number in counts), every)
    wrong = [f"{number} is written {n} times" for number, n in counts.items() if n != 1]
    tops = {int(name): top for name, top in last.items()}
    due = (n for p, top in tops.items() for n in range(p, top + 1, PARTITIONS))
    wrong += [
        f"{number} is lost"
        for one in due
        for number in range(10 * one, 10 * one + 10)
        if number not in counts
    ]
    return last, wrong


def of_two(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """Two sources number their records alike, and one is ahead of the other."""
    (lines,) = sinks
    counts = _numbers(lines)
    last: dict[str, int] = {}
    wrong = []
    for partition in range(PARTITIONS):
        own = [number for number in counts if number % PARTITIONS == partition]
        before = 2
        for number in range(partition, max(own, default=-1) + 1, PARTITIONS):
            now = counts.get(number, 0)
            if not 0 < now <= before:
                wrong.append(f"{number} is written {now} times, the one before {before} times")
            before = max(1, min(now, 2))
        last[f"one, {partition}"] = max(own, default=-1)
        last[f"other, {partition}"] = max((one for one in own if counts[one] > 1), default=-1)
    return last, wrong


def beside_a_table(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """A source that ends has given its numbers once, beside those of another."""
    (lines,) = sinks
    counts = _numbers(lines)
    counts.subtract(TABLE)
    lost = [f"{number} of the table is lost" for number in TABLE if counts[number] < 0]
    last, wrong = _each_once({one: count for one, count in counts.items() if count}, every)
    return last, [*lost, *wrong]


def joined(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """On the left, all numbers of a key and a partition from its first match on."""
    (lines,) = sinks
    counts = _numbers(lines)
    first: dict[int, int] = {}
    for number in sorted(counts):
        first.setdefault(number % CYCLE, number)

    def matches(number: int) -> bool:
        return number >= first.get(number % CYCLE, number + 1)

    last, wrong = _each_once(counts, matches)
    strange = [one for one in first if one % LEFT_KEYS >= RIGHT_KEYS]
    wrong += [f"key {one % LEFT_KEYS} has a match" for one in strange]
    return last | {"unmatched": CYCLE * RIGHT_KEYS // LEFT_KEYS - len(first)}, wrong


def queried(sinks: Sequence[Sequence[str]]) -> tuple[dict[str, int], list[str]]:
    """Every row of a group is its next one: k, n, and k + 100 (n - 1)."""
    (lines,) = sinks
    seen: defaultdict[int, list[int]] = defaultdict(list)
    wrong = []
    for line in lines:
        group, count, value = map(int, line.split())
        seen[group].append(count)
        if value != group + 100 * (count - 1):
            wrong.append(f"row {count} of group {group} is {value}")
    for group, counts in seen.items():
        if sorted(counts) != [*range(1, len(counts) + 1)]:
            wrong.append(f"rows of group {group}: {sorted(counts)}")
    return {"rows": len(lines)}, wrong


CHECKS: Mapping[str, Check] = {
    "chained-filter": by_rules(one_in(100)),
    "chained-flatmap": tens,
    "join": joined,
    "union": of_two,
    "bounded": beside_a_table,
    "file-sink": by_rules(every),
    "same-names": by_rules(one_in(2)),
    "unicode": by_rules(one_in(4)),
    "side-output": by_rules(lambda number: not one_in(4)(number), one_in(4)),
    "broadcast": by_rules(every),
    "async": by_rules(every),
    "window": together,
    "partitioners": by_rules(one_in(2)),
    "no-checkpoints": by_rules(every),
    "failing": by_rules(every),
    "sql": queried,
    "legacy": by_rules(every),
}
