"""The parts of a dataset's page: its sentence, coverage, splits and leaks, features and actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from dsp_gym.pages import Html, details, heading, judged, number, shaded, table
from spark_pipelines.days import is_unix

SPLITS = ("train", "validation", "test")

BLOCKS = " ▁▂▃▄▅▆▇█"

Document = Mapping[str, Any]


def headline(found: Document) -> str:
    """The dataset in one sentence.

    Returns:
        Rows, hours, gaps, splits and leaks.
    """
    tables = found["tables"]
    name = next((one for one in ("transitions", "windows") if one in tables), next(iter(tables)))
    jobs = {p["job"] for p in found["partitions"]}
    said = [f"{tables[name]['rows']:,} {name} of {_counted(len(jobs), 'job')}"]
    covered = found["coverage"]
    if covered is not None:
        hours = sum(day["hours"] for day in covered["days"])
        said[0] += f" in {_counted(covered['runs'], 'run')}, {number(hours)} hours in all"
        said.append(
            f"{_counted(covered['gap_count'], 'gap')}, the longest {_seconds(_longest(covered))}"
            if covered["gap_count"]
            else "no gap"
        )
    splits = tables[name]["splits"]
    total = sum(splits.values())
    if total:
        sizes = [f"{s} {_percent(splits[s] / total)}" for s in SPLITS if s in splits]
        said.append(", ".join(sizes))
    bad = [text for _, text, how in leaks(found) if how != "good"]
    said.append(f"to be looked at: {', '.join(bad)}" if bad else "no leak found")
    return f"{'; '.join(said)}."


def coverage_parts(covered: Document) -> Iterator[str]:
    """Hours and gaps by job and day.

    Yields:
        Paragraphs and tables.
    """
    yield (
        f"A row of {covered['table']} stands for {_seconds(covered['step_s'])}; a gap is a stretch "
        "of its run without one, boundaries of splits aside. Days are UTC, or counted from the "
        "start of a run's own clock."
    )
    most = max((day["hours"] for day in covered["days"]), default=0.0) or 1.0
    rows = [
        (
            day["job"],
            _day(day["day"]),
            f"{day['runs']:,}",
            shaded(number(day["hours"]), day["hours"] / most),
            f"{day['gaps']:,}",
            _seconds(day["longest_gap_s"]) if day["gaps"] else "–",
        )
        for day in covered["days"]
    ]
    shown = table(("job", "day", "runs", "hours", "gaps", "longest gap"), rows)
    yield shown if len(rows) <= 60 else details(f"{len(rows):,} days", shown)
    gaps = [
        (
            g["run"],
            g["job"],
            _moment(g["from_s"]),
            _moment(g["to_s"]),
            _seconds(g["to_s"] - g["from_s"]),
        )
        for g in covered["gaps"]
    ]
    if gaps:
        listed = table(("run", "job", "last row before", "first row after", "apart"), gaps)
        yield details(f"The {len(gaps)} longest of {_counted(covered['gap_count'], 'gap')}", listed)


def split_parts(found: Document) -> Iterator[str]:
    """Sizes of the splits, and the leaks that were looked for.

    Yields:
        Tables.
    """
    there = {split for one in found["tables"].values() for split in one["splits"]}
    names = [split for split in SPLITS if split in there]
    rows = []
    for name, one in found["tables"].items():
        total = sum(one["splits"].values())
        rows.append(
            (name, f"{one['rows']:,}", *(_size(one["splits"].get(s), total) for s in names))
        )
    yield table(("table", "rows", *names), rows)
    yield heading("Leaks looked for")
    checks = [(subject, judged(text, how)) for subject, text, how in leaks(found)]
    yield table(("what would be a leak", "found"), checks, prose=True)


def leaks(found: Document) -> Iterator[tuple[str, str, Any]]:
    """What was looked for.

    Yields:
        A sentence, what was found, and how good that is.
    """
    looked = found["leaks"]
    reach_s = looked["reach_s"]
    for name, one in looked["apart"].items():
        subject = (
            f"{name}: rows of two splits in one run, nearer than the {_seconds(reach_s)} that a "
            "row looks back"
        )
        apart_s = one["apart_s"]
        if apart_s is None:
            yield subject, "no run stands in two splits", "good"
        else:
            text = f"{name} of two splits are {_seconds(apart_s)} apart"
            yield subject, text, "good" if apart_s > reach_s else "bad"
    if "shared" in looked:
        rows, shared = looked["shared"]["rows"], looked["shared"]["shared"]
        subject = "transitions: observation and action of a row outside training that stand in it"
        text = f"{shared:,} of {rows:,} rows" if rows else "all rows are for training"
        yield subject, text, "wait" if shared else "good"
    left_out = {k: n for k, n in found["accounting"].items() if k.endswith(":at_split")}
    if left_out:
        said = ", ".join(f"{n:,} {key.partition(':')[0]}" for key, n in left_out.items())
        yield "rows that know of both sides of a boundary", f"{said} left out", "good"


def action_parts(actions: list[Document]) -> Iterator[str]:
    """How often each choice was taken.

    Yields:
        A paragraph and a table.
    """
    yield (
        "Share of all choices of that kind, all vertices together. No policy can learn what a "
        "choice does that nobody took."
    )
    totals: dict[str, int] = {}
    for one in actions:
        totals[one["kind"]] = totals.get(one["kind"], 0) + one["count"]
    rows = []
    for one in actions:
        share = one["count"] / max(1, totals[one["kind"]])
        rows.append((one["kind"], one["name"], shaded(_percent(share), share), f"{one['count']:,}"))
    yield table(("decides", "choice", "share", "times"), rows)


def feature_parts(features: list[Document]) -> Iterator[str]:
    """How each feature is distributed.

    Yields:
        A paragraph and a table.
    """
    yield (
        "As the agent sees them, without a unit; those of vertices all together. From the least "
        "value to the largest; a feature that never changes says so."
    )
    rows = []
    for one in features:
        if one["middle"] is None:
            rows.append((one["name"], "–", "–", "–", "never known"))
            continue
        is_one = sum(n > 0 for n in one["bins"]) <= 1
        bars = "never changes" if is_one else _bars(one["bins"])
        rows.append((one["name"], *(number(one[key]) for key in ("low", "middle", "high")), bars))
    yield table(("feature", "5 %", "median", "95 %", "distribution"), rows)


def _bars(bins: list[int]) -> Html:
    """A histogram in characters; a bin that is not empty is seen."""
    most, last = max(bins), len(BLOCKS) - 1
    text = "".join(BLOCKS[max(1, round(last * n / most)) if n else 0] for n in bins)
    return Html(f'<span class="bars" role="img" aria-label="histogram">{text}</span>')


def _size(rows: int | None, total: int) -> str:
    if rows is None:
        return "–"
    return shaded(f"{rows:,} ({_percent(rows / total)})", rows / total)


def _longest(covered: Document) -> float:
    return max(float(day["longest_gap_s"]) for day in covered["days"])


def _day(day: str) -> str:
    return f"day {int(day[-2:]) + 1}" if day.startswith("0000-00-") else day


def _moment(t_s: float) -> str:
    if is_unix(t_s):
        return datetime.fromtimestamp(t_s, UTC).strftime("%Y-%m-%d %H:%M")
    minutes = int(t_s // 60)
    return f"{minutes // 60}:{minutes % 60:02d} h"


def _seconds(seconds: float) -> str:
    if seconds < 300:
        return f"{number(seconds)} s"
    return f"{number(seconds / 60)} min" if seconds < 7200 else f"{number(seconds / 3600)} h"


def _percent(share: float) -> str:
    return f"{number(100 * share)} %"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
