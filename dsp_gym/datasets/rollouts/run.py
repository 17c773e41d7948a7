"""Rollouts into a folder: what is there already is kept, what is missing is played."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from dsp_gym.config.files import write_atomic
from dsp_gym.datasets.rollouts.format import (
    MANIFEST,
    CellRecord,
    RolloutManifest,
    cell_bytes,
    cell_file,
)
from dsp_gym.datasets.rollouts.plan import Batch, Cell, RolloutConfig, batches, cells_of, players_of
from dsp_gym.datasets.rollouts.play import play
from dsp_gym.engine import HERE, Engine, Tell, batch_size
from dsp_gym.errors import SchemaError, StorageError
from dsp_gym.evaluation.shipped_work import ShippedWork, one_thread, ship
from dsp_gym.job.catalog import job_hash
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.hashes import bytes_sha256
from dsp_gym.version import __version__

OnCell = Callable[[str, float, int], None]
"""Told of progress: a policy's label, cells done (a part of one counts), cells in all."""


class Played(NamedTuple):
    """One cell's file, and what the manifest says about it."""

    record: CellRecord
    content: bytes


def rollout(
    config: RolloutConfig,
    folder: Path,
    *,
    base_dir: str | Path | None = None,
    engine: Engine = HERE,
    observer: OnCell | None = None,
    overwrite: bool = False,
) -> RolloutManifest:
    """Play every cell of a configuration that the folder does not hold yet.

    The folder can be read at any time: its manifest names only cells that are whole. An interrupted
    call continues when it is repeated.

    Args:
        config: The rollouts.
        folder: Where they go.
        base_dir: Folder that relative trace paths start from.
        engine: Where cells are played; the files do not depend on it.
        observer: Told of progress.
        overwrite: Play again what was made from another configuration.

    Returns:
        The manifest, complete.

    Raises:
        SchemaError: The folder holds rollouts of another configuration or release.
    """
    players = players_of(config)
    cells = cells_of(config, players, base_dir)
    specs = tuple({cell.spec.job: cell.spec for cell in cells}.values())
    begun = RolloutManifest(
        schema="dsp-gym/rollout/1",
        config=config.model_dump(mode="json", by_alias=True),
        versions=_versions(specs),
        policies={player.label: player.described() for player in players},
        jobs=specs,
        complete=False,
        cells=(),
    )
    done = _kept(folder, begun, overwrite)
    work = list(batches(config, cells, batch_size(engine, len(cells)), base_dir, done))
    heard = _Progress(work, len(done), len(cells), observer)
    manifest = _written(folder, begun, cells, done)
    portable = [_shipped(batch, engine) for batch in work]
    for _, results in engine.map(played, portable, heard):
        for result in results:
            write_atomic(folder / result.record.file, result.content)
            done[result.record.run] = result.record
        manifest = _written(folder, begun, cells, done)
    return manifest


class _Progress:
    """Adds up the shares of batches that are played, and says so."""

    def __init__(
        self, work: Sequence[Batch], done: int, cells: int, observer: OnCell | None
    ) -> None:
        self._work, self._cells, self._observer = work, cells, observer
        self._done, self._shares = float(done), [0.0] * len(work)

    def __call__(self, place: int, share: float) -> None:
        batch = self._work[place]
        self._done += len(batch) * (share - self._shares[place])
        self._shares[place] = share
        if self._observer is not None:
            self._observer(batch.player.label, self._done, self._cells)


def _shipped(batch: Batch, engine: Engine) -> ShippedWork[Batch]:
    if not engine.shares_disk:
        env = batch.env.model_copy(update={"simulation": one_thread(batch.env.simulation)})
        batch = replace(batch, env=env)
    return ship(batch, batch.player.policy, shares_disk=engine.shares_disk)


def played(work: ShippedWork[Batch], tell: Tell[float]) -> list[Played]:
    """Play a batch and write its files in memory.

    Args:
        work: The batch.
        tell: Called with the share that is played.

    Returns:
        A record and the content of its file for each cell.
    """
    with work.unpacked() as policy:
        player = replace(work.work.player, policy=policy)
        return _played(replace(work.work, player=player), tell)


def _played(batch: Batch, tell: Tell[float]) -> list[Played]:
    made = []
    for cell, episode in zip(batch.cells, play(batch, tell), strict=True):
        content = cell_bytes(episode)
        record = CellRecord(
            run=cell.run,
            job=cell.spec.job,
            load=cell.load.name,
            seed=cell.load.seed,
            simulation_seed=cell.seed,
            policy=batch.player.label,
            guardrails=batch.player.guardrails_label,
            end="terminated" if episode.terminated else "truncated",
            file=cell_file(cell.run),
            rows=len(episode) + 1,
            sha256=bytes_sha256(content),
        )
        made.append(Played(record, content))
    return made


def _kept(folder: Path, begun: RolloutManifest, overwrite: bool) -> dict[str, CellRecord]:
    """Cells of an earlier call that are there, whole, and of the same making."""
    if overwrite or not (folder / MANIFEST).exists():
        return {}
    found = RolloutManifest.read(folder)
    same = found.model_copy(update={"complete": False, "cells": ()})
    if same.text() != begun.text():
        changed = [
            name
            for name in ("config", "versions", "policies", "jobs")
            if getattr(found, name) != getattr(begun, name)
        ]
        raise SchemaError(
            f"holds rollouts of something else: {', '.join(changed) or 'its form'} differ",
            file=folder / MANIFEST,
            remedy="Name another folder with --out, or replace the output with --overwrite.",
        )
    return {cell.run: cell for cell in found.cells if _is_whole(folder / cell.file, cell.sha256)}


def _is_whole(file: Path, sha256: str) -> bool:
    try:
        return bytes_sha256(file.read_bytes()) == sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StorageError(f"cannot be read: {error.strerror}", file=file) from error


def _written(
    folder: Path, begun: RolloutManifest, cells: Sequence[Cell], done: dict[str, CellRecord]
) -> RolloutManifest:
    records = tuple(done[cell.run] for cell in cells if cell.run in done)
    complete = len(records) == len(cells)
    manifest = begun.model_copy(update={"cells": records, "complete": complete})
    manifest.write(folder)
    return manifest


def _versions(specs: Sequence[JobSpec]) -> dict[str, str]:
    """What the numbers and the files depend on beside the configuration."""
    found = {"dsp-gym": __version__, "python": platform.python_version()}
    found |= {package: version(package) for package in ("numba", "numpy", "pyarrow")}
    for spec in specs:
        found[f"job {spec.job}"] = job_hash(spec)
    return found
