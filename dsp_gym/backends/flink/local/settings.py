"""What a local cluster is made of, and the configuration files that say so to Flink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from dsp_gym.config.model import ConfigModel

Port = Annotated[int, Field(ge=0, le=65535)]


class ClusterSettings(ConfigModel):
    """One JobManager, one TaskManager and one Prometheus on this machine."""

    scheduler: Literal["default", "adaptive"] = Field(
        "default",
        description="default: memory per vertex, changed by resubmission; adaptive: parallelism "
        "changes in place, every slot has the same memory",
    )
    slots: int = Field(
        16, ge=1, le=512, description="task slots of the TaskManager; 16 as in StreamBed's"
    )
    managed_mib: int = Field(
        3072, ge=64, description="managed memory of all slots, MiB: RocksDB's caches"
    )
    task_heap_mib: int = Field(
        1536, ge=64, description="Java heap of all slots, MiB; 96 for each of 16"
    )
    network_mib: int = Field(
        256,
        ge=16,
        description="network buffers of all slots, MiB; enough for 16 subtasks all to all",
    )
    network_segment_kib: int = Field(
        32,
        ge=4,
        le=1024,
        description="size of one network buffer, KiB; small ones let a job show what it does "
        "when buffers are full (Flink: 32)",
    )
    jobmanager_heap_mib: int = Field(
        512, ge=128, description="Java heap of the JobManager, MiB; Flink wants 128 for itself"
    )
    rest_port: Port = Field(8081, description="Flink's REST and web page; 0: a free one")
    prometheus_port: Port = Field(9090, description="Prometheus; 0: a free one")
    rpc_port: Port = Field(0, description="JobManager's RPC; 0: a free one")
    jobmanager_reporter_port: Port = Field(
        0, description="JobManager's metrics for Prometheus; 0: a free one"
    )
    taskmanager_reporter_port: Port = Field(
        0, description="TaskManager's metrics for Prometheus; 0: a free one"
    )
    prometheus: bool = Field(True, description="false: no Prometheus, metrics over REST only")
    scrape_interval_s: float = Field(
        5.0, ge=1, description="seconds between scrapes, as in the papers and in recordings"
    )
    metric_fetch_s: float = Field(
        2.0, gt=0, description="age in seconds a metric read over REST may have; Flink's own is 10"
    )
    retention_days: int = Field(7, ge=1, description="days that Prometheus keeps samples")
    state_latency_sample: int = Field(
        100, ge=1, description="every how many-th state access is timed (Flink's default)"
    )
    checkpoint_interval_s: float | None = Field(
        None,
        gt=0,
        description="seconds between checkpoints; a killed TaskManager repeats at most this much. "
        "None: 30, with the adaptive scheduler 10, because it rescales from the next one",
    )
    restart_attempts: int = Field(
        60,
        ge=0,
        description="restarts before a failing job has FAILED for good, after 5 minutes or more",
    )
    restart_delay_s: float = Field(
        5.0, ge=0, description="seconds a failed job is RESTARTING before it is tried again"
    )


class Ports(ConfigModel):
    """The ports a cluster really uses."""

    rest: int = Field(description="Flink's REST")
    rpc: int = Field(description="JobManager's RPC")
    prometheus: int = Field(description="Prometheus")
    jobmanager_reporter: int = Field(description="JobManager's metrics")
    taskmanager_reporter: int = Field(description="TaskManager's metrics")


def checkpoint_interval_s(settings: ClusterSettings) -> float:
    """Seconds between checkpoints.

    Returns:
        The interval of the settings, else 10 s under the adaptive scheduler and 30 s otherwise.
    """
    if settings.checkpoint_interval_s is not None:
        return settings.checkpoint_interval_s
    return 10.0 if settings.scheduler == "adaptive" else 30.0


def flink_config(settings: ClusterSettings, ports: Ports, home: Path) -> str:
    """The text of Flink's `config.yaml`, for JobManager and TaskManager alike.

    Returns:
        YAML with one key per line.
    """
    options = {
        **_network(ports),
        **_memory(settings),
        **_scheduling(settings),
        **_state(settings, home),
        **_metrics(settings),
    }
    return "".join(f"{key}: {_scalar(value)}\n" for key, value in options.items())


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else f'"{value}"'


def _network(ports: Ports) -> Mapping[str, object]:
    here = "127.0.0.1"
    return {
        "jobmanager.rpc.address": here,
        "jobmanager.rpc.port": ports.rpc,
        "jobmanager.bind-host": here,
        "taskmanager.host": here,
        "taskmanager.bind-host": here,
        "rest.address": here,
        "rest.bind-address": here,
        "rest.port": ports.rest,
        "rest.bind-port": ports.rest,
        # A lost TaskManager is noticed after two heartbeats without an answer.
        "heartbeat.interval": "4 s",
        "heartbeat.rpc-failure-threshold": 2,
    }


def _memory(settings: ClusterSettings) -> Mapping[str, object]:
    """All parts by themselves: then Flink derives nothing, and the JVM's flags follow."""
    network = f"{settings.network_mib}m"
    return {
        "taskmanager.numberOfTaskSlots": settings.slots,
        "taskmanager.cpu.cores": float(settings.slots),
        "taskmanager.memory.framework.heap.size": f"{FRAMEWORK_HEAP_MIB}m",
        "taskmanager.memory.task.heap.size": f"{settings.task_heap_mib}m",
        "taskmanager.memory.framework.off-heap.size": f"{FRAMEWORK_OFF_HEAP_MIB}m",
        "taskmanager.memory.task.off-heap.size": "0m",
        "taskmanager.memory.network.min": network,
        "taskmanager.memory.network.max": network,
        "taskmanager.memory.segment-size": f"{settings.network_segment_kib}kb",
        "taskmanager.memory.managed.size": f"{settings.managed_mib}m",
        "taskmanager.memory.jvm-metaspace.size": f"{METASPACE_MIB}m",
        "taskmanager.memory.jvm-overhead.min": f"{OVERHEAD_MIB}m",
        "taskmanager.memory.jvm-overhead.max": f"{OVERHEAD_MIB}m",
        "jobmanager.memory.heap.size": f"{settings.jobmanager_heap_mib}m",
    }


