"""Where a stream puts the files that arrive: each exactly once, and shown to readers as sources.

    arrived/SOURCE/...          a copy of every file that was taken, as it was named
    batches/N.json              which files the stream's batch N brought, and what became of them
    shown/SOURCE/...            what a reader of that kind can read now

A batch that is repeated after a crash brings the same files, so putting it down again changes
nothing. The dataset is a function of what is shown, and so is each of its builds.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from dsp_gym.config.files import write_atomic
from dsp_gym.config.model import ConfigModel
from dsp_gym.config.strict_json import parse_json
from dsp_gym.errors import DatasetError
from dsp_gym.records.manifest import RecordingManifest
from spark_pipelines.days import day_of, is_unix
from spark_pipelines.sources.config import (
    AnySource,
    ArchivesSource,
    JournalsSource,
    RecordingsSource,
    expanded,
)
from spark_pipelines.sources.parquet_files import check_columns

Watched = ArchivesSource | JournalsSource | RecordingsSource
"""Kinds of sources whose files a stream can wait for."""

_PATTERN = {"journals": "*.jsonl", "recordings": "samples/*.parquet"}
_LONG = ("t_s", "vertex", "subtask", "metric", "value")


class Arrival(ConfigModel):
    """One file that a batch brought."""

    source: str = Field(description="the column `source`")
    file: str = Field(description="below the source's folder")
    status: Literal["taken", "late", "refused"] = Field(
        description="late: every day it has rows of was closed; refused: it cannot be read"
    )
    last_s: float | None = Field(None, description="newest row; none: not known by then")
    reason: str | None = Field(None, description="why it was refused")


class LandedBatch(ConfigModel):
    """What one batch of the stream brought."""

    batch: int = Field(ge=0, description="number of the batch")
    files: tuple[Arrival, ...] = Field(description="by source and name")


def watched(config: Iterable[tuple[str, AnySource]]) -> dict[str, Watched]:
    """Sources whose files can arrive one after the other, by name.

    Returns:
        The sources whose files can arrive one after the other.

    Raises:
        DatasetError: No source can have files that arrive one after the other.
    """
    found = {name: source for name, source in config if isinstance(source, Watched)}
    if not found:
        raise DatasetError(
            "no source of this dataset grows by files",
            key="sources",
            remedy="Follow archives, journals or recordings; build the others.",
        )
    return found


class Landing:
    """What has arrived so far.

    Args:
        folder: where; made if need be.
        sources: what is waited for, by name.
        late_s: a day is closed once a source's newest row is so many seconds past its end.
    """

    def __init__(self, folder: Path, sources: Mapping[str, Watched], late_s: float) -> None:
        self.folder, self.sources, self.late_s = folder, sources, late_s
        self._batches: dict[int, LandedBatch] = {}
        for file in (folder / "batches").glob("*.json"):
            try:
                found = LandedBatch.model_validate_json(file.read_bytes())
            except ValueError as error:
                raise DatasetError(
                    f"is not a readable batch of `dsp-gym dataset build --follow`: "
                    f"{str(error).splitlines()[0]}",
                    file=file,
                    remedy="Restore the file, or follow the sources into a new folder.",
                ) from None
            self._batches[found.batch] = found

    @property
    def files(self) -> list[Arrival]:
        """Every file that has arrived, batch by batch."""
        return [file for _, batch in sorted(self._batches.items()) for file in batch.files]

    def count(self, status: str) -> int:
        """How many files have a status.

        Returns:
            A number of files.
        """
        return sum(file.status == status for file in self.files)

    def put(self, batch: int, files: Iterable[tuple[str, Path]]) -> LandedBatch:
        """Put down what a batch brought; again, if it was put down before.

        Args:
            batch: its number.
            files: (source, path); those that the source's configuration does not name are left.

        Returns:
            The batch with what became of each file.
        """
        wanted = {name: set(_matching(source)) for name, source in self.sources.items()}
        arrivals = [
            self._arrival(batch, name, file)
            for name, file in sorted(set(files))
            if file in wanted[name]
        ]
        made = LandedBatch(batch=batch, files=tuple(arrivals))
        write_atomic(self.folder / "batches" / f"{batch:06d}.json", made.model_dump_json() + "\n")
        self._batches[batch] = made
        return made

    def show(self) -> dict[str, Watched]:
        """Link what was taken into a folder per source, where its reader finds it.

        Returns:
            The sources that have something to read, by name.
        """
        shown: dict[str, Watched] = {}
        for name, source in self.sources.items():
            taken = [f.file for f in self.files if (f.source, f.status) == (name, "taken")]
            folder = self.folder / "shown" / name
            if isinstance(source, JournalsSource):
                files = list(self._joined(name, source, taken))
            elif isinstance(source, RecordingsSource):
                files = _recorded(expanded(source.folder), folder, set(taken))
            else:
                files = taken
            for file in files:
                _link(self.folder / "arrived" / name / file, folder / file)
            if files:
                shown[name] = source.model_copy(update={"name": name, "folder": str(folder)})
        return shown

    def _arrival(self, batch: int, name: str, file: Path) -> Arrival:
        """Look at a file, and copy it unless it comes too late or cannot be read."""
        source = self.sources[name]
        relative = file.relative_to(expanded(source.folder).absolute())
        try:
            last_s = _newest_s(source, name, file)
        except DatasetError as error:
            return Arrival(source=name, file=str(relative), status="refused", reason=str(error))
        watermark_s = self._watermark_s(batch, name)
        if last_s is not None and is_unix(last_s) and day_of(last_s) < day_of(watermark_s):
            return Arrival(source=name, file=str(relative), status="late", last_s=last_s)
        _copy(file, self.folder / "arrived" / name / relative)
        return Arrival(source=name, file=str(relative), status="taken", last_s=last_s)

    def _watermark_s(self, batch: int, name: str) -> float:
        """As of the batches before this one, so that a batch that is repeated finds the same."""
        newest = [
            file.last_s
            for number, before in self._batches.items()
            for file in before.files
            if number < batch and file.source == name and file.last_s is not None
        ]
        return max(newest, default=0.0) - self.late_s if newest else 0.0

    def _joined(self, name: str, source: JournalsSource, taken: list[str]) -> Iterator[str]:
        """Segments without a hole between them; what stands behind one waits.

        The newest segment grows after it has arrived, so all are brought up to date first.
        """
        folder = self.folder / "arrived" / name
        expected: int | None = None
        for file in sorted(taken):
            original = expanded(source.folder) / file
            if original.exists() and original.stat().st_size > (folder / file).stat().st_size:
                _copy(original, folder / file)
            first, last = _ends(folder / file)
            if first is None or (expected is not None and first != expected):
                return
            yield file
            expected = None if last is None else last + 1


def _matching(source: Watched) -> Iterator[Path]:
    pattern = source.files if isinstance(source, ArchivesSource) else _PATTERN[source.kind]
    yield from expanded(source.folder).absolute().glob(pattern)


def _newest_s(source: Watched, name: str, file: Path) -> float | None:
    """The time of the newest row, where that is known without reading all of them."""
    if isinstance(source, ArchivesSource) and file.suffix == ".parquet":
        columns = _LONG if source.layout == "long" else _LONG[:3]
        named = tuple(source.columns.get(column, column) for column in columns)
        rows, _, last_s = check_columns(file, name, named, source.columns.get("t_s", "t_s"))
        return last_s if rows else None
    if isinstance(source, RecordingsSource):
        manifest = RecordingManifest.read(expanded(source.folder))
        ends = {run.samples: run.t_end_s for run in manifest.runs}
        end_s = ends.get(f"samples/{file.name}")
        if end_s is not None and manifest.started_unix_s is not None:
            return manifest.started_unix_s + end_s
    return None


def _recorded(source: Path, shown: Path, taken: set[str]) -> list[str]:
    """Show the runs of a recording whose samples have arrived; return the files of those."""
    manifest = RecordingManifest.read(source)  # first: the events it counts are in the file by then
    runs = tuple(run for run in manifest.runs if run.samples in taken)
    if runs:
        for name in ("job.yaml", "env.yaml", "events.jsonl"):
            if (source / name).exists():
                _copy(source / name, shown / name)
        manifest.model_copy(update={"runs": runs}).write(shown)
    return [run.samples for run in runs]


def _ends(segment: Path) -> tuple[int | None, int | None]:
    """Numbers of the first and last whole entry of a journal's segment; None where there is none.

    Entries themselves are checked by the reader of journals.
    """
    first = last = None
    with segment.open("rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                first, last = first or line, line
    return _number(first), _number(last)


def _number(line: bytes | None) -> int | None:
    try:
        return int(parse_json(line or b"")["seq"])
    except (ValueError, KeyError, TypeError):
        return None


def _copy(file: Path, target: Path) -> None:
    """Copy a file whole or not at all; a hard link to it would grow with it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copyfile(file, temporary)
    os.replace(temporary, target)


def _link(file: Path, target: Path) -> None:
    """Show a file as it is now."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists() and os.path.samefile(file, target):
        return
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    os.link(file, temporary)
    os.replace(temporary, target)
