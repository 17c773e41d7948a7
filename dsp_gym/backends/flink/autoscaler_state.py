"""What Flink's autoscaler has stored of a job: its samples, its rescales, how long restarts took.

The operator keeps the state in a ConfigMap `autoscaler-NAME`, large values as gzip in base64; the
standalone autoscaler in a table `t_flink_autoscaler_state_store`, as JSON. Formats: operator 1.15,
KubernetesAutoScalerStateStore and JdbcAutoScalerStateStore.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from dsp_gym.config.files import read_yaml
from dsp_gym.config.strict_json import MISFITS, Document, parse_json
from dsp_gym.config.strict_yaml import parse_yaml
from dsp_gym.errors import ConfigError, DspGymError, MissingExtraError, SchemaError
from dsp_gym.redaction import redacted

__all__ = [
    "AutoscalerState",
    "Sample",
    "states_in_database",
    "states_in_file",
    "states_of_config_maps",
]

MOST_BYTES = 8 * 2**20
"""Of a value, unpacked: the operator reads no larger one."""

PREFIX = "autoscaler-"
"""Of the name of a ConfigMap."""

TABLE = "t_flink_autoscaler_state_store"

_VERTEX = re.compile("[0-9a-f]{32}")
_ODD = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DURATION = re.compile(r"PT(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?")


@dataclass(frozen=True, slots=True)
class Sample:
    """What the autoscaler measured at one moment."""

    t_s: float  # since 1970
    metrics: Mapping[str, Mapping[str, float]]  # by vertex id, then Flink's name of the metric


@dataclass(frozen=True, slots=True)
class AutoscalerState:
    """All that is stored of one job."""

    name: str  # of the deployment, or the key of the job
    samples: tuple[Sample, ...]  # in the order of time, since the job last started
    parallelism: Mapping[str, int]  # asked for, by vertex id; of the vertices that are known
    rescales: int  # remembered ones
    restarts_s: tuple[float, ...]  # how long they took, where that was tracked

    @property
    def vertices(self) -> frozenset[str]:
        """Ids of the vertices that were measured."""
        return frozenset(vertex for one in self.samples for vertex in one.metrics)


def states_in_file(file: Path) -> list[AutoscalerState]:
    """The states in a file that `kubectl get configmap -o yaml` (or json) has written.

    Returns:
        One for each ConfigMap of the autoscaler; others in a list are passed over.

    Raises:
        ConfigError: The file holds none.
        SchemaError: One cannot be read.
    """
    text = read_yaml(file)
    document = text if isinstance(text, dict) else {}
    maps = document.get("items") if str(document.get("kind")).endswith("List") else [document]
    return states_of_config_maps([one for one in maps or () if isinstance(one, dict)], str(file))


def states_of_config_maps(maps: Iterable[Document], where: str) -> list[AutoscalerState]:
    """The states in ConfigMaps.

    Args:
        maps: as the API server gives them.
        where: they come from, for errors.

    Returns:
        One for each ConfigMap of the autoscaler.

    Raises:
        ConfigError: There is none.
        SchemaError: One cannot be read.
    """
    found = []
    for one in maps:
        with_name = str((one.get("metadata") or {}).get("name", ""))
        if one.get("kind", "ConfigMap") == "ConfigMap" and with_name.startswith(PREFIX):
            packed = dict(one.get("data") or {})
            found.append(_state(with_name.removeprefix(PREFIX), packed, where))
    if not found:
        raise ConfigError(
            f"holds no ConfigMap {PREFIX}NAME",
            file=where,
            remedy="Write it: kubectl get configmap autoscaler-NAME -o yaml; the autoscaler makes "
            "it when job.autoscaler.enabled is true.",
        )
    return found


def states_in_database(url: str) -> list[AutoscalerState]:
    """The states in the database of a standalone autoscaler; one query reads them.

    Args:
        url: as SQLAlchemy takes it, such as sqlite:///state.db or mysql+pymysql://HOST/NAME.

    Returns:
        One for each job.

    Raises:
        ConfigError: The database cannot be opened, lacks the table, or holds no job.
        MissingExtraError: SQLAlchemy is not installed.
        SchemaError: A state cannot be read.
    """
    try:
        import sqlalchemy
    except ModuleNotFoundError:
        raise MissingExtraError("registry", "reading the autoscaler's database") from None
    shown = redacted(url)
    query = f"select job_key, state_type, state_value from {TABLE}"
    try:
        engine = sqlalchemy.create_engine(_only_reading(url), poolclass=sqlalchemy.NullPool)
        with engine.connect() as connection:
            rows = connection.execute(sqlalchemy.text(query)).fetchall()
    except (sqlalchemy.exc.SQLAlchemyError, ModuleNotFoundError) as error:
        raise ConfigError(
            f"the autoscaler's states cannot be read: {redacted(str(error).splitlines()[0])}",
            key="--autoscaler",
            value=shown,
            remedy=f"Name the database that holds {TABLE}, and install its driver.",
        ) from None
    packed: dict[str, dict[str, str]] = {}
    for job, kind, value in rows:
        packed.setdefault(str(job), {})[str(kind)] = str(value)
    if not packed:
        raise ConfigError("holds no job", key="--autoscaler", value=shown)
    return [_state(job, values, shown) for job, values in sorted(packed.items())]


def _only_reading(url: str) -> str:
    """Of SQLite the file as it is: opening a missing one would make it."""
    scheme, _, path = url.partition(":///")
    return f"{scheme}:///file:{path}?mode=ro&uri=true" if scheme == "sqlite" else url


def _state(name: str, packed: Mapping[str, object], where: str) -> AutoscalerState:
    try:
        return AutoscalerState(
            name=name,
            samples=_samples(_value(packed.get("collectedMetrics"))),
            parallelism=_overrides(packed.get("parallelismOverrides")),
            rescales=_moments(_value(packed.get("scalingHistory"))),
            restarts_s=_restarts(_value(packed.get("scalingTracking"))),
        )
    except (*MISFITS, DspGymError) as error:
        raise SchemaError(
            f"the state of '{name}' was not written by Flink's autoscaler: {error}",
            file=where,
            remedy="Supported are the operator's releases 1.9 to 1.16.",
        ) from None


def _value(packed: object) -> Document:
    """A value: JSON, YAML, or either as gzip in base64; an empty one where there is none."""
    text = "" if packed is None else str(packed).strip()
    if not text:
        return {}
    if not text.startswith(("{", "---")):
        text = _unpacked(text)
    read = parse_json(text) if text.startswith("{") else parse_yaml(text, file="its YAML")
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise ValueError(f"a value is {type(read).__name__}, expected a mapping")
    return read


def _unpacked(text: str) -> str:
    try:
        packed = base64.b64decode(text, validate=True)
        unpacking = zlib.decompressobj(wbits=31)
        found = unpacking.decompress(packed, MOST_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"a value is not gzip in base64: {error}") from None
    if unpacking.unconsumed_tail:
        raise ValueError(f"a value is larger than {MOST_BYTES:,} bytes")
    if not unpacking.eof:
        raise ValueError("a value is cut off")
    return found.decode("utf-8")


def _samples(document: Document) -> tuple[Sample, ...]:
    found = []
    for moment, one in document.items():
        metrics = {
            _vertex(vertex): {str(name): _number(value) for name, value in measured.items()}
            for vertex, measured in (one.get("vertexMetrics") or {}).items()
        }
        found.append(Sample(_seconds(moment), metrics))
    return tuple(sorted(found, key=lambda one: one.t_s))


def _overrides(packed: object) -> dict[str, int]:
    """Of `HEX:4,HEX:2`, or the same as a mapping."""
    text = "" if packed is None else str(packed).strip().strip("{}")
    found = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        vertex, colon, tasks = pair.partition(":")
        if not colon:
            raise ValueError(f"parallelismOverrides holds {pair!r}, expected HEX:TASKS")
        found[_vertex(vertex.strip().strip("'\""))] = int(tasks.strip().strip("'\""))
    return found


def _moments(document: Document) -> int:
    """How many rescales of any vertex there were."""
    return len({_seconds(moment) for summaries in document.values() for moment in summaries})


def _restarts(document: Document) -> tuple[float, ...]:
    records = document.get("scalingRecords") or {}
    tracked = (one.get("restartDuration") for one in records.values())
    return tuple(_duration_s(one) for one in tracked if one is not None)


def _duration_s(value: object) -> float:
    """Seconds, as a number or in ISO 8601."""
    match = _DURATION.fullmatch(str(value))
    if match is not None and any(match.groups()):
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
        return 3600 * hours + 60 * minutes + seconds
    return float(str(value))


def _vertex(key: object) -> str:
    if not isinstance(key, str) or _VERTEX.fullmatch(key) is None:
        raise ValueError(f"{key!r} is no id of a vertex, expected 32 hexadecimal digits")
    return key


def _number(value: object) -> float:
    if isinstance(value, str) and value in _ODD:  # numbers that JSON lacks
        return _ODD[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"a metric is {value!r}, expected a number")
    return float(value)


def _seconds(moment: object) -> float:
    """Of an instant: in ISO 8601, or seconds since 1970."""
    if isinstance(moment, int | float) and not isinstance(moment, bool):
        return float(moment)
    return datetime.fromisoformat(str(moment)).timestamp()
