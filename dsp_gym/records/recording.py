"""Reading recordings: one run at a time, and only what is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from dsp_gym.config.files import parse, read_yaml
from dsp_gym.config.strict_json import MISFITS
from dsp_gym.errors import ConfigError, SchemaError, StorageError, did_you_mean
from dsp_gym.job.spec import JobSpec
from dsp_gym.loop.configuration import Configuration
from dsp_gym.metrics.samples import SAMPLE_S, Samples, source_counter
from dsp_gym.metrics.window import increase
from dsp_gym.records.base import Body
from dsp_gym.records.hashes import file_sha256
from dsp_gym.records.manifest import Event, RecordedLoad, RecordingManifest, RunRecord
from dsp_gym.records.parquet import ROWS_PER_GROUP, read_samples, read_table, stream_samples
from dsp_gym.records.shipped import folder_of

HELD_ROWS = 4 * ROWS_PER_GROUP
"""Samples of a run that may be held all at once; two hours of a job of ten subtasks have fewer."""


class PassingSamples:
    """Samples around a time that moves on, read from their parts as they are asked for.

    Args:
        stream: begins again at every call; parts in order of time.
        behind_s: how far behind the newest time asked for samples are held.
    """

    def __init__(self, stream: Callable[[], Iterator[Samples]], behind_s: float) -> None:
        self._stream, self._behind_s = stream, behind_s
        self._parts, self._is_over = stream(), False
        self._held = Samples.of(())
        self._dropped_s = -math.inf  # samples up to here are not held any more

    def between(self, since_s: float, until_s: float) -> Samples:
        """Those with since_s < t_s <= until_s.

        Returns:
            Samples in order.
        """
        if since_s < self._dropped_s:
            self._parts, self._is_over = self._stream(), False
            self._held, self._dropped_s = Samples.of(()), -math.inf
        while not self._is_over and not (len(self._held) and self._held.t_s[-1] > until_s):
            part = next(self._parts, None)
            if part is None:
                self._is_over = True
            elif len(self._held):
                self._dropped_s = max(self._dropped_s, min(since_s, until_s - self._behind_s))
                self._held = self._held.between(self._dropped_s, math.inf).followed_by(part)
            else:
                self._held = part
        return self._held.between(since_s, until_s)


@dataclass(frozen=True)
class Run:
    """One run of a recording. Times are seconds since the recording began."""

    name: str
    spec: JobSpec
    configuration: Configuration  # when it began
    load: RecordedLoad
    repeat: int
    events: tuple[Event, ...]
    t_load_s: float  # when its load began
    t_running_s: float  # when every subtask ran; NaN: never
    t_end_s: float
    complete: bool
    cause: str | None = None  # why it is not complete
    gaps: tuple[tuple[float, float], ...] = ()
    file: Path | None = None
    sha256: str | None = None
    given: Samples | None = field(default=None, repr=False)  # in place of a file
    rows: int | None = None  # in the file; None: not known

    @cached_property
    def _samples(self) -> Samples:
        if self.given is not None:
            return self.given
        self._check()
        assert self.file is not None  # of a run without samples given
        return read_samples(self.file)

    def samples(self) -> Samples:
        """All its samples; read once.

        Returns:
            The same object at every call.
        """
        return self._samples

    def stream(self) -> Iterator[Samples]:
        """Read its samples part by part, for runs that do not fit in memory.

        Returns:
            Parts of its samples, in order of time.
        """
        if self.given is not None:
            yield self.given
            return
        self._check()
        assert self.file is not None  # of a run without samples given
        yield from stream_samples(self.file)

    def passing(self, behind_s: float) -> PassingSamples:
        """Its samples for a reader that goes through them in the order of time.

        A run that is short enough is read once, for all readers; of a longer one each reader holds
        a part.

        Args:
            behind_s: how far behind the newest time asked for samples are held; older ones are read
                again.

        Returns:
            A reader at the begin of the run.
        """
        if self.given is not None or self.rows is None or self.rows <= HELD_ROWS:
            return PassingSamples(lambda: iter((self.samples(),)), behind_s)
        return PassingSamples(self.stream, behind_s)

    def configuration_at(self, t_s: float) -> Configuration:
        """Look up the running configuration at a time, s.

        Returns:
            The configuration of the last `running` event so far; before it, that of the start.
        """
        found = self.configuration
        for event in self.events:
            if event.kind == "running" and event.t_s <= t_s and "parallelism" in event.body:
                found = _configuration(self.spec, event.body)
        return found

    @property
    def offered(self) -> tuple[tuple[float, float], ...]:
        """(seconds since running, records/s offered from then on); the first at 0."""
        shift = self.t_load_s - self.t_running_s
        later = tuple((t + shift, rate) for t, rate in self.load.steps if t + shift > 0)
        return ((0.0, self.load.rate_at(-shift)), *later)

    def _check(self) -> None:
        if self.file is None or not self.file.exists():
            raise StorageError(
                f"run '{self.name}' has no samples: its file is missing",
                file=self.file,
                remedy="Record that run again.",
            )
        if self.sha256 is not None and file_sha256(self.file) != self.sha256:
            raise StorageError(
                f"its content has changed since run '{self.name}' was recorded (sha256 differs)",
                file=self.file,
                remedy="Restore the file, or record that run again.",
            )


@dataclass(frozen=True)
class Recording:
    """A folder with the runs of one job."""

    folder: Path
    manifest: RecordingManifest
    spec: JobSpec
    environment: Mapping[str, object]
    events: tuple[Event, ...]
    runs: tuple[Run, ...]

    @classmethod
    def open(cls, folder: str | Path) -> Recording:
        """Open a recording; the samples of a run are read when they are first needed.

        Args:
            folder: its folder, or the name of a shipped recording.

        Returns:
            The recording as its manifest names it.
        """
        root = folder_of("recordings", folder)
        manifest = RecordingManifest.read(root)
        spec = parse(JobSpec, read_yaml(root / "job.yaml"), root / "job.yaml")
        environment = read_yaml(root / "env.yaml")
        events = tuple(_events(root / "events.jsonl", manifest.events))
        runs = tuple(_run(root, spec, record, events) for record in manifest.runs)
        known = environment if isinstance(environment, dict) else {}
        return cls(root, manifest, spec, known, events, runs)

    def run(self, name: str) -> Run:
        """The run of that name.

        Returns:
            The run, complete or aborted.
        """
        for run in self.runs:
            if run.name == name:
                return run
        raise ConfigError(
            f"has no run '{name}'",
            file=self.folder,
            remedy=did_you_mean(name, [run.name for run in self.runs]),
        )

    def complete_runs(self) -> tuple[Run, ...]:
        """Those that went on to their end and whose samples are there.

        Returns:
            The runs in the order of the manifest.
        """
        return tuple(run for run in self.runs if run.complete)

    def notes(self) -> list[str]:
        """What is not as it should be, one sentence each.

        Returns:
            A sentence per aborted run and per gap in the samples; empty for a sound recording.
        """
        found = [
            f"run '{run.name}' was aborted: {run.cause}" for run in self.runs if not run.complete
        ]
        for run in self.runs:
            found += [
                f"run '{run.name}': no samples from {since:.0f} to {until:.0f} s"
                for since, until in run.gaps
            ]
        return found

    def truth(self) -> dict[str, list[object]] | None:
        """Read what the simulation knew second by second.

        Returns:
            Columns `run`, `t_s` and outcomes by name; None for a real recording.
        """
        file = self.folder / "outcome.parquet"
        return read_table(file) if file.exists() else None


def gaps_in(samples: Samples, since_s: float, until_s: float) -> tuple[tuple[float, float], ...]:
    """Find spans longer than two samples without a sample of any vertex.

    Returns:
        (since, until) of each span, s.
    """
    times = np.unique(samples.t_s[samples.vertex != ""])
    times = times[(times > since_s) & (times <= until_s)]
    edges = np.concatenate(([since_s], times, [until_s]))
    wide = np.flatnonzero(np.diff(edges) > 2.5 * SAMPLE_S)
    return tuple((float(edges[i]), float(edges[i + 1])) for i in wide)


_LONGEST_NAME = 250


def _run(folder: Path, spec: JobSpec, record: RunRecord, events: tuple[Event, ...]) -> Run:
    within = Path(record.samples)
    if within.is_absolute() or ".." in within.parts or len(record.samples) > _LONGEST_NAME:
        raise SchemaError(
            "a run's samples are no file of the recording's folder",
            file=folder / "manifest.json",
            key="runs",
            value=record.samples,
            remedy="Restore manifest.json.",
        )
    file = folder / record.samples
    cause = record.cause if file.exists() else f"{record.samples} is missing"
    return Run(
        name=record.name,
        spec=spec,
        configuration=_configuration(
            spec, {"parallelism": record.parallelism, "memory_level": record.memory_level}
        ),
        load=record.load,
        repeat=record.repeat,
        events=tuple(
            event
            for event in events
            if event.run == record.name and record.t_begin_s <= event.t_s <= record.t_end_s
        ),
        t_load_s=record.t_load_s,
        t_running_s=float("nan") if record.t_running_s is None else record.t_running_s,
        t_end_s=record.t_end_s,
        complete=record.status == "complete" and file.exists(),
        cause=cause,
        gaps=record.gaps,
        file=file,
        sha256=record.sha256,
        rows=record.rows,
    )


def _configuration(spec: JobSpec, body: Body) -> Configuration:
    """Vertices in the job file's order, which JSON does not keep."""
    names = [vertex.name for vertex in spec.vertices]
    try:
        parallelism, level = body["parallelism"], body["memory_level"]
        return Configuration(
            {name: int(parallelism[name]) for name in names},
            {name: int(level[name]) for name in names},
        )
    except MISFITS as error:
        raise SchemaError(
            f"a configuration does not name every vertex of job '{spec.job}': {error!r}",
            remedy="Restore manifest.json and events.jsonl of the recording.",
        ) from None


def _events(file: Path, lines: int) -> Iterator[Event]:
    """The lines the manifest counts; what a crash left behind them belongs to no run."""
    try:
        found = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(
            f"cannot be read: {error}", file=file, remedy="Restore the file."
        ) from None
    if len(found) < lines:
        raise SchemaError(
            f"has {len(found)} lines, the manifest counts {lines}",
            file=file,
            remedy="Restore the file.",
        )
    for number, line in enumerate(found[:lines], 1):
        try:
            yield Event.model_validate_json(line)
        except ValueError as error:
            raise SchemaError(f"line {number} is damaged: {error}", file=file) from None


def recorded_rate(run: Run) -> float | None:
    """Measure what all sources read in the second half of a run.

    Returns:
        Records/s; None where no source reported.
    """
    middle_s = (run.t_running_s + run.t_end_s) / 2
    samples = run.samples().between(middle_s - SAMPLE_S, run.t_end_s)
    total, known = 0.0, False
    for vertex in run.spec.vertices:
        if vertex.kind != "source":
            continue
        times, _, values = samples.grid(vertex.name, source_counter(samples, vertex.name))
        if len(times) > 1:
            rose, seconds = increase(times, values)
            total += float(np.nansum(rose / seconds))
            known = True
    return total if known else None
