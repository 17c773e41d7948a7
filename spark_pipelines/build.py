"""`dsp-gym dataset build`: sources in, a published revision out, or nothing."""

from __future__ import annotations

import json
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from dsp_gym.config.files import write_atomic
from dsp_gym.config.strict_json import parse_json
from dsp_gym.datasets.delta import REPORTS, TABLES, DatasetHome
from dsp_gym.datasets.encoding import Encoding
from dsp_gym.datasets.manifest import (
    DatasetManifest,
    PartitionRecord,
    PieceRecord,
    SourceRecord,
    TableRecord,
    content_of,
)
from dsp_gym.datasets.reader import Dataset
from dsp_gym.errors import DatasetError, DspGymError, MissingExtraError
from dsp_gym.job.spec import JobSpec
from spark_pipelines.config import DatasetConfig
from spark_pipelines.faults import spark_faults
from spark_pipelines.pipeline import Made, made_of
from spark_pipelines.plan import (
    PIPELINE,
    BuildPlan,
    changes_of,
    closed_days,
    inputs_of,
    merged,
    plan_of,
    specs_of,
)
from spark_pipelines.publication import Publication
from spark_pipelines.quality.verdicts import outcomes_of, prove
from spark_pipelines.session import spark_session
from spark_pipelines.sources import Inputs, Partition, SourceFacts, reader_of
from spark_pipelines.steps.cells import compile_cells
from spark_pipelines.store import (
    Store,
    kept,
    partitions_in,
    write_table,
)

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

POLARS = "polars"
"""In place of a master of Spark."""

_COUNTS = "counts.json"

