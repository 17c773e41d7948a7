"""What a build has to make: which partitions' inputs are not those of the last revision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from dsp_gym.datasets.encoding import EncodingConfig
from dsp_gym.datasets.manifest import DatasetManifest, PartitionRecord
from dsp_gym.errors import DatasetError
from dsp_gym.job.catalog import job_hash
from dsp_gym.job.spec import JobSpec
from dsp_gym.records.hashes import document_sha256
from spark_pipelines.config import DatasetConfig
from spark_pipelines.days import day_of
from spark_pipelines.sources import Partition, SourceFacts

PIPELINE = 2
"""Counts changes of the steps: with each, every partition is remade."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """Partitions by what becomes of them."""

    stale: Mapping[Partition, str]  # to be made, with the hash of their inputs
    kept: tuple[PartitionRecord, ...]  # taken over as they are
    lost: tuple[Partition, ...]  # taken over, though no source holds them any more
    late: tuple[Partition, ...]  # closed: as they are, or left out, though their inputs changed

    @property
    def build_id(self) -> str:
        """Says what is made on top of what: the same build continues where it was stopped."""
        stale = sorted([*partition, sha256] for partition, sha256 in self.stale.items())
        kept = sorted([p.job, p.day, p.inputs_sha256] for p in self.kept)
        return document_sha256([stale, kept])[:16]


def specs_of(facts: Sequence[SourceFacts]) -> dict[str, JobSpec]:
    """The job files of all sources.

    Returns:
        The job files by job.

    Raises:
        DatasetError: Two sources have two different jobs of one name.
    """
    found: dict[str, tuple[str, JobSpec]] = {}
    for source in facts:
        for job, spec in source.specs.items():
            other, known = found.setdefault(job, (source.name, spec))
            if job_hash(known) != job_hash(spec):
                raise DatasetError(
                    f"two jobs are named '{job}': the job files of the sources '{other}' and "
                    f"'{source.name}' differ",
                    key="sources",
                    remedy="Give one of them another name in its job file, or build two datasets.",
                )
    return {job: spec for job, (_, spec) in sorted(found.items())}


def inputs_of(
    facts: Sequence[SourceFacts], config: DatasetConfig, specs: Mapping[str, JobSpec]
) -> dict[Partition, str]:
    """Hash what every partition is made from.

    Returns:
        64 hexadecimal digits by (job, day).
    """
    common = document_sha256({"pipeline": PIPELINE, **_settings(config, specs)})
    pieces: dict[Partition, list[tuple[str, str, str]]] = {}
    headroom = config.transitions.env.start_headroom
    for source in facts:
        other_unit = source.headroom not in (None, headroom)
        for piece in source.pieces:
            sha256 = piece.sha256
            if other_unit:
                sha256 = document_sha256([sha256, "cost brought from headroom", source.headroom])
            for partition in piece.partitions:
                pieces.setdefault(partition, []).append((source.name, piece.name, sha256))
    return {
        partition: document_sha256([common, job_hash(specs[partition[0]]), sorted(found)])
        for partition, found in sorted(pieces.items())
    }


def changes_of(
    config: DatasetConfig, specs: Mapping[str, JobSpec], last: DatasetManifest
) -> dict[str, str]:
    """Compare the settings with those of the last revision.

    Args:
        config: the dataset.
        specs: from `specs_of`.
        last: the last revision's manifest.

    Returns:
        What has changed, in words, by job; jobs whose days were made as now are left out.
    """
    now, jobs = _settings(config, specs), {p.job for p in last.partitions}
    told = {key: last.config[key] for key in SETTINGS if key in last.config}
    try:
        known = {job: JobSpec.model_validate(spec) for job, spec in last.jobs.items()}
        before = DatasetConfig.model_validate({"name": "d", "sources": config.sources, **told})
        was = _settings(before, known)
    except (ValueError, DatasetError):  # settings that this release does not take
        return dict.fromkeys(jobs, "all")
    if other := ", ".join(key for key, value in now.items() if was[key] != value):
        return dict.fromkeys(jobs, other)
    return {
        job: "the job file"
        for job in jobs & specs.keys() & known.keys()
        if job_hash(specs[job]) != job_hash(known[job])
    }


def plan_of(
    inputs: Mapping[Partition, str],
    last: DatasetManifest | None,
    *,
    rebuild: bool = False,
    closed: Collection[Partition] = (),
    changes: Mapping[str, str] | None = None,
) -> BuildPlan:
    """Compare the inputs with those of the last revision.

    Args:
        inputs: from `inputs_of`.
        last: the last revision's manifest; None: there is none.
        rebuild: remake everything; what no source holds is dropped.
        closed: from `closed_days`; they are not made, again or for the first time.
        changes: from `changes_of`; closed days of these jobs are made all the same.

    Returns:
        Partitions to be made, kept, lost, and late.

    Raises:
        DatasetError: Days that no source holds any more would stand beside days of other settings.
    """
    changed_jobs = changes or {}
    known = {} if last is None or rebuild else {(p.job, p.day): p for p in last.partitions}
    changed = {
        partition: sha256
        for partition, sha256 in inputs.items()
        if partition not in known or known[partition].inputs_sha256 != sha256
    }
    stays = {partition for partition in closed if partition[0] not in changed_jobs}
    stale = {partition: sha256 for partition, sha256 in changed.items() if partition not in stays}
    kept = tuple(p for partition, p in known.items() if partition not in stale)
    lost = tuple(partition for partition in known if partition not in inputs)
    if other := [partition for partition in lost if partition[0] in changed_jobs]:
        job, day = other[0]
        raise DatasetError(
            f"{len(other)} days of the dataset, such as {day} of job '{job}', were made with other "
            f"settings ({changed_jobs[job]}), and no source holds them any more to make them again",
            remedy="Take back the change, build into another folder with --out, or drop those days "
            "with --rebuild.",
        )
    return BuildPlan(stale, kept, lost, tuple(sorted(changed.keys() - stale.keys())))


def closed_days(
    facts: Sequence[SourceFacts], last: DatasetManifest | None, late_s: float
) -> set[Partition]:
    """The partitions that the watermark has passed.

    The watermark of a source is the beginning of its newest published day, less `late_s`. A day is
    closed when it has passed it in all sources that hold rows of it. Days of a run's own clock
    never are.

    Returns:
        Pairs (job, day).
    """
    newest = {
        source.name: max(
            (day for piece in source.pieces for _, day in piece.partitions), default=""
        )
        for source in (() if last is None else last.sources)
    }
    held, still_open = set[Partition](), set[Partition]()
    for source in facts:
        held |= source.partitions()
        begins = newest.get(source.name, "")
        if source.clock == "unix" and begins:
            watermark = day_of(datetime.fromisoformat(f"{begins}T00:00Z").timestamp() - late_s)
            still_open |= {one for one in source.partitions() if one[1] >= watermark}
        else:
            still_open |= source.partitions()
    return held - still_open


SETTINGS = ("tables", "windows", "transitions", "quality", "splits")
"""The keys of a configuration that a row depends on."""


def _settings(config: DatasetConfig, specs: Mapping[str, JobSpec]) -> dict[str, object]:
    encoding: EncodingConfig = config.transitions
    quality = config.quality.model_dump(mode="json", exclude={"max_quarantined", "per_check"})
    return {
        "tables": sorted(config.tables),
        "windows": config.windows.model_dump(mode="json"),
        "transitions": encoding.model_dump(mode="json"),
        "vertices": encoding.columns(specs) if "transitions" in config.tables else 0,
        "quality": quality,
        "splits": config.splits.model_dump(mode="json"),
    }


def merged(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add counts by name.

    Returns:
        The sums, sorted by name.
    """
    total: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))
