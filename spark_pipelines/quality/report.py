"""`quality.json` and `quality.html` of a revision: the outcome of the rows, and their properties.

Everything is read from the manifest and the tables that were written, kept partitions included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import write_atomic
from dsp_gym.datasets.files import pyarrow
from dsp_gym.datasets.manifest import DatasetManifest
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import MissingExtraError
from dsp_gym.pages import COLOURS, Html, figure, note, page, section, svg, table

__all__ = ["quality_of", "report_html", "write_report"]

Document = dict[str, Any]

_QUANTILES = (0.05, 0.5, 0.95)
_WINDOW_COLUMNS = (
    "records_in_per_s",
    "busy_ms_per_s",
    "true_processing_rate",
    "selectivity",
    "cache_hit_rate",
    "state_mib",
    "pending_records",
    "latency_p95_s",
)


def write_report(revision: Path, manifest: DatasetManifest) -> None:
    """Writes both files into a revision's folder; the page has no figures without Matplotlib."""
    dataset = Dataset(revision, manifest)
    found = quality_of(dataset)
    text = json.dumps(found, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_atomic(revision / "quality.json", text)
    write_atomic(revision / "quality.html", report_html(dataset, found))


def quality_of(dataset: Dataset) -> Document:
    """The figures of the report.

    Returns:
        JSON values by name, as `report_html` takes them.
    """
    manifest = dataset.manifest
    tables = sorted({name for p in manifest.partitions for name in p.tables})
    found: Document = {
        "name": manifest.name,
        "revision": manifest.revision,
        "content_sha256": manifest.content_sha256,
        "accounting": manifest.accounting,
        "tables": {
            name: {"rows": manifest.rows(name), "splits": manifest.splits.get(name, {})}
            for name in tables
        },
        "partitions": [
            {
                "job": p.job,
                "day": p.day,
                "accounting": p.accounting,
                "rows": {name: t.rows for name, t in p.tables.items()},
            }
            for p in manifest.partitions
        ],
        "notes": [f"{s.name}: {note}" for s in manifest.sources for note in s.notes],
    }
    if "windows" in tables:
        found["windows"] = _windows(dataset)
    if "rescales" in tables:
        found["rescales"] = _rescales(dataset)
    if "transitions" in tables:
        found["transitions"] = _transitions(dataset)
    return found


def report_html(dataset: Dataset, found: Document) -> str:
    """The page.

    Returns:
        A whole HTML document that loads nothing from elsewhere.
    """
    manifest = dataset.manifest
    days = sorted({p.day for p in manifest.partitions})
    jobs = sorted({p.job for p in manifest.partitions})
    parts: list[str] = [
        f"Revision {manifest.revision}: {', '.join(jobs)}; {len(days)} days from {days[0]} to "
        f"{days[-1]}. Content {manifest.content_sha256[:16]}.",
        *(note(text) for text in found["notes"]),
        section("Rows", *_rows_section(found)),
        section("Sources", _sources_table(manifest)),
    ]
    if "windows" in found:
        rows = [
            (
                w["job"],
                w["vertex"],
                f"{w['rows']:,}",
                *(_spread(w["values"].get(c)) for c in _WINDOW_COLUMNS),
            )
            for w in found["windows"]
        ]
        parts.append(
            section(
                "Windows",
                "Median of each column, with its 5 % and 95 % quantiles in brackets; a dash where "
                "nothing is known.",
                table(("job", "vertex", "windows", *_WINDOW_COLUMNS), rows),
                *_drawn(lambda: _busy_figure(dataset)),
            )
        )
    if "rescales" in found:
        rows = [
            (r["job"], r["cause"], f"{r['count']:,}", _spread(r["downtime_s"]))
            for r in found["rescales"]
        ]
        parts.append(
            section("Outages", table(("job", "cause", "outages", "downtime, s"), rows))
            if rows
            else section("Outages", "There was none.")
        )
    if "transitions" in found:
        rows = [
            (t["job"], t["policy"], f"{t['rows']:,}", f"{t['runs']:,}", _spread(t["reward"]))
            for t in found["transitions"]
        ]
        parts.append(
            section("Decisions", table(("job", "policy", "steps", "runs", "reward"), rows))
        )
    return page(f"Data quality: {manifest.name}", *parts)


def _rows_section(found: Document) -> Iterator[str]:
    accounting: Mapping[str, int] = found["accounting"]
    total = accounting.get("rows", 0) or accounting.get("decisions", 0)
    rows = [
        (name, f"{count:,}", f"{count / total:.2%}" if total else "–")
        for name, count in accounting.items()
    ]
    yield table(("outcome", "rows", "share"), rows)
    written = [
        (name, f"{t['rows']:,}", ", ".join(f"{s} {n:,}" for s, n in t["splits"].items()) or "–")
        for name, t in found["tables"].items()
    ]
    yield table(("table", "rows", "by split"), written)
    yield from _drawn(lambda: _days_figure(found))
    quarantined = {k.partition(":")[2]: n for k, n in accounting.items() if "quarantined:" in k}
    if quarantined:
        yield from _drawn(lambda: _checks_figure(quarantined))


def _sources_table(manifest: DatasetManifest) -> Html:
    rows = [
        (
            s.name,
            s.kind,
            s.path,
            s.clock,
            f"{len(s.pieces):,}",
            f"{sum(max(0, p.rows) for p in s.pieces):,}",
        )
        for s in manifest.sources
    ]
    return table(("source", "kind", "path", "clock", "pieces", "rows"), rows)


def _windows(dataset: Dataset) -> list[Document]:
    found = []
    for (job, vertex), columns in _grouped(
        dataset, "windows", ("job", "vertex"), _WINDOW_COLUMNS
    ).items():
        values = {name: _quantiles(columns[name]) for name in _WINDOW_COLUMNS}
        rows = len(columns[_WINDOW_COLUMNS[0]])
        found.append({"job": job, "vertex": vertex, "rows": rows, "values": values})
    return found


def _rescales(dataset: Dataset) -> list[Document]:
    groups = _grouped(dataset, "rescales", ("job", "cause"), ("downtime_s",))
    return [
        {
            "job": job,
            "cause": cause,
            "count": len(columns["downtime_s"]),
            "downtime_s": _quantiles(columns["downtime_s"]),
        }
        for (job, cause), columns in groups.items()
    ]


def _transitions(dataset: Dataset) -> list[Document]:
    groups = _grouped(dataset, "transitions", ("job", "policy"), ("reward", "step"))
    return [
        {
            "job": job,
            "policy": policy,
            "rows": len(columns["reward"]),
            "runs": int(np.sum(columns["step"] == np.min(columns["step"]))),
            "reward": _quantiles(columns["reward"]),
        }
        for (job, policy), columns in groups.items()
    ]


def _grouped(
    dataset: Dataset, name: str, keys: tuple[str, str], columns: tuple[str, ...]
) -> dict[tuple[str, str], dict[str, Floats]]:
    """Columns of a table as arrays, by two of its text columns; null is NaN."""
    arrow, _ = pyarrow("reading a dataset")
    batches = list(dataset.table(name, columns=(*keys, *columns), lenient=True))
    if not batches:
        return {}
    rows = arrow.Table.from_batches(batches)
    texts = [np.array(rows[key].to_pylist(), dtype=object) for key in keys]
    values = {c: np.asarray(rows[c].to_numpy(), dtype=np.float64) for c in columns}
    pairs = sorted(set(zip(*texts, strict=True)))
    return {
        pair: {c: v[(texts[0] == pair[0]) & (texts[1] == pair[1])] for c, v in values.items()}
        for pair in pairs
    }


def _quantiles(values: Floats) -> list[float] | None:
    known = values[np.isfinite(values)]
    return [float(q) for q in np.quantile(known, _QUANTILES)] if len(known) else None


def _spread(quantiles: list[float] | None) -> str:
    if quantiles is None:
        return "–"
    low, middle, high = quantiles
    return f"{middle:.4g} ({low:.3g} to {high:.3g})"


def _drawn(draw: Callable[[], Html]) -> Iterator[Html]:
    """A figure, where Matplotlib is installed."""
    try:
        yield draw()
    except MissingExtraError as error:
        yield note(f"No figure: {error}")


def _days_figure(found: Document) -> Html:
    days = sorted({p["day"] for p in found["partitions"]})
    with figure(8.0, 2.6, salt="days", extra="train", purpose="drawing the report") as drawn:
        axes = drawn.subplots()
        for number, name in enumerate(found["tables"]):
            rows = [
                sum(p["rows"].get(name, 0) for p in found["partitions"] if p["day"] == day)
                for day in days
            ]
            colour = COLOURS[number % len(COLOURS)]
            axes.plot(range(len(days)), rows, marker="o", ms=3, label=name, color=colour)
        step = max(1, len(days) // 8)
        axes.set_xticks(range(0, len(days), step), days[::step])
        axes.set_yscale("symlog")
        axes.set_ylabel("rows")
        axes.legend()
        return svg(drawn, "rows of each table by day")


def _checks_figure(quarantined: Mapping[str, int]) -> Html:
    with figure(
        8.0,
        0.8 + 0.3 * len(quarantined),
        salt="checks",
        extra="train",
        purpose="drawing the report",
    ) as drawn:
        axes = drawn.subplots()
        axes.barh(list(quarantined), list(quarantined.values()), color=COLOURS[1])
        axes.set_xlabel("rows in quarantine")
        return svg(drawn, "rows in quarantine by check")


def _busy_figure(dataset: Dataset) -> Html:
    groups = _grouped(dataset, "windows", ("job", "vertex"), ("busy_ms_per_s",))
    with figure(8.0, 2.8, salt="busy", extra="train", purpose="drawing the report") as drawn:
        axes = drawn.subplots()
        for number, ((job, vertex), columns) in enumerate(groups.items()):
            busy = columns["busy_ms_per_s"]
            busy = busy[np.isfinite(busy)]
            if len(busy) and number < len(COLOURS):
                share = np.arange(1, len(busy) + 1) / len(busy)
                axes.plot(np.sort(busy), share, color=COLOURS[number], label=f"{job} {vertex}")
        axes.set_xlim(0, 1000)
        axes.set_xlabel("busy, ms/s")
        axes.set_ylabel("share of windows below")
        if axes.lines:
            axes.legend()
        return svg(drawn, "how busy each vertex was: share of windows below a value")
