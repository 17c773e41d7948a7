"""The history of a job in Prometheus: fetched chunk by chunk, and kept, so that it is asked once.

    KEEP/2026-03-01/1772323200-1772326800.parquet   samples of one chunk
    KEEP/2026-03-01/1772323200-1772326800.json      its rows, ids and tasks of its submissions

Samples are as they were scraped (range selectors), never interpolated. A chunk that is not over yet
is fetched but not kept. Chunks begin at multiples of their length, so another begin or end finds
what is there.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from dsp_gym.backends.flink.patient import HistoryOptions, PatientSamples, TooMuchError
from dsp_gym.backends.flink.prometheus_api import Labels
from dsp_gym.backends.flink.submissions import Graphs, Remark, graphs_of, moment
from dsp_gym.backends.upstream.access import AccessConfig
from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import MISFITS, parse_json
from dsp_gym.errors import FlinkError
from dsp_gym.job.spec import JobSpec
from dsp_gym.metrics.samples import Samples
from dsp_gym.records.parquet import read_samples, write_samples

__all__ = ["HistoryChunk", "FlinkHistory", "HistoryOptions", "keep_folder"]

_GRACE_S = 60.0
"""A chunk that ended longer ago than this has all its scrapes."""
_OVERLAP_S = 30.0
"""The series of a job that was resubmitted may overlap its next one's by a scrape or two."""
Spans = dict[str, tuple[float, float]]
"""First and last sample by id of the job, in the order of time, Unix seconds."""
_LEAST_S = 60.0
"""A time that is not halved any more, however much the server complains."""


@dataclass(frozen=True, slots=True)
class HistoryChunk:
    """The samples of a job over a piece of its history."""

    since_s: float  # Unix seconds
    until_s: float
    rows: int
    file: Path

    def samples(self) -> Samples:
        """Read its samples.

        Returns:
            Samples with since_s < t_s <= until_s, Unix seconds, vertices named as in the job file.
        """
        return read_samples(self.file)


def keep_folder(root: Path, url: str, job_name: str, spec: JobSpec, labels: Labels) -> Path:
    """Where a history is kept by default: no two jobs share a folder, whatever their names.

    Returns:
        A folder below `root`; its name is a hash of what the samples depend on.
    """
    vertices = [vertex.name for vertex in spec.vertices]
    told = json.dumps([url, job_name, vertices, str(labels)]).encode()
    return root / hashlib.sha256(told).hexdigest()[:16]


