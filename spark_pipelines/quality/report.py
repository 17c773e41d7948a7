"""`quality.json` and `quality.html` of a revision: the outcome of the rows, and their properties.

Everything is read from the manifest and the tables that were written, kept partitions included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import parse
from dsp_gym.datasets.manifest import DatasetManifest
from dsp_gym.datasets.reader import Dataset
from dsp_gym.pages import (
    Curve,
    Html,
    Panel,
    curves,
    lead,
    note,
    number,
    page,
    section,
    shaded,
    table,
)
from dsp_gym.records.parquet import pyarrow
from spark_pipelines.config import DatasetConfig
from spark_pipelines.quality.distributions import (
    actions_of,
    coverage_of,
    features_of,
    shared_rows,
    splits_apart,
)
from spark_pipelines.quality.parts import (
    action_parts,
    coverage_parts,
    feature_parts,
    headline,
    split_parts,
)
from spark_pipelines.splits import reach_s

Document = dict[str, Any]

SPLIT = ("windows", "transitions")
"""Tables whose rows belong to splits."""

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


def report_of(dataset: Dataset) -> dict[str, str]:
    """Both files of a report.

    Returns:
        Texts by file name.
    """
    found = quality_of(dataset)
    text = json.dumps(found, indent=1, sort_keys=True, allow_nan=False) + "\n"
    return {"quality.json": text, "quality.html": report_html(dataset, found)}


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
    found["coverage"] = coverage_of(dataset)
    found["leaks"] = _leaks(dataset, [name for name in SPLIT if name in tables])
    if "windows" in tables:
        found["windows"] = _windows(dataset)
    if "rescales" in tables:
        found["rescales"] = _rescales(dataset)
    if "transitions" in tables:
        found["transitions"] = _transitions(dataset)
        found["features"], found["actions"] = features_of(dataset), actions_of(dataset)
    return found


def report_html(dataset: Dataset, found: Document) -> str:
    """The page.

    Returns:
        A whole HTML document that loads nothing from elsewhere.
    """
    manifest = dataset.manifest
    parts: list[str] = [
        lead(headline(found)),
        f"Revision {manifest.revision}, content {manifest.content_sha256[:16]}.",
        *(note(text) for text in found["notes"]),
    ]
    if found["coverage"] is not None:
        parts.append(section("Coverage", *coverage_parts(found["coverage"])))
    parts.append(section("Splits, and leaks looked for", *split_parts(found)))
    if "transitions" in found:
        parts.append(section("Actions", *action_parts(found["actions"])))
        parts.append(section("Features", *feature_parts(found["features"])))
        parts.append(section("Decisions", _decisions_table(found["transitions"])))
    if "windows" in found:
        parts.append(section("Windows", *_windows_parts(dataset, found["windows"])))
    if "rescales" in found:
        parts.append(section("Outages", _outages_table(found["rescales"])))
    parts.append(section("Rows", *_rows_section(found)))
    parts.append(section("Sources", _sources_table(manifest)))
    return page(f"Data quality: {manifest.name}", *parts)


def _decisions_table(found: list[Document]) -> Html:
    rows = [
        (t["job"], t["policy"], f"{t['rows']:,}", f"{t['runs']:,}", _spread(t["reward"]))
        for t in found
    ]
    return table(("job", "policy", "steps", "runs", "reward"), rows)


def _outages_table(found: list[Document]) -> str:
    rows = [(r["job"], r["cause"], f"{r['count']:,}", _spread(r["downtime_s"])) for r in found]
    if not rows:
        return "There was none."
    return table(("job", "cause", "outages", "downtime, s"), rows)


def _windows_parts(dataset: Dataset, found: list[Document]) -> Iterator[str]:
    yield (
        "Median of each column, with its 5 % and 95 % quantiles in brackets; a dash where nothing "
        "is known."
    )
    rows = [
        (
            w["job"],
            w["vertex"],
            f"{w['rows']:,}",
            *(_spread(w["values"].get(c)) for c in _WINDOW_COLUMNS),
        )
        for w in found
    ]
    yield table(("job", "vertex", "windows", *_WINDOW_COLUMNS), rows)
    yield from _busy_curves(dataset)


def _rows_section(found: Document) -> Iterator[str]:
    accounting: Mapping[str, int] = found["accounting"]
    total = accounting.get("rows", 0) or accounting.get("decisions", 0)
    rows = [
        (name, f"{count:,}", f"{number(100 * count / total)} %" if total else "–")
        for name, count in accounting.items()
    ]
    yield "What became of every raw row and decision."
    yield table(("outcome", "rows", "share"), rows)
    quarantined = {k.partition(":")[2]: n for k, n in accounting.items() if "quarantined:" in k}
    if quarantined:
        most = max(1, *quarantined.values())
        shown = [(check, shaded(f"{n:,}", n / most)) for check, n in quarantined.items()]
        yield table(("check", "rows in quarantine"), shown)


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


def _leaks(dataset: Dataset, tables: list[str]) -> Document:
    """What is looked for: rows of two splits that know of each other."""
    config = parse(DatasetConfig, dataset.manifest.config, dataset.folder)
    found: Document = {
        "reach_s": reach_s(config),
        "by": config.splits.by,
        "apart": {name: splits_apart(dataset, name) for name in tables},
    }
    if "transitions" in tables:
        found["shared"] = shared_rows(dataset)
    return found


def _spread(quantiles: list[float] | None) -> str:
    if quantiles is None:
        return "–"
    low, middle, high = quantiles
    return f"{number(middle)} ({number(low)} to {number(high)})"


def _busy_curves(dataset: Dataset) -> Iterator[Html]:
    """The share of windows in which each vertex was less busy than a value."""
    groups = _grouped(dataset, "windows", ("job", "vertex"), ("busy_ms_per_s",))
    grid, lines = np.linspace(0, 1000, 101), []
    for (job, vertex), columns in groups.items():
        busy = np.sort(columns["busy_ms_per_s"][np.isfinite(columns["busy_ms_per_s"])])
        if len(busy):
            share = 100 * np.searchsorted(busy, grid, side="right") / len(busy)
            lines.append(Curve(f"{job} {vertex}", share.tolist()))
    if lines:
        said = "How busy each vertex was: share of windows below a value of busy ms/s."
        panel = Panel("Windows less busy than", lines, "% of windows, over busy ms/s", height=240)
        yield curves(said, grid.tolist(), [panel], time="number")
