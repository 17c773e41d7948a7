"""A reader of Delta's log that shares no code with delta-rs: what the protocol says, no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as parquet


def state(table: Path, version: int | None = None) -> dict[str, Any]:
    """The actions that hold at a version; the newest where none is named."""
    files: dict[str, dict[str, Any]] = {}
    metadata: dict[str, Any] = {}
    entries = sorted((table / "_delta_log").glob("[0-9]*.json"))
    assert [int(entry.stem) for entry in entries] == list(range(len(entries)))
    for entry in entries[: None if version is None else version + 1]:
        for action in map(json.loads, entry.read_text().splitlines()):
            if "metaData" in action:
                metadata = action["metaData"]
            if "protocol" in action:
                assert action["protocol"]["minReaderVersion"] == 1  # any reader may
            if "remove" in action:
                files.pop(unquote(action["remove"]["path"]), None)
            if "add" in action:
                files[unquote(action["add"]["path"])] = action["add"]
    return {"files": files, "metadata": metadata, "version": len(entries) - 1}


def rows(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The rows of a table, in the order of the names of its files."""
    found: list[dict[str, Any]] = []
    known = state(table, version)
    columns = [field["name"] for field in json.loads(known["metadata"]["schemaString"])["fields"]]
    for path, add in sorted(known["files"].items()):
        assert (table / path).stat().st_size == add["size"]
        read = parquet.ParquetFile(table / path).read()
        assert read.num_rows == json.loads(add["stats"])["numRecords"]
        for row in read.to_pylist():
            found.append(
                {name: row.get(name, add["partitionValues"].get(name)) for name in columns}
            )
    return found


def bounds_hold(table: Path, version: int | None = None) -> bool:
    """Whether each file's statistics are true of its rows."""
    for path, add in state(table, version)["files"].items():
        read, stats = parquet.ParquetFile(table / path).read(), json.loads(add["stats"])
        for name, nulls in stats["nullCount"].items():
            values = [value for value in read[name].to_pylist() if value is not None]
            if nulls != len(read) - len(values):
                return False
            low, high = stats["minValues"].get(name), stats["maxValues"].get(name)
            if low is not None and values and not all(low <= value <= high for value in values):
                return False
    return True
