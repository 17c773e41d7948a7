"""Revisions of a dataset: one is built aside and becomes current in one step.

    .lock                     held by the running build
    .building-ID/             what is being built; ID says from what, so the same build continues
    .staging/SOURCE/          sources as Parquet where Spark cannot read them itself
    revisions/N/              published revisions, the last two; files they share are hard links
    CURRENT                   the number of the current one, replaced in one step

However a build ends, CURRENT names a whole revision. The next build removes or continues
what a killed one left.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dsp_gym.config.files import write_atomic
from dsp_gym.config.temporary import only_writer, synced
from dsp_gym.datasets.manifest import CURRENT, REVISIONS, DatasetManifest, current_revision
from dsp_gym.errors import DatasetError

__all__ = ["Store"]

_KEPT = 2
"""Revisions: readers that opened the one before go on with it."""


class Store:
    """A dataset's folder.

    Args:
        folder: made if need be.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other builds out.

        Yields:
            Nothing; the lock is held until the block ends or the process does.

        Raises:
            DatasetError: Another build is at work.
            StorageError: The folder cannot be written to.
        """
        taken = DatasetError(
            "another build of this dataset is at work",
            file=self.folder,
            remedy="Wait for it, or build into another folder: --out FOLDER",
        )
        with only_writer(self.folder, taken):
            yield

    def current(self) -> DatasetManifest | None:
        """Reads the manifest of the current revision.

        Returns:
            The manifest; None where nothing was published.
        """
        if not (self.folder / CURRENT).exists():
            return None
        return DatasetManifest.read(self.folder)

    def revision(self, number: int) -> Path:
        """The folder of a revision.

        Returns:
            A path; the folder need not exist.
        """
        return self.folder / REVISIONS / str(number)

    def staging(self, source: str) -> Path:
        """Where a source may keep files.

        Returns:
            A path; the folder need not exist.
        """
        return self.folder / ".staging" / source

    def begin(self, build_id: str) -> Path:
        """Begins a build, or continues an earlier one of this id.

        Returns:
            The folder of the build.
        """
        self.clean(keep=build_id)
        building = self.folder / f".building-{build_id}"
        building.mkdir(exist_ok=True)
        return building

    def clean(self, keep: str | None = None) -> None:
        """Removes what builds left that were killed, or failed."""
        for found in self.folder.glob(".building-*"):
            if keep is None or found.name != f".building-{keep}":
                shutil.rmtree(found, ignore_errors=True)
        newest = current_revision(self.folder) if (self.folder / CURRENT).exists() else 0
        for found in (self.folder / REVISIONS).glob("*"):
            if not found.name.isdecimal() or int(found.name) > newest:
                shutil.rmtree(found, ignore_errors=True)

    def link(self, file: str, revision: int, building: Path) -> None:
        """Takes a file of a published revision over as it is."""
        target = building / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            os.link(self.revision(revision) / file, target)

    def publish(self, building: Path, manifest: DatasetManifest) -> Path:
        """Makes what was built the current revision.

        Returns:
            The revision's folder, with everything in it on disk.
        """
        manifest.write(building)
        for folder, _, files in os.walk(building):
            for file in files:
                synced(Path(folder) / file)
            synced(Path(folder))
        target = self.revision(manifest.revision)
        target.parent.mkdir(exist_ok=True)
        building.rename(target)
        synced(target.parent)
        write_atomic(self.folder / CURRENT, f"{manifest.revision}\n")
        synced(self.folder)
        self._prune(manifest.revision)
        return target

    def _prune(self, newest: int) -> None:
        for found in (self.folder / REVISIONS).glob("*"):
            if found.name.isdecimal() and int(found.name) <= newest - _KEPT:
                shutil.rmtree(found, ignore_errors=True)