class FlinkHistory:
    """Fetches what a Prometheus has kept of one job.

    Args:
        url: Prometheus' address.
        job_name: Flink's name of the job.
        spec: the job file; samples bear the names of its vertices.
        keep: folder of the fetched chunks.
        labels: what this Prometheus calls Flink's labels.
        options: how it is asked.
        account: account, certificates and proxy; its files are read again when they change.
        clock: Unix seconds.
        sleep: waits that many seconds.
    """

    def __init__(
        self,
        url: str,
        job_name: str,
        spec: JobSpec,
        *,
        keep: Path,
        labels: Labels | None = None,
        options: HistoryOptions | None = None,
        account: AccessConfig | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url, self.job_name, self.spec, self.keep = url.rstrip("/"), job_name, spec, keep
        self.options, self.labels = options or HistoryOptions(), labels or Labels()
        self.fetched = 0
        """Chunks that were asked for, not found in the folder."""
        self._clock = clock
        self._source = PatientSamples(
            self.url, spec, self.options, self.labels, account, job_name, clock, sleep
        )
        self._graphs: Graphs | None = None

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """What a reader must know of the submissions of the job; empty before the first chunk."""
        return () if self._graphs is None else self._graphs.remarks

    def chunks(
        self,
        since_s: float,
        until_s: float = math.inf,
        on_chunk: Callable[[int, int], None] | None = None,
    ) -> Iterator[HistoryChunk]:
        """Go through the history in the order of time; chunks that are missing are fetched.

        Args:
            since_s: Unix seconds.
            until_s: Unix seconds; at most now.
            on_chunk: called with the chunks done and their number.

        Yields:
            Chunks; they begin at multiples of their length, the first before `since_s`.

        Raises:
            FlinkError: Prometheus refuses, does not answer, or knows no such job; or two jobs of
                the name ran at once. What was fetched before is kept.
        """
        now_s, length = self._clock(), self.options.chunk_s
        until_s = min(until_s, now_s)
        first = int(since_s // length * length)
        starts = range(first, max(first, math.ceil(until_s)), length)
        shutil.rmtree(self.keep / ".growing", ignore_errors=True)
        for done, start in enumerate(starts):
            end = start + length
            yield self._chunk(start, end, first, until_s, whole=end + _GRACE_S <= now_s)
            if on_chunk is not None:
                on_chunk(done + 1, len(starts))

    def graphs(self, since_s: float, until_s: float) -> Graphs:
        """Look at the submissions of the job; asked once.

        Returns:
            The graph of each id that the job has had.

        Raises:
            FlinkError: No series bears the job's name, or none with the vertices of the job file.
        """
        if self._graphs is None:
            self._graphs = graphs_of(self._source, self.job_name, self.spec, since_s, until_s)
            self._source.renamed = dict(self._graphs.renamed)
        return self._graphs

    def _chunk(
        self, since_s: int, until_s: int, first_s: float, last_s: float, *, whole: bool
    ) -> HistoryChunk:
        folder = self.keep / (moment(since_s)[:10] if whole else ".growing")
        file = folder / f"{since_s}-{until_s}.parquet"
        rows = _rows(file) if whole and file.exists() else None
        if rows is not None:
            return HistoryChunk(float(since_s), float(until_s), rows, file)
        self.fetched += 1
        graphs = self.graphs(first_s, last_s)
        spans, samples = self._asked(graphs.ids, since_s, min(until_s, self._clock()))
        _refuse_two_jobs(spans, self.url, self.job_name)
        facts = {"rows": len(samples), "job_ids": list(spans)}
        write_samples(file, self.spec.job, [samples])
        write_atomic(file.with_suffix(".json"), json.dumps(facts, sort_keys=True))
        return HistoryChunk(float(since_s), float(until_s), len(samples), file)

    def _asked(self, ids: tuple[str, ...], since_s: float, until_s: float) -> tuple[Spans, Samples]:
        """First and last sample of each id, and all samples; a time that is too much is halved."""
        if not since_s < until_s:
            return {}, Samples.of(())
        try:
            return self._source.of_ids(ids, since_s, until_s)
        except TooMuchError:
            if until_s - since_s < 2 * _LEAST_S:
                raise
        middle = (since_s + until_s) // 2
        spans: Spans = {}
        parts = []
        for begin, end in ((since_s, middle), (middle, until_s)):
            seen, samples = self._asked(ids, begin, end)
            parts.append(samples)
            for job_id, (first, last) in seen.items():
                spans[job_id] = (spans.get(job_id, (first, last))[0], last)
        return spans, Samples.joined(parts)


def _rows(file: Path) -> int | None:
    """Return the rows that were written of a chunk; None where a write was cut short before."""
    try:
        return int(parse_json(file.with_suffix(".json").read_text(encoding="utf-8"))["rows"])
    except (OSError, *MISFITS):
        return None


def _refuse_two_jobs(spans: Spans, url: str, job_name: str) -> None:
    for (one, (_, ended_s)), (other, (began_s, _)) in pairwise(spans.items()):
        if ended_s - began_s > _OVERLAP_S:
            raise FlinkError(
                f"{url}: two jobs are named '{job_name}': {one} and {other} both ran for "
                f"{ended_s - began_s:.0f} s from {moment(began_s)} on",
                api="prometheus",
                reason="Conflict",
                remedy="Choose a time in which only one ran, or one of them by a label of its "
                f'series: cluster="NAME" or job_id="{one}" in labels.',
            )
