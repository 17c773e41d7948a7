"""Writing recordings: run by run, each whole or not at all, so that a plan can be continued."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from dsp_gym.arrays import Floats
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_yaml import dump_yaml
from dsp_gym.errors import StorageError
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.hashes import file_sha256
from dsp_gym.records.manifest import Event, RecordedLoad, RecordingManifest, RunRecord
from dsp_gym.records.parquet import read_table, write_samples, write_table
from dsp_gym.records.recording import Recording, gaps_in


@dataclass(frozen=True, kw_only=True, slots=True)
class EndedRun:
    """A run that has ended, as its recorder knows it. Times: seconds since the recording began."""

    name: str  # unique; letters, digits, dots, dashes
    configuration: Configuration  # what it began with
    load: RecordedLoad
    t_begin_s: float  # when it was submitted; events before it are an earlier attempt's
    t_load_s: float  # when its load began
    t_running_s: float | None  # when every subtask ran; None: never
    t_end_s: float  # when it was stopped or failed
    repeat: int = 0  # number among equal runs
    seed: int = 0  # of load and records
    attempt: int = 1
    cause: str | None = None  # why it was aborted; None: it is complete


class RecordingWriter:
    """Adds runs to a recording. After each one the folder is a recording that opens."""

    def __init__(
        self, folder: Path, spec: JobSpec, manifest: RecordingManifest, events: list[Event]
    ):
        self.folder = folder
        self.spec = spec
        self.manifest = manifest
        self._events = events

    @classmethod
    def create(
        cls,
        folder: str | Path,
        spec: JobSpec,
        environment: Mapping[str, object],
        *,
        started_unix_s: float | None = None,
        plan_sha256: str | None = None,
    ) -> RecordingWriter:
        """A new recording in a folder that holds none.

        Args:
            folder: made if need be.
            spec: the job, kept as `job.yaml`.
            environment: what it ran on, kept as `env.yaml` beside `machine()`.
            started_unix_s: Unix time of second 0; None for a simulation.
            plan_sha256: of the plan it follows, so that only this plan continues it.

        Returns:
            A writer of the recording, which holds no run yet.
        """
        root = cls.make_folder(folder)
        document = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        write_atomic(root / "job.yaml", dump_yaml(document))
        env = {"machine": machine(), **environment}
        write_atomic(root / "env.yaml", dump_yaml(env))
        write_atomic(root / "events.jsonl", "")
        manifest = RecordingManifest(
            job=spec.job,
            started_unix_s=started_unix_s,
            versions={"dsp-gym": version("dsp-gym"), "python": platform.python_version()},
            plan_sha256=plan_sha256,
        )
        manifest.write(root)
        return cls(root, spec, manifest, [])

    @staticmethod
    def make_folder(folder: str | Path) -> Path:
        """An empty folder for a recording.

        Returns:
            The folder, made where it did not exist.

        Raises:
            StorageError: Something is there, or it cannot be made.
        """
        root = Path(folder)
        if root.exists() and (not root.is_dir() or any(root.iterdir())):
            raise StorageError(
                "is not empty", file=root, remedy="Name a new folder, or empty this one."
            )
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot be made: {error.strerror}", file=root, remedy="Name another folder."
            ) from error
        return root

    @classmethod
    def resume(cls, folder: str | Path) -> RecordingWriter:
        """Continue a recording; files of an unfinished run are removed.

        Returns:
            A writer of the recording with its runs.
        """
        recording = Recording.open(folder)
        kept = {record.samples for record in recording.manifest.runs}
        for file in (recording.folder / "samples").glob("*"):
            if f"samples/{file.name}" not in kept:
                file.unlink()
        return cls(recording.folder, recording.spec, recording.manifest, list(recording.events))

    def names(self) -> set[str]:
        """Names of the complete runs whose samples are there.

        Returns:
            Names to leave out when an interrupted recording is continued.
        """
        return {
            record.name
            for record in self.manifest.runs
            if record.status == "complete" and (self.folder / record.samples).exists()
        }

    def note(self, events: Sequence[Event], populated: Mapping[str, object] | None = None) -> None:
        """Keep events that belong to no run, and the savepoint that runs start from."""
        self._events.extend(events)
        changed = {} if populated is None else {"populated": dict(populated)}
        self._commit(changed)

    def add(
        self,
        run: EndedRun,
        samples: Samples | Iterable[Samples],
        events: Sequence[Event],
        truth: Mapping[str, Sequence[object] | Floats] | None = None,
    ) -> RunRecord:
        """Add a run; one of the same name whose file was lost is replaced.

        Args:
            run: what is known of it beside its samples.
            samples: sorted, in seconds since the recording began; a long run's in parts, in order
                of time, of which one is held at a time.
            events: of this run.
            truth: columns of `outcome.parquet` (simulations only).

        Returns:
            The run as the manifest names it.

        Raises:
            StorageError: A file cannot be written.
        """
        file = f"samples/{re.sub(r'[^A-Za-z0-9._-]', '_', run.name)}.parquet"
        since_s = run.t_end_s if run.t_running_s is None else run.t_running_s
        whole = [samples] if isinstance(samples, Samples) else samples
        parts = _Counted(whole, since_s, run.t_end_s)
        write_samples(self.folder / file, self.spec.job, parts)
        record = RunRecord(
            name=run.name,
            parallelism=dict(run.configuration.parallelism),
            memory_level=dict(run.configuration.memory_level),
            load=run.load,
            repeat=run.repeat,
            seed=run.seed,
            status="complete" if run.cause is None else "aborted",
            cause=run.cause,
            attempt=run.attempt,
            t_begin_s=run.t_begin_s,
            t_load_s=run.t_load_s,
            t_running_s=run.t_running_s,
            t_end_s=run.t_end_s,
            samples=file,
            rows=parts.rows,
            sha256=file_sha256(self.folder / file),
            gaps=parts.gaps,
        )
        self._events.extend(events)
        if truth is not None:
            self._add_truth(run.name, truth)
        self._commit({"runs": (*(r for r in self.manifest.runs if r.name != run.name), record)})
        return record

    def _add_truth(self, name: str, truth: Mapping[str, Sequence[object] | Floats]) -> None:
        file = self.folder / "outcome.parquet"
        length = len(next(iter(truth.values())))
        columns: Mapping[str, Sequence[object] | Floats] = {"run": [name] * length, **truth}
        if file.exists():
            before = read_table(file)
            keep = [i for i, run in enumerate(before["run"]) if run != name]
            columns = {key: [before[key][i] for i in keep] + list(columns[key]) for key in columns}
        write_table(file, columns)

    def _commit(self, changed: Mapping[str, object]) -> None:
        """Events first, in the order they came: the manifest says how many of them count."""
        text = "".join(event.line() for event in self._events)
        write_atomic(self.folder / "events.jsonl", text)
        self.manifest = self.manifest.model_copy(update={**changed, "events": len(self._events)})
        self.manifest.write(self.folder)


class _Counted:
    """Samples in parts, and what the manifest says of them once they have been gone through.

    Args:
        parts: in order of time.
        since_s: begin of the time in which gaps are looked for.
        until_s: end of it.
    """

    def __init__(self, parts: Iterable[Samples], since_s: float, until_s: float) -> None:
        self._parts, self._newest_s, self._until_s = parts, since_s, until_s
        self.rows = 0
        self.gaps: tuple[tuple[float, float], ...] = ()

    def __iter__(self) -> Iterator[Samples]:
        for part in self._parts:
            yield part
            self.rows += len(part)
            newest_s = float(np.max(part.t_s, initial=self._newest_s, where=part.vertex != ""))
            self._look(part, min(newest_s, self._until_s))
        self._look(Samples.of(()), self._until_s)

    def _look(self, part: Samples, until_s: float) -> None:
        self.gaps += gaps_in(part, self._newest_s, until_s)
        self._newest_s = until_s


def machine() -> dict[str, object]:
    """Describe this machine.

    Returns:
        Cores, memory in MiB, system and architecture.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_mib": memory // 2**20,
        "system": platform.system(),
        "architecture": platform.machine(),
    }