_BRIEF_ROWS = 20_000_000
_BRIEF = {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"}
"""For builds of at most so many rows: the JVM's second compiler takes a third of their time, and
ends when they do."""


class Observer:
    """Follows the progress of a build; as it stands, it says nothing."""

    def begin(self, stages: int) -> None:
        """So many stages at most are to come."""

    def stage(self, name: str, detail: str) -> None:
        """A stage begins."""


@dataclass(frozen=True)
class Built:
    """What a build came to."""

    home: DatasetHome
    manifest: DatasetManifest
    is_new: bool  # False: every partition was there already, nothing was published
    made: int  # partitions that were made
    kept: int  # partitions that were taken over
    lost: tuple[Partition, ...]  # kept, though no source has them any more
    late: tuple[Partition, ...]  # closed, though their inputs changed
    accounting: dict[str, int]  # of the partitions that were made
    notes: tuple[str, ...]
    seconds: dict[str, float]  # by stage

    def report(self, file: str) -> str:
        """A file of the report: its path, or its address in object storage."""
        return self.home.at(REPORTS, str(self.manifest.revision), file)


@dataclass
class _Stages:
    """Tells an observer, and takes the time."""

    observer: Observer
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def __call__(self, name: str, detail: str = "") -> Iterator[None]:
        self.observer.stage(name, detail)
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


def build(
    config: DatasetConfig,
    out: str | Path,
    *,
    engine: str | None = None,
    rebuild: bool = False,
    observer: Observer | None = None,
    late_s: float | None = None,
) -> Built:
    """Build a dataset, or what is new of it.

    Args:
        config: what it is made of.
        out: its folder; on a cluster, one that every machine sees; or an address such as
            `s3://bucket/name`, to which this process takes what was built.
        engine: `polars`, which makes the same of rollouts and journals without a JVM; else Spark's
            master; None: Spark on all cores of this machine.
        rebuild: remake every partition, and drop those that no source holds.
        observer: follows the progress.
        late_s: days are closed so many seconds behind the newest one; None: none is.

    Returns:
        What was made, kept and published.

    Raises:
        DatasetError: A source or the build cannot be used; nothing was published.
    """
    store, stages = Store(out), _Stages(observer or Observer())
    stages.observer.begin(len(config.tables) + 7)
    with store.locked():
        store.work.joinpath(".staging").mkdir(exist_ok=True)
        last = store.current()
        with stages("sources", ", ".join(config.source_names())):
            facts = _surveyed(config, store)
            _admit(engine, facts)
            specs = specs_of(facts)
            inputs = inputs_of(facts, config, specs)
        closed = set() if late_s is None else closed_days(facts, last, late_s)
        changes = {} if last is None else changes_of(config, specs, last)
        plan = plan_of(inputs, last, rebuild=rebuild, closed=closed, changes=changes)
        if last is not None and not plan.stale and len(plan.kept) == len(last.partitions):
            store.clean()
            return _built(store, last, plan, facts, None, stages)
        building = store.begin(plan.build_id)
        task = _Task(config, facts, specs, plan, building, stages)
        counts = _made(task, engine)
        _judge(config, facts, counts)
        publication = Publication(store.home, last)
        with stages("content", f"{len(plan.stale)} partitions"):
            manifest = _manifest(task, publication, _versions(engine), counts)
        with stages("report"):
            from spark_pipelines.quality.report import report_of

            report = report_of(Dataset(store.home, manifest))
        with stages("publish", f"revision {manifest.revision}"):
            publication.publish(manifest, report)
            store.clean()
            _drop_unused_staging(store, facts)
    return _built(store, manifest, plan, facts, counts, stages)


def _surveyed(config: DatasetConfig, store: Store) -> list[SourceFacts]:
    found = []
    for source, name in zip(config.sources, config.source_names(), strict=True):
        try:
            facts = reader_of(source.kind).survey(source.settings(), name, store.staging(name))
        except DatasetError:
            raise
        except DspGymError as error:
            raise DatasetError(
                f"source '{name}': {error.message}",
                file=error.file,
                key=error.key,
                value=error.value,
                remedy=error.remedy,
            ) from error
        if not facts.partitions():
            raise DatasetError(
                f"source '{name}' is empty: it has no row",
                file=facts.path,
                key="sources",
                remedy="Take it out of the configuration, or see why nothing was recorded.",
            )
        found.append(facts)
    return found


@dataclass(frozen=True)
class _Task:
    """What is to be built, of what, and where."""

    config: DatasetConfig
    facts: Sequence[SourceFacts]
    specs: Mapping[str, JobSpec]
    plan: BuildPlan
    building: Path
    stages: _Stages


def _admit(engine: str | None, facts: Sequence[SourceFacts]) -> None:
    """Refuse an engine that cannot be had, or cannot read the sources."""
    if engine == POLARS:
        if find_spec("polars") is None:
            raise MissingExtraError("polars", "the engine polars")
        from spark_pipelines.on_polars import refuse_samples

        refuse_samples(facts)


def _made(task: _Task, engine: str | None) -> dict[Partition, dict[str, int]]:
    """Write the tables of stale partitions and return what became of their rows."""
    plan, building = task.plan, task.building
    if not plan.stale or (building / _COUNTS).exists():
        return _read_counts(building)
    if engine == POLARS:
        from spark_pipelines.on_polars import write_decisions

        counts = write_decisions(
            task.config, task.facts, task.specs, set(plan.stale), building, task.stages
        )
    else:
        counts = _by_spark(task, master=engine)
    document = [[job, day, found] for (job, day), found in sorted(counts.items())]
    write_atomic(building / _COUNTS, json.dumps(document))
    return counts


def _by_spark(task: _Task, master: str | None) -> dict[Partition, dict[str, int]]:
    from spark_pipelines.faults import shown

    config, facts, building, stages = task.config, task.facts, task.building, task.stages
    with ExitStack() as stack:
        with stages("spark", master or "local"):
            if not all(source.decided for source in facts):  # samples are read by compiled code
                Thread(target=compile_cells, name="dsp-gym cells", daemon=True).start()
            brief = _BRIEF if _is_brief(facts) else None
            spark = stack.enter_context(
                spark_session(
                    f"dsp-gym dataset {config.name}", master, config.spark, defaults=brief
                )
            )
        stack.enter_context(spark_faults(facts))
        stack.enter_context(shown(spark, stages.observer))
        only = set(task.plan.stale)
        with stages("read"):
            inputs = _read(spark, facts, only)
        with stages("grid"):
            made = made_of(spark, inputs, config, task.specs, partial(kept, building))
        with stages("quality"):
            counts = _accounted(made, only)
            _judge(config, facts, counts)
        tables = dict(made.tables)
        if made.quarantine is not None and _quarantined(merged(counts.values())):
            tables["quarantine"] = made.quarantine()
        for name, frame in tables.items():
            with stages(name):
                write_table(frame, building, name, only, config.rows_per_file)
        with stages("accounting"):
            _add_counts(made, counts)
            _add_findings(building, counts)
    return counts


def _is_brief(facts: Sequence[SourceFacts]) -> bool:
    """Whether all rows are known to be few."""
    pieces = [piece for source in facts for piece in source.pieces]
    return all(p.rows >= 0 for p in pieces) and sum(p.rows for p in pieces) <= _BRIEF_ROWS


def _read(spark: SparkSession, facts: Sequence[SourceFacts], only: set[Partition]) -> list[Inputs]:
    """Sources that hold rows of stale partitions, and only those rows."""
    return [
        reader_of(source.kind).read(spark, source, only & source.partitions())
        for source in facts
        if only & source.partitions()
    ]


def _accounted(made: Made, only: set[Partition]) -> dict[Partition, dict[str, int]]:
    """What became of raw rows, by partition; every one of them is somewhere.

    Raises:
        DatasetError: The sum is not that of all rows.
    """
    found: dict[Partition, dict[str, int]] = {partition: {} for partition in sorted(only)}
    if made.accounting is None:
        return found
    rows = made.accounting.collect()  # one per run
    failed: list[Row] = []
    if made.failures is not None and any(row["passed"] < row["rows"] for row in rows):
        failed = made.failures().collect()
    prove(rows, failed)
    # A run is counted on its first day. Where no row passed, it has that of a row that failed.
    days: dict[tuple[str, str, str], str] = {}
    for row in sorted(failed, key=lambda row: row["day"], reverse=True):
        days[_run_of(row)] = row["day"]
    days |= {_run_of(row): row["day"] for row in rows if row["day"] is not None}
    for row in rows:
        _count(found, row["job"], days[_run_of(row)], outcomes_of(row))
    for row in failed:
        counts = {f"quarantined:{row['check']}": row["rows"]}
        _count(found, row["job"], days[_run_of(row)], counts)
    return found


def _run_of(row: Row) -> tuple[str, str, str]:
    return row["source"], row["job"], row["run"]


def _add_counts(made: Made, found: dict[Partition, dict[str, int]]) -> None:
    for frame in made.counts.values():
        for row in frame.collect():
            _count(found, row["job"], row["day"], {row["name"]: row["rows"]})


def _add_findings(building: Path, found: dict[Partition, dict[str, int]]) -> None:
    from pyarrow.parquet import ParquetFile

    for (job, day), folder in partitions_in(building, "findings").items():
        read = [ParquetFile(file).read(["check"])["check"] for file in folder.glob("*.parquet")]
        told = Counter(check for column in read for check in column.to_pylist())
        _count(found, job, day, {f"told:{check}": count for check, count in told.items()})


def _count(
    found: dict[Partition, dict[str, int]], job: str, day: str, counts: Mapping[str, int]
) -> None:
    of = found.get((job, day))
    if of is not None:
        for name, count in counts.items():
            of[name] = of.get(name, 0) + int(count)


def _read_counts(building: Path) -> dict[Partition, dict[str, int]]:
    file = building / _COUNTS
    if not file.exists():
        return {}
    return {(job, day): found for job, day, found in parse_json(file.read_text(encoding="utf-8"))}


def _judge(
    config: DatasetConfig,
    facts: Sequence[SourceFacts],
    counts: Mapping[Partition, Mapping[str, int]],
) -> None:
    """Refuse a build of which too much was quarantined."""
    total = merged(counts.values())
    quality, rows = config.quality, total.get("rows", 0)
    if rows == 0:
        return
    checks = _quarantined(total)
    limits = dict.fromkeys(checks, 1.0) | quality.per_check
    over = {check: n for check, n in checks.items() if n / rows > limits[check]}
    if not over and sum(checks.values()) / rows > quality.max_quarantined:
        over = {max(checks, key=lambda check: checks[check]): max(checks.values())}
    if not over:
        return
    check, failed = max(over.items(), key=lambda item: item[1])
    worst = max(counts, key=lambda partition: counts[partition].get(f"quarantined:{check}", 0))
    raise DatasetError(
        f"{failed} of {rows} rows fail the check '{check}' ({failed / rows:.1%}), most of them of "
        f"job '{worst[0]}' on {worst[1]}; sources: {', '.join(f.name for f in facts)}",
        key="quality.max_quarantined" if check not in quality.per_check else "quality.per_check",
        value=quality.per_check.get(check, quality.max_quarantined),
        remedy="See what is wrong with those rows, or allow for more.",
    )


def _quarantined(total: Mapping[str, int]) -> dict[str, int]:
    """Rows in quarantine by check."""
    return {k.partition(":")[2]: n for k, n in total.items() if k.startswith("quarantined:")}


def _manifest(
    task: _Task,
    publication: Publication,
    versions_of: Mapping[str, str],
    counts: Mapping[Partition, Mapping[str, int]],
) -> DatasetManifest:
    """Hash what was made, and commit it with what is kept, table by table."""
    config, plan, specs, building = task.config, task.plan, task.specs, task.building
    last = publication.last
    revision = 1 if last is None else last.revision + 1
    made = {name: partitions_in(building, name) for name in _tables(building)}
    names = {name for name, found in made.items() if found}
    names.update(name for old in plan.kept for name in old.tables)
    versions, told = dict[str, int](), dict[Partition, dict[str, TableRecord]]()
    for name in sorted(names):
        kept = {(p.job, p.day) for p in plan.kept if name in p.tables}
        versions[name], new = publication.commit(name, made.get(name, {}), kept)
        for partition, table in new.items():
            told.setdefault(partition, {})[name] = table
    new_ones = (
        PartitionRecord(
            job=partition[0],
            day=partition[1],
            inputs_sha256=inputs_sha256,
            revision=revision,
            tables=told.get(partition, {}),
            accounting=dict(sorted(counts.get(partition, {}).items())),
        )
        for partition, inputs_sha256 in plan.stale.items()
    )
    records = sorted([*plan.kept, *new_ones], key=lambda p: (p.job, p.day))
    jobs = {job: spec.model_dump(mode="json", by_alias=True) for job, spec in specs.items()}
    detail: dict[str, object] = {"pipeline": PIPELINE}
    if "transitions" in config.tables:
        detail["encoding"] = Encoding.of(config.transitions, specs).model_dump(mode="json")
    return DatasetManifest(
        name=config.name,
        revision=revision,
        content_sha256=content_of(records),
        config=config.model_dump(mode="json", by_alias=True),
        versions=dict(versions_of),
        sources=tuple(source_record(source) for source in task.facts),
        tables=versions,
        jobs={**({} if last is None else last.jobs if plan.lost else {}), **jobs},
        partitions=tuple(records),
        splits=_splits(records),
        accounting=merged(p.accounting for p in records),
        detail=detail,
    )


def _tables(building: Path) -> list[str]:
    return sorted(folder.name for folder in (building / TABLES).glob("*") if folder.is_dir())


def _splits(records: Sequence[PartitionRecord]) -> dict[str, dict[str, int]]:
    by_table: dict[str, list[TableRecord]] = {}
    for partition in records:
        for name, table in partition.tables.items():
            by_table.setdefault(name, []).append(table)
    found = {name: merged(t.splits for t in tables) for name, tables in sorted(by_table.items())}
    return {name: splits for name, splits in found.items() if splits}


def source_record(facts: SourceFacts) -> SourceRecord:
    """A source as the manifest keeps it.

    Returns:
        Its name, kind, path, clock, pieces and notes.
    """
    pieces = tuple(
        PieceRecord(name=p.name, sha256=p.sha256, rows=p.rows, partitions=p.partitions)
        for p in facts.pieces
    )
    return SourceRecord(
        name=facts.name,
        kind=facts.kind,
        path=facts.path,
        clock=facts.clock,
        pieces=pieces,
        notes=facts.notes,
    )


def _versions(engine: str | None) -> dict[str, str]:
    made_by = POLARS if engine == POLARS else "pyspark"
    names = ("dsp-gym", made_by, "pyarrow", "numpy", "deltalake")
    return {"python": platform.python_version(), **{n: metadata.version(n) for n in names}}


def _built(
    store: Store,
    manifest: DatasetManifest,
    plan: BuildPlan,
    facts: Sequence[SourceFacts],
    counts: Mapping[Partition, Mapping[str, int]] | None,
    stages: _Stages,
) -> Built:
    """Say what a build came to; without counts nothing was made."""
    return Built(
        home=store.home,
        manifest=manifest,
        is_new=counts is not None,
        made=len(plan.stale),
        kept=len(plan.kept),
        lost=plan.lost,
        late=plan.late,
        accounting=merged((counts or {}).values()),
        notes=tuple(f"{source.name}: {note}" for source in facts for note in source.notes),
        seconds=stages.seconds,
    )


def _drop_unused_staging(store: Store, facts: Sequence[SourceFacts]) -> None:
    """Files of sources that were staged for another content than this one."""
    used = {piece.file for source in facts for piece in source.pieces}
    for file in store.work.joinpath(".staging").rglob("*.parquet"):
        if file not in used:
            file.unlink()
            file.with_suffix(".json").unlink(missing_ok=True)
