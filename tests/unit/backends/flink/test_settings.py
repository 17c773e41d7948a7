from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from dsp_gym.backends.flink.local.distribution import FlinkLibraries, Java
from dsp_gym.backends.flink.local.launch import FlinkProcesses, Home, default_home, failure_in
from dsp_gym.backends.flink.local.settings import ClusterSettings, Ports, flink_config

PORTS = Ports(rest=8081, rpc=6123, prometheus=9090, jobmanager_reporter=1, taskmanager_reporter=2)
HOME = Path("/srv/a place")


def config(**settings: object) -> dict[str, object]:
    text = flink_config(ClusterSettings.model_validate(settings), PORTS, HOME)
    document: dict[str, object] = yaml.safe_load(text)
    return document


def test_everything_is_bound_to_loopback() -> None:
    options = config()
    bound = {key: value for key, value in options.items() if key.endswith(("host", "address"))}
    assert len(bound) == 6
    assert set(bound.values()) == {"127.0.0.1"}


def test_memory_of_the_taskmanager_stays_below_6_gb() -> None:
    sizes = [
        int(str(value).removesuffix("m"))
        for key, value in config().items()
        if key.startswith("taskmanager.memory") and not key.endswith(("min", "segment-size"))
    ]
    assert sum(sizes) == 128 + 1536 + 128 + 0 + 256 + 3072 + 256 + 192 < 6 * 1024


def test_the_default_scheduler_gives_memory_by_vertex_and_the_adaptive_rescales_soon() -> None:
    default, adaptive = config(), config(scheduler="adaptive")
    assert default["cluster.fine-grained-resource-management.enabled"] is True
    assert "cluster.fine-grained-resource-management.enabled" not in adaptive
    prefix = "jobmanager.adaptive-scheduler.executing"
    assert adaptive[f"{prefix}.cooldown-after-rescaling"] == "1 s"
    assert adaptive[f"{prefix}.resource-stabilization-timeout"] == "1 s"
    assert default["execution.checkpointing.interval"] == "30000 ms"
    assert adaptive["execution.checkpointing.interval"] == "10000 ms"
    own = config(scheduler="adaptive", checkpoint_interval_s=2.5)
    assert own["execution.checkpointing.interval"] == "2500 ms"


def test_a_home_with_a_blank_in_its_name_stays_one_path() -> None:
    options = config()
    assert options["execution.checkpointing.savepoint-dir"] == "file:///srv/a%20place/savepoints"
    assert options["io.tmp.dirs"] == "/srv/a place/tmp"


@pytest.mark.parametrize(
    "wrong",
    [
        {"rest_port": 70000},
        {"slots": 0},
        {"scheduler": "fast"},
        {"managed_mib": 1},
        {"unknown": 1},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ClusterSettings.model_validate(wrong)


def test_heap_and_direct_memory_of_the_jvm_follow_the_settings() -> None:
    flink = FlinkProcesses(
        Home(Path("/h")),
        FlinkLibraries(Path("/f"), "2.1.0"),
        Java(Path("/j"), "17"),
        ClusterSettings(task_heap_mib=1000, network_mib=100, jobmanager_heap_mib=400),
        PORTS,
    )
    taskmanager = flink.taskmanager("tm-1")
    assert {"-Xmx1128m", "-XX:MaxDirectMemorySize=228m"} < set(taskmanager)
    assert {"-Dtaskmanager.resource-id=tm-1", "-Dmetrics.reporter.prom.port=2"} < set(taskmanager)
    assert {"-Xmx400m", "-Dmetrics.reporter.prom.port=1"} < set(flink.jobmanager())


def test_the_default_home_follows_the_users_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_home() == Path("/state/dsp-gym/flink")
    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_home() == Path("/home/me/.local/state/dsp-gym/flink")


def test_the_last_cause_says_best_why_a_process_ended(tmp_path: Path) -> None:
    log, none = tmp_path / "log", tmp_path / "none"
    assert failure_in(none) == "it wrote nothing"
    log.write_text("starting\n\n")
    assert failure_in(none, log) == "starting"
    log.write_text("ERROR it broke\nstopping\n")
    assert failure_in(log) == "ERROR it broke"
    log.write_text("ERROR it broke\nCaused by: a\n\tat b\nCaused by: c\nstopping\n")
    assert failure_in(log) == "Caused by: c"
