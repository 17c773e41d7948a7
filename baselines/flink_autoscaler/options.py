"""The autoscaler's configuration: every `job.autoscaler.*` key with its name and default.

The names are those of release 1.15.0 and, where noted, of main. A `flinkConfiguration` can be given
as it stands in a FlinkDeployment, flat or nested: keys of other parts of Flink are kept beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from baselines.flink_autoscaler.periods import Period, periods
from baselines.flink_autoscaler.units import duration_ms, memory_bytes
from dsp_gym.errors import ConfigError, did_you_mean

PREFIX = "job.autoscaler."
OLD_PREFIX = "kubernetes.operator."
"""Prefix under which every key is also read: `kubernetes.operator.job.autoscaler.*`."""
PLUGINS = (
    "metrics.custom-evaluator.",
    "scaling.custom-executor.",
    "scaling.parallelism-alignment.",
)
"""Sections of main whose keys contain names that users choose."""


T = TypeVar("T")


def option(key: str, kind: str, default: T, about: str, *older: str) -> T:
    """Declare a field read from `job.autoscaler.<key>`, or from one of its older names.

    Returns:
        The dataclass field; typed as its default.
    """
    return field(
        default=default, metadata={"key": key, "kind": kind, "about": about, "older": older}
    )


@dataclass(frozen=True)
class Options:
    """Values of all keys; times in ms, sizes in bytes."""

    enabled: bool = option("enabled", "boolean", False, "whether the job is looked at at all")
    scaling_enabled: bool = option("scaling.enabled", "boolean", True, "false: only advise")
    window_ms: int = option("metrics.window", "duration", 900_000, "averaging window")
    stabilization_ms: int = option(
        "stabilization.interval",
        "duration",
        300_000,
        "time after a start in which samples do not fill the window",
    )
    excluded_periods: tuple[Period, ...] = option(
        "excluded.periods", "periods", (), "Quartz cron and daily ranges without scaling"
    )
    utilization_target: float = option(
        "utilization.target", "number", 0.7, "utilisation aimed at", "target.utilization"
    )
    utilization_boundary: float = option(
        "target.utilization.boundary", "number", 0.3, "around the target where max or min is unset"
    )
    utilization_max: float | None = option(
        "utilization.max", "number", None, "scale up above this utilisation"
    )
    utilization_min: float | None = option(
        "utilization.min", "number", None, "scale down below this utilisation"
    )
    scale_down_interval_ms: int = option(
        "scale-down.interval",
        "duration",
        3_600_000,
        "scale-downs wait this long and take the largest parallelism of that time",
        "scale-up.grace-period",
    )
    min_parallelism: int = option("vertex.min-parallelism", "whole", 1, "of every vertex")
    max_parallelism: int = option("vertex.max-parallelism", "whole", 200, "of every vertex")
    scale_down_max_factor: float = option(
        "scale-down.max-factor", "number", 0.6, "share of the tasks that may go at once"
    )
    scale_up_max_factor: float = option(
        "scale-up.max-factor", "number", 100_000.0, "share of the tasks that may come at once"
    )
    catch_up_ms: int = option(
        "catch-up.duration", "duration", 1_800_000, "time to work off a backlog; 0: ignore it"
    )
    restart_ms: int = option("restart.time", "duration", 300_000, "expected restart time")
    restart_tracking: bool = option(
        "restart.time-tracking.enabled", "boolean", False, "use the longest restart seen instead"
    )
    restart_limit_ms: int = option(
        "restart.time-tracking.limit", "duration", 900_000, "upper bound of a restart seen"
    )
    backlog_ms: int = option(
        "backlog-processing.lag-threshold",
        "duration",
        300_000,
        "a source further behind is working off a backlog",
    )
    observed_lag_ms: int = option(
        "observed-true-processing-rate.lag-threshold",
        "duration",
        30_000,
        "a source further behind shows its true rate",
    )
    observed_switch: float = option(
        "observed-true-processing-rate.switch-threshold",
        "number",
        0.15,
        "take the observed rate where the one from busy time is this much larger",
    )
    observed_min: int = option(
        "observed-true-processing-rate.min-observations", "whole", 2, "observations to average"
    )
    effectiveness_detection: bool = option(
        "scaling.effectiveness.detection.enabled", "boolean", False, "block ineffective scale-ups"
    )
    effectiveness_threshold: float = option(
        "scaling.effectiveness.threshold", "number", 0.1, "share of the expected gain to reach"
    )
    gc_threshold: float = option(
        "memory.gc-pressure.threshold", "number", 1.0, "no scaling above this share of time in GC"
    )
    heap_threshold: float = option(
        "memory.heap-usage.threshold", "number", 1.0, "no scaling above this heap usage"
    )
    tuning: bool = option("memory.tuning.enabled", "boolean", False, "tune TaskManager memory")
    tuning_overhead: float = option(
        "memory.tuning.overhead", "number", 0.2, "added to what was used"
    )
    tuning_maximize_managed: bool = option(
        "memory.tuning.maximize-managed-memory", "boolean", False, "managed memory takes the rest"
    )
    tuning_compensation: bool = option(
        "memory.tuning.scale-down-compensation.enabled",
        "boolean",
        True,
        "fewer TaskManagers keep the heap of all",
    )
    history_count: int = option("history.max.count", "whole", 3, "scalings remembered per vertex")
    history_age_ms: int = option("history.max.age", "duration", 86_400_000, "and for how long")
    busy_aggregator: str = option(
        "metrics.busy-time.aggregator", "MAX AVG MIN", "MAX", "over the subtasks of a vertex"
    )
    excluded_vertices: tuple[str, ...] = option(
        "vertex.exclude.ids", "list", (), "vertices that are never scaled"
    )
    event_interval_ms: int = option(
        "scaling.event.interval", "duration", 1_800_000, "equal events are reported once per"
    )
    client_timeout_ms: int = option(
        "flink.rest-client.timeout", "duration", 10_000, "of requests to Flink"
    )
    quota_memory: int | None = option("quota.memory", "memory", None, "of all TaskManagers")
    quota_cpu: float | None = option("quota.cpu", "number", None, "of all TaskManagers")
    adjust_mode: str = option(
        "scaling.key-group.partitions.adjust.mode",
        "EVENLY_SPREAD MAXIMIZE_UTILISATION",
        "EVENLY_SPREAD",
        "alignment with key groups and partitions; deprecated on main",
    )
    scalability: bool = option(
        "observed-scalability.enabled", "boolean", False, "correct for less than linear scaling"
    )
    scalability_min: int = option(
        "observed-scalability.min-observations", "whole", 3, "scalings to fit it to"
    )
    scalability_lowest: float = option(
        "observed-scalability.coefficient-min", "number", 0.5, "lowest coefficient"
    )
    alignment_mode: str = option(
        "scaling.parallelism-alignment.mode",
        "text",
        "BALANCED",
        "main only: BALANCED, EVENLY_SPREAD, OFF",
    )
    custom_evaluators: tuple[str, ...] = option(
        "metrics.custom-evaluators", "list", (), "main only: names of plugins"
    )
    custom_executors: tuple[str, ...] = option(
        "scaling.custom-executors", "list", (), "main only: names of plugins"
    )
    given: frozenset[str] = frozenset()
    """Names of the fields that the configuration sets."""
    flink: Mapping[str, str] = field(default_factory=dict)
    """Keys of other parts of Flink, such as `taskmanager.memory.process.size`."""

    @classmethod
    def of(cls, configuration: Mapping[str, object]) -> Options:
        """Read the options of a `flinkConfiguration`.

        Returns:
            The options; `given` names those that the configuration sets.

        Raises:
            ConfigError: A key of the autoscaler is unknown, or a value cannot be read.
        """
        flat = flattened(configuration)
        values: dict[str, Any] = {}
        # The first name that is set wins: the present key before older ones, then the old prefix.
        for spec in _specs():
            names = [PREFIX + name for name in (spec.metadata["key"], *spec.metadata["older"])]
            for name in (*names, *(OLD_PREFIX + name for name in names)):
                if name in flat:
                    values[spec.name] = _value(spec.metadata["kind"], flat[name], name)
                    break
        rest = {key: text for key, text in flat.items() if not _is_ours(key)}
        return cls(**values, given=frozenset(values), flink=rest)

    def check(self) -> None:
        """Refuse values that the operator's validator refuses.

        Separate from `of`, because the classes behind the validator accept such values.

        Raises:
            ConfigError: A value is out of its bounds.
        """
        for name in (
            "scale_down_max_factor",
            "scale_up_max_factor",
            "utilization_target",
            "utilization_boundary",
        ):
            self._within(name, 0.0, None)
        self._within("utilization_max", self.utilization_target, 1.0)
        self._within("utilization_min", 0.0, self.utilization_target)
        if self.min_parallelism > self.max_parallelism:
            raise ConfigError(
                f"is above vertex.max-parallelism ({self.max_parallelism})",
                key=f"{PREFIX}vertex.min-parallelism",
                value=self.min_parallelism,
                remedy="Lower it, or raise the other.",
            )

    def _within(self, name: str, low: float | None, high: float | None) -> None:
        value = getattr(self, name)
        if value is None or ((low is None or value >= low) and (high is None or value <= high)):
            return
        key = next(s.metadata["key"] for s in _specs() if s.name == name)
        bounds = f"[{low:g}, {'...' if high is None else f'{high:g}'}]"
        raise ConfigError(f"must lie in {bounds}", key=PREFIX + key, value=value)


def described() -> dict[str, tuple[str, str]]:
    """Describe every key.

    Returns:
        Default and meaning by key.
    """
    return {PREFIX + s.metadata["key"]: (str(s.default), s.metadata["about"]) for s in _specs()}


def flattened(configuration: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    """Flatten a configuration, nested or not.

    >>> flattened({"job.autoscaler": {"enabled": True}, "job.autoscaler.metrics.window": "3 min"})
    {'job.autoscaler.enabled': 'true', 'job.autoscaler.metrics.window': '3 min'}

    Returns:
        Texts by dotted key.
    """
    flat: dict[str, str] = {}
    for key, value in configuration.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{name}."))
        # Flink separates list items by semicolons.
        elif isinstance(value, (list, tuple)):
            flat[name] = ";".join(map(str, value))
        else:
            flat[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def _specs() -> list[Field[object]]:
    return [f for f in fields(Options) if "key" in f.metadata and f.default is not MISSING]


def _is_ours(key: str) -> bool:
    """Return whether the autoscaler reads a key; refuse one that only looks like it."""
    name = key.removeprefix(OLD_PREFIX)
    known = {PREFIX + n for s in _specs() for n in (s.metadata["key"], *s.metadata["older"])}
    if name in known:
        return True
    # A near miss such as "job.autoscaller" is an error, not a key of another part of Flink.
    if not name.startswith(PREFIX):
        near = did_you_mean(name, known) if name.startswith("job.") else ""
        if near.startswith("Did"):
            raise ConfigError("unknown key", key=key, remedy=near)
        return False
    if name.removeprefix(PREFIX).startswith(PLUGINS):
        return True
    raise ConfigError("unknown key of the autoscaler", key=key, remedy=did_you_mean(name, known))


def _value(kind: str, text: str, key: str) -> object:
    if kind == "duration":
        return duration_ms(text, key)
    if kind == "memory":
        return memory_bytes(text, key)
    if kind == "boolean":
        if text.strip().lower() not in ("true", "false"):
            raise ConfigError("is neither true nor false", key=key, value=text)
        return text.strip().lower() == "true"
    if kind in ("whole", "number"):
        try:
            return int(text) if kind == "whole" else float(text)
        except ValueError:
            what = "a whole number" if kind == "whole" else "a number"
            raise ConfigError(f"is not {what}", key=key, value=text) from None
    if kind == "text":
        return text.strip()
    parts = tuple(part.strip() for part in text.split(";") if part.strip())
    if kind == "list":
        return parts
    if kind == "periods":
        return periods(parts, key)
    if text.strip().upper() not in kind.split():
        raise ConfigError(
            "unknown value", key=key, value=text, remedy=did_you_mean(text.upper(), kind.split())
        )
    return text.strip().upper()