FRAMEWORK_HEAP_MIB = 128
FRAMEWORK_OFF_HEAP_MIB = 128
METASPACE_MIB = 256
OVERHEAD_MIB = 192
"""Flink's own defaults, MiB."""


def _scheduling(settings: ClusterSettings) -> Mapping[str, object]:
    options: dict[str, object] = {
        "jobmanager.scheduler": settings.scheduler,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": settings.restart_attempts,
        "restart-strategy.fixed-delay.delay": f"{round(settings.restart_delay_s * 1000)} ms",
        # A job whose TaskManager is gone is tried again this often instead of every 5 minutes.
        "slot.request.timeout": "30 s",
        "web.cancel.enable": True,
        # What REST says of a job is kept this long; a rescale is watched by it (Flink: 3 s).
        "web.refresh-interval": "500 ms",
    }
    if settings.scheduler == "default":
        return options | {"cluster.fine-grained-resource-management.enabled": True}
    # Flink waits 30 s and more between rescales, for clusters whose TaskManagers come and go.
    adaptive = "jobmanager.adaptive-scheduler"
    return options | {
        f"{adaptive}.submission.resource-wait-timeout": "120 s",
        f"{adaptive}.submission.resource-stabilization-timeout": "1 s",
        f"{adaptive}.executing.cooldown-after-rescaling": "1 s",
        f"{adaptive}.executing.resource-stabilization-timeout": "1 s",
    }


def _state(settings: ClusterSettings, home: Path) -> Mapping[str, object]:
    return {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.interval": f"{round(checkpoint_interval_s(settings) * 1000)} ms",
        "execution.checkpointing.incremental": True,
        "execution.checkpointing.dir": (home / "checkpoints").as_uri(),
        "execution.checkpointing.savepoint-dir": (home / "savepoints").as_uri(),
        # A saturated job may not finish a checkpoint in time; that is no reason to restart it.
        "execution.checkpointing.tolerable-failed-checkpoints": 1000,
        "io.tmp.dirs": home / "tmp",
        "web.tmpdir": home / "web",
        "web.upload.dir": home / "web",
    }


def _metrics(settings: ClusterSettings) -> Mapping[str, object]:
    rocksdb = "state.backend.rocksdb.metrics"
    return {
        "metrics.reporters": "prom",
        "metrics.reporter.prom.factory.class": (
            "org.apache.flink.metrics.prometheus.PrometheusReporterFactory"
        ),
        "metrics.fetcher.update-interval": f"{round(settings.metric_fetch_s * 1000)} ms",
        f"{rocksdb}.block-cache-hit": True,
        f"{rocksdb}.block-cache-miss": True,
        f"{rocksdb}.block-cache-usage": True,
        f"{rocksdb}.estimate-live-data-size": True,
        "state.latency-track.keyed-state-enabled": True,
        "state.latency-track.sample-interval": settings.state_latency_sample,
        "state.latency-track.history-size": 128,
    }


def log4j_properties() -> str:
    """Where a process writes its log: the file named by `-Ddsp-gym.log`, in five pieces of 20 MB.

    Not Flink's `log.file`: where that is set, RocksDB's logs move beside it, named by the whole
    path of the database, and with a long path of the cluster's folder no database opens at all.

    Returns:
        The text of a Log4j 2 properties file.
    """
    return """\
rootLogger.level = INFO
rootLogger.appenderRef.file.ref = File
appender.file.name = File
appender.file.type = RollingFile
appender.file.fileName = ${sys:dsp-gym.log}
appender.file.filePattern = ${sys:dsp-gym.log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd HH:mm:ss,SSS} %-5p %-60c %x - %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 20MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 5
"""
