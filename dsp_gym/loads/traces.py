"""Recorded loads: finding, reading and checking CSV files of ``t_seconds,rate``.

Other programs name their columns otherwise and write times as they like: `Columns` says which two
columns to read, and times may then be ISO 8601, seconds, or milliseconds since 1970.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.text import decoded
from dsp_gym.errors import LoadError, did_you_mean

DATA_VARIABLE = "DSP_GYM_DATA"
DEFAULT_DATA_FOLDER = Path("../shared/data")
COLUMNS = ("t_seconds", "rate")
MILLISECONDS_FROM = 1e11
"""A time in seconds from here on would lie after the year 5000: it is in milliseconds."""

ABSENT = frozenset({"", "null", "nan", "undefined"})
"""What other programs write where there is no sample, in lower case."""


class Columns(Protocol):
    """Names of the columns of time and rate."""

    @property
    def time(self) -> str: ...

    @property
    def rate(self) -> str: ...


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """A recorded load.

    Each row holds until the next; the last one for as long as the one before it.
    """

    path: Path
    t_s: Floats
    rate: Floats

    @property
    def end_s(self) -> float:
        """The second at which the last row ends."""
        # As long as the row before it: rows are usually evenly spaced.
        return float(2 * self.t_s[-1] - self.t_s[-2])


def data_folder() -> Path | None:
    """Return the folder named by ``DSP_GYM_DATA``, or the default one where it exists.

    Returns:
        The folder, or None.
    """
    named = os.environ.get(DATA_VARIABLE)
    if named:
        return Path(named)
    return DEFAULT_DATA_FOLDER if DEFAULT_DATA_FOLDER.is_dir() else None


class TraceLibrary:
    """A library that finds traces by path or name, and reads each of them once.

    Args:
        base_dir: Folder in which relative paths start, before the data folder; the current
            directory when None.
    """

    def __init__(self, base_dir: str | Path | None = None) -> None:
        self._base_dir = Path() if base_dir is None else Path(base_dir)
        self._read: dict[tuple[str, ...], Trace] = {}

    def get(self, name: str, columns: Columns | None = None) -> Trace:
        """Return the trace of this path or name.

        Args:
            name: Path or name.
            columns: Columns to read; None: `t_seconds` and `rate`.

        Returns:
            The trace, read once.
        """
        # Loads share arrays: a trace of a day at 1 Hz is 1.4 MB.
        key = (name,) if columns is None else (name, columns.time, columns.rate)
        trace = self._read.get(key)
        if trace is None:
            trace = self._read[key] = read_trace(self.find(name), columns)
        return trace

    def find(self, name: str) -> Path:
        """Find the file of a path, or of a name in the data folder.

        Returns:
            An existing file.

        Raises:
            LoadError: There is no such file.
        """
        candidates = list(self._candidates(name))
        for candidate in candidates:
            if candidate.is_file():
                return candidate
        looked = ", ".join(str(candidate) for candidate in candidates)
        raise LoadError(
            f"there is no trace '{name}'; looked for {looked}",
            remedy=f"Name the folder that holds it: export {DATA_VARIABLE}=/path/to/data "
            "(its subfolder traces/ is searched as well).",
        )

    def _candidates(self, name: str) -> Iterator[Path]:
        file = name if name.endswith(".csv") else f"{name}.csv"
        # Beside the configuration first, then in the data folder.
        yield self._base_dir / file
        folder = data_folder()
        if folder is not None and not Path(file).is_absolute():
            yield folder / file
            yield folder / "traces" / file


def read_trace(path: str | Path, columns: Columns | None = None) -> Trace:
    """Read a trace; errors name file and line.

    Args:
        path: The file.
        columns: Columns of a file that another program wrote; None: `t_seconds` and `rate`.

    Returns:
        Times in s and values, as arrays of equal length.

    Raises:
        LoadError: The file is no such CSV file, or its rows are wrong.
    """
    file = Path(path)
    names = COLUMNS if columns is None else (columns.time, columns.rate)
    try:
        text = decoded(file.read_bytes(), file, LoadError)
        table = _Table(file, text, names, of_others=columns is not None)
        lines, t_s, rate = table.read()
    except (OSError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LoadError(f"cannot be read as a CSV file: {why}", file=file) from error
    if len(t_s) < 2:
        raise LoadError(f"has {len(t_s)} rows, expected at least 2", file=file)
    _check_order(t_s, lines, file, names[0])
    # One trace serves many loads, so nobody may write into it.
    t_s.flags.writeable = rate.flags.writeable = False
    return Trace(file, t_s, rate)


class _Table:
    """The two columns of a CSV file.

    Args:
        file: Its name, for errors.
        text: Its content.
        names: Columns of time and rate.
        of_others: Whether another program wrote it: with its times, separators and gaps.
    """

    def __init__(self, file: Path, text: str, names: tuple[str, str], *, of_others: bool) -> None:
        self.file, self.names, self.of_others = file, names, of_others
        self._first_line, separator = 1, ","
        if of_others:
            line, _, rest = text.partition("\n")
            if line.strip().lower().startswith("sep="):  # for Excel
                separator, text, self._first_line = line.strip()[4:5] or ",", rest, 2
            elif ";" in line and "," not in line:
                separator = ";"
        self._rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)

    def read(self) -> tuple[list[int], Floats, Floats]:
        """Read all rows.

        Returns:
            Number of each row's line in the file, times in s, and rates.
        """
        # Other columns may stand beside these two, in any order.
        places = self._places()
        lines: list[int] = []
        rows: list[tuple[float, float]] = []
        # Line numbers for messages; blank lines are passed over.
        for line, row in enumerate(self._rows, start=self._first_line + 1):
            if not row:
                continue
            cells = [row[place].strip() if place < len(row) else "" for place in places]
            if self.of_others and cells[1].lower() in ABSENT:
                continue
            time = _moment if self.of_others else _number
            at_s = time(cells[0], line, self.file, self.names[0])
            rate = _number(cells[1], line, self.file, self.names[1], self.of_others)
            lines.append(line)
            rows.append((at_s, rate))
        values = np.array(rows, dtype=np.float64).reshape(-1, 2)
        t_s: Floats = values[:, 0].copy()
        return lines, t_s - t_s[:1] if self.of_others else t_s, values[:, 1].copy()

    def _places(self) -> list[int]:
        header = [name.strip() for name in next(self._rows, [])]
        if not header:
            said = ",".join(self.names)
            raise LoadError(f"is empty, expected a header line '{said}'", file=self.file)
        missing = [name for name in self.names if name not in header]
        if missing:
            hint = "The first line must name the columns: t_seconds,rate"
            if self.of_others:
                hint = did_you_mean(missing[0], header)
            elif len(header) > 1:
                hint += "; or name the columns that it has: columns: {time: ..., rate: ...}"
            raise LoadError(
                f"has no column {' and '.join(repr(name) for name in missing)}",
                file=self.file,
                value=",".join(header),
                remedy=hint,
            )
        return [header.index(name) for name in self.names]


def _number(text: str, line: int, file: Path, name: str, of_others: bool = False) -> float:
    try:
        number = float(text)
    except ValueError:
        raise LoadError(
            f"line {line}: {name} is not a number",
            file=file,
            key=name,
            value=text,
            remedy="Export plain numbers: in Grafana, switch 'Formatted data' off before the "
            "download."
            if of_others
            else None,
        ) from None
    if not np.isfinite(number):
        # float() accepts "nan" and "inf".
        raise LoadError(f"line {line}: {name} is not finite", file=file, key=name, value=text)
    if number < 0:
        raise LoadError(f"line {line}: {name} is negative", file=file, key=name, value=text)
    return number


def _moment(text: str, line: int, file: Path, name: str) -> float:
    """Read a time as seconds: ISO 8601, seconds, or milliseconds since 1970."""
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        number = _number(text, line, file, name)
        return number / 1000 if number >= MILLISECONDS_FROM else number
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise LoadError(
            f"line {line}: {name} is no time",
            file=file,
            key=name,
            value=text,
            remedy="Write ISO 8601, such as 2025-03-09T14:00:00Z, seconds, or milliseconds since "
            "1970.",
        ) from None
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()


def _check_order(t_s: Floats, lines: list[int], file: Path, name: str) -> None:
    wrong = np.flatnonzero(np.diff(t_s) <= 0)
    if wrong.size == 0:
        return
    row = int(wrong[0]) + 1
    problem = "repeats" if t_s[row] == t_s[row - 1] else "is before"
    raise LoadError(
        f"line {lines[row]}: {name} {problem} that of line {lines[row - 1]}, {t_s[row - 1]:g}",
        file=file,
        key=name,
        value=float(t_s[row]),
        remedy=f"Sort the rows by {name}, one row for each time.",
    )
