"""Recorded loads: finding, reading and checking CSV files of ``t_seconds,rate``."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.text import decoded
from dsp_gym.errors import LoadError

DATA_VARIABLE = "DSP_GYM_DATA"
DEFAULT_DATA_FOLDER = Path("../shared/data")
COLUMNS = ("t_seconds", "rate")


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
        self._read: dict[str, Trace] = {}

    def get(self, name: str) -> Trace:
        """Return the trace of this path or name.

        Returns:
            The trace, read once.
        """
        # Loads share arrays: a trace of a day at 1 Hz is 1.4 MB.
        trace = self._read.get(name)
        if trace is None:
            trace = self._read[name] = read_trace(self.find(name))
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


def read_trace(path: str | Path) -> Trace:
    """Read a trace; errors name file and line.

    Returns:
        Times in s and values, as arrays of equal length.

    Raises:
        LoadError: The file is no such CSV file, or its rows are wrong.
    """
    file = Path(path)
    try:
        text = decoded(file.read_bytes(), file, LoadError)
        lines, t_s, rate = _read_columns(csv.reader(io.StringIO(text, newline="")), file)
    except (OSError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise LoadError(f"cannot be read as a CSV file: {why}", file=file) from error
    if len(t_s) < 2:
        raise LoadError(f"has {len(t_s)} rows, expected at least 2", file=file)
    _check_order(t_s, lines, file)
    # One trace serves many loads, so nobody may write into it.
    t_s.flags.writeable = rate.flags.writeable = False
    return Trace(file, t_s, rate)


def _read_columns(reader: Iterator[list[str]], file: Path) -> tuple[list[int], Floats, Floats]:
    header = [name.strip() for name in next(reader, [])]
    if not header:
        raise LoadError("is empty, expected a header line 't_seconds,rate'", file=file)
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise LoadError(
            f"has no column {' and '.join(repr(name) for name in missing)}",
            file=file,
            value=",".join(header),
            remedy="The first line must name the columns: t_seconds,rate",
        )
    # Other columns may stand beside these two, in any order.
    places = [header.index(name) for name in COLUMNS]
    lines: list[int] = []
    rows: list[tuple[float, float]] = []
    # Line numbers for messages; the header is line 1, blank lines are passed over.
    for line, row in enumerate(reader, start=2):
        if row:
            t_s, rate = (_number(row, place, line, file, header) for place in places)
            lines.append(line)
            rows.append((t_s, rate))
    values = np.array(rows, dtype=np.float64).reshape(-1, 2)
    return lines, values[:, 0].copy(), values[:, 1].copy()


def _number(row: list[str], place: int, line: int, file: Path, header: list[str]) -> float:
    name = header[place]
    text = row[place] if place < len(row) else ""
    try:
        number = float(text)
    except ValueError:
        raise LoadError(
            f"line {line}: {name} is not a number", file=file, key=name, value=text
        ) from None
    if not np.isfinite(number):
        # float() accepts "nan" and "inf".
        raise LoadError(f"line {line}: {name} is not finite", file=file, key=name, value=text)
    if number < 0:
        raise LoadError(f"line {line}: {name} is negative", file=file, key=name, value=text)
    return number


def _check_order(t_s: Floats, lines: list[int], file: Path) -> None:
    wrong = np.flatnonzero(np.diff(t_s) <= 0)
    if wrong.size == 0:
        return
    row = int(wrong[0]) + 1
    problem = "repeats" if t_s[row] == t_s[row - 1] else "is before"
    raise LoadError(
        f"line {lines[row]}: t_seconds {problem} that of line {lines[row - 1]}, {t_s[row - 1]:g}",
        file=file,
        key="t_seconds",
        value=float(t_s[row]),
        remedy="Sort the rows by t_seconds, one row for each time.",
    )
