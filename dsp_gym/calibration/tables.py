"""Which table a CSV file holds, by its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dsp_gym.calibration.csv_rows import read_rows
from dsp_gym.calibration.mst_tables import MST_COLUMNS, OPERATOR_COLUMNS
from dsp_gym.calibration.scaled_runs import RUN_COLUMNS
from dsp_gym.calibration.series_tables import OUTAGE_COLUMNS, PROFILE_COLUMNS, SERIES_COLUMNS
from dsp_gym.errors import ConfigError

TABLES: Mapping[str, tuple[str, ...]] = {
    "throughput": MST_COLUMNS,
    "operators": OPERATOR_COLUMNS,
    "series": SERIES_COLUMNS,
    "profiles": PROFILE_COLUMNS,
    "outages": OUTAGE_COLUMNS,
    "runs": RUN_COLUMNS,
}
"""Columns that a table must have."""


def tables_of(files: Sequence[Path]) -> dict[str, Path]:
    """Recognise tables by their columns.

    Args:
        files: CSV files; one may hold both throughput and operators.

    Returns:
        File by table.

    Raises:
        ConfigError: A file cannot be read, holds no table of these, or one that another holds.
    """
    found: dict[str, Path] = {}
    for file in files:
        header = set(next(iter(read_rows(file, ())), {}))
        held = [name for name, columns in TABLES.items() if header.issuperset(columns)]
        if not held:
            nearest = max(TABLES, key=lambda name: len(header & set(TABLES[name])))
            raise ConfigError(
                "has the columns of no table that a calibration reads",
                file=file,
                remedy=f"The table '{nearest}' needs the columns {', '.join(TABLES[nearest])}.",
            )
        for name in held:
            if name in found:
                raise ConfigError(
                    f"'{found[name]}' holds the table '{name}' as well",
                    file=file,
                    remedy="Name one of them.",
                )
            found[name] = file
    return found
